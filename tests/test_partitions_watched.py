"""A batch in partitions while somebody looks on: one line in the list, one live view, one page. On a real server."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.partitions import split
from bus.port import NextRuns
from bus.target import Target
from bus.types import BatchId, RunId
from bus.values import PartOf
from tests.batches import P1, W2, Batch
from tests.houses import open_house
from tests.parted import ROOT, ended, parts_on, spec
from tests.screens import Seat
from workers.watching.looking import Watcher
from workers.watching.pages import Site
from workers.watching.reports import Reports
from workers.watching.tail import newest
from workers.watching.terminal import refusal_rows
from workers.watching.top import RunScreen, Top
from workers.watching.view import Partition, Refusal
from workers.watching.web import Web

REFUSED = Refusal("7-0", "b.p1", 7, "", "w1", "close", "in_flight", "something is in flight")


async def late(batch: Batch) -> RunId:
    """The next run of a partition is taken from its holder, who writes into it all the same; which it was."""
    held = await batch.claimed()
    await batch.claimed(W2, await batch.taken(held.entry, W2))
    await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
    return held.ref.run


async def another_ms(batch: Batch) -> None:
    """What is refused from here on is newer by the server's clock, not only by a number beside it."""
    before = int((await batch.wire.call("TIME"))[1]) // 1000
    while int((await batch.wire.call("TIME"))[1]) // 1000 == before:
        pass


# --- the view ---------------------------------------------------------------------------------------------


async def test_a_batch_in_partitions_is_one_view_and_one_line_of_the_list(server: Target) -> None:
    """Counts are sums, holders and refusals are of all of them; each refusal says whose entry it was."""
    whole = spec(quorum=1, limits={"budget": 90})
    async with parts_on(server, [*split(whole, 3), replace(whole, batch=BatchId("single"))]) as (*parts, single):
        await parts[0].scored()
        assert await late(parts[1]) == "c1#1"
        await another_ms(single)
        assert await late(parts[2]) == "c2#1"
        watcher = Watcher(single.bus)
        view = await watcher.view(ROOT)
        assert (view.batch, view.state, view.ended, view.counters.intended) == (ROOT, "open", 1, 7)
        assert [(one.who, one.run, one.gen) for one in view.holds] == [("w2", "c1#1", 2), ("w2", "c2#1", 2)]
        assert (view.workers, view.holds_left_out, view.spec.bound, view.budget) == (1, 0, whole.bound, 90)
        assert [(one.run, one.partition) for one in view.refusals] == [("c2#1", "b.p3"), ("c1#1", "b.p2")]
        assert view.in_partitions == "3 partitions, 0 ended"
        assert 0 < view.began_ms <= view.refusals[0].ms <= view.at_ms
        assert view.notices == ()
        with pytest.raises(InputError, match=r"no batch 'bb' on this server; did you mean b\?"):
            await watcher.check(BatchId("bb"))
        await parts[1].wire.call("HSET", parts[1].keys.batch_row, "spent", 30)
        await ended(parts[0], 2)
        view = await watcher.view(ROOT)
        assert view.in_partitions == "3 partitions, 1 ended"
        assert view.notices == (
            "A partition has used up, or reserved, its share of the budget: b.p2. Runs there that ask for more become "
            "holes.",
        )
        assert [(line.batch, line.ended, line.intended) for line in await watcher.briefs()] == [
            ("single", 0, 7), ("b", 3, 7),
        ]  # fmt: skip
        assert (await watcher.view(single.name)).in_partitions == ""
        assert (await watcher.view(parts[1].name)).counters.intended == 2  # one of them, by its own name


async def test_the_view_has_the_joint_number_when_the_last_partition_has_ended(server: Target) -> None:
    """Also for who looked on before the last one was declared."""
    specs = split(spec(quorum=4), 3)
    async with parts_on(server, specs[:2]) as parts:
        watcher = Watcher(parts[0].bus)
        for part in parts:
            await ended(part, 2)
        assert (await watcher.view(ROOT)).outcome is None
        async with parts_on(server, specs[2:]) as (third,):
            await ended(third, 1)
            watcher = Watcher(third.bus)
            view = await watcher.view(ROOT)
            assert view.outcome is not None
            assert (view.state, view.outcome.accepted, view.outcome.hole_count) == ("closed", 5, 2)
            assert (view.in_partitions, view.outcome.pass_rate) == ("3 partitions", 1.0)
            assert [line.state for line in await watcher.briefs()] == ["closed"]


async def test_a_partition_that_is_declared_later_joins_the_view(server: Target) -> None:
    """Whoever began to look before sees its runs, too, and nothing of the others twice."""
    specs = split(spec(quorum=1), 3)
    async with parts_on(server, specs[:1]) as (first,):
        watcher = Watcher(first.bus)
        assert (await watcher.view(ROOT)).counters.admitted == 3
        await watcher.briefs()
        async with parts_on(server, specs[1:]) as (_, third):
            await late(third)
            watcher._watched[ROOT].crowd_until = 0  # as after two seconds
            view = await watcher.view(ROOT)
            assert (view.counters.admitted, [one.run for one in view.holds]) == (7, ["c2#1"])
            assert [one.partition for one in view.refusals] == ["b.p3"]
            assert [line.batch for line in await watcher.briefs()] == [ROOT]


