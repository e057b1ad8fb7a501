"""The facts of a report: every figure follows from the history, and is the one that the server has.

Histories are made on a real server. What is expected of the eventful one is worked out by hand; what must hold of every
history is compared with the batch's rows and counters after whole sessions of mishaps.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import sys
import tracemalloc
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.export import lines
from bus.export_format import Line
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.policies import NAMES
from bus.port import Chunk, Group, NextRuns
from bus.port import Held as Alive
from bus.redis_bus import RedisBus
from bus.replay.telling import DiffersError
from bus.target import Target
from bus.types import Gen, Plane
from bus.wire import Wire
from tests.batches import P1, S2, W1, W2, Batch, FixedDoor, opened
from tests.explained import eventful, line
from tests.histories import edited, exported, found, whole_history
from tests.limits import FIRST_BUDGET
from tests.model_calls import at, opened_call
from tests.sessions import CALLS_AND_TOOLS, LIFE, STEPS, Session, whole_spec
from tests.soak import times
from tests.twins import ClockedTokens, CountedTokens, MemorySide, ServerSide, Twins
from workers.explaining import svg
from workers.explaining.entries import Picker
from workers.explaining.reading import read_file
from workers.explaining.why import explained
from workers.reporting.command import write_report
from workers.reporting.details import events_of
from workers.reporting.facts import MOST_BUCKETS, MOST_SAMPLES, Facts, RunFacts
from workers.reporting.gather import fetched, gathered
from workers.reporting.index import Index, line_of
from workers.reporting.lives import Lives
from workers.reporting.tally import Tally
from workers.reporting.timeline import Happened, Timeline
from workers.results.fetching import fetch_outcome

SESSIONS = times(6)


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, all fences declared."""
    async with opened(server.address(), limits=FIRST_BUDGET, reclaim_ms=1_000) as one:
        yield one


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    """Where a test writes a history."""
    return tmp_path / "nightly.jsonl"


async def written(batch: Batch, file: Path) -> Path:
    """The batch's history in a file, as `evalbus export` writes it."""
    content = b"".join(await exported(batch))
    await asyncio.to_thread(file.write_bytes, content)
    return file


async def facts_of(batch: Batch, file: Path) -> Facts:
    """The report of the batch as it stands."""
    await written(batch, file)
    with gathered(file) as report:
        return report.facts


def by_name(facts: Facts) -> dict[str, RunFacts]:
    """Its runs."""
    return {run.run: run for run in facts.runs}


def total(facts: Facts, what: str) -> int:
    """A figure of the timeline, over all of it."""
    return sum(getattr(bucket, what) for bucket in facts.timeline)


async def closed(batch: Batch) -> None:
    """One run of three passes, one fails, one is a hole; then the batch closes."""
    await batch.admit()
    await batch.scored()
    await batch.sealed()
    scoring = await batch.scoring(S2)
    assert (await batch.bus.score(scoring.ref, replace(scoring.judgement, bin="fail", value="0.25"))).applied
    held = await batch.claimed(W2)
    assert (await batch.bus.hole(held.ref, "solver_error", "boom: no such file")).applied
    await batch.closed()


# --- the number -------------------------------------------------------------------------------------------


async def test_a_closed_batch_has_the_outcome_that_the_server_has(batch: Batch, tmp_path: Path) -> None:
    """Fetched from the server: also what its holes say, which no export holds."""
    await closed(batch)
    with gathered(await fetched(batch.bus, batch.name, tmp_path)) as report:
        facts = report.facts
    assert facts.outcome == await fetch_outcome(batch.bus, batch.name)
    assert facts.outcome.pass_rate == 0.5
    assert facts.outcome.hole_details == {"c2#1": "boom: no such file"}
    assert facts.source == "batch b"
    assert facts.tokens.estimated == 0
    assert facts.ended_unix_ms is not None
    assert facts.ended_unix_ms - facts.began_unix_ms >= max(run.ended_ms or 0 for run in facts.runs)


