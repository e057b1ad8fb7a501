"""A batch in partitions, looked at and tended by the one name that its user knows. On a real server."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bus.errors import InputError
from bus.partitions import split
from bus.target import Target
from bus.types import RunId
from tests.batches import Batch
from tests.parted import ROOT, RUNS, parts_on, spec
from workers import reviewing
from workers.showing import show_batch


def console() -> Console:
    """One whose text can be read."""
    return Console(file=io.StringIO(), width=60)


def text_of(screen: Console) -> str:
    """What was printed."""
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


# --- the table of runs ------------------------------------------------------------------------------------


async def test_runs_are_shown_in_the_order_of_the_suite_and_not_partition_by_partition(server: Target) -> None:
    """How they were dealt out is nothing that a reader of the table has to know."""
    async with parts_on(server, split(spec(), 3)) as parts:
        await parts[1].scored()
        screen = console()
        await show_batch(parts[0].bus, ROOT, (), None, None, screen)
        lines = [line.split()[:2] for line in text_of(screen).splitlines()[1:8]]
        assert lines == [[run, "pass" if run == "c1#1" else "queued"] for run in RUNS]


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
        await reviewing.judge_again(bus, ROOT, [third], screen)
        await reviewing.give_up(bus, ROOT, [first], screen)
        said = text_of(screen).splitlines()[2:]
        assert said == ["c2#1   will be judged again", "c0#1   is a hole, unreviewed"]
        assert (await parts[2].scoring()).judgement.judge_epoch == 2
        assert await parts[0].state(first) == "hole"
        screen = console()
        await reviewing.show(bus, ROOT, screen)
        assert text_of(screen) == "no run of b waits for a review\n"
