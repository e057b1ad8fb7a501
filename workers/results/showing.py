"""`evalbus show`: what was asked, what was answered, and what came of it, run by run.

A pass rate says how many; who improves an agent wants to know which, and what it said. Answers come from the sealed
transcripts on the server; inputs and targets from the suite, where it is at hand. A run that is named is shown with all
that its transcript holds.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bus.cluster import ServerBus
from bus.errors import ArtifactMissing, InputError
from bus.nearest import nearest
from bus.port import BatchInfo, RunRow, RunState
from bus.types import BatchId, Digest, RunId
from workers.brief import brief
from workers.cases import Case, Json
from workers.events import said_in
from workers.explaining.reading import run_named
from workers.files import write_whole
from workers.inspecting.shown import explained, sample_shown
from workers.naming import batch_name
from workers.prefix import event_of
from workers.processes.held_loops import rows_with_held_loops
from workers.rescoring import origin_of
from workers.results.columns import columns_on, without_empty_end
from workers.results.fetching import existing
from workers.results.whole import Placed, Whole, rows_of, runs_of
from workers.suite import load_suite

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "AT_SOURCE",
    "Cases",
    "Shown",
    "cases_of",
    "check_only",
    "in_full",
    "show_batch",
    "show_run",
    "shown_of",
    "tell",
    "unpacked",
    "verdict_of",
]

_AT_ONCE: Final = 64
"""Runs whose transcripts are asked for together."""
_CELL: Final = 60
"""Characters of an answer, or of a target, in the table; one run's screen and the file have all of it."""
_ELSEWHERE: Final = "(in the artifact store of the workers)"
AT_SOURCE: Final = "(in the batch that was scored anew, which is not here)"
"""In place of an answer: what a batch under another judge has taken over was sealed in that one, and may go with it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One run: its verdict, what it answered, and what its case is, where the suite is at hand."""

    run: RunId
    verdict: str
    """The bin; of a hole its reason; of a run that has not ended its state."""
    answer: str | None
    """None where nothing was sealed."""
    value: str
    detail: str
    """What its solver or scorer said last."""
    case: Case | None
    events: Sequence[Mapping[str, Any]]
    judgement: str = ""
    """What a model that judged said, word for word; its grade is the value."""

    @property
    def said(self) -> str:
        """Its answer, or what was said last where it gave none."""
        return self.detail if self.answer is None else self.answer

    def told(self) -> dict[str, str]:
        """What it answered, what was wanted, what a model that judged said: each as text, empty where there is none."""
        target = "" if self.case is None else _text(self.case.target)
        return {"answer": self.answer or "", "target": target, "judgement": self.judgement}

    def as_json(self) -> dict[str, Json]:
        """A line of the file."""
        case = self.case
        known = {} if case is None else {"input": case.input, "target": case.target, "metadata": case.metadata}
        said = {"answer": self.answer, "value": self.value, "detail": self.detail}
        judged = {"judgement": self.judgement} if self.judgement else {}
        return {"run": self.run, "verdict": self.verdict, **known, **said, **judged}


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of the suite, and what has to be said of where they are from."""

    by_id: Mapping[str, Case]
    remark: str = ""

    def of(self, run: RunId) -> Case | None:
        """The case of a run; None where it is not known."""
        return self.by_id.get(run.rpartition("#")[0])

    def remark_on(self, found: Iterable[Shown]) -> str:
        """The remark, where it is about one of these: a sample of an Inspect task brings its case along."""
        return self.remark if self.by_id or any(one.case is None for one in found) else ""


async def show_batch(
    bus: ServerBus, batch: str, only: Sequence[str], suite: Path | None, output: Path | None, console: Console
) -> None:
    """A line a run, or all of it as JSON lines in `output`. `only`: bins and reasons of holes. Raises InputError."""
    whole = await existing(bus, batch_name(batch))
    cases = _cases(whole.info, suite)
    rows = await rows_of(bus, whole)
    check_only(only, {*whole.info.spec.bins, *(verdict_of(each.row) for each in rows)})
    wanted = [each for each in rows if not only or verdict_of(each.row) in only]
    found = [one async for one in _shown(bus, wanted, cases, judged=output is not None)]
    tell(found, batch, only, output, console, (verdict_of(each.row) for each in rows))
    if remark := cases.remark_on(found):
        console.print(remark, soft_wrap=True, markup=False)


def tell(
    found: Sequence[Shown],
    batch: str,
    only: Sequence[str],
    output: Path | None,
    console: Console,
    others: Iterable[str] = (),
) -> None:
    """The table of them, or the file.

    `batch`, `only`: what was asked for, where nothing was found; `others`: the verdicts of all runs, to say then.
    """
    if output is not None:
        write_whole(output, "".join(json.dumps(one.as_json(), ensure_ascii=False) + "\n" for one in found))
        console.print(f"{len(found):,} runs in {output}", soft_wrap=True, markup=False)
    elif found:
        for line in columns_on(console, _table(found)):
            console.print(line, soft_wrap=True, markup=False)
    else:
        console.print(f"no run of {batch} {'is ' + ' or '.join(only) if only else 'was begun'}", markup=False)
        if others := Counter(others):
            there = " · ".join(f"{word} {count}" for word, count in sorted(others.items()))
            console.print(f"there are: {there}", soft_wrap=True, markup=False)


async def show_run(bus: ServerBus, batch: str, run: str, suite: Path | None, console: Console) -> None:
    """One run with its transcript. Raises InputError for one that is not there, with the nearest names."""
    whole = await existing(bus, batch_name(batch))
    known = await runs_of(bus, whole)
    run = run_named(batch, run, known)
    part = known[run]
    cases = _cases(whole.info, suite)
    rows = [Placed(part, row) for row in await rows_with_held_loops(bus, part.spec.batch, [RunId(run)])]
    async for one in _shown(bus, rows, cases, judged=True):
        for line in in_full(batch, one):
            console.print(line, soft_wrap=True, markup=False)
        if remark := cases.remark_on([one]):
            console.print(remark, soft_wrap=True, markup=False)


async def shown_of(bus: ServerBus, whole: Whole, runs: Collection[str], suite: Path | None) -> dict[RunId, Shown]:
    """Some runs without their transcripts, and with their targets where the suite can be read.

    Raises InputError for a `suite` that cannot be.
    """
    try:
        cases = _cases(whole.info, suite)
    except InputError:
        if suite is not None:
            raise
        cases = Cases({})
    rows = []
    for part in whole.parts:
        at = await bus.of(part.spec.batch)
        names = [run for run in await at.run_ids(part.spec.batch) if run in runs]
        rows += [Placed(part, row) for row in await at.rows(part.spec.batch, names)]
    return {one.run: replace(one, events=()) async for one in _shown(bus, rows, cases, judged=True)}


def cases_of(place: Path, digest: Digest) -> Cases:
    """Those of a copy of the suite, which had that digest when the batch was made. Raises InputError."""
    loaded = load_suite(place, check_code=False)
    remark = "" if loaded.digest == digest else f"{loaded.source} has changed since the batch was made"
    return Cases({case.id: case for case in loaded.cases}, remark)


def _cases(info: BatchInfo, suite: Path | None) -> Cases:
    """A suite in Python is run when it is read: one that is merely named by a server is not."""
    place = suite
    if place is None:
        named = Path(info.spec.suite_path)
        if info.imported or not info.spec.suite_path or named.suffix != ".toml" or not named.is_file():
            return Cases({}, "inputs and targets are in the suite, which is not at hand: --suite DIR")
        place = named
    return cases_of(place, info.spec.suite_digest)


def check_only(only: Sequence[str], known: set[str]) -> None:
    """Raises InputError for a word that is the verdict of no run, nor one of the bins."""
    for word in only:
        if word not in known:
            near = nearest(word, sorted(known))
            remedy = f"did you mean {near}?" if near else f"there are {', '.join(sorted(known))}"
            raise InputError(f"--only: no run is {word!r}", remedy=remedy)


def verdict_of(row: RunRow) -> str:
    """Its bin; of a hole its reason; of a run that has not ended its state."""
    return row.hole if row.state is RunState.HOLE else row.bin if row.state is RunState.SCORED else row.state.value


async def _shown(bus: ServerBus, rows: Sequence[Placed], cases: Cases, *, judged: bool) -> AsyncIterator[Shown]:
    """`judged`: with what a model that judged said."""
    origins = {name: await _origin(bus, at) for name, at in {each.batch: each.at for each in rows}.items()}
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        for one in await asyncio.gather(*(_one(bus, each, origins[each.batch], cases, judged=judged) for each in some)):
            yield one


async def _origin(bus: ServerBus, at: BatchInfo) -> BatchId:
    """Where its runs were sealed; if that has gone, where they were taken over from."""
    try:
        return await origin_of(bus, at.spec)
    except InputError:
        return BatchId(at.spec.source)


async def _one(bus: ServerBus, placed: Placed, origin: BatchId, cases: Cases, *, judged: bool) -> Shown:
    row = placed.row
    events = [event_of(event.payload) for event in await bus.transcript(origin, row.run)]
    answer: str | None = None
    if events and events[-1].get("kind") == "answer":
        answer = events[-1].get("text")
        if answer is None:
            try:
                answer = (await bus.get_blob(origin, Digest(events[-1]["artifact"]))).decode()
            except ArtifactMissing:
                answer = _ELSEWHERE
    elif placed.at.spec.source and not events and row.state in (RunState.SEALED, RunState.SCORING, RunState.SCORED):
        answer = AT_SOURCE
    shown = unpacked(Shown(row.run, verdict_of(row), answer, row.value, row.detail, cases.of(row.run), events))
    return await _judgement(bus, placed.batch, shown) if judged else shown


async def _judgement(bus: ServerBus, part: BatchId, shown: Shown) -> Shown:
    """Where a model judged, with its grade and its words, which are kept beside the row; likewise Inspect's scorers."""
    try:
        kept = json.loads(shown.value)
        if "verdict" in kept:
            verdict = await bus.get_blob(part, Digest(kept["verdict"]))
            return replace(shown, value=_text(kept["value"]), judgement=explained(verdict))
        said = await bus.get_blob(part, Digest(kept["judgement"]))
        return replace(shown, value=kept["grade"], judgement=said.decode())
    except (ValueError, TypeError, KeyError, ArtifactMissing):
        return shown