async def test_the_same_outcome_follows_from_the_file_alone(batch: Batch, lines_file: Path) -> None:
    """But for what only the server knows, which is left out and not made up."""
    await closed(batch)
    facts = await facts_of(batch, lines_file)
    assert facts.outcome == replace(await fetch_outcome(batch.bus, batch.name), hole_details={})
    assert facts.tokens.estimated is None
    assert (facts.source, facts.head) == (str(lines_file), json.loads(lines_file.read_bytes().splitlines()[-1])["head"])


async def test_an_open_batch_has_progress_and_no_pass_rate(batch: Batch, lines_file: Path) -> None:
    """Whatever has passed so far: a share of what happens to be finished is no result."""
    await batch.admit()
    await batch.scored()
    await batch.end((await batch.claimed()).ref.run)
    facts = await facts_of(batch, lines_file)
    outcome = facts.outcome
    assert outcome == await fetch_outcome(batch.bus, batch.name)
    assert (outcome.state, outcome.accepted, outcome.pass_rate, outcome.interval) == ("open", 1, None, None)
    assert (facts.ended_unix_ms, outcome.snapshot_id, outcome.runs, outcome.hole_runs) == (None, None, {}, {})
    assert [run.state for run in facts.runs] == ["pass", "hole", "queued"]


async def test_a_batch_below_its_quorum_has_ended_without_a_number(server: Target, lines_file: Path) -> None:
    """It has a set of rows, and no snapshot that anybody may quote."""
    async with opened(server.address(), runs=2, quorum=2) as batch:
        await batch.admit()
        await batch.scored()
        await batch.end((await batch.claimed()).ref.run)
        assert (await batch.bus.close(batch.name, "x", 1)).reason == "below_quorum"
        facts = await facts_of(batch, lines_file)
        assert facts.outcome == replace(await fetch_outcome(batch.bus, batch.name), hole_details={})
        assert (facts.outcome.state, facts.outcome.snapshot_id, facts.outcome.pass_rate) == ("inconclusive", None, None)
        assert facts.ended_unix_ms is not None


async def test_what_the_fences_prevented_is_told_when_it_is_asked_for(batch: Batch, lines_file: Path) -> None:
    """By the same reading. Of an open batch without rates: there is none to compare them with."""
    await batch.admit()
    await batch.scored()
    await written(batch, lines_file)
    with gathered(lines_file) as report:
        assert [one.policy for one in report.facts.prevented] == list(NAMES)
        assert not any(one.rate for one in report.facts.prevented)
    for _ in range(2):
        await batch.end((await batch.claimed()).ref.run)
    await batch.closed()
    await written(batch, lines_file)
    with gathered(lines_file, ["mutable-mean"]) as report:
        (mean,) = report.facts.prevented
        assert (mean.policy, [(point.passed, point.counted) for point in mean.rate]) == ("mutable-mean", [(1, 1)])
    with gathered(lines_file, ()) as report:
        assert report.facts.prevented == ()


@pytest.mark.parametrize("way", ["itself", "a link to it"])
def test_the_page_never_takes_the_place_of_its_history(tmp_path: Path, way: str) -> None:
    """`report b.jsonl -o b.jsonl`: after a prune that file is the only copy of the proof."""
    history = tmp_path / "b.jsonl"
    history.write_text("the proof")
    page = history if way == "itself" else tmp_path / "page.html"
    if page != history:
        page.symlink_to(history)
    with pytest.raises(InputError, match="is the history that this would be made from"):
        write_report(str(history), page)
    assert history.read_text() == "the proof"


async def test_a_history_that_was_not_decided_so_gets_no_report(batch: Batch, tmp_path: Path) -> None:
    """An edited line, and a file that was cut off: the first is untrue (exit 5), the second not all of one (exit 2)."""
    told = await whole_history(batch)
    forged, cut = tmp_path / "forged.jsonl", tmp_path / "cut.jsonl"
    forged.write_bytes(b"".join(edited(told, found(told, "histogram", "score"), lambda said: said.update(reason="x"))))
    cut.write_bytes(b"".join(told[:-1]))
    with pytest.raises(DiffersError, match="the chain breaks here"), gathered(forged):
        pass
    with pytest.raises(InputError, match="is truncated"), gathered(cut):
        pass


