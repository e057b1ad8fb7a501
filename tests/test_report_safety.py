"""Somebody else's text in the report: a case, a worker, a transcript. Whatever is in it becomes no part of the page."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from bus.chain import EMPTY_HEAD
from bus.port import NextRuns
from bus.target import Target
from bus.types import ConsumerId, RunId
from tests.batches import P1
from tests.batches import opened as batch_opened
from tests.browser import browsing, needs_chromium, opened
from tests.reports import details, facts, renamed, written
from workers.reporting.command import write_report
from workers.reporting.facts import Facts, RunDetail
from workers.reporting.gather import fetched
from workers.reporting.web import assets

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

EVIL = [
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "<!--<script>",
    "{{ 7*7 }}{% include 'x' %}",
    "a\u202egnp\x00\x1b[31m",
    "half \ud800 pair",
    "javascript:alert(1)//' onmouseover='alert(1)",
    "w" * 400,
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of this file; each page has its own profile."""
    async with browsing() as one:
        yield one


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a closed batch of 120 runs: three pages of its table."""
    return written(tmp_path_factory.mktemp("report") / "closed.html", facts(120))


# --- somebody else's text ---------------------------------------------------------------------------------


async def _elements(locator: Locator) -> int:
    return int(await locator.evaluate("e => e.querySelectorAll('*').length"))


@pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
async def test_nobodys_text_becomes_a_part_of_the_page(browser: Browser, tmp_path: Path, evil: str) -> None:
    """As a case, a worker, a value, an envelope, a rule, a proof, a transcript, words: the page has no element more."""

    def told(whole: Facts) -> Iterator[RunDetail]:
        for detail in details(whole):
            events = tuple(replace(event, text=evil, kind=evil) for event in detail.events)
            yield replace(detail, words=(*detail.words, evil, f"  {evil}"), events=events)

    plain = facts(12)
    bad = renamed(plain, lambda text: text + evil)
    pages = [
        written(tmp_path / "plain.html", plain),
        written(tmp_path / "evil.html", bad, told(bad)),
    ]
    found = []
    for file in pages:
        async with opened(browser, file) as visit:
            page = visit.page
            await page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            sizes = [await _elements(page.locator("html"))]
            await page.locator("#table tbody a").first.click()
            await expect(page.locator("#drawer .told")).to_be_visible()
            sizes.append(await _elements(page.locator("#drawer .picture")))
            sizes.append(await _elements(page.locator("#drawer .event").first))
            found.append(sizes)
            assert await page.title() == "nightly · evalbus report"
            shown = await page.evaluate("document.body.innerText")
            assert re.search("[\u202e\x1b\x00\ud800]", shown) is None
    assert found[0] == found[1]


async def test_a_real_batch_of_ill_will_is_a_page_like_any_other(
    browser: Browser, server: Target, tmp_path: Path
) -> None:
    """Through the server, the history and its replay: a case, a worker, an event, an answer, what an error says."""
    evil = EVIL[0]
    run, worker = RunId(f"{evil}#1"), ConsumerId(evil)
    async with batch_opened(server.address(), runs=2) as batch:
        await batch.bus.admit(batch.name, NextRuns(0, [run, RunId("plain#1")], (), P1, "candidate", "judge"))
        held = await batch.claimed(worker)
        appended = await batch.bus.append(held.ref, EMPTY_HEAD, 1, [json.dumps({"kind": evil, "text": evil})])
        assert (await batch.bus.seal(held.ref, appended.answer["head"], 2, evil, "", "")).applied
        scoring = await batch.scoring()
        assert (await batch.bus.score(scoring.ref, replace(scoring.judgement, value="1"))).applied
        assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, [evil])).refused
        assert (await batch.bus.hole((await batch.claimed(worker)).ref, "solver_error", evil)).applied
        await batch.closed()
        history = await fetched(batch.bus, batch.name, tmp_path)
        write_report(history, tmp_path / "page.html")
    async with opened(browser, tmp_path / "page.html") as visit:
        page = visit.page
        await page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        await expect(page.locator(".said")).to_have_text(evil)
        await page.locator("#table").get_by_role("link", name=run).click()
        await expect(page.locator("#drawer-title")).to_have_text(run)
        await expect(page.locator("#drawer .event pre").first).to_have_text(evil)
        await expect(page.locator("#drawer .told")).to_contain_text(evil)
        await expect(page.locator("#drawer .picture")).to_contain_text("</script>")
        assert await page.title() == "b · evalbus report"
        assert await page.locator("script").count() == 3  # the data, the script, and one packed piece


async def test_a_script_that_got_in_all_the_same_would_not_run(browser: Browser, closed: Path) -> None:
    """The page's policy names its own script by its hash: the second line of defence, tried by itself."""
    policy = assets.policy()
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    async with opened(browser, closed) as visit:
        page = visit.page
        await page.evaluate(
            """() => { const s = document.createElement('script'); s.textContent = "document.title = 'taken'";
            document.body.append(s); document.body.insertAdjacentHTML('beforeend',
            '<p id=p style="color:red">x</p>'); }"""
        )
        assert await page.title() == "nightly · evalbus report"
        assert await page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
        sent = await page.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'refused')")
        assert sent == "refused"
        assert sum("Content Security Policy" in told for told in visit.problems) >= 3
        visit.problems.clear()  # they were what was asked for
