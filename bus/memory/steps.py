"""What the steps of the bus in memory share: the beginning of a command, who holds a run, how a run is let go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bus.memory.batch import RUNS_DESK, Life, MemoryBatch
from bus.memory.command import Command
from bus.memory.restart import ANY_LIFE, raise_floor
from bus.memory.world import MemoryReader
from bus.models import Answer, Verb
from bus.models.join import State as Window
from bus.models.ledger import AttemptId, State
from bus.port import Entry, Group, Receipt, Ref, RunState
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.types import BatchId, ConsumerId, Decision, LeaseId, RunId

__all__ = [
    "EndingSteps",
    "MemorySteps",
    "emit_anew",
    "expire_windows",
    "fence_holder",
    "join_receipts",
    "leave",
    "leave_workspace",
    "make_hole",
    "not_holder",
    "not_on_its_chain",
    "on_chain",
    "result_key",
    "settle",
    "settle_attempt",
]


class MemorySteps(MemoryReader):
    """See the module's text."""

    def _begin(self, name: str, batch: BatchId, run: RunId | None = None, **envelope: object) -> Command:
        """A step that is sent to another life of the server than the batch knows is told so, and sent again."""
        whose = {"plane": self.plane.value, "batch": batch}
        at, presented = self._of(batch), {**whose, **envelope}
        server = self._world.server if self.sent_to is None else self.sent_to
        if at.server != server and name not in ANY_LIFE:
            refused = Command(at, name, run, presented)
            if not refused.malformed:
                refused.refused("server_changed")
                restarted = Command(at, "restarted", None, {**whose, "server": server})
                restarted.done(Answer(Verb.COMMIT, None, {"floor": raise_floor(at, server)}))
        return Command(at, name, run, presented)

    def _held(self, name: str, ref: Ref, **envelope: object) -> Command:
        """A step of a run's holder, on the chain that it knows."""
        return self._begin(
            name, ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, conversation=ref.conversation, **envelope
        )


class EndingSteps(MemorySteps):
    """How an entry is claimed and a run ended, for the worker and the scorer alike."""

    def _not_claimable(
        self, command: Command, group: Group, entry: Entry, lease_id: LeaseId, consumer: ConsumerId
    ) -> Decision | None:
        """What both claims ask first. An entry that nobody will ever need is acknowledged, but by its owner only."""
        at = command.batch
        if lease_id in at.transcript.granted:
            return command.refused("lease_reused")
        if not command.owns(group, entry.id, consumer):
            return command.refused("not_owner")
        if not at.waits_for(group, entry.run) or at.ended:
            command.acknowledge(group, entry.id)
            return command.refused("ended")
        if at.life(entry.run).entry != entry.id:
            command.acknowledge(group, entry.id)
            return command.refused("duplicate_entry")
        return None

    def _give_up(self, command: Command, group: Group, entry: Entry, why: str, detail: str) -> Decision:
        """The run was claimed as often as it may be, and nobody brought it to an end."""
        if not make_hole(command, entry.run, why, detail):
            return command.refused()
        command.emit(Group.PLANNER, entry.run)
        command.acknowledge(group, entry.id)
        return command.done(Answer(Verb.REJECT, why))

    def _begin_hand_back(self, name: str, ref: Ref, machine: str, *, seen: bool) -> Command:
        told = {"machine": machine or None, "seen": int(seen) or None}
        return self._begin(name, ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, **told)

    def _end_as_hole(
        self, name: str, group: Group, ref: Ref, why: str, detail: str, entitled: Callable[[MemoryBatch], bool]
    ) -> Decision:
        """The holder names its lease; an operator has none, and names the generation that he means to end."""
        who = ref.lease_id or "operator"
        command = self._begin(name, ref.batch, ref.run, lease_id=ref.lease_id or None, gen=ref.gen, why=why)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(who) == name and at.histogram.holes.get(ref.run) == why:
            return command.again()
        if not entitled(at):
            return command.refused("stale_lease")
        if not make_hole(command, ref.run, why, detail[:2_000]):
            return command.refused()
        life.ended[who] = name
        at.parked.discard(ref.run)
        command.emit(Group.PLANNER, ref.run)
        command.acknowledge(group, life.entry)
        return command.done()


def on_chain(at: MemoryBatch, ref: Ref) -> dict[str, object]:
    """A worker's token as fence 7 is told it."""
    return {"run": f"{ref.run}~{ref.conversation}", "lease_id": at.chain_lease(ref.run, ref.lease_id), "gen": ref.gen}


def not_on_its_chain(command: Command, ref: Ref) -> Decision | None:
    """Refused before anything of the chain is looked at: it was given up since, or its holder is giving it up."""
    at, life = command.batch, command.batch.life(ref.run)
    if ref.conversation != life.conversation:
        return command.refused("run_mismatch")
    if life.turning and at.holder_is_live(ref.run, ref.lease_id, ref.gen):
        return command.refused("turning")
    return None