# --- the runs ---------------------------------------------------------------------------------------------


async def test_an_eventful_batch_is_told_as_it_happened(batch: Batch, lines_file: Path) -> None:
    """Worked out by hand: `c0#1` is poison after four leases, `c1#1` is scored by the second scorer, `c2#1` raises."""
    await batch.admit()
    await eventful(batch)
    facts = await facts_of(batch, lines_file)
    runs = by_name(facts)
    assert list(runs) == ["c0#1", "c1#1", "c2#1"]
    poison, scored, raised = runs.values()
    assert (poison.state, poison.hole, poison.bin) == ("hole", "poison", None)
    assert (poison.deliveries, poison.refusals, poison.worker, poison.sealed_ms) == (4, 3, "w2", None)
    assert (poison.spent, poison.durable) == (60, 60)
    assert (scored.state, scored.bin, scored.value, scored.hole) == ("pass", "pass", "1", None)
    assert (scored.deliveries, scored.refusals, scored.worker, scored.scorer) == (1, 1, "w1", "s2")
    assert (raised.state, raised.hole, raised.deliveries, raised.refusals) == ("hole", "solver_error", 1, 0)
    for run in runs.values():
        marks = [ms for ms in (run.admitted_ms, run.leased_ms, run.sealed_ms, run.ended_ms) if ms is not None]
        assert marks == sorted(marks)
        assert run.case + "#1" == run.run
        assert run.trial == 1
    assert [total(facts, what) for what in ("admitted", "leased", "sealed", "ended")] == [3, 6, 1, 3]
    # From the first worker, from the third, and from the fourth, whose run was delivered as often as it may be.
    assert total(facts, "preempted") == 3
    assert total(facts, "refused") == 4
    assert facts.timeline[-1].running == 0
    assert [(group.op, group.reason, group.count, [one.who for one in group.samples]) for group in facts.refusals] == [
        ("bind", "stale_lease", 1, ["w1"]),
        ("claim", "ended", 1, ["w2"]),
        ("score", "stale_lease", 1, ["s1"]),
        ("append", "stale_gen", 1, ["w1"]),
    ]
    late = facts.refusals[-1].samples[0]
    assert (late.run, late.envelope["lease_id"], late.args["payload"]) == ("c0#1", "L1", "late")


