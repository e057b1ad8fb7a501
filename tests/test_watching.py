"""What `top` and `serve` show: a batch as a view, the end of its history, and one poller for all who look."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bus.chain import EMPTY_HEAD
from bus.envelopes import decode, encode
from bus.errors import InputError, ServerUnreachable
from bus.held_loops import HeldLoop, note_held_loop
from bus.port import BatchStatus
from bus.target import Target
from bus.types import BatchId
from tests.batches import S1, W2, Batch, opened
from tests.tool_calls import Tools
from tests.waiting import soon, until
from workers.results.progress import Glance, state_of
from workers.watching.feed import Feed, Moment
from workers.watching.looking import Watcher
from workers.watching.tail import Tail
from workers.watching.terminal import about
from workers.watching.view import Hold, clock, left, per_minute, seconds

# --- the view ---------------------------------------------------------------------------------------------


async def test_a_view_says_who_holds_what_and_where_every_run_is(server: Target) -> None:
    """One of each: scored, hole, being scored, sealed, running, waiting, not admitted. None is counted twice."""
    async with opened(server.address(), runs=8, bound=6) as batch:
        await batch.admit()
        await batch.scored()
        await batch.bus.hole((await batch.claimed()).ref, "solver_error", "it raised")
        await batch.sealed()
        await batch.scoring(S1)
        await batch.sealed()
        held = await batch.claimed(W2)
        view = await Watcher(batch.bus).view(batch.name)

    counted = {share.kind: share.count for share in view.shares}
    assert counted == {"scored": 1, "hole": 1, "scoring": 1, "sealed": 1, "running": 1, "queued": 1, "ahead": 2}
    assert [(hold.run, hold.scoring, hold.who, hold.gen, hold.delivery) for hold in view.holds] == [
        (held.ref.run, False, "w2", 1, 1),
        ("c2#1", True, "s1", 1, 1),
    ]
    assert all(hold.silent_ms is not None and hold.silent_ms < 60_000 for hold in view.holds)
    assert (view.workers, view.scorers, view.holds_left_out) == (1, 1, 0)
    assert view.sentence.startswith("open: 2 of 8 runs have ended, 1 running, 1 holes")


async def test_an_open_batch_has_no_pass_rate_and_a_closed_one_its_outcome(server: Target) -> None:
    """The same batch, before its close and after: a rate of what happens to be finished is nowhere in the view."""
    async with opened(server.address(), runs=2) as batch:
        await batch.admit()
        await batch.scored()
        watcher = Watcher(batch.bus)
        before = await watcher.view(batch.name)
        assert (before.outcome, before.state, before.ended) == (None, "open", 1)
        await batch.scored()
        assert (await watcher.view(batch.name)).state == "closing"
        await batch.closed()
        after = await watcher.view(batch.name)
    assert after.outcome is not None
    assert after.some_of == "" and "of the suite" not in about(after).plain
    some = replace(after, spec=replace(after.spec, first_of=46))
    assert some.some_of == "the first of the suite's 46 runs" and f" · {some.some_of}" in about(some).plain
    assert (after.state, after.outcome.pass_rate) == ("closed", 1.0)
    assert after.outcome.snapshot_id == after.counters.snapshot_id
    assert (after.rate, after.glance.seconds_left, after.holds) == (None, None, ())


async def test_a_look_costs_what_is_in_flight_and_not_what_was_intended(server: Target) -> None:
    """A row is one HGETALL. Whoever reads all rows of a batch to find those that run pays 200 here, each second."""
    async with opened(server.address(), runs=200, bound=200) as batch:
        while int(await batch.batch_field("cursor")) < 200:
            await batch.admit(100)
        for _ in range(3):
            await batch.claimed()
        watcher = Watcher(batch.bus)
        await batch.wire.call("CONFIG", "RESETSTAT")
        view = await watcher.view(batch.name)
        rows = await calls(batch, "hgetall")
    assert len(view.holds) == 3
    assert rows <= 3 + 2


async def calls(batch: Batch, command: str) -> int:
    """How often the server has been sent a command since CONFIG RESETSTAT."""
    info = (await batch.wire.call("INFO", "commandstats")).decode()
    lines = [line for line in info.splitlines() if line.startswith(f"cmdstat_{command}:calls=")]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


async def test_calls_of_tools_that_nobody_is_sure_of_are_named(server: Target) -> None:
    """One was sent and has no answer."""
    async with opened(server.address(), runs=1, limits={"capacity": 8, "ack_bound_ms": 60_000}) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.put(1)
        sent = await tools.sent()
        view = await Watcher(batch.bus).view(batch.name)
        await tools.complete(sent)
    assert [(doubt.run, doubt.says) for doubt in view.doubts] == [(tools.ref.run, "sent, and not answered yet")]
    assert view.counters.effects_open == 1


@contextlib.asynccontextmanager
async def beside(server: Target, name: str, runs: int) -> AsyncIterator[Batch]:
    """A batch that shares its server with others."""
    batch = await Batch.open(server.address(), runs=runs, name=name)
    try:
        yield batch
    finally:
        await batch.aclose()


async def test_the_list_has_open_batches_first_and_leaves_none_out(server: Target) -> None:
    """The newest first in each kind; one that has ended is not read again at every look."""
    async with (
        beside(server, "older", 1) as older, beside(server, "ended", 1) as ended, beside(server, "newer", 3) as newer
    ):  # fmt: skip
        for batch in (older, ended, newer):
            await batch.admit()
        await ended.scored()
        await ended.closed()
        watcher = Watcher(newer.bus)
        lines = await watcher.briefs()
        assert [(line.batch, line.state) for line in lines] == [
            ("newer", "open"),
            ("older", "open"),
            ("ended", "closed"),
        ]
        assert [line.told for line in lines] == ["", "", "pass 1 · fail 0"], "what an open batch has is progress"
        await newer.wire.call("CONFIG", "RESETSTAT")
        await watcher.briefs()
        assert await calls(newer, "hgetall") == 1 + 2  # the registry, and the two that may have moved
        await newer.scored()
        assert {str(line.batch): line.ended for line in await watcher.briefs()}["newer"] == 1


async def test_a_batch_is_not_shown_with_what_another_of_its_name_came_to(server: Target) -> None:
    """The server was emptied, or came back without its data, and the batch is run anew while somebody looks on."""
    async with beside(server, "b", 1) as first:
        await first.admit()
        await first.scored()
        await first.closed()
        watcher = Watcher(first.bus)
        before = (await watcher.view(first.name)).outcome
        assert before is not None
        (listed,) = await watcher.briefs()
        await first.wire.call("FLUSHALL")
        async with beside(server, "b", 2) as second:
            await second.admit()
            await second.scored()
            await second.bus.hole((await second.claimed()).ref, "solver_error", "it raised")
            await second.closed()
            view = await watcher.view(second.name)
            assert view.outcome is not None
            assert view.outcome.snapshot_id == view.counters.snapshot_id != before.snapshot_id
            assert (view.outcome.accepted, view.outcome.hole_count) == (1, 1)
            assert view.began_ms > listed.began_ms


async def test_an_unknown_batch_is_answered_with_the_nearest_names(server: Target) -> None:
    """Before a screen is drawn, or a page begun."""
    async with opened(server.address(), name="nightly") as batch:
        with pytest.raises(InputError, match=r"no batch 'nigthly' on this server; did you mean nightly\?"):
            await Watcher(batch.bus).view(BatchId("nigthly"))


# --- what a person should know ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """A batch that stands somehow, and the notice that it has; none: all is well."""

    counters: dict[str, Any]
    notice: str
    silent_ms: int | None = 100


CASES = {
    "all well": Case({"running": 1}, ""),
    "a holder is silent": Case({"running": 1}, "Silent for longer than a lease of 1.0 s", silent_ms=1_500),
    "nobody works": Case({}, "It waits for a worker", silent_ms=None),
    "nobody scores": Case({"sealed": 4}, "It waits for a scorer", silent_ms=None),
    "nobody plans": Case({"cursor": 0}, "It waits for a planner", silent_ms=None),
    "the quorum is out of reach": Case({"running": 1, "holes": 3}, "The quorum of 2 can no longer be reached"),
    "a score waits for a person": Case({"running": 1, "review": 1}, "1 score waits for a person: evalbus review b"),
    "an effect is stuck": Case({"running": 1, "stuck": 2, "effects_open": 2}, "2 calls of tools are stuck"),
    "only an effect is open": Case({"scored": 4, "effects_open": 1}, "closes when 1 call of a tool", silent_ms=None),
    "the budget is used up": Case({"running": 1, "spent": 60, "reserved": 40}, "The budget is used up"),
}


@pytest.mark.parametrize("name", CASES)
async def test_what_a_person_should_know_is_said_and_nothing_else(server: Target, name: str) -> None:
    """Each stands in a view that is well but for it."""
    async with opened(server.address(), runs=4, quorum=2, limits={"budget": 100}) as batch:
        await batch.admit()
        whole = await Watcher(batch.bus).view(batch.name)
    case = CASES[name]
    counters = replace(whole.counters, **case.counters)
    hold = None if case.silent_ms is None else Hold(batch.runs[0], False, "w1", 1, 1, case.silent_ms)
    view = replace(whole, counters=counters, glance=Glance.of(counters, 1, 0, None), holds=(hold,) if hold else ())
    assert len(view.notices) == bool(case.notice), view.notices
    assert case.notice in "".join(view.notices)


async def test_lines_that_hold_event_loops_are_told_once_each_and_three_of_them(server: Target) -> None:
    """A mistake that a thousand runs have in common is one line, and none of them moves the cursor."""
    async with opened(server.address(), runs=4) as batch:
        await batch.admit()
        await batch.claimed()
        for number, run in enumerate(batch.runs):
            place = f"agent.py:{max(1, number)}"
            await note_held_loop(batch.bus, batch.name, run, HeldLoop("w1", 5.0, place + "\x1b[2J" * (number == 2)))
        notices = (await Watcher(batch.bus).view(batch.name)).notices
    assert [notice.split(" blocked")[0] for notice in notices] == [f"c{n}#1 at w1: its solver" for n in (0, 2, 3)]
    assert all(notice.isprintable() for notice in notices)


async def test_nobody_is_told_to_start_a_worker_for_a_batch_that_was_imported(server: Target) -> None:
    """It stays open for ever, and that is right."""
    async with opened(server.address(), runs=4) as batch:
        view = replace(await Watcher(batch.bus).view(batch.name), imported=True)
    assert view.notices == ("This batch was imported to be looked at. Nobody goes on with it.",)


def test_times_and_rates_are_written_as_people_say_them() -> None:
    """Tenths where they matter, no figure that pretends to be exact."""
    assert [seconds(ms) for ms in (400, 9_940, 12_000, 240_000, 9_000_000)] == [
        "0.4 s",
        "9.9 s",
        "12 s",
        "4 min",
        "2.5 h",
    ]
    assert [left(value) for value in (None, 0.0, 95.0)] == ["", "about 0.0 s", "about 95 s"]
    assert [per_minute(value) for value in (None, 4.21, 1234.5)] == ["-", "4.2", "1,234"]
    assert clock(1_764_453_900_123) == "22:05:00"


# --- the end of a history ---------------------------------------------------------------------------------


async def late(batch: Batch) -> None:
    """A holder that was preempted appends: refused."""
    held = await batch.claimed()
    await batch.claimed(W2, await batch.taken(held.entry, W2))
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])).refused


async def copies(batch: Batch, entry: str, count: int, at_ms: int) -> None:
    """The same entry again and again, a millisecond apart, as a long history would have others."""
    ((_, flat),) = await batch.wire.call("XRANGE", batch.keys.history, entry, entry)
    pieces = [("XADD", batch.keys.history, f"{at_ms + number}-0", *flat) for number in range(count)]
    await batch.wire.calls(pieces)


async def refused_entry(batch: Batch) -> str:
    """The id of the one refusal, and of what stands in the history."""
    tail = Tail(batch.bus.link, batch.keys)
    await tail.advance(await now_ms(batch))
    return tail.refusals[0].entry


async def now_ms(batch: Batch) -> int:
    """The server's clock."""
    return int((await batch.wire.call("TIME"))[0]) * 1000 + 999


