"""What a reader can do with the report: sort, search and leaf through its table, open a run, link to one.

Each in a real browser, on a page of 120 runs that were made up, and once on one of 10,000.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import browsing, needs_chromium, opened
from tests.reports import details, facts, texts, took, written
from workers.reporting.facts import RunFacts
from workers.reporting.web import words

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


async def picked(page: Page, **how: str | bool) -> list[str]:
    """The runs that are shown after the filters were set so."""
    await page.click("#clear")
    for name, value in how.items():
        field = page.locator(f"#{name}")
        if isinstance(value, bool):
            await field.set_checked(value)
        elif name == "state":
            await field.select_option(value)
        else:
            await field.fill(value)
    return await texts(page, 1)


# --- the table --------------------------------------------------------------------------------------------


async def test_each_column_sorts_both_ways_and_says_which(browser: Browser, closed: Path) -> None:
    """Figures begin with the largest; equals keep the order of admission."""
    runs = facts(120).runs
    by_name = sorted(runs, key=lambda run: (run.case, run.trial))
    wanted: dict[str, Sequence[RunFacts]] = {
        "Run": by_name,
        "Deliveries": sorted(runs, key=lambda run: -run.deliveries),
        "Took": sorted(runs, key=lambda run: -took(run)),
        "Tokens": sorted(runs, key=lambda run: -run.spent),
    }
    async with opened(browser, closed) as visit:
        page = visit.page
        for name, order in wanted.items():
            head = page.locator("#table").get_by_role("columnheader", name=name, exact=True)
            await head.get_by_role("button").click()
            falling = "ascending" if name == "Run" else "descending"
            await expect(head).to_have_attribute("aria-sort", falling)
            await expect(page.locator("#table th[aria-sort]")).to_have_count(1)
            assert await texts(page, 1) == [run.run for run in order[:50]]
        for _ in range(2):
            await page.get_by_role("columnheader", name="Took").get_by_role("button").click()
        assert await texts(page, 1) == [run.run for run in sorted(runs, key=took)[:50]]


async def test_what_has_no_value_stands_last_either_way(browser: Browser, tmp_path: Path) -> None:
    """A run that has not ended took neither the longest nor the shortest time."""
    whole = facts(40)
    runs = tuple(replace(run, ended_ms=run.ended_ms if number % 4 else None) for number, run in enumerate(whole.runs))
    file = written(tmp_path / "open.html", replace(whole, runs=runs))
    async with opened(browser, file) as visit:
        page = visit.page
        for _ in range(2):
            await page.get_by_role("columnheader", name="Took").get_by_role("button").click()
            column = await texts(page, 8)
            assert column[-10:] == [words.NOTHING] * 10
            assert words.NOTHING not in column[:-10]


async def test_the_table_is_searched_and_filtered_and_says_how_many_are_left(browser: Browser, closed: Path) -> None:
    """Each filter alone, two together, and none again."""
    runs = facts(120).runs
    async with opened(browser, closed) as visit:
        page = visit.page
        name = runs[77].run
        assert await picked(page, find=name.upper()) == [name]
        assert await picked(page, find="worker-3 graph") == [
            run.run for run in runs if run.worker == "worker-3" and run.case.startswith("graph")
        ]
        assert await picked(page, state="hole") == [run.run for run in runs if run.hole]
        assert await picked(page, state="fail") == [run.run for run in runs if run.bin == "fail"]
        again = [run.run for run in runs if run.deliveries > 1]
        assert await picked(page, redelivered=True) == again
        await expect(page.get_by_role("status")).to_have_text(f"{len(again)} of 120 runs")
        both = [run.run for run in runs if run.refusals and run.bin == "pass"]
        assert await picked(page, refused=True, state="pass") == both
        assert await picked(page, find="nothing like it") == []
        await expect(page.get_by_role("status")).to_have_text("0 of 120 runs")
        assert len(await picked(page)) == 50


async def test_the_table_has_pages_and_a_filter_begins_at_the_first(browser: Browser, closed: Path) -> None:
    """First, previous, next, last: at either end what leads nowhere can't be pressed."""
    runs = [run.run for run in facts(120).runs]
    async with opened(browser, closed) as visit:
        page = visit.page
        await expect(page.locator("#page")).to_have_text("Page 1 of 3")
        await expect(page.locator("#back")).to_be_disabled()
        await page.click("#next")
        assert await texts(page, 1) == runs[50:100]
        await page.click("#last")
        assert await texts(page, 1) == runs[100:]
        await expect(page.locator("#next")).to_be_disabled()
        await page.click("#back")
        await expect(page.locator("#page")).to_have_text("Page 2 of 3")
        await page.select_option("#state", "pass")
        await expect(page.locator("#page")).to_have_text("Page 1 of 2")
        await page.select_option("#state", "hole")
        await expect(page.locator("#pages")).to_be_hidden()


async def test_a_bar_leads_to_its_runs(browser: Browser, closed: Path) -> None:
    """The histogram asks the question, the table answers it."""
    poisoned = [run.run for run in facts(120).runs if run.hole == "poison"]
    async with opened(browser, closed) as visit:
        await visit.page.locator("#outcomes").get_by_role("link", name="poison").click()
        await expect(visit.page.get_by_role("status")).to_contain_text(f"{len(poisoned)} of 120 runs")
        assert await texts(visit.page, 1) == poisoned
        await expect(visit.page.locator("#table-title")).to_be_in_viewport()