def not_holder(command: Command, ref: Ref) -> Decision | None:
    """What a step that is no operation of 4 or 7 asks of its caller: None, or as the fence would that is first."""
    at, life = command.batch, command.batch.life(ref.run)
    if ref.conversation != life.conversation:
        return command.refused("run_mismatch")
    if at.holder_is_live(ref.run, ref.lease_id, ref.gen):
        return None
    if at.has_calls:
        return command.refused("stale_lease")
    token = on_chain(at, ref)
    if at.transcript.granted.get(str(token["lease_id"]), token["run"]) != token["run"]:
        return command.refused("run_mismatch")
    live = at.chain(ref.run).live
    if live is None or live.gen != ref.gen:
        return command.refused("stale_gen")
    return command.refused("lease_mismatch" if live.lease_id != token["lease_id"] else "sealed")


def join_receipts(command: Command, ref: Ref, receipts: Sequence[Receipt]) -> bool:
    """Writes that an event tells of are joined with it, or it is not told."""
    for receipt in receipts:
        write = {"workspace": ref.run, "step": receipt.step, "receipt": receipt.receipt, "epoch": ref.epoch}
        if not receipt.step or not receipt.receipt:
            command.note(command.name, Answer(Verb.REJECT, "schema"))
            return False
        if not receipt.step.startswith(f"{ref.run}~"):  # another run's: this one's row does not hold it
            command.note("sandbox.join", Answer(Verb.REJECT, "unknown_step"), write)
            return False
        if not command.step(command.batch.sandbox, "join", **write):
            return False
    return True


def result_key(plane: str, run: RunId) -> str:
    """The key under which a run's result is written."""
    return f"{plane}:{run}:result"


def emit_anew(command: Command, group: Group, run: RunId) -> None:
    """A new message in the place of the one that counted."""
    life = command.batch.lives[run]
    command.acknowledge(group, life.entry)
    life.entry = command.emit(group, run)


def settle(command: Command, life: Life, desk: str) -> None:
    """Give up the requests that a generation left at a desk; what they may still spend is `sweep`'s."""
    at = command.batch
    for lease, call in life.calls.items():
        if call.desk == desk and at.desks[desk].live.get(call.step) == lease:
            command.step(at.desks[desk], "expire", lease=lease)


def fence_holder(command: Command, run: RunId) -> None:
    """The worker's lease is taken away in every fence that knows it."""
    at, life = command.batch, command.batch.lives[run]
    if at.has_calls and run in at.completion.runs and at.completion.runs[run].live is not None:
        command.step(at.completion, "fence", run=run, gen=life.gen)
    if at.chain(run).live is not None:
        command.step(at.transcript, "fence", run=at.chain_name(run), gen=life.gen)
    life.lease = ""
    leave_workspace(command, run)


def leave_workspace(command: Command, run: RunId) -> None:
    """Its workspace is nobody's any more. One that was silent too long was so already."""
    at, life = command.batch, command.batch.lives[run]
    place = at.sandbox.places.get(run)
    silent = place is None or place.beat_ms is None or at.now_ms() - place.beat_ms >= at.sandbox.heartbeat_ms
    if at.has_disks and not silent:
        command.step(at.sandbox, "preempt", workspace=run, epoch=life.epoch)


def leave(command: Command, run: RunId) -> bool:
    """A run gives its place at the desk back exactly once, when it ends, and its place on its plane."""
    at, life = command.batch, command.batch.lives[run]
    command.step(at.plane, "release", admission=life.place)
    return command.step(at.desks[RUNS_DESK], "release", lease=life.place)


def make_hole(command: Command, run: RunId, why: str, detail: str) -> bool:
    """The run ends as a hole: its lease is taken away, its place given back. False when the histogram refuses."""
    at, life = command.batch, command.batch.lives[run]
    if not command.step(at.histogram, "abandon", run=run, epoch=at.epoch(run), why=why):
        return False
    if life.place:
        settle(command, life, MODEL_DESK)
        settle(command, life, JUDGE_DESK)
        fence_holder(command, run)
        expire_windows(command, life)
        leave(command, run)
    life.scorer_lease = ""
    life.state = RunState.HOLE
    life.detail = detail or life.detail
    return True


def expire_windows(command: Command, life: Life) -> None:
    """Fan-outs that nobody will join any more."""
    for step in life.fan_outs:
        if command.batch.join.cases[step].state is Window.OPEN:
            command.step(command.batch.join, "expire", case=step)


def settle_attempt(command: Command, step: str, attempt: int, figure: int | None) -> bool:
    """An attempt that will not be bound is closed and settled: at the figure, or at what its chunks say.

    Not below what is durable: that much was had. One that was committed or settled before keeps its end.
    """
    ledger, name = command.batch.ledger, {"step": step, "attempt": attempt}
    at = ledger.attempts.get(AttemptId(step, attempt))
    if at is None or at.state is State.COMMITTED or at.settled:
        return True
    if at.state is State.OPEN:
        command.step(ledger, "cut", **name)
    charged = max(at.billed if figure is None else figure, at.durable)
    return command.step(ledger, "reconcile", **name, gateway_billed=charged)
