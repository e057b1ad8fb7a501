"""A batch in partitions, looked at and tended by the one name that its user knows. On a real server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.partitions import split
from bus.replay.telling import DiffersError
from bus.target import Target
from bus.types import RunId
from tests.batches import W2, Batch
from tests.explained import line
from tests.parted import ROOT, RUNS, ended, parts_on, spec
from tests.screens import console, text_of
from workers.explaining.reading import read_file, read_server
from workers.gating.sources import from_file
from workers.histories.exporting import export_whole
from workers.histories.replaying import batches_of, derive_batch, heads_of, show_joint
from workers.reporting.command import write_report
from workers.reporting.gather import fetched, gathered
from workers.reporting.lives import Lives
from workers.results import reviewing
from workers.results.derived import joined
from workers.results.fetching import fetch_outcome
from workers.results.prevented import Watch
from workers.results.showing import show_batch, show_run
from workers.results.showing_files import show_file
from workers.results.status import show_one
from workers.watching.looking import Watcher

# --- the table of runs ------------------------------------------------------------------------------------


async def test_runs_are_shown_in_the_order_of_the_suite_and_not_partition_by_partition(server: Target) -> None:
    """How they were dealt out is nothing that a reader of the table has to know."""
    async with parts_on(server, split(spec(), 3)) as parts:
        await parts[1].scored()
        screen = console()
        await show_batch(parts[0].bus, ROOT, (), None, None, screen)
        lines = [line.split()[:2] for line in text_of(screen).splitlines()[1:8]]
        assert lines == [[run, "pass" if run == "c1#1" else "queued"] for run in RUNS]


async def test_an_unknown_run_is_answered_in_the_order_of_the_suite(server: Target) -> None:
    """As one would have been of a batch that was not dealt out; by `show` and by `why`."""
    async with parts_on(server, split(spec(), 3)) as parts:
        said = "no run 'nobody' in batch 'b'; it begins with c0#1, c1#1, c2#1"
        with pytest.raises(InputError, match=said):
            await show_run(parts[0].bus, ROOT, "nobody", None, console())
        with pytest.raises(InputError, match=said):
            await read_server(parts[0].bus, ROOT, "nobody")


# --- reviews ----------------------------------------------------------------------------------------------


async def parked(batch: Batch) -> RunId:
    """The next run of a partition, judged by another judge than it is bound to."""
    await batch.sealed()
    scoring = await batch.scoring()
    await batch.bus.score(scoring.ref, replace(scoring.judgement, judge="another"))
    return scoring.ref.run


async def test_reviews_of_all_partitions_are_one_list_and_are_decided_by_the_batchs_name(server: Target) -> None:
    """A run is named; in which partition it waits is found out."""
    whole = spec(judge_policy="review", candidate="candidate", judge="judge")
    async with parts_on(server, split(whole, 3)) as parts:
        third, first = await parked(parts[2]), await parked(parts[0])
        bus, screen = parts[1].bus, console()
        await reviewing.show(bus, ROOT, screen)
        assert [line.split()[0] for line in text_of(screen).splitlines()] == [first, third] == ["c0#1", "c2#1"]
        with pytest.raises(InputError, match="run 'c1#1' of batch 'b' waits for no review"):
            await reviewing.give_up(bus, ROOT, [first, "c1#1"], screen)
        assert await parts[0].bus.parked(parts[0].name) == [first]
        with pytest.raises(InputError, match=r"no run 'c00' in batch 'b'; did you mean c0#1\?"):
            await reviewing.give_up(bus, ROOT, ["c00"], screen)
        await reviewing.judge_again(bus, ROOT, ["c2", third], screen)  # a case with one trial is its run
        await reviewing.give_up(bus, ROOT, [first], screen)
        said = text_of(screen).splitlines()[2:]
        assert said == ["c2#1   will be judged again", "c0#1   is a hole, unreviewed"]
        assert (await parts[2].scoring()).judgement.judge_epoch == 2
        assert await parts[0].state(first) == "hole"
        screen = console()
        await reviewing.show(bus, ROOT, screen)
        assert text_of(screen) == "no run of b waits for a review\n"


# --- histories --------------------------------------------------------------------------------------------


async def files_of_parts(parts: list[Batch], directory: Path) -> str:
    """Their exports, and the name that stands for all of them."""
    written = await export_whole(parts[0].bus, ROOT, directory / "h.jsonl")
    assert [one.file.name for one in written] == ["h.p1.jsonl", "h.p2.jsonl", "h.p3.jsonl"]
    return str(directory / "h.jsonl")


async def told(server: Target, parts: list[Batch]) -> None:
    """Each has a score, a hole and a late worker; all are closed."""
    for part in parts:
        held = await part.claimed()
        await part.claimed(W2, await part.taken(held.entry, W2))
        await part.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
        await part.end(held.ref.run)
        await ended(part, 1)


async def test_the_report_is_one_page_over_all_partitions_with_the_joint_number(server: Target, tmp_path: Path) -> None:
    """From the server or from the files: the outcome, every run, refusal and token once, runs in the suite's order."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        await told(server, parts)
        with gathered(await fetched(parts[0].bus, ROOT, tmp_path)) as report:
            facts, details = report.facts, list(report.details())
        assert facts.outcome == await fetch_outcome(parts[0].bus, ROOT)
        assert (facts.source, facts.head, [one.batch for one in facts.chains]) == (
            "batch b", "", ["b.p1", "b.p2", "b.p3"],
        )  # fmt: skip
        assert facts.entries == sum(one.entries for one in facts.chains)
        assert [run.run for run in facts.runs] == [f"c{number}#1" for number in range(7)]
        assert [(one.reason, one.count, [each.run for each in one.samples]) for one in facts.refusals] == [
            ("stale_gen", 3, ["c0#1", "c1#1", "c2#1"])
        ]
        assert [sum(getattr(one, what) for one in facts.timeline) for what in ("admitted", "preempted", "ended")] == [
            7, 3, 7,
        ]  # fmt: skip
        assert facts.timeline[-1].running == 0
        assert facts.ended_unix_ms is not None
        assert facts.ended_unix_ms - facts.began_unix_ms >= max(run.ended_ms or 0 for run in facts.runs)
        mean = next(one for one in facts.prevented if one.policy == "mutable-mean")
        assert [(one.passed, one.counted) for one in mean.rate] == [(1, 1), (2, 2), (3, 3)]
        assert [one.run for one in details] == [one.run for one in facts.runs]
        assert [one.words[0] for one in details if one.run in ("c0#1", "c4#1")] == [
            "Run c0#1 of batch b.p1", "Run c4#1 of batch b.p2",
        ]  # fmt: skip
        assert all("closed over 1 verdict" in one.words[-1] for one in details)
        assert {one.words[-1].split(" was ")[0] for one in details} == {"Batch b.p1", "Batch b.p2", "Batch b.p3"}
        named = await files_of_parts(parts, tmp_path)
        page = tmp_path / "b.html"
        from_files = await asyncio.to_thread(write_report, named, page)
        assert replace(from_files.outcome, hole_details=facts.outcome.hole_details) == facts.outcome
        assert (from_files.runs, from_files.chains) == (facts.runs, facts.chains)
        text = page.read_text()
        heads = "".join(f" --head {one.head}" for one in facts.chains)
        assert f"evalbus replay {named}{heads}" in text
        assert "in 3 chains, one for each of its partitions" in text


