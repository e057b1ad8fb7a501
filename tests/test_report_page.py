"""The report in a real browser: what it says of a batch, with a script and without, and how the command makes it.

Most pages are made of facts that were made up, so that each figure is known; the last tests make one of a real batch.
Whatever is done, `opened` looks at the end whether the console stayed silent and nothing was fetched.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from typer.testing import CliRunner

from bus.target import Target
from tests.batches import opened as batch_opened
from tests.browser import browsing, needs_chromium, opened
from tests.histories import whole_history
from tests.limits import FIRST_BUDGET
from tests.reports import facts, in_progress, inconclusive, texts, written
from workers.cli import app
from workers.reporting.command import page_of
from workers.results.outcome import trials_told

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


# --- what it says -----------------------------------------------------------------------------------------


async def test_the_number_stands_with_its_denominator_its_doubts_and_the_gate(browser: Browser, closed: Path) -> None:
    """The same digits as on the command line."""
    outcome = facts(120).outcome
    assert outcome.interval is not None
    async with opened(browser, closed) as visit:
        text = await visit.page.locator("#result").inner_text()
    assert f"{outcome.pass_rate:.4f}"[2:4] + "." + f"{outcome.pass_rate:.4f}"[4:] + "%" in text
    assert f"{outcome.passed} of {outcome.accepted} scored runs passed; 4 of 120 runs are holes" in text
    assert f"{outcome.interval.low:.2%} to {outcome.interval.high:.2%}" in text
    assert "passed" in text
    assert "pass_rate >= 0.75 and holes <= 12" in text
    assert str(outcome.snapshot_id) in text
    assert trials_told(outcome), "three trials of a case hang together"
    for label, figures, _ in trials_told(outcome):
        assert label.capitalize() in text
        assert figures in text


async def test_holes_are_bars_of_their_own_and_all_bars_make_all_runs(browser: Browser, closed: Path) -> None:
    """Nothing that is missing is hidden in a share of the rest."""
    outcome = facts(120).outcome
    async with opened(browser, closed) as visit:
        rows = visit.page.locator("#outcomes tbody tr")
        counts = [int(text) for text in await rows.locator("td.num:not(.quiet)").all_inner_texts()]
        labels = [text.split("\n")[0] for text in await rows.locator("th").all_inner_texts()]
        widths = [
            await rect.evaluate("e => e.getBoundingClientRect().width / e.ownerSVGElement.clientWidth")
            for rect in await visit.page.locator("#outcomes svg.row rect[class^=fill]").all()
        ]
    assert dict(zip(labels, counts, strict=True)) == {
        **outcome.bins,
        **{f"hole: {why}": count for why, count in outcome.holes.items()},
    }
    assert sum(counts) == 120
    assert widths == pytest.approx([count / 120 for count in counts], abs=0.01)


async def test_an_open_batch_has_progress_and_no_pass_rate(browser: Browser, tmp_path: Path) -> None:
    """Neither the number nor a share that somebody could take for it."""
    file = written(tmp_path / "open.html", in_progress(80))
    async with opened(browser, file) as visit:
        result = await visit.page.locator("#result").inner_text()
        assert "60 of 80 runs have ended" in result
        assert "undecided" in result
        outcomes = await visit.page.locator("#outcomes").inner_text()
    assert "%" not in result + outcomes
    assert "Outcomes so far" in outcomes
    assert "scored" in outcomes
    assert not {"pass", "fail"} & set(outcomes.split())


async def test_a_batch_below_its_quorum_says_so_and_shows_no_number(browser: Browser, tmp_path: Path) -> None:
    """It has ended, and still is no result."""
    file = written(tmp_path / "inconclusive.html", inconclusive(80))
    async with opened(browser, file) as visit:
        text = await visit.page.locator("#result").inner_text()
    assert "none\n\nThe batch ended below its quorum: 77 of 80 runs were scored, 80 were needed." in text
    assert "%" not in text


async def test_without_its_script_the_page_still_reads(browser: Browser, closed: Path) -> None:
    """Numbers, charts, refusals and the first rows are there; what would do nothing is not."""
    async with opened(browser, closed, scripts=False) as visit:
        page = visit.page
        await expect(page.locator("#result .big")).to_be_visible()
        await expect(page.locator("#time .strip svg path").first).to_be_visible()
        assert len(await texts(page, 1)) == 50
        for control in ("#filters", "#pages", "#theme", "dialog", "#readout"):
            await expect(page.locator(control)).to_be_hidden()
        await expect(page.locator("#table thead button")).to_have_count(0)
        await page.locator("#refusals summary").first.click()
        await expect(page.locator("#refusals .sample").first).to_be_visible()


async def test_the_script_writes_the_rows_as_the_page_was_written(browser: Browser, tmp_path: Path) -> None:
    """Figures at every edge of their writing: two programs that format alike can come to differ."""
    edges = [None, 0, 999, 1_000, 1_999, 59_999, 60_000, 3_599_999, 3_600_000, 86_399_999, 9_000_000_000]
    whole = facts(40)
    runs = tuple(
        replace(run, admitted_ms=edges[number % len(edges)], ended_ms=None if number % 3 else 10**10, spent=10**number)
        for number, run in enumerate(whole.runs[:14])
    )
    file = written(tmp_path / "edges.html", replace(whole, runs=runs))
    tables = []
    for scripts in (False, True):
        async with opened(browser, file, scripts=scripts) as visit:
            tables.append(await visit.page.locator("#table tbody").inner_html())
    assert re.sub(r"\s+", " ", tables[0]).replace("> <", "><").strip() == tables[1]


async def test_what_was_prevented_stands_with_its_proofs_and_the_closed_rate(browser: Browser, closed: Path) -> None:
    """A claim that is not 0 opens to its entries, and each leads to its run."""
    async with opened(browser, closed) as visit:
        page = visit.page
        claim = page.locator("#prevented summary", has_text="verdicts flipped")
        await claim.click()
        await expect(page.locator(".proofs li").first).to_contain_text("scored pass, refused as fail")
        told = await page.locator("#prevented figcaption").inner_text()
        assert f"Closed: {facts(120).outcome.pass_rate:.2%}" in told
        await page.locator(".proofs a").first.click()
        await expect(page.locator("#drawer-title")).to_have_text(facts(120).runs[0].run)


async def test_a_refusal_opens_to_what_was_presented(browser: Browser, closed: Path) -> None:
    """The raw envelope, and how many more there were."""
    async with opened(browser, closed) as visit:
        group = visit.page.locator("#refusals .group").first
        await group.locator("summary").first.click()
        await expect(group).to_contain_text("and 11 more")
        await group.locator(".sample summary").first.click()
        raw = json.loads(await group.locator("pre").first.inner_text())
    assert raw["envelope"]["batch"] == "nightly"
    assert raw["args"] == {"events": 1, "receipts": 0}


async def test_the_timeline_can_be_read_by_pointer_and_as_a_table(browser: Browser, closed: Path) -> None:
    """Both say the same of one interval."""
    async with opened(browser, closed) as visit:
        page = visit.page
        await expect(page.locator("#readout")).to_contain_text("Point at the strips")
        strip = page.locator("#time .strip svg").nth(1)
        await strip.scroll_into_view_if_needed()
        box = await strip.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 2, box["y"] + 5)
        row = page.locator("#buckets tbody tr").first
        cells = await row.locator("td").all_text_contents()
        await expect(page.locator("#readout")).to_contain_text(
            f"{cells[0]} to {cells[1]}: running at its end {cells[2]}"
        )
        await page.mouse.move(2, 2)
        await expect(page.locator("#readout")).to_contain_text("Point at the strips")


# --- the command ------------------------------------------------------------------------------------------


async def _invoke(*arguments: str) -> Any:  # noqa: ANN401 - click's own class has no stable name
    return await asyncio.to_thread(CliRunner().invoke, app, ["report", *arguments])


async def test_a_real_batch_becomes_a_page_from_its_server_as_from_its_file(
    browser: Browser, server: Target, tmp_path: Path
) -> None:
    """Every fence, deaths and late messages: the page tells of each run what `why` tells."""
    async with batch_opened(server.address(), limits=FIRST_BUDGET, reclaim_ms=1_000) as batch:
        lines = await whole_history(batch)
        (tmp_path / "b.jsonl").write_bytes(b"".join(lines))
        shown: list[list[str]] = []
        for source, options in ((str(tmp_path / "b.jsonl"), ()), (batch.name, ("--url", server.url))):
            output = tmp_path / f"{len(shown)}.html"
            done = await _invoke(source, "-o", str(output), *options)
            assert (done.exit_code, done.stdout) == (0, ""), done.stderr
            assert done.stderr == f"wrote {output}: 3 runs of batch {batch.name}, closed\n"
            async with opened(browser, output) as visit:
                page = visit.page
                result = await page.locator("#result").inner_text()
                assert "2 of 2 scored runs passed; 1 of 3 runs is a hole" in result
                assert "stale_gen" in await page.locator("#refusals").inner_text()
                table = await page.locator("#table tbody").inner_text()
                assert "hole: solver_error" in table
                for link in await page.locator("#table tbody a").all():
                    await link.click()
                    await expect(page.locator("#drawer .told")).to_contain_text("was closed over ")
                    await expect(page.locator("#drawer .picture svg")).to_be_visible()
                    await page.keyboard.press("Escape")
                shown.append([result, table])
        assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("source", "page"),
    [("n", "n.html"), ("old/nightly.jsonl.zst", "nightly.html"), ("v1.2.jsonl", "v1.2.html"), ("-", "report.html")],
)
async def test_a_page_that_nobody_named_is_called_as_its_batch(source: str, page: str) -> None:
    """In the directory where one is, whatever the history's was."""
    assert page_of(source) == Path(page)


async def test_a_report_that_cannot_be_made_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    """One line: no place for it, no such file, no history."""
    output = tmp_path / "page.html"
    (tmp_path / "no.jsonl").write_text("{}\n")
    for source, target, said in (
        ("no.jsonl", tmp_path / "nowhere" / "page.html", "its directory does not exist"),
        ("missing.jsonl", output, "missing.jsonl"),
        ("no.jsonl", output, "no.jsonl"),
    ):
        done = await _invoke(str(tmp_path / source), "-o", str(target))
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["no.jsonl"]
