"""A batch in partitions in the list of batches, and when it leaves the server: as one. On a real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.partitions import split
from bus.target import Target
from bus.types import BatchId
from tests.parted import ROOT, ended, parts_on, spec
from tests.screens import console, text_of
from workers.histories.keeping import parse_rule
from workers.histories.pruning import make_plan, prune
from workers.results.status import show_all
from workers.results.whole import whole_of, wholes


async def test_partitions_are_one_batch_to_the_rules_that_keep_some(server: Target, tmp_path: Path) -> None:
    """`last=1` keeps the newest batch and not the newest partition; one that has not ended whole is not touched."""
    older, newer, running = (split(replace(spec(quorum=1), batch=BatchId(name)), 2) for name in ("old", "new", "on"))
    half = split(replace(spec(quorum=1), batch=BatchId("half")), 2)[:1]  # the other one is not declared yet
    async with parts_on(server, [*older, *newer, *half, *running]) as parts:
        for part in parts[:-1]:
            await ended(part, part.spec.intended)
        bus = parts[0].bus
        plan = await make_plan(bus, (), [parse_rule("last=1")])
        assert [one.spec.batch for one in plan.batches] == ["old.p1", "old.p2"]
        assert plan.kept == ("new",)
        assert (await make_plan(bus, (), [parse_rule("old")])).kept == ("old",)
        screen = console()
        await prune(bus, plan, tmp_path, screen)
        assert text_of(screen).splitlines()[-1].startswith("1 pruned, 1 kept, ")
        screen = console()
        await show_all(bus, screen)
        assert [line.split()[:3] for line in text_of(screen).splitlines()[1:]] == [
            ["half", "open", "7"], ["new", "closed", "7"], ["on", "open", "7"],
        ]  # fmt: skip


async def test_a_batch_in_partitions_that_has_not_ended_whole_is_not_pruned_by_its_name(server: Target) -> None:
    """Neither while one runs nor before it is declared; what is named is the batch, and not a partition of it."""
    specs = split(spec(quorum=1), 3)
    async with parts_on(server, specs[:2]) as parts:
        await ended(parts[0], 1)
        said = r"batch 'b' is open: only .* \(let it end: evalbus status b\)"
        with pytest.raises(InputError, match=said):
            await make_plan(parts[0].bus, [ROOT], ())
        await ended(parts[1], 1)
        with pytest.raises(InputError, match=said):
            await make_plan(parts[0].bus, [ROOT], ())
        async with parts_on(server, specs[2:]) as (third,):
            await ended(third, 1)
            assert [one.spec.batch for one in (await make_plan(third.bus, [ROOT], ())).batches] == [
                "b.p1", "b.p2", "b.p3",
            ]  # fmt: skip


async def test_a_prune_that_was_killed_between_two_partitions_goes_on_by_the_batchs_name(
    server: Target, tmp_path: Path
) -> None:
    """And whoever asks for the batch meanwhile is told, by its name, where it has gone."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        for part in parts:
            await ended(part, part.spec.intended)
        bus = parts[0].bus
        await prune(bus, await make_plan(bus, [parts[1].name], ()), tmp_path, console())
        with pytest.raises(InputError, match=r"batch 'b' was pruned, in part: .*b\.p2\.jsonl\.zst .*prune b\)"):
            await whole_of(bus, ROOT)
        assert [one.name for one in await wholes(bus, await bus.all_batches())] == ["b.p1", "b.p3"]
        screen = console()
        await prune(bus, await make_plan(bus, [ROOT], ()), tmp_path, screen)
        assert text_of(screen).splitlines()[-1].startswith("1 pruned, 0 kept, ")
        assert sorted(file.name for file in (tmp_path / "live").glob("*.zst")) == [
            "b.p1.jsonl.zst", "b.p2.jsonl.zst", "b.p3.jsonl.zst",
        ]  # fmt: skip
        with pytest.raises(InputError, match=r"batch 'b' was pruned: .*live/b\.jsonl\.zst, a file for each"):
            await whole_of(bus, ROOT)
        assert (await make_plan(bus, [ROOT], ())).batches == ()