async def test_a_refusal_is_told_with_who_and_why(server: Target) -> None:
    """And one that only says that there is no room is not: a planner is told so all the time."""
    async with opened(server.address(), runs=3, bound=1) as batch:
        await batch.admit()
        assert (await batch.admit()).reason is not None
        await late(batch)
        tail = Tail(batch.bus.link, batch.keys)
        await tail.advance(await now_ms(batch))
        (refusal,) = tail.refusals
        assert (refusal.run, refusal.reason, refusal.who) == ("c0#1", "stale_gen", "generation 1")
        assert (refusal.by, refusal.words) == ("transcript.append", "a newer generation holds the run")
        assert tail.began_ms == tail.since_ms <= refusal.ms


async def test_of_a_long_history_only_the_end_is_read_and_said_to_be(server: Target) -> None:
    """Twenty thousand entries. Reading them all at the first look would hold up everybody who looks."""
    async with beside(server, "b", 1) as batch:
        await batch.admit()
        await late(batch)
        entry = await refused_entry(batch)
        began = await now_ms(batch)
        await copies(batch, entry, 20_000, began)
        tail = Tail(batch.bus.link, batch.keys)
        await batch.wire.call("CONFIG", "RESETSTAT")
        await tail.advance(began + 30_000)
        reads = await calls(batch, "xrange")
        assert reads * 500 < 20_000
        assert tail.refusals[0].entry == f"{began + 19_999}-0"
        assert tail.began_ms < began < tail.since_ms <= began + 19_999 - 49
        assert len(tail.refusals) == 50


