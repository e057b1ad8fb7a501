"""The bus in memory against the bus on a server: seeded random sessions of the same steps, compared after each.

Whatever the roles, their late ghosts and an operator may ask of a batch is drawn: what fits, and what comes twice, too
late, from the wrong consumer, for another run or under a forged prefix. After each step the two must agree on the
decision, on everything that the port shows, on the streams and who holds what, on the dead letters, and on what was
written to the history. A difference is a bug on one side, and the failure says after which steps of which seed.

Plain batches are played, and whole ones (`tests.sessions`).
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator

import pytest
import structlog

from bus.memory.bus import MemoryBus, MemoryWorld
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import Plane
from bus.wire import Wire
from tests.batches import FixedDoor
from tests.sessions import CALLS_AND_TOOLS, LIFE, STEPS, Session, plain_spec, whole_spec
from tests.soak import times
from tests.twins import ClockedTokens, CountedTokens, MemorySide, ServerSide, Twins, TwinsDifferError

PLAIN, WHOLE = times(100), times(40)

WANTED = """
create: commit, duplicate, reject batch_mismatch
admit: commit, duplicate, reject schema, reject after_close, reject bound_full, reject duplicate_key,
    reject already_bound
abandon: commit, duplicate, reject schema, reject after_close
claim: commit, duplicate, reject schema, reject lease_reused, reject not_owner, reject ended, reject duplicate_entry,
    reject poison
heartbeat: commit, reject stale_lease
append: commit, duplicate, reject schema, reject run_mismatch, reject stale_gen, reject lease_mismatch, reject sealed,
    reject forged_prefix, reject seq_gap
seal: commit, duplicate, reject schema, reject stale_gen, reject lease_mismatch, reject forged_prefix, reject seq_gap,
    reject run_mismatch
give_back: commit, duplicate, reject stale_lease
hole: commit, duplicate, reject stale_lease
score_claim: commit, duplicate, reject lease_reused, reject not_owner, reject ended, reject duplicate_entry,
    reject judge_failed, reject backpressure
score: commit, duplicate, reject schema, reject stale_lease, reject unbound, reject stale_epoch, reject digest_mismatch,
    reject stale_gen, reject judge_mismatch, reject candidate_mismatch, replay judge_mismatch,
    replay candidate_mismatch, in_doubt judge_mismatch, in_doubt candidate_mismatch
score_give_back: commit, duplicate, reject stale_lease
score_hole: commit, duplicate, reject stale_lease
requeue: commit, duplicate, reject ended, reject still_known
rebind: commit, reject stale_epoch, reject ended, reject after_close
sweep: commit
close: commit, duplicate, reject below_quorum, in_doubt not_drained, in_doubt in_flight
"""

WANTED_WHOLE = """
admit: commit, duplicate, reject after_close, reject bound_full, reject schema
append: commit, reject forged_prefix, reject intent_mismatch, reject schema
bind_call: commit, duplicate, reject attempt_closed, reject forged_prefix, reject not_durable, reject prompt_hash,
    reject retries_exhausted, reject run_mismatch, reject schema, reject stale_lease, replay payload_corrupt,
    in_doubt missing_chunks
bind_judge: reject schema, reject stale_lease
claim: commit, duplicate, reject duplicate_entry, reject ended, reject lease_reused, reject not_owner,
    reject poison, reject retries_exhausted, reject schema
close: commit, duplicate, reject below_quorum, in_doubt in_flight, in_doubt not_drained
drop_call: commit, duplicate
flush: commit, duplicate, reject attempt_closed, reject unknown_attempt
heartbeat: commit, reject stale_epoch, reject stale_lease
join: commit, duplicate, reject late, reject run_mismatch, reject stale_epoch, reject stale_lease, reject stuck,
    reject turning, reject unknown_intent, reject unknown_receipt, reject window_exhausted, in_doubt in_flight
