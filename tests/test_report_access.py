"""The report for everybody: by keyboard and by screen reader, in the dark, on a phone, on paper, without motion."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.browser import Visit, browsing, needs_chromium, opened
from tests.reports import facts, renamed, written
from workers.reporting.facts import RunFacts

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of this file; each page has its own profile."""
    async with browsing() as one:
        yield one


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a closed batch of 120 runs: three pages of its table."""
    return written(tmp_path_factory.mktemp("report") / "closed.html", facts(120))


# --- for everybody ----------------------------------------------------------------------------------------


async def test_everything_can_be_done_with_the_keyboard_alone(browser: Browser, closed: Path) -> None:
    """Skip to the result; sort; open a run; stay in its drawer; leave it."""
    async with opened(browser, closed) as visit:
        page, keys = visit.page, visit.page.keyboard
        await keys.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the result")).to_be_in_viewport()
        await keys.press("Enter")
        await expect(page.locator("#main")).to_be_focused()
        await page.locator("#find").focus()
        await keys.type("parser")
        await page.get_by_role("columnheader", name="Took").get_by_role("button").focus()
        await keys.press("Space")
        await expect(page.locator("#table th[aria-sort=descending]")).to_have_count(1)
        await page.locator("#table tbody a").nth(2).focus()
        await keys.press("Enter")
        await expect(page.locator("#drawer .told")).to_be_visible()
        for _ in range(12):
            await keys.press("Tab")
            inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
            assert await page.evaluate(inside)
        await keys.press("Escape")
        await expect(page.locator("#table tbody a").nth(2)).to_be_focused()
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"


async def test_whatever_can_be_pressed_or_read_has_a_name_and_a_role(browser: Browser, closed: Path) -> None:
    """Landmarks, one first heading, headings without a gap, labelled fields, a table that is one."""
    async with opened(browser, closed) as visit:
        page = visit.page
        for role in ("banner", "main", "contentinfo", "search"):
            await expect(page.get_by_role(role)).to_have_count(1)
        await expect(page.get_by_role("navigation", name="Sections")).to_have_count(1)
        await page.locator("#table tbody a").first.click()
        await expect(page.locator("#drawer .told")).to_be_visible()
        levels = [
            int(name[1]) for name in await page.locator("h1,h2,h3,h4").evaluate_all("all => all.map(e => e.tagName)")
        ]
        assert levels.count(1) == 1
        assert all(later - sooner <= 1 for sooner, later in itertools.pairwise(levels))
        nameless = await page.evaluate(
            """[...document.querySelectorAll('a,button,input,select,summary,[role=region],svg:not([aria-hidden])')]
            .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
                           || e.labels?.length)).map(e => e.outerHTML)"""
        )
        assert nameless == []
        ids = await page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
        assert len(ids) == len(set(ids))
        dangling = await page.evaluate(
            """[...document.querySelectorAll('[aria-labelledby]')].flatMap(e => e.getAttribute('aria-labelledby')
            .split(' ')).filter(id => !document.getElementById(id))"""
        )
        assert dangling == []
        await page.keyboard.press("Escape")
        snapshot = await page.locator("#runs").aria_snapshot()
    for line in (
        'heading "Runs" [level=2]',
        'searchbox "Search"',
        'combobox "Outcome"',
        'checkbox "refused"',
        'columnheader "Took"',
        "rowheader",
        'navigation "Pages of runs"',
    ):
        assert line in snapshot, line


CONTRAST = """() => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (color) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    return rgb('canvas');
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = [];
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (e.closest('script,style,svg,noscript,:disabled') || !e.checkVisibility()) continue;
    if (!walk.currentNode.data.trim()) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${e.className} ${walk.currentNode.data.trim().slice(0, 40)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_all_text_stands_out_from_what_is_behind_it(browser: Browser, closed: Path, dark: bool) -> None:
    """4.5 to 1, as WCAG asks for at level AA; with everything open that opens."""
    async with opened(browser, closed, dark=dark) as visit:
        await visit.page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert await visit.page.evaluate(CONTRAST) == []
        await visit.page.locator("#table tbody a").first.click()
        await expect(visit.page.locator("#drawer .told")).to_be_visible()
        assert await visit.page.evaluate(CONTRAST) == []


async def _paper(visit: Visit) -> int:
    color = await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", color)[:3])


async def test_it_is_dark_or_light_as_the_system_has_it_until_the_reader_says_otherwise(
    browser: Browser, closed: Path
) -> None:
    """The switch wins over the system, both ways, and `auto` gives it back; on paper it is light."""
    for dark in (False, True):
        async with opened(browser, closed, dark=dark) as visit:
            page = visit.page
            assert (await _paper(visit) < 200) is dark
            await page.get_by_role("radio", name="Light" if dark else "Dark").check(force=True)
            assert (await _paper(visit) < 200) is not dark
            await page.reload()
            assert (await _paper(visit) < 200) is not dark
            await page.get_by_role("radio", name="Auto").check(force=True)
            assert (await _paper(visit) < 200) is dark
            await page.emulate_media(media="print")
            await expect(page.locator("#filters")).to_be_hidden()
            await expect(page.locator("#theme")).to_be_hidden()
            color = await page.evaluate("getComputedStyle(document.querySelector('.big')).color")
            assert max(int(part) for part in re.findall(r"\d+", color)[:3]) < 100


async def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, tmp_path: Path) -> None:
    """Also with names of 400 letters, all that opens open, and a run in its drawer."""
    file = written(tmp_path / "long.html", renamed(facts(30), lambda text: text + "w" * 400))
    async with opened(browser, file, width=360, height=740) as visit:
        page = visit.page
        await page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        wide = "[document.documentElement.scrollWidth, document.body.scrollWidth]"
        assert await page.evaluate(wide) == [360, 336 + 24]
        await page.locator("#table tbody a").first.click()
        await expect(page.locator("#drawer .told")).to_be_visible()
        assert await page.evaluate("document.querySelector('#drawer').scrollWidth") <= 360
        assert await page.evaluate("document.querySelector('#drawer-body').scrollWidth") <= 360
        await expect(page.locator("#drawer-close")).to_be_in_viewport()