async def test_a_run_under_review_waits_as_sealed_until_it_is_bound_anew(server: Target, lines_file: Path) -> None:
    """Its verdict was given by another judge: it does not count, and nobody scores it meanwhile."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        await batch.admit()
        await batch.sealed()
        scoring = await batch.scoring()
        await batch.bus.score(scoring.ref, replace(scoring.judgement, judge="another"))
        (run,) = (await facts_of(batch, lines_file)).runs
        assert (run.state, run.bin, run.scorer) == ("sealed", None, "s1")
        await batch.bus.rebind(batch.name, scoring.ref.run, 1, "candidate", "another")
        await batch.scoring(S2)
        (run,) = (await facts_of(batch, lines_file)).runs
        assert (run.state, run.scorer) == ("scoring", "s2")


async def test_a_lease_that_was_handed_back_or_made_void_is_not_preempted(batch: Batch, lines_file: Path) -> None:
    """Nobody took it from anybody: one worker gave the run back, and of another the server forgot the lease."""
    await batch.admit()
    held = await batch.claimed()
    await batch.bus.give_back(held.ref)
    assert by_name(await facts_of(batch, lines_file))["c0#1"].state == "queued"
    held = await batch.claimed()
    await batch.wire.call("HSET", batch.keys.batch_row, "server", "an earlier life")
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["x"])
    facts = await facts_of(batch, lines_file)
    assert facts.timeline[-1].running == 0
    again = await batch.claimed(W2, await batch.taken(held.entry, W2))
    facts = await facts_of(batch, lines_file)
    assert (total(facts, "preempted"), total(facts, "leased"), facts.timeline[-1].running) == (0, 3, 1)
    await batch.claimed(W1, await batch.taken(again.entry, W1))
    facts = await facts_of(batch, lines_file)
    assert (total(facts, "preempted"), total(facts, "leased"), facts.timeline[-1].running) == (1, 4, 1)


async def test_tokens_of_runs_add_up_also_when_they_come_late(batch: Batch) -> None:
    """A call is given up after its first chunk, its rest comes late, and at last the endpoint bills more than both."""
    await at(batch, 1_000)
    await batch.admit()
    held = await batch.claimed()
    call, _ = await opened_call(batch, held)
    await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
    assert (await batch.bus.drop_call(held.ref, call, cancelled=False)).applied
    await batch.bus.flush(held.ref, call, [Chunk(2, 30, durable=False)])
    assert [(run.spent, run.durable) for run in (await lives_of(batch)).runs()] == [(40, 10), (0, 0), (0, 0)]
    await at(batch, 10_000)
    assert (await batch.bus.sweep(batch.name, 50, "model", {call.desk_lease: 55})).answer == {"freed": 1}
    assert [(run.spent, run.durable) for run in (await lives_of(batch)).runs()] == [(55, 10), (0, 0), (0, 0)]
    assert (await batch.bus.counters(batch.name)).spent == 55


async def test_runs_taken_over_from_another_batch_begin_sealed_or_as_its_holes(
    server: Target, lines_file: Path
) -> None:
    """`rescore`: nothing was solved here, so nothing was leased, and the transcript is elsewhere."""
    async with opened_twice(server) as (first, second):
        await first.admit()
        await first.scored()
        await first.end((await first.claimed()).ref.run)
        await first.closed()
        adopted = await second.bus.adopt(
            second.name, first.name, NextRuns(0, first.runs, [], P1, "candidate", "strict")
        )
        assert adopted.applied
        await second.scoring()
        await written(second, lines_file)
        with gathered(lines_file) as report:
            facts, (scoring, _) = report.facts, report.details()
        sealed, hole = facts.runs
        assert (sealed.state, sealed.deliveries, sealed.leased_ms, sealed.worker) == ("scoring", 0, None, "")
        assert sealed.sealed_ms == sealed.admitted_ms is not None
        assert (hole.state, hole.hole, hole.admitted_ms) == ("hole", "operator", None)
        assert [total(facts, what) for what in ("admitted", "leased", "sealed", "ended")] == [1, 0, 1, 1]
        assert scoring.events == ()


@contextlib.asynccontextmanager
async def opened_twice(server: Target) -> AsyncIterator[tuple[Batch, Batch]]:
    """A batch of two runs, and one that is to score what it sealed."""
    first = await Batch.open(server.address(), runs=2, name="first")
    second = await Batch.open(server.address(), runs=2, name="second", source="first")
    try:
        yield first, second
    finally:
        await second.aclose()
        await first.aclose()


async def lives_of(batch: Batch) -> Lives:
    """The lives of the batch's runs, of a history whose clock a test has set: replay would not believe that."""
    lives = Lives()
    async for one in lines(batch.bus.link, batch.keys):
        lives.take(one)
    lives.finish()
    return lives