async def test_the_report_of_an_open_batch_has_progress_and_no_number(server: Target, tmp_path: Path) -> None:
    """Two of three have closed, each with a rate of its own: neither is the batch's."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        for part in parts[:2]:
            await ended(part, 1)
        with gathered(await fetched(parts[0].bus, ROOT, tmp_path)) as report:
            facts = report.facts
        assert (facts.outcome.state, facts.outcome.pass_rate, facts.ended_unix_ms) == ("open", None, None)
        assert (facts.outcome.intended, facts.outcome.accepted, facts.outcome.snapshot_id) == (7, 2, None)
        assert [one.rate for one in facts.prevented] == [()] * len(facts.prevented)


async def test_a_batch_of_which_one_partition_is_declared_is_no_smaller_batch(server: Target, tmp_path: Path) -> None:
    """The first has closed before the second was declared: seven runs are intended, and four are not there yet."""
    async with parts_on(server, split(spec(quorum=1), 3)[:1]) as (first,):
        await ended(first, 3)
        with gathered(await fetched(first.bus, ROOT, tmp_path)) as report:
            outcome = report.facts.outcome
        assert (outcome.batch, outcome.state, outcome.intended, outcome.accepted) == (ROOT, "open", 7, 3)


@pytest.mark.parametrize(("restarted", "running"), [((1,), 1), ((0, 1), 0)], ids=["one", "both"])
def test_a_restart_voids_the_leases_of_the_partition_that_it_is_about(restarted: tuple[int, ...], running: int) -> None:
    """Two partitions are on two servers; entries of one id, in two histories, are two entries."""
    lives = Lives(2)
    for part, run in ((0, "a#1"), (1, "b#1")):
        lives.take(line(1, "judge.mint", args={"run": run, "epoch": 1}, cursor=0, command_id="x", candidate="c"), part)
        lives.take(line(2, "transcript.lease", run=run, lease_id=f"L{part}", entry="7-0", consumer="w"), part)
    for part in restarted:
        lives.take(line(3, "run.restarted"), part)
    lives.finish()
    assert [(run.run, lives.part_of(run.run)) for run in lives.runs()] == [("a#1", 0), ("b#1", 1)]
    assert lives.timeline()[-1].running == running
    assert lives.ended_unix_ms is None


async def test_files_of_all_partitions_are_named_as_the_export_named_them(server: Target, tmp_path: Path) -> None:
    """`gate`, `show`, `why` and `replay` take FILE.jsonl for FILE.p1.jsonl and the others, and miss none of them."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        await told(server, parts)
        named = await files_of_parts(parts, tmp_path)
        outcome = await fetch_outcome(parts[0].bus, ROOT)
    found = await asyncio.to_thread(from_file, named)
    assert replace(found.outcome, hole_details=outcome.hole_details) == outcome
    assert found.snapshot is not None
    assert found.snapshot.snapshot_id == outcome.snapshot_id
    screen = console()
    await asyncio.to_thread(show_file, named, None, (), None, None, screen)
    shown = [line.split()[:2] for line in text_of(screen).splitlines()[1:8]]
    assert shown == [
        ["c0#1", "operator"], ["c1#1", "operator"], ["c2#1", "operator"], ["c3#1", "pass"], ["c4#1", "pass"],
        ["c5#1", "pass"], ["c6#1", "operator"],
    ]  # fmt: skip
    assert (await asyncio.to_thread(read_file, named, "c4#1")).story.batch == "b.p2"
    with pytest.raises(InputError, match=r"no run 'c4#2' in batch 'b'; did you mean c4#1\?"):
        await asyncio.to_thread(read_file, named, "c4#2")
    with pytest.raises(InputError, match=r"no run 'nobody' in batch 'b'; it begins with c0#1, c1#1, c2#1"):
        await asyncio.to_thread(read_file, named, "nobody")
    (tmp_path / "h.p2.jsonl").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"h\.p2\.jsonl: is missing: the batch was kept in 3 partitions"):
        await asyncio.to_thread(from_file, named)
    (tmp_path / "h.p2.jsonl").write_bytes((tmp_path / "h.p1.jsonl").read_bytes())
    with pytest.raises(InputError, match=r"batch b\.p1, batch b\.p1, batch b\.p3 are not the partitions"):
        await asyncio.to_thread(from_file, named)