open_call: commit, duplicate, reject already_bound, reject bound_full, reject forged_prefix,
    reject intent_conflict, reject over_budget, reject run_mismatch, reject schema, reject seq_gap,
    reject stale_lease, reject step_in_flight, reject turning, in_doubt dangling
open_judge: commit, reject stale_lease
put_tools: commit, duplicate, reject forged_prefix, reject over_budget, reject run_mismatch, reject stale_lease,
    reject turning
resolve: commit, duplicate, reject forged_prefix, reject intent_mismatch, reject run_mismatch, reject sealed,
    reject seq_gap, reject stale_gen, reject step_in_flight
score: commit, duplicate, reject stale_gen, reject stale_lease
seal: commit, duplicate, reject intent_mismatch, reject schema, reject turning
sweep: commit, freed judge, freed model
tool_claim: commit, duplicate, undo, reject duplicate_entry, reject not_owner, reject poison, reject stuck,
    in_doubt awaiting_ack, compensate
tool_complete: commit, duplicate, reject already_final, reject lease_expired, reject schema, in_doubt missing_echo
tool_requeue: reject ended, reject still_known
tool_sent: commit, duplicate, reject capacity, reject ended, reject not_claimed, reject schema, reject slot_busy,
    reject unknown_intent
turn: commit, duplicate, reject forged_prefix, reject run_mismatch, reject stuck, in_doubt in_flight
write: commit, duplicate, reject run_mismatch, reject stale_epoch, reject stale_lease
"""


def wanted(text: str) -> set[str]:
    """Every decision that must have come up: `claim reject poison`."""
    lines = text.strip().replace(",\n   ", ",").splitlines()
    return {f"{line.split(':')[0]} {word.strip()}" for line in lines for word in line.split(":")[1].split(",")}


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of refusals are meant, and none of them is worth a line."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("quiet")
async def test_both_buses_decide_and_show_the_same_of_a_batch_without_models_and_tools(server: Target) -> None:
    """See the module's text."""
    seen = await played(server, "plain", PLAIN)
    assert wanted(WANTED) - set(seen) == set(), dict(seen)


@pytest.mark.usefixtures("quiet")
async def test_both_buses_decide_and_show_the_same_of_a_batch_with_all_fences(server: Target) -> None:
    """See the module's text."""
    seen = await played(server, "whole", WHOLE)
    assert wanted(WANTED_WHOLE) - set(seen) == set(), dict(seen)


async def played(server: Target, kind: str, sessions: int) -> Counter[str]:
    """How often each decision came up in that many sessions. Every third whole batch is a shadow's."""
    seen: Counter[str] = Counter()
    weights = LIFE if kind == "plain" else {**LIFE, **CALLS_AND_TOOLS}
    planes = [Plane.LIVE] if kind == "plain" else [Plane.LIVE, Plane.LIVE, Plane.SHADOW]
    door, clock = FixedDoor(server.address()), ClockedTokens()
    world = MemoryWorld(clock)
    servers = {plane: RedisBus(door, CountedTokens(), plane=plane) for plane in Plane}
    memories = {plane: MemoryBus(world, CountedTokens(), plane=plane) for plane in Plane}
    wire = await Wire.open(server.address())
    try:
        for seed in range(sessions):
            rng, plane = random.Random(seed), planes[seed % len(planes)]
            spec = plain_spec(seed, rng) if kind == "plain" else whole_spec(seed, rng, plane)
            await wire.call("FLUSHALL")
            twins = Twins(ServerSide(servers[plane], wire, spec), MemorySide(world, memories[plane], spec, clock))
            session = Session(twins, spec, rng, seen)
            try:
                await session.play(STEPS[kind], weights, led=kind == "whole")
            except TwinsDifferError as difference:
                told = "\n".join(session.steps)
                pytest.fail(f"{kind} seed {seed}, {spec}:\n{told}\n{difference}", pytrace=False)
    finally:
        for bus in servers.values():
            await bus.aclose()
        wire.close()
    return seen