async def test_after_whatever_was_asked_the_runs_are_what_their_rows_say(server: Target) -> None:
    """Seeded sessions: messages that come twice, too late, from the wrong consumer; deaths, undos, full desks."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    weights = {**LIFE, **CALLS_AND_TOOLS, "expire": 0}  # it is not recorded
    clock, wire = ClockedTokens(), await Wire.open(server.address())
    world, seen = MemoryWorld(clock), Counter[str]()
    for seed in range(SESSIONS):
        rng = random.Random(seed)
        spec = whole_spec(seed, rng, Plane.LIVE)
        await wire.call("FLUSHALL")
        bus = RedisBus(FixedDoor(server.address()), CountedTokens())
        memory = MemorySide(world, MemoryBus(world, CountedTokens()), spec, clock)
        await Session(Twins(ServerSide(bus, wire, spec), memory), spec, rng, Counter()).play(
            STEPS["whole"], weights, led=True
        )
        batch = Batch(bus, wire, spec, bus.keys(spec.batch))
        seen += await compared_with_rows(batch)
        await bus.aclose()
    wire.close()
    structlog.reset_defaults()
    assert seen.keys() >= {"queued", "running", "sealed", "scored", "hole"}


async def compared_with_rows(batch: Batch) -> Counter[str]:
    """Each run's state, verdict and generations; the batch's tokens and refusals. Answers the states."""
    lives, counters = await lives_of(batch), await batch.bus.counters(batch.name)
    runs = {run.run: run for run in lives.runs()}
    rows = await batch.bus.rows(batch.name, await batch.bus.run_ids(batch.name))
    assert list(runs) == [row.run for row in rows]
    for row in rows:
        told = runs[row.run]
        assert told.state == (row.bin if row.state == "scored" else row.state)
        assert (told.bin or "", told.hole or "", told.value) == (row.bin, row.hole, row.value)
        assert (told.ended_ms is not None) == (row.state in ("scored", "hole"))
        assert told.deliveries >= row.attempts
        assert (told.worker or told.scorer or "") == "" or row.consumer in (told.worker, told.scorer)
    assert sum(run.spent for run in runs.values()) == counters.spent
    assert sum(run.durable for run in runs.values()) == counters.durable
    refused = Counter[str]()
    for group in lives.refusals():
        refused[group.reason] += group.count
    assert refused == Counter(counters.refusals)
    assert sum(bucket.refused for bucket in lives.timeline()) == refused.total()
    return Counter(row.state.value for row in rows)


# --- the details ------------------------------------------------------------------------------------------


async def test_each_run_is_told_as_explain_and_why_tell_it(batch: Batch, lines_file: Path) -> None:
    """The same words, and the same picture without its style sheet."""
    await batch.admit()
    await eventful(batch)
    await written(batch, lines_file)
    with gathered(lines_file) as report:
        details = list(report.details())
    assert [detail.run for detail in details] == [run.run for run in report.facts.runs]
    for number, detail in enumerate(details):
        story = (await asyncio.to_thread(read_file, lines_file, detail.run)).story
        assert list(detail.words) == explained(story)
        assert detail.picture == svg.draw(story, styled=False, name=f"run{number}")


async def test_what_a_hole_says_of_itself_is_among_its_words(batch: Batch, tmp_path: Path) -> None:
    """It stands in the run's row; so only a report of a batch on a server has it."""
    await closed(batch)
    with gathered(await fetched(batch.bus, batch.name, tmp_path)) as report:
        *_, hole = report.details()
    assert "It says of itself: boom: no such file" in hole.words


async def test_the_transcript_is_that_of_the_conversation_that_was_sealed(batch: Batch, lines_file: Path) -> None:
    """What was given up before, and what came late, is none of it: it is the chain that was judged."""
    await batch.admit()
    await eventful(batch)
    await written(batch, lines_file)
    with gathered(lines_file) as report:
        for detail in report.details():
            events = await batch.bus.transcript(batch.name, detail.run)  # type: ignore[arg-type]
            assert [(event.seq, event.gen) for event in detail.events] == [(event.seq, event.gen) for event in events]
            for shown, event in zip(detail.events, events, strict=True):
                assert event.payload in (shown.text, json.dumps({"kind": shown.kind}, separators=(",", ":")))
            if detail.run == "c0#1":  # its first conversation had three events
                assert [event.text[:5] for event in detail.events] == ["gave "]