# --- the drawer -------------------------------------------------------------------------------------------


async def test_a_run_opens_with_its_words_transcript_and_picture_and_escape_leads_back(
    browser: Browser, closed: Path
) -> None:
    """The keyboard is in the drawer while it is open, and where it was when it closes."""
    run = facts(120).runs[4]
    async with opened(browser, closed) as visit:
        page = visit.page
        link = page.locator("#table").get_by_role("link", name=run.run)
        await link.click()
        dialog = page.get_by_role("dialog", name=run.run)
        await expect(dialog.locator(".told")).to_contain_text("Nobody was refused." if not run.refusals else "refusal")
        await expect(dialog.locator(".answer")).to_have_text(f"the answer of {run.case}")
        await expect(dialog.locator(".event pre").first).to_contain_text(f"user: solve {run.case}")
        await expect(dialog.locator(".picture svg")).to_be_visible()
        await expect(page.locator("#drawer-title")).to_be_focused()
        assert page.url.endswith("#run=" + run.run.replace("#", "%23"))
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(link).to_be_focused()
        assert "run=" not in page.url


async def test_a_link_to_a_run_opens_it_and_the_browsers_back_closes_it(browser: Browser, closed: Path) -> None:
    """It may be on any page of the table, or in none."""
    run = facts(120).runs[119].run
    async with opened(browser, closed, "#run=" + run.replace("#", "%23")) as visit:
        await expect(visit.page.locator(".told")).to_be_visible()
        await expect(visit.page.locator("#drawer-title")).to_have_text(run)
    async with opened(browser, closed, "#run=no%20such") as visit:
        await expect(visit.page.locator("#drawer")).to_contain_text("This batch has no run of that name.")
    async with opened(browser, closed, "#run=%E0%A4%A") as visit:  # cut off in the middle of a letter
        await expect(visit.page.locator("#drawer-title")).to_have_text("No such run")
        await visit.page.click("#drawer-close")
        await visit.page.locator("#table tbody a").first.click()
        await expect(visit.page.locator("#drawer")).to_be_visible()
        await visit.page.go_back()
        await expect(visit.page.locator("#drawer")).to_be_hidden()


async def test_the_drawer_goes_on_in_the_order_of_the_table(browser: Browser, closed: Path) -> None:
    """Filtered and sorted as it is; at its end there is no next one."""
    poisoned = [run.run for run in facts(120).runs if run.hole]
    async with opened(browser, closed) as visit:
        page = visit.page
        await page.select_option("#state", "hole")
        await page.locator("#table tbody a").first.click()
        title = page.locator("#drawer-title")
        await expect(page.locator("#drawer-back")).to_be_disabled()
        for run in poisoned[1:]:
            await page.click("#drawer-next")
            await expect(title).to_have_text(run)
            await expect(page.locator(".told")).to_be_visible()
        await expect(page.locator("#drawer-next")).to_be_disabled()
        await page.click("#drawer-close")
        await expect(page.locator("#drawer")).to_be_hidden()


async def test_a_damaged_piece_is_told_and_the_page_goes_on(browser: Browser, tmp_path: Path) -> None:
    """A file that lost some bytes on its way: the rest of it is still of use."""
    text = written(tmp_path / "whole.html", facts(60)).read_text()
    file = tmp_path / "damaged.html"
    file.write_text(text.replace('id="chunk-0">H4sI', 'id="chunk-0">AAAA'))
    async with opened(browser, file) as visit:
        page = visit.page
        await page.locator("#table tbody a").first.click()
        await expect(page.locator("#drawer .failed")).to_contain_text("evalbus why")
        await page.keyboard.press("Escape")
        await page.click("#next")
        await page.locator("#table tbody a").first.click()
        await expect(page.locator("#drawer .told")).to_be_visible()


# --- ten thousand ---------------------------------------------------------------------------------------


async def test_ten_thousand_runs_are_a_page_like_any_other(browser: Browser, tmp_path: Path) -> None:
    """What is in the browser's tree stays small; sorting, searching and opening reach all of them."""
    whole = facts(10_000)
    sample = next(details(whole))
    file = written(tmp_path / "large.html", whole, (replace(sample, run=run.run) for run in whole.runs))
    async with opened(browser, file) as visit:
        page = visit.page
        await expect(page.get_by_role("status")).to_contain_text("10,000 runs, 1 to 50 shown")
        assert await page.evaluate("document.querySelectorAll('*').length") < 8_000
        await page.get_by_role("columnheader", name="Took").get_by_role("button").click()
        slowest = sorted(whole.runs, key=lambda run: -took(run))
        assert await texts(page, 1) == [run.run for run in slowest[:50]]
        await page.click("#last")
        await expect(page.locator("#page")).to_have_text("Page 200 of 200")
        last = whole.runs[-1].run
        await page.fill("#find", last)
        await page.locator("#table").get_by_role("link", name=last).click()
        await expect(page.locator("#drawer .told")).to_be_visible()
        await expect(page.locator("#drawer-title")).to_have_text(last)
