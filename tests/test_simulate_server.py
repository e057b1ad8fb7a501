"""A simulated server dies, is lost with its last moments, or has a clock that jumps."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from bus.chain import EMPTY_HEAD, next_head
from bus.memory import steps as memory_steps
from bus.memory.batch import MemoryBatch
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import Bus, Entry, Group, Held, Judgement, NextRuns, Ref
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import ConsumerId, Decision, Digest, LeaseId
from tests.batches import FixedDoor
from tests.simulated import quiet
from workers.batch_spec import spec_of
from workers.runtime import SystemRuntime
from workers.simulating.clock import VirtualLoop
from workers.simulating.faults import Fault, Listed
from workers.simulating.findings import find, undisturbed
from workers.simulating.play import Crew, Played, play
from workers.simulating.schedule import Schedule
from workers.simulating.server import Server
from workers.simulating.setting import BATCH, Setting, built_in

_SAME = ("admitted", "attempts", "conversation", "cursor", "head", "length", "tree_hash", "unresolved", "why_stopped")
"""Of answers, what no clock and no random id is in."""

SERVER = ("server-restart", "server-lost", "server-clock")


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with quiet():
        yield


def played_with(setting: Setting, *faults: Fault, crew: Crew | None = None) -> Played:
    """These faults and no others."""
    return play(setting, "a test", Listed(faults), crew or Crew())


def told(played: Played, fence: str, op: str, verb: str = "commit") -> list[dict[str, Any]]:
    """The history's lines of one operation that was answered so."""
    lines = [json.loads(line) for line in played.lines]
    return [line for line in lines if (line.get("fence"), line.get("op"), line.get("verb")) == (fence, op, verb)]


# --- a restart --------------------------------------------------------------------------------------------


def test_a_restart_voids_every_lease_and_the_batch_goes_on_to_its_end() -> None:
    """The first step that reaches the new life is refused, raises the floor, and is asked again."""
    setting = built_in("plain")
    played = played_with(setting, Fault("worker-1", "append", 1, "server-restart", 0.5))
    finding = find(setting, played)
    assert finding.violations == ()
    assert [line["answer"]["floor"] > 1e9 for line in told(played, "run", "restarted")] == [True]
    assert finding.checked.leases.voided >= 1
    assert len(finding.checked.scored) == setting.suite.intended


def test_a_lease_that_a_restart_made_void_is_no_attempt() -> None:
    """More restarts than a run has deliveries, each while it is held: it ends scored, and not as poison."""
    setting = built_in("plain")
    often = 2 * setting.suite.max_deliveries
    faults = [Fault("worker-1", "append", number, "server-restart", 0.1) for number in range(1, often + 1)]
    played = played_with(setting, *faults, crew=Crew(workers=1))
    finding = find(setting, played)
    assert len(played.faults) == often
    assert finding.checked.leases.voided > often
    assert finding.violations == ()
    assert finding.checked.holes == {}


def test_a_step_whose_answer_died_with_the_server_is_known_again_by_the_next_life() -> None:
    """A seal was applied, nobody heard of it, and its lease is void: its copy is a duplicate all the same."""
    played = played_with(built_in("plain"), Fault("worker-1", "seal", 1, "server-restart", 0.2))
    assert len(told(played, "run", "seal", "duplicate")) == 1


def test_a_copy_of_a_step_that_was_sent_to_an_earlier_life_changes_nothing() -> None:
    """It arrives when the batch knows another one."""
    setting = built_in("plain")
    played = played_with(
        setting,
        Fault("worker-1", "append", 1, "repeated", 2.0),
        Fault("worker-2", "append", 1, "server-restart", 0.1),
    )
    assert len(played.faults) == 2
    assert find(setting, played).violations == ()
    assert told(played, "transcript", "append", "duplicate") == []