def appended(seq: int, payload: str) -> Line:
    """An event of `c#1`, as an export has it."""
    given = {"run": "c#1~0", "lease_id": "L1", "gen": 1, "seq": seq, "payload": payload}
    return line(seq, "transcript.append", args=given, run="c#1")


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        ('{"kind":"note","text":"one\\ntwo"}', "note", "one\ntwo"),
        ('{"kind":"answer","text":"42","tree":""}', "answer", "42"),
        ('{"kind":"model","reply":{"text":"42"},"usage":{"input":3}}', "model", "42\n\nusage.input: 3"),
        ('{"kind":["odd"],"text":"x"}', "", '{"kind":["odd"],"text":"x"}'),
        ("no JSON", "", "no JSON"),
        ("[1]", "", "[1]"),
        ('"\\ud800"', "", '"\\ud800"'),
        ('{"kind":"note","text":"\\ud800!"}', "note", "\\ud800!"),
    ],
)
def test_an_event_is_shown_by_its_kind_and_its_words(payload: str, kind: str, text: str) -> None:
    """Whatever somebody appended: what has no form of ours is shown as it was recorded, and can be encoded."""
    (event,) = events_of([appended(1, payload)])
    assert (event.kind, event.text) == (kind, text)
    event.text.encode()


def test_of_a_very_long_transcript_the_ends_are_shown() -> None:
    """And of a very long event its beginning, with how much there was."""
    events = events_of(appended(seq, "x" * (100_000 if seq == 1 else 1)) for seq in range(1, 5_001))
    assert [event.seq for event in events] == [*range(1, 1_001), *range(4_001, 5_001)]
    assert len(events[0].text) < 10_000
    assert events[0].text.endswith("x… (92,000 characters more)")


async def test_a_run_has_the_lines_that_explain_would_pick(server: Target, lines_file: Path) -> None:
    """One look tells whose a line is; the picker of `explain`, asked for each run, says the same.

    Also of a sweep, which names a place at a desk and not whose it was; of heartbeats, and of a restart between them.
    """
    async with opened(server.address(), runs=4, limits=FIRST_BUDGET, reclaim_ms=1_000) as batch:
        await at(batch, 1_000)
        await batch.admit(3)
        await eventful(batch)
        await batch.admit()
        held = await batch.claimed()
        call, _ = await opened_call(batch, held)
        await batch.bus.drop_call(held.ref, call, cancelled=False)
        await at(batch, 10_000)
        await batch.bus.heartbeat(Group.WORKER, W1, Alive([replace(held.ref, gen=Gen(7))]))
        await batch.wire.call("HSET", batch.keys.batch_row, "server", "an earlier life")
        assert (await batch.bus.sweep(batch.name, 50, "model")).answer["freed"] > 0
        await batch.claimed(W2, await batch.taken(held.entry, W2))
        await written(batch, lines_file)
    raws = lines_file.read_bytes().splitlines(keepends=True)
    told, index, lives = [line_of(raw) for raw in raws[1:-1]], Index(), Lives()
    place = len(raws[0])
    for raw, one in zip(raws[1:-1], told, strict=True):
        index.add(one, lives.take(one), place)
        place += len(raw)
    with lines_file.open("rb") as file:
        for run in batch.runs:
            picker = Picker(run)
            assert list(index.lines(file, run)) == [one for one in told if picker.takes(one)]


