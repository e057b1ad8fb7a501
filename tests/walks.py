"""Every script once, each applied: for tests that ask the same of all of them.

async for step in steps(batch):      # the pipeline's joint steps, on a batch that was opened with SPEC
    await step.send()                # its one script call; the walk goes on from what was answered
for session in grants(fence):        # sessions of a fence that between them commit each of its operations
    …
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial

from bus.archived import NOTHING, Segment, claim, retire_segment
from bus.contract import CONTRACT
from bus.envelopes import encode
from bus.fences.admission import Admission
from bus.fences.fence import Channel
from bus.port import Entry, Group, Held, Judgement, Ref
from bus.retiring import Archived, remove_keys, retire
from bus.scripts import script
from bus.tombstones import Tombstone
from bus.types import BatchId, Digest, Gen, LeaseId, Verb
from bus.values import NextRuns
from tests.batches import P1, S1, W1, Batch
from tests.both import shortest_sessions
from tests.driver import Session
from tests.model_calls import LIMITS
from tests.tool_calls import INVERSES
from tests.walk_parts import Holder, Step, judge_call, model_calls, tool_calls, turn
from workers.runtime import SystemRuntime

__all__ = ["SPEC", "Step", "grants", "steps"]

LONG = 3_600_000  # ms: nothing falls silent for so long while a test runs

SPEC: Mapping[str, object] = {
    "runs": 7,
    "judge_policy": "review",
    "limits": {**LIMITS, "heartbeat_ms": LONG, "ack_bound_ms": LONG, "inverses": INVERSES},
}

ADMITTED = 6  # of the runs; the last one is never admitted

WORK: tuple[tuple[Callable[[Holder], AsyncIterator[Step]], ...], ...] = ((model_calls,), (tool_calls, turn), (), (), ())
"""What the holders do of the runs that are sealed."""


def grants(fence: str) -> list[Session]:
    """For each operation of a fence, the shortest session that commits it."""
    found = shortest_sessions(fence)
    return [found[f"{op} {Verb.COMMIT.value}"] for op in CONTRACT[fence].ops]


async def steps(batch: Batch) -> AsyncIterator[Step]:
    """Every script of `lua/run`, in an order in which each has something to do. Whoever takes a step sends it."""
    bus, name, runs = batch.bus, batch.name, batch.runs
    yield Step("run.admit", partial(batch.admit, ADMITTED))

    # c0 is handed back, and comes again behind the others; c1 is a hole; the message of c2 is lost, and sent anew
    entry = await batch.delivered()
    yield (claim := Step("run.claim", partial(bus.claim, entry, LeaseId("w0"), W1)))
    yield Step("run.yield", partial(bus.give_back, _ref(entry, claim)))
    entry = await batch.delivered()
    yield (claim := Step("run.claim", partial(bus.claim, entry, LeaseId("w1"), W1)))
    yield Step("run.hole", partial(bus.hole, _ref(entry, claim), "solver_error", "boom"))
    lost = await batch.delivered()
    await batch.wire.call("XDEL", batch.keys.stream("runs"), lost.id)
    [empty] = await bus.own_pending(Group.WORKER, W1, [name], 10)
    yield Step("run.bury", partial(bus.dead_letter, empty, W1, "unreadable"))
    yield Step("run.requeue", partial(bus.requeue, name, Group.WORKER, lost.run, lost.id))

    # c3, c4, c5, c0, c2: held, and sealed; the first without a workspace
    for number, work in enumerate(WORK):
        entry = await batch.delivered()
        yield (claim := Step("run.claim", partial(bus.claim, entry, LeaseId(f"w{number}+"), W1)))
        ref = _ref(entry, claim)
        yield Step("run.heartbeat", partial(bus.heartbeat, Group.WORKER, W1, Held((ref,), (entry,))))
        holder = Holder(batch, ref, entry)
        yield (append := Step("run.append", partial(bus.append, ref, holder.head, 1, ["{}", "[]"])))
        holder.stand(append)
        for part in work:
            async for step in part(holder):
                yield step
        head, seq, tree = holder.head, holder.length + 1, "tree" if number else ""
        yield Step("run.seal", partial(bus.seal, holder.ref, head, seq, "answer", tree, tree and "artifact"))

    # the first score is handed back, and comes behind the others; the second is a hole
    entry = await batch.delivered(S1, Group.SCORER)
    yield (claim := Step("run.score_claim", partial(bus.score_claim, entry, LeaseId("s0"), S1)))
    yield Step("run.score_yield", partial(bus.score_give_back, _ref(entry, claim)))
    entry = await batch.delivered(S1, Group.SCORER)
    yield (claim := Step("run.score_claim", partial(bus.score_claim, entry, LeaseId("s1"), S1)))
    yield Step("run.score_hole", partial(bus.score_hole, _ref(entry, claim), "scorer_error", "boom"))

    # the third asks a model, and another judge answers than was bound: it is parked, until it is bound to that one
    entry = await batch.delivered(S1, Group.SCORER)
    yield (claim := Step("run.score_claim", partial(bus.score_claim, entry, LeaseId("s2"), S1)))
    async for step in judge_call(batch, _ref(entry, claim)):
        yield step
    other = replace(_judgement(claim), judge="another")
    yield Step("run.score", partial(bus.score, _ref(entry, claim), other), "in_doubt judge_mismatch")
    yield Step("run.rebind", partial(bus.rebind, name, entry.run, 1, "candidate", "another"))
    for number in range(ADMITTED - 2):
        entry = await batch.delivered(S1, Group.SCORER)
        yield (claim := Step("run.score_claim", partial(bus.score_claim, entry, LeaseId(f"s{number}+"), S1)))
        yield Step("run.score", partial(bus.score, _ref(entry, claim), _judgement(claim)))

    yield Step("run.abandon", partial(bus.abandon, name, ADMITTED, runs[ADMITTED:], "budget"))
    yield Step("run.close", partial(bus.close, name, "snapshot", ADMITTED - 2))

    async for step in _of_a_second_judge(batch):
        yield step
    async for step in _of_a_swept_batch(batch):
        yield step
    async for step in _of_an_archived_batch(batch):
        yield step
    async for step in _of_a_pruned_batch(batch):
        yield step


async def _of_a_second_judge(batch: Batch) -> AsyncIterator[Step]:
    """A batch over the runs that the first one has sealed."""
    bus, name = batch.bus, BatchId(f"{batch.name}-rescored")
    yield Step("run.create", partial(bus.create, replace(batch.spec, batch=name, source=batch.name)))
    adopt = partial(bus.adopt, name, batch.name, NextRuns(0, batch.runs, [], P1, "candidate", "another"))
    yield (adopted := Step("run.adopt", adopt))
    assert adopted.answered["why_stopped"] == "drained"


async def _of_a_swept_batch(batch: Batch) -> AsyncIterator[Step]:
    """A place at the desk of runs that expires; and what is told to a batch whose server was restarted."""
    bus, run = batch.bus, batch.runs[0]
    declared = replace(batch.spec, batch=BatchId(f"{batch.name}-swept"))
    keys = bus.keys(declared.batch)
    yield Step("run.create", partial(bus.create, declared))
    yield Step("run.admit", partial(replace(batch, spec=declared, keys=keys).admit, 1))
    lease = await batch.wire.call("HGET", keys.run(run), "place")
    await batch.wire.call("HSET", keys.batch_row, "clock", 1_000)
    fence = Admission(Channel(bus.link, keys, SystemRuntime()))
    place = {"run": run, "step": run, "lease": lease.decode()}
    yield Step("admission.expire", partial(fence.send, "expire", place))
    await batch.wire.call("HSET", keys.batch_row, "clock", 1_000 + declared.reclaim_ms)
    yield (swept := Step("run.sweep", partial(bus.sweep, declared.batch, 50)))
    assert swept.answered == {"freed": 1}
    envelope = {"envelope": encode({"server": "another life"})}
    places = {"batch": keys.batch_row, "history": keys.history}
    yield Step("run.restarted", partial(bus.link.run, script("run.restarted"), places, envelope))


async def _of_an_archived_batch(batch: Batch) -> AsyncIterator[Step]:
    """A history of which all but the newest entry is on a disk."""
    bus = batch.bus
    declared = replace(batch.spec, batch=BatchId(f"{batch.name}-archived"))
    name, keys = declared.batch, bus.keys(declared.batch)
    yield Step("run.create", partial(bus.create, declared))
    yield Step("run.abandon", partial(bus.abandon, name, 0, batch.runs, "budget"))
    yield (held := Step("run.archive_claim", partial(claim, bus, name, "an archivist", "somebody", "here", 60_000)))
    assert held.answered == {"epoch": 1}
    [[first, _], *_] = await batch.wire.call("XRANGE", keys.history, "-", "+")
    segment = Segment(1, first.decode(), first.decode(), 1, 1, "a" * 64, NOTHING, Digest("b" * 64))
    yield Step("run.archive", partial(retire_segment, bus, name, "an archivist", 1, segment))


async def _of_a_pruned_batch(batch: Batch) -> AsyncIterator[Step]:
    """A batch whose runs are all holes, retired, and what is left of it removed."""
    bus = batch.bus
    declared = replace(batch.spec, batch=BatchId(f"{batch.name}-pruned"))
    name, keys = declared.batch, bus.keys(declared.batch)
    yield Step("run.create", partial(bus.create, declared))
    yield Step("run.abandon", partial(bus.abandon, name, 0, batch.runs, "budget"))
    yield Step("run.close", partial(bus.close, name, "snapshot", 0), "reject below_quorum")
    info = await bus.info(name)
    assert info is not None
    [[last, _]] = await batch.wire.call("XREVRANGE", keys.history, "+", "-", "COUNT", 1)
    left = Tombstone("/archive", 3, Digest("a" * 64), "b" * 64, "inconclusive")
    archived = Archived(name, info.incarnation, last.decode(), left)
    yield Step("run.retire", partial(retire, bus, archived, [one for one in await bus.batches() if one != name]))
    doomed = [key.decode() for key in await batch.wire.call("KEYS", bus.keys(name).every)]
    # One call: `clear` may make several, by what a scan finds.
    yield Step("run.remove", partial(remove_keys, bus, name, left, doomed, replace(left, cleared=True)))


def _ref(entry: Entry, claim: Step) -> Ref:
    """What a claim's call granted."""
    told, call = claim.answered, claim.call
    assert isinstance(call, partial)
    lease_id = call.args[1]
    if claim.script == "run.score_claim":
        return Ref(entry.batch, entry.run, lease_id, Gen(told["epoch"]))
    return Ref(entry.batch, entry.run, lease_id, Gen(told["gen"]), told["conversation"], told["epoch"])


def _judgement(claim: Step) -> Judgement:
    """What a scorer signs that has judged as it was told."""
    told = claim.answered
    return Judgement(
        told["head"], told["tree_hash"], told["candidate"], told["judge"], told["judge_epoch"], "pass", "1"
    )