def test_a_server_whose_floor_counts_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of the life before are taken for live: each step of theirs is a violation."""

    def only_told(at: MemoryBatch, server: str) -> int:
        at.server = server
        return at.now_ms()

    setting = built_in("plain")
    undisturbed(setting)
    monkeypatch.setattr(memory_steps, "raise_floor", only_told)
    played = played_with(setting, Fault("worker-1", "append", 1, "server-restart", 0.0))
    assert "run.P1" in [one.id for one in find(setting, played).violations]


async def _two_restarts(bus: Bus, restart: Callable[[str], None]) -> list[str]:
    """A run is claimed and sealed, then scored, and in the middle of either the server is restarted: what was said."""
    suite, said = built_in("model").suite, []
    worker, names = ConsumerId("w"), (LeaseId(f"L{number}") for number in itertools.count(1))

    def tell(decision: Decision) -> Mapping[str, Any]:
        told = {name: decision.answer[name] for name in sorted(decision.answer) if name in _SAME}
        said.append(f"{decision.by} {decision.verb.value} {decision.reason} {told}")
        return decision.answer

    async def claimed(entry: Entry) -> Ref:
        lease = next(names)
        answer = tell(await bus.claim(entry, lease, worker))
        return Ref(BATCH, entry.run, lease, answer["gen"])

    async def scoring(entry: Entry) -> Ref:
        lease = next(names)
        answer = tell(await bus.score_claim(entry, lease, worker))
        return Ref(BATCH, entry.run, lease, answer["epoch"])

    async def judged(ref: Ref) -> None:
        row = (await bus.rows(BATCH, [ref.run]))[0]
        tell(await bus.score(ref, Judgement(Digest(row.head), "", "candidate", "judge", 1, "pass", "1")))

    tell(await bus.create(spec_of(suite, BATCH)))
    tell(await bus.admit(BATCH, NextRuns(0, suite.run_ids()[:1], [], ConsumerId("p"), "candidate", "judge")))
    [entry] = await bus.read(Group.WORKER, worker, [BATCH], 1, 1)
    old = await claimed(entry)
    tell(await bus.append(old, EMPTY_HEAD, 1, ["one"]))
    restart("another")
    tell((await bus.heartbeat(Group.WORKER, worker, Held([old], [])))[0])
    tell(await bus.append(old, next_head(EMPTY_HEAD, "one"), 2, ["two"]))
    tell(await bus.give_back(old))
    tell(await bus.hole(old, "solver_error", ""))
    tell(await bus.claim(entry, old.lease_id, worker))
    new = await claimed(entry)
    said.append(f"minted on: {new.gen > old.gen + 1_000}")
    tell(await bus.append(old, next_head(EMPTY_HEAD, "one"), 2, ["two"]))
    tell(await bus.seal(new, next_head(EMPTY_HEAD, "one"), 2, "two", "", ""))
    [entry] = await bus.read(Group.SCORER, worker, [BATCH], 1, 1)
    old = await scoring(entry)
    restart("a third")
    await judged(old)
    tell(await bus.score_give_back(old))
    tell((await bus.heartbeat(Group.SCORER, worker, Held([old], [])))[0])
    new = await scoring(entry)
    said.append(f"minted on: {new.gen > old.gen}")
    await judged(old)
    await judged(new)
    row = (await bus.rows(BATCH, [new.run]))[0]
    said.append(f"{row.state} {row.attempts} {row.score_attempts}")
    counters = await bus.counters(BATCH)
    return [*said, str(counters.refusals), str(counters.bins)]


async def test_a_server_and_the_bus_in_memory_say_the_same_of_a_restart(server: Target) -> None:
    """What is void, what is no attempt, and who is refused for what, by the very same steps on both."""
    in_memory = MemoryWorld(SystemRuntime())
    in_memory.server = "the first"
    told = await _two_restarts(MemoryBus(in_memory, SystemRuntime()), lambda life: setattr(in_memory, "server", life))
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    wire = await bus.link.wire()
    try:
        assert await _two_restarts(bus, lambda life: setattr(wire, "server", life)) == told
    finally:
        await bus.aclose()
    assert any("stale_lease" in line for line in told)


# --- a lost tail ------------------------------------------------------------------------------------------


def test_what_a_lost_server_had_answered_is_not_there_any_more() -> None:
    """A run was sealed, and its worker went on to the next; behind the failover it is claimed and sealed anew."""
    setting = built_in("plain")
    quietly = played_with(setting, crew=Crew(workers=1))
    played = played_with(setting, Fault("worker-1", "seal", 1, "server-lost", 0.3), crew=Crew(workers=1))
    finding = find(setting, played)
    assert finding.violations == ()
    assert len(told(played, "transcript", "seal")) == len(told(quietly, "transcript", "seal"))
    assert len(told(played, "run", "restarted")) == 1
    [back] = [_time(line) for line in told(played, "run", "restarted")]
    assert min(_time(line) for line in told(played, "transcript", "seal")) > back


def test_the_endpoints_books_are_not_compared_where_a_licence_may_be_lost() -> None:
    """The prompt left; that it was licensed nobody knows. That is said, and nothing else is."""
    setting = built_in("model")
    played = played_with(setting, Fault("worker-1", "open_call", 1, "server-lost", 0.9))
    assert played.books is None
    finding = find(setting, played)
    assert finding.violations == ()
    assert finding.checked.tokens.lab is None


def test_a_batch_that_was_closed_is_not_opened_by_a_failover() -> None:
    """Who closes waits until it would survive."""
    setting = built_in("plain")
    played = played_with(setting, Fault("planner-1", "close", 1, "server-lost", 0.05))
    assert len(played.faults) == 1
    assert played.ended
    assert find(setting, played).violations == ()


async def _goes_back() -> None:
    server = Server(asyncio.get_running_loop())
    bus = MemoryBus(server.world, server.clock)
    setting = built_in("plain")
    await bus.create(spec_of(setting.suite, BATCH))
    await bus.admit(BATCH, NextRuns(0, setting.suite.run_ids()[:2], [], ConsumerId("p"), "candidate", "judge"))
    await bus.put_blob(BATCH, b"before")
    server.lose(5.0)
    worker = ConsumerId("w")
    assert len(await bus.read(Group.WORKER, worker, [BATCH], 2, 1)) == 2
    gone = await bus.put_blob(BATCH, b"behind")
    waiting = asyncio.ensure_future(bus.read(Group.WORKER, worker, [BATCH], 2, 60_000))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert len(await waiting) == 2  # the server that follows has given them to nobody
    assert server.world.server == "server-1"
    assert gone not in server.world.blobs[BATCH]
    assert await bus.undelivered(BATCH, Group.WORKER) == 2


def test_the_world_goes_back_whole_and_who_waits_at_a_stream_goes_on_there() -> None:
    """Rows, streams, what was given to whom, and blobs."""
    loop = VirtualLoop()
    loop.run(_goes_back())
    loop.close()


# --- a clock that jumps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-4.0, 4.0])
def test_a_clock_that_jumps_breaks_nothing_and_what_is_timed_is_not_examined(seconds: float) -> None:
    """Forth, everything looks silent at once; back, nothing does for a while."""
    setting = built_in("all")
    played = played_with(setting, Fault("worker-1", "tool_sent", 1, "server-clock", seconds))
    assert len(played.faults) == 1
    assert not played.timed
    finding = find(setting, played)
    assert finding.violations == ()
    examined = {check.property.partition(":")[0]: check.examined for check in finding.checks}
    assert (examined["replay.P1"], examined["outbox.P12"], examined["admission.P9"]) == (0, 0, 0)
    assert played.books is not None


def test_entries_grow_also_when_the_clock_goes_back() -> None:
    """As the ids of a stream do."""
    played = played_with(built_in("plain"), Fault("worker-1", "append", 1, "server-clock", -4.0))
    times = [_time(json.loads(line)) for line in played.lines[1:-1]]
    assert len(times) > 20
    assert times == sorted(times)


# --- all of it --------------------------------------------------------------------------------------------


def test_schedules_with_a_failing_server_are_repeated_byte_for_byte() -> None:
    """The copy that is gone back to is made where the fault struck, whoever draws it."""
    several = 0
    for seed in range(8):
        schedule = Schedule(built_in("all"), seed, Crew(planners=2, workers=2), SERVER)
        played, finding = schedule.found()
        assert finding.violations == ()
        again = schedule.of(played.faults).played()
        assert again.faults == played.faults
        assert _digest(again) == _digest(played)
        several += len({fault.kind for fault in played.faults}) > 1
    assert several


def _time(line: dict[str, Any]) -> tuple[int, int]:
    """Of the line's entry."""
    ms, _, count = str(line["id"]).partition("/")[0].partition("-")
    return int(ms), int(count)


def _digest(played: Played) -> str:
    return hashlib.sha256(b"".join(played.lines)).hexdigest()
