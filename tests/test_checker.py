"""The checker on true histories: nothing is broken, and each property says how much it has seen.

The histories are real ones: batches on a server that nothing disturbed, that lost holders, executors and scorers, that
were restarted, and seeded sessions in which everything comes twice, too late, or from somebody else. That it does find
what is false is in `test_checker_tampered.py`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from bus.checker import Books, Checked
from bus.errors import InputError
from bus.export import export
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import Ref
from bus.port_calls import Chunk
from bus.redis_bus import RedisBus
from bus.snapshot import Snapshot
from bus.target import Target
from bus.types import BatchId, Gen, LeaseId, Plane, RunId
from bus.wire import Wire
from tests.batches import Batch, FixedDoor
from tests.explained import eventful
from tests.histories import checked, exported, found, holds, parsed, rechained, whole_history
from tests.limits import FIRST_BUDGET
from tests.model_calls import asked
from tests.model_stage import OnServer
from tests.rescoring import NEW, rescored
from tests.sessions import CALLS_AND_TOOLS, LIFE, STEPS, Session, plain_spec, whole_spec
from tests.soak import times
from tests.stage import BATCH
from tests.twins import ClockedTokens, CountedTokens, MemorySide, ServerSide, Twins

SESSIONS = times(4)
UNREAD = ("max_deliveries", "lease_ms", "gate", "judge_policy")
"""Of the policy: compared with the declaration, and nothing is counted by it."""


def examined(told: Checked) -> dict[str, int]:
    """Property → its denominator."""
    return {one.id: one.examined for one in told.checks}


def count(lines: Sequence[bytes], *names: str, verb: str = "commit") -> int:
    """How many of the lines are such decisions: the denominator that a property of theirs must have."""
    said = [parsed(line) for line in lines[1:-1]]
    return sum(f"{one['fence']}.{one['op']}" in names and one["verb"] == verb for one in said)


async def snapshot_of(bus: RedisBus, batch: BatchId) -> Snapshot:
    """What it would close to as it stands."""
    info = await bus.info(batch)
    assert info is not None
    return Snapshot.from_rows(await bus.rows(batch, await bus.run_ids(batch)), info.spec)


@pytest.fixture
async def whole(server: Target) -> AsyncIterator[Batch]:
    """Three runs, all fences declared, nothing admitted."""
    one = await Batch.open(server.address(), limits=FIRST_BUDGET)
    yield one
    await one.aclose()


# --- what holds, and of how many --------------------------------------------------------------------------


async def test_a_batch_that_nothing_disturbed_holds_and_lost_no_lease(server: Target) -> None:
    """Two runs, five fences, two scores, a snapshot. What the batch does not have was not examined, and says so."""
    batch = await Batch.open(server.address(), runs=2)
    await batch.admit()
    for _ in range(2):
        await batch.scored()
    await batch.closed()
    lines = await exported(batch)
    await batch.aclose()
    told = checked(lines)
    assert holds(told)
    assert (told.state, told.intended, told.entries) == ("closed", 2, len(lines) - 2)
    assert (told.scored, told.holes) == ({"c0#1": "pass", "c1#1": "pass"}, {})
    assert (told.preemptions, told.redeliveries) == (0, 0)
    assert (told.leases.granted, told.leases.scoring, told.leases.handed_back) == (2, 2, 0)
    assert told.ended_ms.keys() == {"c0#1", "c1#1"}
    seen = examined(told)
    assert seen["history.P2"] == len(lines) - 2
    assert (seen["transcript.P2"], seen["histogram.P3"], seen["run.P7"], seen["run.P13"]) == (2, 2, 2, 2)
    assert (seen["snapshot.P1"], seen["close.P2"], seen["snapshot.P2"]) == (2, 2, 1)
    unseen = [one for one in told.checks if one.id.startswith(("outbox.", "ledger.", "join.", "sandbox."))]
    assert {one.examined for one in unseen} == {0}
    assert all(one.says.startswith("nothing to examine: no ") for one in unseen)


async def test_a_batch_of_all_fences_holds_with_the_denominators_of_its_lines(whole: Batch) -> None:
    """Each property of an operation has examined each time that it was applied."""
    lines = await whole_history(whole)
    told = checked(lines)
    assert holds(told)
    seen = examined(told)
    ends = ("histogram.score", "histogram.abandon")
    assert seen["plane.P1"] == count(lines, "plane.write")
    assert seen["outbox.P6"] == count(lines, "outbox.sent")
    assert seen["indoubt.P1"] == count(lines, "indoubt.bind")
    assert seen["completion.P1"] == count(lines, "completion.bind")
    assert seen["histogram.P2"] == count(lines, *ends) == told.intended == 3
    assert seen["judge.P1"] == count(lines, "judge.commit")
    assert seen["transcript.P2"] == count(lines, "transcript.append") > 5
    assert seen["transcript.P4"] == count(lines, "transcript.append", verb="reject")
    assert seen["sandbox.P2"] == count(lines, "sandbox.join")
    assert seen["workspace.P1"] == count(lines, "workspace.attach")
    assert seen["ledger.S1"] == count(lines, "ledger.chunk")
    changes = ("admission.acquire", "admission.release", "admission.reclaim")
    assert seen["admission.P1"] == count(lines, *changes)
    assert seen["join.P1"] == count(lines, "join.result")
    assert (told.tokens.ledger, told.tokens.durable, told.tokens.open) == (30, 30, 0)
    assert (told.effects.committed, told.effects.external) == (1, None)


async def test_a_lease_that_was_superseded_is_a_preemption_and_one_that_was_given_back_is_none(whole: Batch) -> None:
    """Of the eventful batch's leases: two holders of `c0#1` and one scorer fell silent, one handed back, one raised.

    The last claim of `c0#1` told it delivered too often, and ended it: its holder lost it like the others.
    """
    await whole.admit()
    await eventful(whole)
    told = checked(await exported(whole))
    assert holds(told)
    lost = [(one.run, one.lease_id, one.scoring, one.consumer, one.by) for one in told.preempted]
    assert lost == [
        ("c0#1", "L1", False, "w1", "w2"),
        ("c1#1", "L4", True, "s1", "s2"),
        ("c0#1", "L7", False, "w1", "w2"),
        ("c0#1", "L8", False, "w2", "w2"),
    ]
    assert all(one.granted_ms <= one.heard_ms <= one.superseded_ms for one in told.preempted)
    assert (told.preemptions, told.leases.handed_back) == (4, 1)
    assert told.redeliveries == 4  # their messages, given to the next
    assert (told.state, told.holes) == ("open", {"poison": 1, "solver_error": 1})
    assert examined(told)["run.P13"] == 0  # the batch has not closed: nothing has to have ended


async def test_a_restart_of_the_server_voids_what_was_granted_and_no_generation_comes_back(whole: Batch) -> None:
    """The floor is above all generations before it; the lease that it made void is taken over like a silent one."""
    await whole.admit()
    held = await whole.claimed()
    await whole.wire.call("HSET", whole.keys.batch_row, "server", "an earlier life")
    assert (await whole.bus.give_back(held.ref)).reason == "stale_lease"
    again = await whole.claimed(entry=held.entry)
    assert again.ref.gen > held.ref.gen + 1
    told = checked(await exported(whole))
    assert holds(told)
    assert (told.leases.voided, told.preemptions, examined(told)["run.P12"]) == (1, 1, 1)


async def test_what_is_spent_behind_the_close_moves_nothing(whole: Batch) -> None:
    """A late chunk is billed, for it was delivered; the snapshot stands."""
    lines = await whole_history(whole)
    before = checked(lines)
    assert holds(before)
    billed = parsed(lines[found(lines, "ledger", "chunk")])["args"]
    ref = Ref(whole.name, RunId("c0#1"), LeaseId("L1"), Gen(1))
    call = replace(asked(ref), step=billed["step"], attempt=billed["attempt"])
    assert (await whole.bus.flush(ref, call, [Chunk(3, 7)])).reason == "attempt_closed"
    after = await exported(whole)
    assert holds(checked(after))
    assert parsed(after[-1])["snapshot"] == parsed(lines[-1])["snapshot"]
    assert checked(after).tokens.ledger == before.tokens.ledger + 7
    assert checked(after).tokens.durable == before.tokens.durable


# --- seeded sessions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "whole"])
async def test_whatever_was_asked_of_a_batch_no_property_is_broken(server: Target, kind: str) -> None:
    """Seeded sessions of the two buses. Their clock is the batch's own, so the entries' times tell nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    weights = {**(LIFE if kind == "plain" else {**LIFE, **CALLS_AND_TOOLS}), "expire": 0}  # it is not recorded
    clock, wire = ClockedTokens(), await Wire.open(server.address())
    world, seen = MemoryWorld(clock), Counter[str]()
    for seed in range(SESSIONS):
        plane = Plane.SHADOW if kind == "whole" and seed % 3 == 2 else Plane.LIVE
        rng = random.Random(seed)
        spec = plain_spec(seed, rng) if kind == "plain" else whole_spec(seed, rng, plane)
        await wire.call("FLUSHALL")
        bus = RedisBus(FixedDoor(server.address()), CountedTokens(), plane=plane)
        twins = Twins(
            ServerSide(bus, wire, spec),
            MemorySide(world, MemoryBus(world, CountedTokens(), plane=plane), spec, clock),
        )
        await Session(twins, spec, rng, Counter()).play(STEPS[kind], weights, led=kind == "whole")
        told = checked(await exported(Batch(bus, wire, spec, bus.keys(spec.batch))), timed=False)
        assert holds(told)
        assert examined(told)["outbox.P12"] == examined(told)["indoubt.P9"] == 0
        seen += Counter(examined(told))
        await bus.aclose()
    wire.close()
    structlog.reset_defaults()
    assert seen["transcript.P2"] > SESSIONS
    assert seen["run.P1"] > SESSIONS