def unpacked(shown: Shown) -> Shown:
    """The run of an Inspect task seals its whole sample: shown is what that says."""
    sample = sample_shown(shown.answer or "")
    if sample is None:
        return shown
    case = shown.case or Case(shown.run.rpartition("#")[0], sample.input, sample.target, sample.metadata)
    return replace(shown, case=case, answer=sample.answer, events=[*sample.said, *shown.events[-1:]])


def _table(found: Sequence[Shown]) -> list[list[str]]:
    rows = [[one.run, one.verdict, brief(one.said, _CELL) or "-", brief(one.told()["target"], _CELL)] for one in found]
    return without_empty_end(["run", "verdict", "answer", "target"], rows)


def in_full(batch: str, one: Shown) -> Iterator[str]:
    """The lines of one run's screen."""
    yield f"run        {one.run} of batch {batch}"
    if one.case is not None:
        yield from _block("input", one.case.prompt)
        yield from _block("target", _text(one.case.target))
    yield from _block("answer", "none was sealed" if one.answer is None else one.answer)
    yield from _block("verdict", one.verdict)
    if one.value:
        yield from _block("value", f"{one.value}: {one.judgement}" if one.judgement else one.value)
    if one.detail:
        yield from _block("said", one.detail)
    if one.events:
        yield f"transcript {len(one.events)} event{'s' if len(one.events) > 1 else ''}"
    for number, event in enumerate(one.events, start=1):
        for title, text in _told(event):
            yield from _block(f"  {number:<3} {title}", text, width=19)


def _told(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an event says, in one text or, of calls of tools, in one for each."""
    kind = str(event.get("kind"))
    if kind == "answer":
        yield kind, "as above"
    elif kind in ("model", "tools"):
        yield from ((kind, text) for text in said_in(event))
    else:
        rest = {name: value for name, value in event.items() if name not in ("kind", "step")}
        yield kind, _text(rest["text"] if set(rest) == {"text"} else rest)


def _block(title: str, text: str, width: int = 11) -> Iterator[str]:
    """A text under its title, as many lines as it has; nothing in it that a terminal would obey."""
    for number, line in enumerate(text.rstrip().splitlines() or [""]):
        shown = "".join(
            each if each.isprintable() else " " if each.isspace() else "\N{REPLACEMENT CHARACTER}"
            for each in line.expandtabs(4)
        )
        yield f"{title if number == 0 else '':<{width}}{shown}".rstrip()


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