async def test_what_is_new_is_added_and_a_flood_is_jumped_over_and_said_so(server: Target) -> None:
    """A list with a gap in it, shown as whole, would be a lie."""
    async with beside(server, "b", 1) as batch:
        await batch.admit()
        await late(batch)
        entry, tail = await refused_entry(batch), Tail(batch.bus.link, batch.keys)
        began = await now_ms(batch)
        await tail.advance(began)
        whole = tail.since_ms
        await copies(batch, entry, 3, began + 1)
        await tail.advance(began + 10)
        assert (len(tail.refusals), tail.since_ms) == (4, whole)
        ((admitted, _),) = await batch.wire.call("XRANGE", batch.keys.history, "-", "+", "COUNT", 1)
        await copies(batch, admitted.decode(), 5_000, began + 100)
        await copies(batch, entry, 2, began + 5_100)
        await tail.advance(began + 6_000)
        await tail.advance(began + 6_000)
        assert [refusal.entry for refusal in tail.refusals] == [f"{began + 5_101}-0", f"{began + 5_100}-0"]
        assert began + 100 < tail.since_ms <= began + 5_100


async def test_what_was_no_envelope_is_told_all_the_same(server: Target) -> None:
    """It was refused for that; a reader that chokes on it would show nothing any more."""
    async with beside(server, "b", 1) as batch:
        await batch.admit()
        await late(batch)
        entry = await refused_entry(batch)
        ((_, flat),) = await batch.wire.call("XRANGE", batch.keys.history, entry, entry)
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        hostile = encode(decode(fields[b"e"]) | {"run": "<b>\x1b[31mred", "consumer": "w\n1"})
        for envelope in (b"\xff\xfe", hostile):
            pairs = [item for pair in (fields | {b"e": envelope}).items() for item in pair]
            await batch.wire.call("XADD", batch.keys.history, "*", *pairs)
        tail = Tail(batch.bus.link, batch.keys)
        await tail.advance(await now_ms(batch))
        named, nameless = tail.refusals[:2]
        assert (nameless.run, nameless.who) == ("", "")
        assert (named.run, named.who) == ("<b>\N{REPLACEMENT CHARACTER}[31mred", "w 1")