async def test_a_batch_that_scored_anothers_sealed_runs_holds(server: Target, tmp_path: Path) -> None:
    """It has no transcript of its own: heads and trees came with the runs, and are what was scored."""
    second = await rescored(OnServer(server), tmp_path)
    assert isinstance(second.bus, RedisBus)
    for name in (BATCH, NEW):
        told = checked(await _exported(second.bus, BatchId(name)))
        assert holds(told)
        assert examined(told)["run.P7"] == len(told.scored) == 2
        assert sum(told.holes.values()) == 1
    await second.aclose()


async def _exported(bus: RedisBus, batch: BatchId) -> list[bytes]:
    """What `evalbus export` would write."""
    info = await bus.info(batch)
    assert info is not None
    text = export(bus.link, bus.plane, batch, info, await snapshot_of(bus, batch))
    return [line.encode() async for line in text]


# --- the endpoint's books ---------------------------------------------------------------------------------


async def test_books_that_agree_hold_and_count_what_happened_outside(whole: Batch) -> None:
    """By the keys on the wire; tools that lead elsewhere are not looked up."""
    lines = await whole_history(whole)
    incarnation = next(one for one in map(parsed, lines[1:]) if one["op"] == "create")["envelope"]["incarnation"]
    keys = [f"live:{incarnation}:{intent}" for intent in ("c0#1~0.3.0", "c1#1~0.1.0")]
    books = Books(tokens=30, effects=dict.fromkeys(keys, 1), undone={keys[1]: 1}, tools=frozenset({"book"}))
    told = checked(lines, books)
    assert holds(told)
    assert (told.effects.committed, told.effects.external, told.tokens.lab) == (1, 1, 30)
    seen = examined(told)
    assert [seen[f"effects.P{n}"] for n in (4, 5, 6, 7)] == [1, 1, 1, 2]
    assert seen["tokens.P1"] == 1
    elsewhere = checked(lines, Books(effects={}, tools=frozenset({"mail"})))
    assert holds(elsewhere)
    assert (elsewhere.effects.external, examined(elsewhere)["effects.P4"]) == (0, 0)