def test_refusals_of_two_histories_are_told_apart_and_none_is_shown_across_a_gap() -> None:
    """Ids are a history's own: two partitions may have the same, and a table must not take them for one row."""
    other = replace(REFUSED, partition="b.p2")
    older = replace(REFUSED, entry="3-0", ms=3)
    assert newest([[REFUSED, older], [other]], since_ms=5) == (REFUSED, other)
    assert newest([[REFUSED, older]], since_ms=5) == (REFUSED, older)  # one history cuts its list by itself
    assert len(newest([[REFUSED] * 40, [other] * 40], since_ms=0)) == 50


async def test_two_refusals_with_one_id_are_two_rows(server: Target) -> None:
    """Else the terminal's table would be broken off by the second."""
    async with parts_on(server, split(spec(), 3)) as parts:
        view = await Watcher(parts[0].bus).view(ROOT)
        both = replace(view, refusals=(REFUSED, replace(REFUSED, partition="b.p2")))
        assert len({row.key for row in refusal_rows(both)}) == 2
        spent = tuple(Partition(part.name, ended=False, spent=True) for part in parts)
        assert "3 partitions have used up, or reserved, their shares: b.p1, b.p2, b.p3." in " ".join(
            replace(view, partitions=spent).notices
        )


# --- the terminal -----------------------------------------------------------------------------------------


async def test_top_begins_with_a_batch_in_partitions_by_its_name(server: Target) -> None:
    """And leads to a run, wherever that is."""
    async with parts_on(server, split(spec(), 3)) as parts:
        await late(parts[1])
        app = Top(Watcher(parts[0].bus), batch=ROOT, server="redis://there")
        async with app.run_test(size=(120, 40)) as pilot:
            seat = Seat(app, pilot, parts[0])
            await seat.sees("0 of 7 runs have ended")
            await seat.sees("3 partitions, 0 ended")
            await seat.sees("W w2  c1#1  2  2")
            app.screen.query_one("#latest").focus()
            await pilot.press("enter")
            await seat.until(lambda: isinstance(app.screen, RunScreen), "the run's screen")
            await seat.sees("Run c1#1 of batch b.p2")
            await pilot.press("escape")
            await pilot.press("escape")
            await seat.sees("0/7")
            assert "b.p1" not in seat.text


# --- the browser ------------------------------------------------------------------------------------------


async def test_serve_has_one_page_one_report_and_the_runs_of_all_partitions(server: Target, tmp_path: Path) -> None:
    """By the batch's name; a run's page leads back to it, and says in which partition it was."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        await late(parts[1])
        web = Web(Watcher(parts[0].bus), Site("redis://there", "live"), Reports(parts[0].bus, tmp_path))
        transport = httpx.ASGITransport(app=web.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            page = (await client.get("/batch/b")).text
            assert '<span class="figure">0</span> of 7 runs have ended' in page
            assert "3 partitions, 0 ended" in page
            assert '<a href="/batch/b/run/c1%231">c1#1</a>' in page
            assert "of b.p2</td>" in page
            listing = (await client.get("/")).text
            assert '<a href="/batch/b">b</a>' in listing
            assert "/batch/b.p" not in listing
            run = (await client.get("/batch/b/run/c1%231")).text
            assert '<a href="/batch/b">b</a>' in run
            assert "Run c1#1 of batch b.p2" in run
            await ended(parts[0], 1)
            open_still = await client.get("/batch/b/report")
            assert (open_still.status_code, "is open" in open_still.text) == (404, True)
            for part in parts[1:]:
                for row in await part.bus.rows(part.name, await part.bus.run_ids(part.name)):
                    if row.consumer:
                        await part.end(row.run)
                await ended(part, 1)
            with contextlib.suppress(KeyError):
                del web.feeds[ROOT]
            report = await client.get("/batch/b/report")
            assert report.status_code == 200
            assert "<h1>b</h1>" in report.text
            assert "in 3 chains, one for each of its partitions" in report.text
        web.end()


async def test_the_stream_of_a_batch_in_partitions_tells_what_changes_in_any(server: Target, tmp_path: Path) -> None:
    """The other one is declared, and its runs end, while somebody follows."""
    part = PartOf(1, 2, 5, 1)
    async with open_house(server, tmp_path, runs=3, name="b.p1", part=part) as house:
        second = await Batch.open(server.address(), runs=2, name="b.p2", part=replace(part, number=2))
        try:
            runs = [RunId("d0#1"), RunId("d1#1")]
            assert (await second.bus.admit(second.name, NextRuns(0, runs, (), P1, "candidate", "judge"))).applied
            async with contextlib.aclosing(house.news("/batch/b/events")) as news:
                assert (await anext(news))["data"]["title"] == "0/5 b"
                await second.scored()
                while (told := (await anext(news))["data"])["title"] != "1/5 b":
                    pass
                assert "1 of 5 runs have ended" in told["sentence"]
        finally:
            await second.aclose()