# --- one poller -------------------------------------------------------------------------------------------


class Source:
    """Something to look at; `broken` is raised instead."""

    def __init__(self) -> None:
        self.looks = 0
        self.broken: Exception | None = None

    async def look(self) -> int:
        """How often it was looked at."""
        self.looks += 1
        if self.broken is not None:
            raise self.broken
        return self.looks


async def test_two_who_look_are_one_reader_and_none_is_nobody() -> None:
    """Twenty tabs must not be twenty pollers, and no tab not one."""
    source = Source()
    feed = Feed(source.look, lambda _: 3600)
    first, second = feed.follow(), feed.follow()
    assert source.looks == 0
    assert (await soon(anext(first))).seen == (await soon(anext(second))).seen == 1
    assert source.looks == 1
    await first.aclose()
    assert (feed.lookers, feed.polling) == (1, True)
    await second.aclose()
    assert (feed.lookers, feed.polling) == (0, False)
    async with contextlib.aclosing(feed.follow()) as again:  # and what nobody kept up to date is not shown
        assert (await soon(anext(again))).seen == 2


async def test_a_poller_outlives_the_moment_between_a_page_and_its_stream() -> None:
    """A page is read, and then its stream is opened: the batch is not read from the beginning again."""
    source = Source()
    feed = Feed(source.look, lambda _: 3600, linger=3600)
    async with contextlib.aclosing(feed.follow()) as page:
        await soon(anext(page))
    async with contextlib.aclosing(feed.follow()) as stream:
        assert (await soon(anext(stream))).seen == 1
        feed._linger = 0.01  # from here on the moment may be over as soon as it likes
    await until(lambda: not feed.polling, "the poller to stop after all")
    assert source.looks == 1