# --- what is no history -----------------------------------------------------------------------------------


async def test_what_is_no_export_is_wrong_input_and_no_violation(whole: Batch) -> None:
    """Another file, another version, a part of a file."""
    lines = await whole_history(whole)
    header = parsed(lines[0])
    other = [{"policy": header["policy"] | {name: None}} for name in header["policy"] if name not in UNREAD]
    policies = [*other, {"policy": {}}, {"version": 2}, {"plane": 7}]
    firsts = [json.dumps(header | changed).encode() + b"\n" for changed in policies]
    for first in (b"hello\n", b"[]\n", *firsts):
        with pytest.raises(InputError, match=r"^h\.jsonl:"):
            checked([first, *lines[1:]])
    for cut in ([], lines[:1], lines[:-1], [*lines[:-1], lines[-1][:20]], [*lines[:5], lines[5][:30]]):
        with pytest.raises(InputError, match="truncated"):
            checked(cut)


async def test_lines_that_make_no_sense_are_counted_and_reading_goes_on(whole: Batch) -> None:
    """No edit makes the checker raise: it is evidence, and told as such. Each line in turn is replaced by nonsense."""
    lines = await whole_history(whole)
    nonsense = [b"\n", b"{}\n", b'{"id":1}\n', b"\xff\xfe\n", lines[4][:40] + b"\n", b"[" * 5_000 + b"\n"]
    for index, line in enumerate(nonsense * 3, start=2):
        told = checked([*lines[:index], line, *lines[index + 1 :]])
        assert "history.P1" in {one.id for one in told.broken}
        assert told.entries == len(lines) - 2


async def test_a_value_of_another_kind_anywhere_is_no_traceback(whole: Batch) -> None:
    """Seeded: an argument, an answer or a part of an envelope becomes a number, a list, nothing at all."""
    lines = await whole_history(whole)
    rng = random.Random(6)
    for _ in range(times(60)):
        index = rng.randrange(1, len(lines) - 1)
        said = parsed(lines[index])
        fields = said[rng.choice(["envelope", "args", "answer"])]
        if fields:
            fields[rng.choice(sorted(fields))] = rng.choice([None, -1, 1.5, [], {}, "", [[]], True, "live:"])
        line = json.dumps(said).encode() + b"\n"
        assert checked(rechained([*lines[:index], line, *lines[index + 1 :]])).entries == len(lines) - 2
