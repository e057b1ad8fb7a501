"""Whose doing it is when machines hand a run back: a machine's, or the run's own. By both buses, which must agree.

A machine that fails in a way that its own look does not see takes the same run again and again while all others are
busy; and a run that no machine can do must not go round for ever.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bus.chain import EMPTY_HEAD
from bus.checker import Checker
from bus.errors import ArtifactNotFound
from bus.export import export
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import BatchSpec, Group, NextRuns, Ref, RunState
from bus.redis_bus import RedisBus
from bus.replay.replayed import Replay
from bus.scripts import script
from bus.target import Target
from bus.types import ConsumerId, Decision, Gen, LeaseId, RunId
from bus.wire import Wire
from tests.batches import P1, FixedDoor
from tests.sessions import plain_spec
from tests.sources import ROOT
from tests.twins import ClockedTokens, CountedTokens, MemorySide, ServerSide, Side, Twins
from workers import naming
from workers.processes.machine import last_word, machine_error
from workers.usercode import UserCodeError

RUNS = [RunId(f"c{number}#1") for number in range(2)]
MOST = 2
"""Deliveries of a run."""
C = ConsumerId("c")
COMMIT, ITS_OWN = "commit", "reject its_own_doing"


@dataclass(slots=True)
class Table:
    """A batch of two runs on both buses, at the stage of its workers or of its scorers."""

    bus: RedisBus
    twins: Twins
    spec: BatchSpec
    stage: Group
    alone: bool = False
    """Only the server is asked."""
    leases: int = 0

    async def both(self, call: Callable[[Side], Awaitable[Decision]], group: Group | None = None) -> Decision:
        """One step of the stage."""
        if self.alone:
            return await call(self.twins.server)
        decision = await self.twins.both(call, group or self.stage, whole=False)
        assert isinstance(decision, Decision)
        return decision

    async def take(self, group: Group | None = None) -> Ref:
        """The next message of the stage, claimed: a new one, or else the last that was left pending."""
        of = group or self.stage
        self.leases += 1
        lease, runs = LeaseId(f"lease-{self.leases}"), set()

        async def taken(side: Side) -> Decision:
            batches = [self.spec.batch]
            [*_, entry] = await side.bus.read(of, C, batches, 1, 1) or await side.bus.own_pending(of, C, batches, 9)
            runs.add(entry.run)
            claim = side.bus.claim if of is Group.WORKER else side.bus.score_claim
            return await claim(entry, lease, C)

        decision = await self.both(taken, of)
        assert decision.applied, decision
        [run] = runs
        return Ref(self.spec.batch, run, lease, Gen(decision.answer["gen" if of is Group.WORKER else "epoch"]))

    async def hand_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> str:
        """The answer."""

        async def handed(side: Side) -> Decision:
            give_back = side.bus.give_back if self.stage is Group.WORKER else side.bus.score_give_back
            return await give_back(ref, machine, seen=seen)

        return str(await self.both(handed)).partition(" (")[0]

    async def rounds(self, *machines: str, seen: bool = False) -> list[str]:
        """What each is told that takes the next one and hands it back."""
        return [await self.hand_back(await self.take(), machine, seen=seen) for machine in machines]

    async def seal(self, ref: Ref) -> None:
        """Its worker is done with it."""
        assert (await self.both(lambda side: side.bus.seal(ref, EMPTY_HEAD, 1, "answer", "", ""))).applied

    async def end(self, ref: Ref) -> None:
        """Its holder ends it."""

        async def ended(side: Side) -> Decision:
            hole = side.bus.hole if self.stage is Group.WORKER else side.bus.score_hole
            return await hole(ref, "machine_error", "full")

        assert (await self.both(ended)).applied

    async def stands(self, run: RunId) -> tuple[RunState, int]:
        """Its state, and the attempts that count at this stage."""
        [row] = await self.bus.rows(self.spec.batch, [run])
        return row.state, row.attempts if self.stage is Group.WORKER else row.score_attempts

    async def broken(self) -> set[str]:
        """What the checker finds broken in the history, which replay derives again."""
        info = await self.bus.info(self.spec.batch)
        assert info is not None
        checker, replay = Checker("h.jsonl"), Replay("h.jsonl")
        async for line in export(self.bus.link, self.bus.plane, self.spec.batch, info, None):
            checker.feed(line.encode())
            replay.feed(line.encode())
        replay.finish()
        return {one.id for one in checker.finish().broken}


@contextlib.asynccontextmanager
async def laid(target: Target, stage: Group, *, alone: bool = False) -> AsyncIterator[Table]:
    """A table; where nothing is expected to be wrong, nothing is in its history either."""
    spec = replace(plain_spec(1, random.Random(1)), intended=2, quorum=1, max_in_flight=2, max_deliveries=MOST)
    wire, clock = await Wire.open(target.address()), ClockedTokens()
    world, bus = MemoryWorld(clock), RedisBus(FixedDoor(target.address()), CountedTokens())
    memory = MemorySide(world, MemoryBus(world, CountedTokens()), spec, clock)
    table = Table(bus, Twins(ServerSide(bus, wire, spec), memory), spec, stage, alone)
    try:
        await table.both(lambda side: side.bus.create(spec))
        await table.both(lambda side: side.bus.admit(spec.batch, NextRuns(0, RUNS, [], P1, "candidate", "judge")))
        for _ in RUNS if stage is Group.SCORER else ():
            await table.seal(await table.take(Group.WORKER))
        yield table
        assert alone or await table.broken() == set()
    finally:
        await bus.aclose()
        wire.close()


STAGES = pytest.mark.parametrize("stage", [Group.WORKER, Group.SCORER], ids=str)


async def one_machine_again_and_again(table: Table) -> None:
    """The other run is in somebody's hands for long."""
    await table.take()
    assert set(await table.rounds(*["m"] * 60)) == {COMMIT}
    last = await table.take()
    assert (last.run, await table.stands(last.run)) == (RUNS[1], (table_state(table), 1)), "none of them counts"