TABLE = "(document.querySelector('#table').scrollWidth - document.querySelector('#table').parentElement.clientWidth)"
"""By how much the table of runs is wider than its place, in CSS pixels."""


async def test_names_of_any_length_leave_the_table_its_place(browser: Browser, tmp_path: Path) -> None:
    """At a desk every column is seen without scrolling; on paper, where nothing scrolls, nothing runs off the sheet."""
    file = written(tmp_path / "long.html", renamed(facts(30), lambda text: text + "w" * 400))
    plain = written(tmp_path / "plain.html", replace(facts(30), runs=long_cases(facts(30).runs)))
    async with opened(browser, plain, width=1280) as visit:
        assert await visit.page.evaluate(TABLE) <= 0
    for each in (file, plain):
        async with opened(browser, each, width=718) as visit:  # A4, without its margins
            await visit.page.emulate_media(media="print")
            assert await visit.page.evaluate("document.documentElement.scrollWidth") == 718
            assert await visit.page.evaluate(TABLE) <= 0


def long_cases(runs: tuple[RunFacts, ...]) -> tuple[RunFacts, ...]:
    """The same, but that their cases' names are long."""
    return tuple(replace(run, run=f"{'w' * 180}{run.run}") for run in runs)


async def test_who_asks_for_less_motion_gets_none(browser: Browser, closed: Path) -> None:
    """Neither the drawer nor the scrolling moves."""
    for still in (True, False):
        async with opened(browser, closed, still=still) as visit:
            await visit.page.locator("#table tbody a").first.click()
            await expect(visit.page.locator("#drawer .told")).to_be_visible()
            moves = await visit.page.evaluate(
                "[getComputedStyle(document.querySelector('#drawer')).animationName, "
                "getComputedStyle(document.documentElement).scrollBehavior]"
            )
            assert moves == (["none", "auto"] if still else ["slide", "smooth"])