async def test_an_archive_and_a_pipe_give_the_same_report(
    batch: Batch, lines_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither can be read twice where it is: a copy of it is."""
    await closed(batch)
    plain = await written(batch, lines_file)
    archive = plain.with_name("renamed")
    archive.write_bytes(zstandard.compress(plain.read_bytes()))
    monkeypatch.setattr(sys, "stdin", Piped(plain.read_bytes()))
    told = []
    for source in (plain, archive, "-"):
        with gathered(source) as report:
            told.append((replace(report.facts, source=""), list(report.details())))
    assert told[0] == told[1] == told[2]
    assert report.facts.source == "standard input"


class Piped:
    """Standard input that nobody can rewind."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BufferedReader(OneWay(content))


class OneWay(io.BytesIO):
    """Read once."""

    def seekable(self) -> bool:
        """It is not."""
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Not in a pipe."""
        raise io.UnsupportedOperation("seek")


async def test_a_file_that_changes_under_the_report_is_noticed(batch: Batch, lines_file: Path) -> None:
    """What was replayed is what is shown: somebody who writes into the file between the two readings is in the way."""
    await closed(batch)
    await written(batch, lines_file)
    with gathered(lines_file) as report:
        details = report.details()
        next(details)
        with lines_file.open("ab") as file:
            file.write(b"\n")
        with pytest.raises(InputError, match="was changed while it was read"):
            next(details)


async def test_what_fails_while_a_report_is_written_is_not_taken_for_the_history(
    batch: Batch, lines_file: Path
) -> None:
    """A reader that closes its pipe, a full disk: the file that was read has nothing to do with it."""
    await closed(batch)
    await written(batch, lines_file)
    with pytest.raises(BrokenPipeError), gathered(lines_file):
        raise BrokenPipeError


# --- size -------------------------------------------------------------------------------------------------


def refused(number: int, size: int = 1) -> Line:
    """A late event of one of three runs, that nobody accepts."""
    run = f"c{number % 3}#1"
    given = {"run": f"{run}~0", "lease_id": "L1", "gen": 1, "seq": 1, "payload": "x" * size}
    return line(number, "transcript.append", "reject stale_gen", args=given, run=run)


def test_refusals_are_all_counted_and_the_first_ones_kept() -> None:
    """The most frequent kind first; a sample is whole but for what is very long in it."""
    tally = Tally()
    tally.add(line(1, "run.claim", "reject ended", consumer="w1"), 1, "c0#1", "w1")
    for number in range(MOST_SAMPLES + 30):
        tally.add(refused(number, 20_000), number, "c1#1", "")
    late, ended = tally.groups()
    assert (late.fence, late.op, late.reason, late.count) == ("transcript", "append", "stale_gen", MOST_SAMPLES + 30)
    assert [sample.ms for sample in late.samples] == list(range(MOST_SAMPLES))
    assert late.samples[0].args["payload"] == "x" * 8_000 + "… (12,000 characters more)"
    assert late.samples[0].args["gen"] == 1
    assert (ended.count, ended.samples[0].who, ended.samples[0].envelope["consumer"]) == (1, "w1", "w1")


def test_memory_grows_with_the_runs_and_not_with_the_lines() -> None:
    """Of a further line its place is kept, and nothing else."""

    def peak(count: int) -> int:
        tracemalloc.start()
        lives, index = Lives(), Index()
        for number in range(count):
            one = refused(number, 1_000)
            index.add(one, lives.take(one), number)
        lives.finish()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    few = peak(1_000)
    assert peak(5_000) - few < 4_000 * 40  # bytes; a line has a thousand


@given(st.lists(st.tuples(st.integers(0, 100_000), st.sampled_from(list(Happened))), max_size=80))
@settings(max_examples=60, deadline=None)
def test_a_timeline_counts_everything_once_whatever_its_length(happened: list[tuple[int, Happened]]) -> None:
    """Intervals adjoin, are equally long and few; what is in one happened in it."""
    happened.sort()
    timeline = Timeline()
    for ms, what in happened:
        timeline.note(ms, what)
    buckets = timeline.buckets()
    assert bool(buckets) == bool(happened)
    assert len(buckets) <= MOST_BUCKETS
    edges = [bucket.from_ms for bucket in buckets] + [bucket.to_ms for bucket in buckets[-1:]]
    assert edges == list(range(0, edges[-1] + 1, edges[1])) if buckets else True
    for what in Happened:
        if what not in (Happened.TAKEN, Happened.LET_GO):
            counted = {bucket.from_ms: count for bucket in buckets if (count := getattr(bucket, what.name.lower()))}
            assert counted == Counter(edges[bisect_right(edges, ms) - 1] for ms, one in happened if one is what)
    for bucket in buckets:
        before = [one for ms, one in happened if ms < bucket.to_ms]
        assert bucket.running == before.count(Happened.TAKEN) - before.count(Happened.LET_GO)