def table_state(table: Table) -> RunState:
    """In which a run is that somebody holds."""
    return RunState.RUNNING if table.stage is Group.WORKER else RunState.SCORING


@STAGES
async def test_one_machine_says_nothing_of_a_run_however_often_it_hands_it_back(server: Target, stage: Group) -> None:
    """It used up the run's hand-backs in three quarters of an hour, and the run was a hole."""
    async with laid(server, stage) as table:
        await one_machine_again_and_again(table)


@STAGES
async def test_what_five_machines_hand_back_is_the_runs_own_doing(server: Target, stage: Group) -> None:
    """Whoever else is at work. The fifth keeps it, and ends it; so does any other after it."""
    async with laid(server, stage) as table:
        await table.take()
        assert set(await table.rounds("a", "b", "a", "c", "b", "d", "d")) == {COMMIT}
        held = await table.take()
        assert [await table.hand_back(held, machine) for machine in ("e", "f")] == [ITS_OWN, ITS_OWN]
        assert await table.stands(held.run) == (table_state(table), 1), "nothing of it was changed"
        await table.end(held)


@STAGES
async def test_where_nobody_else_is_at_work_a_run_is_handed_back_nine_times(server: Target, stage: Group) -> None:
    """There may be one machine and no other: then it is the tenth time that tells."""
    async with laid(server, stage) as table:
        await table.end(await table.take())
        assert set(await table.rounds(*["m"] * 9)) == {COMMIT}
        held = await table.take()
        assert await table.hand_back(held, "m") == ITS_OWN
        await table.end(held)


@STAGES
async def test_what_a_machine_itself_finds_says_nothing_of_the_run(server: Target, stage: Group) -> None:
    """A store that is away is so for a whole fleet: one machine after the other would say that it is the run."""
    async with laid(server, stage) as table:
        await table.end(await table.take())
        assert set(await table.rounds(*"abcdefghijklmn", seen=True)) == {COMMIT}
        assert set(await table.rounds("a", "b", "c", "d")) == {COMMIT}
        assert await table.rounds("e", seen=True) == [COMMIT]
        assert await table.rounds("e") == [ITS_OWN]


@STAGES
async def test_no_run_goes_round_for_ever(server: Target, stage: Group) -> None:
    """Several processes of one machine may be at work at any time, on runs that it cannot do."""
    async with laid(server, stage) as table:
        await table.take()
        assert set(await table.rounds(*["m"] * 99)) == {COMMIT}
        assert await table.rounds("m") == [ITS_OWN]