async def test_a_partition_by_its_own_name_is_one_batch_that_has_ended(server: Target, tmp_path: Path) -> None:
    """Its export goes where it was asked for, its report has its number, and its status speaks of no others."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        for part in parts[:2]:
            await ended(part, 1)
        bus, name, file, screen = parts[0].bus, parts[1].name, tmp_path / "second.jsonl", console()
        assert [one.file for one in await export_whole(bus, name, file)] == [file]
        with gathered(await fetched(bus, name, tmp_path)) as report:
            facts = report.facts
        assert (facts.outcome.batch, facts.outcome.state, facts.outcome.pass_rate) == ("b.p2", "closed", 1.0)
        assert facts.outcome == await fetch_outcome(bus, name)
        assert facts.chains == ()
        await show_one(bus, name, screen)
        assert "partitions" not in text_of(screen)
        assert (await Watcher(bus).view(name)).in_partitions == ""


async def test_replay_says_what_all_partitions_come_to_and_compares_the_head_of_each(
    server: Target, tmp_path: Path
) -> None:
    """The snapshot is the batch's; what policies would have made of it is of all runs, as JSON too."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        await told(server, parts)
        bus, watch = parts[0].bus, Watch(["mutable-mean"], tmp_path / "p.json", why=False)
        batches = await batches_of(bus, ROOT)
        derived = [await derive_batch(bus, batch, None, watch.see) for batch in batches]
        both, screen = joined(derived), console()
        outcome = await fetch_outcome(bus, ROOT)
        assert (both.found.batch, both.found.status, both.found.snapshot_id) == (ROOT, "closed", outcome.snapshot_id)
        show_joint(both, screen)
        assert text_of(screen).splitlines() == [
            "batch b (live): closed, 3 partitions together", "runs: pass 3, fail 0, holes 4",
            f"snapshot {outcome.snapshot_id}",
        ]  # fmt: skip
        watch.report(both, screen)
        said = json.loads((tmp_path / "p.json").read_text())
        heads = [one.found.head for one in derived]
        assert (said["batch"], said["head"], [one["head"] for one in said["partitions"]]) == (ROOT, None, heads)
        assert said["closed"] | {"ms": 0} == {"ms": 0, "passed": 3, "counted": 3}
        assert [point["counted"] for point in said["policies"][0]["rate"]] == [1, 2, 3]
        assert heads_of(heads, ROOT, 3) == heads
        assert heads_of((), ROOT, 3) == [None] * 3
        with pytest.raises(InputError, match=r"'b' is kept in 3 partitions, .* --head is given once"):
            heads_of(heads[:1], ROOT, 3)
        with pytest.raises(InputError, match="'one' has one history, and --head is given 3 times"):
            heads_of(heads, "one", 1)
        with pytest.raises(DiffersError, match=r"batch b\.p2:.* another history than the one that was meant"):
            await derive_batch(bus, batches[1], heads[0])