async def test_who_comes_back_is_told_only_what_is_newer() -> None:
    """A browser says which moment it saw last."""
    source = Source()
    feed = Feed(source.look, lambda _: 0.001)
    async with contextlib.aclosing(feed.follow()) as always:
        number = (await soon(anext(always))).number
        async with contextlib.aclosing(feed.follow(after=number)) as back:
            assert (await soon(anext(back))).number > number


async def test_trouble_is_told_with_what_was_seen_last_and_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes away and comes back; nobody has to do anything."""
    monkeypatch.setattr("workers.watching.feed._AGAIN", 0.001)
    source = Source()
    feed = Feed(source.look, lambda _: 0.001)
    async with contextlib.aclosing(feed.follow()) as moments:
        assert not (await soon(anext(moments))).trouble
        source.broken = ServerUnreachable("it is gone")
        trouble = await soon(first_with(moments, lambda moment: bool(moment.trouble)))
        assert (trouble.trouble, trouble.seen is not None) == ("it is gone", True)
        source.broken = None
        assert (await soon(first_with(moments, lambda moment: not moment.trouble))).seen is not None


async def first_with(moments: AsyncIterator[Moment[int]], fits: Callable[[Moment[int]], bool]) -> Moment[int]:
    """The first moment that fits."""
    async for moment in moments:
        if fits(moment):
            return moment
    raise AssertionError("it ended")


async def test_an_unforeseen_error_ends_those_who_follow_and_does_not_leave_them_waiting() -> None:
    """A stream that says nothing for ever looks like a batch in which nothing happens."""
    source = Source()
    source.broken = ZeroDivisionError("unforeseen")
    with pytest.raises(ZeroDivisionError):
        await soon(anext(Feed(source.look, lambda _: 0).follow()))


async def test_a_server_that_stops_lets_everybody_go() -> None:
    """Those who have seen something, and those who wait for it."""
    feed = Feed(Source().look, lambda _: 3600)

    async def count() -> int:
        return len([moment async for moment in feed.follow()])

    following = [asyncio.create_task(count()) for _ in range(2)]
    await until(lambda: feed.lookers == 2, "both to follow")
    await asyncio.sleep(0)
    feed.end()
    assert await soon(asyncio.gather(*following)) in ([1, 1], [0, 0])
    assert not feed.polling


@pytest.mark.parametrize(
    ("status", "ended", "state"),
    [
        (BatchStatus.OPEN, 1, "open"),
        (BatchStatus.DRAINED, 1, "open"),
        (BatchStatus.DRAINED, 2, "closing"),
        (BatchStatus.CLOSED, 2, "closed"),
        (BatchStatus.INCONCLUSIVE, 2, "inconclusive"),
    ],
)
async def test_a_batch_is_closing_when_all_its_runs_have_ended(
    server: Target, status: BatchStatus, ended: int, state: str
) -> None:
    """`drained` only says that all runs were admitted, which a small batch's are at once."""
    async with opened(server.address(), runs=2) as batch:
        counters = await batch.bus.counters(batch.name)
    assert state_of(replace(counters, status=status, scored=ended)) == state