@STAGES
async def test_who_has_to_stop_is_counted_apart_from_machines(server: Target, stage: Group) -> None:
    """A run that was handed back by a broken machine keeps what a fleet that is taken away needs."""
    async with laid(server, stage) as table:
        await table.take()
        assert set(await table.rounds(*["m", ""] * 20)) == {COMMIT}
        assert await table.stands(RUNS[1]) == (
            (RunState.QUEUED if stage is Group.WORKER else RunState.SEALED), 0
        )  # fmt: skip
        assert await table.rounds("") == [COMMIT]
        assert (await table.stands(RUNS[1]))[1] == 1, "the 21st is taken for a death"


@STAGES
async def test_what_is_said_twice_is_noted_once(server: Target, stage: Group) -> None:
    """The answer was lost on its way."""
    async with laid(server, stage) as table:
        await table.end(await table.take())
        for _ in range(9):
            held = await table.take()
            assert [await table.hand_back(held, "m") for _ in range(2)] == [COMMIT, "duplicate"]
        assert await table.rounds("m") == [ITS_OWN]


@STAGES
async def test_a_machine_is_one_word(server: Target, stage: Group) -> None:
    """Two in one name would be two in the row."""
    async with laid(server, stage) as table:
        held = await table.take()
        for name in ("a b", "a\tb", "a\x7fb"):
            assert await table.hand_back(held, name) == "reject schema"
        assert await table.hand_back(held, "a·b") == COMMIT


# --- and were it decided otherwise ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mutant:
    """The scripts with one check taken out."""

    check: str
    instead: str


MUTANTS = {
    "counts_by_hand_backs": Mutant(
        "  if not machine then\n    add(run, hand_backs, 1)", "  do\n    add(run, hand_backs, 1)"
    ),
    "counts_by_words": Mutant("if not known then machines", "do machines"),
    "counts_whoever_is_at_work": Mutant("lone = lone + (alone and not seen and 1 or 0)", "lone = lone + 1"),
}


@pytest.fixture
def mutated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Mutant], None]]:
    """Scripts as a mutant has them, until the test ends."""

    def mutate(mutant: Mutant) -> None:
        shutil.copytree(ROOT / "lua", tmp_path / "lua")
        file = tmp_path / "lua" / "include" / "run.lua"
        text = file.read_text()
        assert text.count(mutant.check) == 1
        file.write_text(text.replace(mutant.check, mutant.instead))
        monkeypatch.setenv("EVALBUS_LUA", str(tmp_path / "lua"))
        script.cache_clear()

    yield mutate
    script.cache_clear()


@STAGES
@pytest.mark.parametrize("name", MUTANTS)
async def test_a_rule_that_counts_otherwise_is_found(
    server: Target, mutated: Callable[[Mutant], None], stage: Group, name: str
) -> None:
    """The first is the rule as it was."""
    mutated(MUTANTS[name])
    async with laid(server, stage, alone=True) as table:
        with pytest.raises(AssertionError):
            await one_machine_again_and_again(table)
        assert await table.broken() == {"run.P14"}


def test_what_no_machine_can_do_ends_in_its_own_words() -> None:
    """The code's, where it was the code's; and what was looked for in vain has a name of its own."""
    full = machine_error("/work: No space left on device")
    assert last_word(full, "solver_error") == ("machine_error", "/work: No space left on device")
    assert last_word(ArtifactNotFound("no such bytes"), "scorer_error") == ("artifact_missing", "no such bytes")
    full.__cause__ = UserCodeError("OSError: No space left on device", place="judge.py:3")
    assert last_word(full, "scorer_error") == ("scorer_error", "OSError: No space left on device (judge.py:3)")


def test_processes_on_one_kernel_are_one_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In containers of different names, too. Where no kernel says which it is, hosts of one name are."""
    kernel = tmp_path / "boot_id"
    kernel.write_text("5b1f\n")
    monkeypatch.setattr(naming, "_BOOT", kernel)

    def called(host: str) -> str:
        monkeypatch.setattr("workers.naming.socket.gethostname", lambda: host)
        return naming.this_machine()

    assert called("pod-1") == called("pod-2")
    kernel.unlink()
    assert called("pod-1") != called("pod-2")
    assert called("pod-1") == called("pod-1")
