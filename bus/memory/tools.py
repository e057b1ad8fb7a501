"""The tools of a run's holder in memory: writes, fan-outs announced and joined, and conversations given up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from bus.chain import EMPTY_HEAD, next_head
from bus.envelopes import check_payload
from bus.memory.batch import MemoryBatch, ToolLife
from bus.memory.command import Command
from bus.memory.effects import EffectSteps, args_text, follow, give_up
from bus.memory.steps import expire_windows, join_receipts, not_holder, on_chain
from bus.models import Answer, Verb
from bus.models.join import State as Window
from bus.models.model import fits
from bus.models.outbox import State, undone_by
from bus.models.transcript import Run as Chain
from bus.port import FanOut, Group, IntentRow, IntentState, Receipt, Ref
from bus.types import BatchId, Decision, Digest, RunId
from bus.types import Verb as BusVerb

__all__ = ["ToolSteps"]

_AT_ONCE = 100  # as the scripts: intents of a fan-out, receipts of an event, effects given up in one turn
_OPEN = (State.QUEUED, State.EXECUTING, State.AWAITING_ACK, State.COMPENSATING)


class ToolSteps(EffectSteps):
    """See the module's text."""

    async def write(self, ref: Ref, step: str, path: str, digest: Digest, receipt: str) -> Decision:
        """Say what was put on the holder's disk, under `ref.epoch`. Answer: receipt, log_index."""
        command = self._held("write", ref, epoch=ref.epoch, step=step, path=path, digest=digest, receipt=receipt)
        at = command.batch
        if command.malformed or not step.startswith(f"{ref.run}~{ref.conversation}."):
            return command.refused("schema")
        if refusal := not_holder(command, ref):
            return refusal
        if not command.step(at.sandbox, "plan", step=step, escapes=False):
            return command.refused()
        bytes_of = {"path": path, "digest": digest, "receipt": receipt}
        if not command.step(at.sandbox, "write", workspace=ref.run, step=step, epoch=ref.epoch, **bytes_of):
            return command.refused()
        written = command.last
        return command.again(**written.fields) if written.verb is Verb.DUPLICATE else command.done(written)

    async def put_tools(self, ref: Ref, fan_out: FanOut) -> Decision:
        """Announce a fan-out; one message an intent. Answer: states, in the order of the intents."""
        command = self._held(
            "put_tools", ref, step=fan_out.step, parent=fan_out.parent, seq=fan_out.seq, digest=fan_out.digest,
            window=fan_out.window, window_cost=fan_out.window_cost, intents=len(fan_out.intents),
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not _is_fan_out(ref, fan_out):
            return command.refused("schema")
        if refusal := not_holder(command, ref):
            return refusal
        if life.turning:
            return command.refused("turning")
        names = [intent.id for intent in fan_out.intents]
        case = at.join.cases.get(fan_out.step)
        if case is not None and case.window:
            if case.window != fan_out.window:
                return command.refused("args_mismatch")
            return command.again(states=_states(at, names)) if _put(command, ref, fan_out) else _mismatched(command)
        announced = {"parent": fan_out.parent, "seq": fan_out.seq, "digest": fan_out.digest}
        window = {"case": fan_out.step, "expected": names, "window_cost": fan_out.window_cost}
        granted = (
            command.step(at.transcript, "intend", **on_chain(at, ref), **announced)
            and command.step(at.join, "admit", **window)
            and _put(command, ref, fan_out)
        )
        if not granted:
            return _mismatched(command)
        life.fan_outs[fan_out.step] = fan_out
        at.tools.update({name: ToolLife(ref.run) for name in names})
        follow(command, names)
        return command.done(Answer(Verb.COMMIT, None, {"states": _states(at, names)}))

    async def join(self, ref: Ref, fan_out: FanOut, payload: str, receipts: Sequence[Receipt] = ()) -> Decision:
        """Join a fan-out whose intents have all ended. Answer: head, length."""
        check_payload(payload)
        head = next_head(fan_out.parent, payload)
        command = self._held(
            "join", ref, epoch=ref.epoch, step=fan_out.step, parent=fan_out.parent, seq=fan_out.seq, head=head,
            digest=fan_out.digest, window=fan_out.window, intents=len(fan_out.intents), receipts=len(receipts),
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not payload or not fan_out.intents:
            return command.refused("schema")
        if refusal := not_holder(command, ref):
            return refusal
        if life.turning:
            return command.refused("turning")
        event = {"parent": fan_out.parent, "seq": fan_out.seq, "payload": payload, "intent": fan_out.digest}
        case = at.join.cases.get(fan_out.step)
        if case is not None and case.state is Window.COMMITTED and fan_out.step.startswith(f"{ref.run}~"):
            heads = at.chain(ref.run).heads
            if fan_out.seq <= len(heads) and heads[fan_out.seq - 1] == head:
                return command.again(head=head, length=fan_out.seq)
            if command.step(at.join, "commit", case=fan_out.step, verdict=head):  # in a conversation that was given up
                return command.refused_instead("already_committed")
            return command.refused()
        if waits := _not_joinable(command, ref.run, fan_out):
            return waits
        if not join_receipts(command, ref, receipts):
            return command.refused()
        if not self._results(command, fan_out):
            return command.done_though_refused("join.result") if _is_aborted(command) else command.refused()
        if not command.step(at.join, "commit", case=fan_out.step, verdict=head):
            return command.refused()
        if not command.step(at.transcript, "append", **on_chain(at, ref), **event):
            return command.refused()
        life.writers.setdefault(life.conversation, []).append(ref.gen)
        return command.done(Answer(Verb.COMMIT, None, {"head": head, "length": fan_out.seq}))

    def _results(self, command: Command, fan_out: FanOut) -> bool:
        """Every intent's outcome joins the window; one that was undone joins as a failure."""
        at = command.batch
        for intent in fan_out.intents:
            found = at.outbox.intents[intent.id]
            result = {"window": fan_out.window, "tokens": _tokens(at, fan_out.step, found.observation)}
            ok = found.state is State.COMMITTED
            if not command.step(at.join, "result", case=fan_out.step, attempt=intent.id, ok=ok, **result):
                return False
        return True

    async def turn(self, ref: Ref, abandoned: Digest, payload: str) -> Decision:
        """Give the conversation up and begin the next one. Answer: conversation, head, length."""
        check_payload(payload)
        head, following = next_head(EMPTY_HEAD, payload), ref.conversation + 1
        command = self._held("turn", ref, abandoned=abandoned, head=head)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not payload:
            return command.refused("schema")
        begun = {"conversation": following, "head": head, "length": 1}
        heads = at.chain(ref.run).heads
        live = at.holder_is_live(ref.run, ref.lease_id, ref.gen)
        if life.conversation == following and live and heads and heads[0] == head:
            return command.again(**begun)
        if refusal := not_holder(command, ref):
            return refusal
        if abandoned != at.chain(ref.run).head:
            return command.refused("forged_prefix")
        life.turning = True
        names = _latest_first(at, ref.run)
        waits = self._undone(command, ref, names)
        if waits is None:
            return command.refused()
        follow(command, names)
        if waits:
            return command.done(Answer(Verb.IN_DOUBT, "in_flight"))
        return self._turned(command, ref, payload) or command.done(Answer(Verb.COMMIT, None, begun))

    def _undone(self, command: Command, ref: Ref, names: Sequence[str]) -> bool | None:
        """Give up or undo what was asked for; True while something has not ended, None when something never will."""
        at, plane, changed, waits = command.batch, self.plane.value, 0, False
        for name in names:
            intent = at.outbox.intents[name]
            if intent.state is State.STUCK:
                command.note(command.name, Answer(Verb.REJECT, "stuck"))
                return None
            never_left = intent.state in (State.QUEUED, State.EXECUTING)
            revocable = intent.state is State.COMMITTED
            waits = waits or intent.state in (State.AWAITING_ACK, State.COMPENSATING)
            if not never_left and not revocable:
                continue
            changed += 1
            if changed > _AT_ONCE:
                waits = True
            elif never_left and not give_up(command, name, ref.lease_id, "turned"):
                return None
            elif revocable:
                waits = True
                place = {"admission": at.tools[name].admission, "key": f"{plane}:{ref.run}:{name}", "plane": plane}
                revoked = command.step(at.outbox, "revoke", intent_id=name, gen=intent.gen)
                if not revoked or not command.step(at.plane, "undo", **place):
                    return None
        return waits

    def _turned(self, command: Command, ref: Ref, payload: str) -> Decision | None:
        """The new chain is another run to fence 7, under a lease of its own name and of the same generation."""
        at, life, following = command.batch, command.batch.lives[ref.run], ref.conversation + 1
        new, lease_id = f"{ref.run}~{following}", f"{ref.lease_id}~{following}"
        command.step(at.transcript, "fence", run=at.chain_name(ref.run), gen=ref.gen)
        if not command.step(at.indoubt, "turn", run=ref.run, epoch=following):
            return command.refused()
        expire_windows(command, life)
        at.transcript.runs[new] = Chain(gen=ref.gen - 1)
        command.step(at.transcript, "lease", run=new, lease_id=lease_id)
        first = {"parent": EMPTY_HEAD, "seq": 1, "payload": payload}
        command.step(at.transcript, "append", run=new, lease_id=lease_id, gen=ref.gen, **first)
        life.conversation, life.turning = following, False
        life.intended, life.fan_outs = {}, {}
        life.writers[following] = [ref.gen]
        return None

    async def tool_requeue(self, batch: BatchId, run: RunId, intent: str) -> Decision:
        """Emit an effect's message anew when its group no longer knows the one that the run's row names.

        Answer: entry. `reject ended`: nobody has to be given it any more. `reject still_known`: it will be delivered.
        """
        effect = self._of(batch).tools.get(intent)
        if effect is None or effect.run != run or effect.entry is None:
            return Decision(BusVerb.REJECT, "ended", "run.tool_requeue")
        command = self._begin("tool_requeue", batch, run, intent_id=intent, entry=effect.entry)
        if command.batch.streams[Group.TOOLS].knows(effect.entry):
            return command.refused("still_known")
        command.acknowledge(Group.TOOLS, effect.entry)
        effect.entry = None
        follow(command, [intent])
        return command.done(Answer(Verb.COMMIT, None, {"entry": effect.entry}))

    # --- reading -------------------------------------------------------------------------------------------

    async def intents(self, batch: BatchId, run: RunId, ids: Sequence[str]) -> list[IntentRow]:
        """Intents as they stand, those that exist, in the order given."""
        at = self._of(batch)
        return [_row(at, name) for name in ids if at.has_effect(run, name)]

    async def effects(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """Every intent of a run and every undo, by id."""
        at = self._of(batch)
        return sorted((_row(at, name) for name, tool in at.tools.items() if tool.run == run), key=lambda row: row.id)

    async def doubts(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """A run's intents that are sent and not known to have ended, compensating, or stuck; undos among them."""
        doubtful = (IntentState.AWAITING_ACK, IntentState.COMPENSATING, IntentState.STUCK)
        return [row for row in await self.effects(batch, run) if row.state in doubtful]


def _is_fan_out(ref: Ref, fan_out: FanOut) -> bool:
    """Intents of this step, each once, whose arguments are JSON objects."""
    names = [intent.id for intent in fan_out.intents]
    mine = f"{ref.run}~{ref.conversation}."
    return (
        0 < len(names) <= _AT_ONCE
        and len(set(names)) == len(names)
        and fan_out.step.startswith(mine)
        and all(_is_name(name, fan_out.step) for name in names)
        and all(intent.tool and _object(intent.args) is not None for intent in fan_out.intents)
    )


def _is_name(name: str, step: str) -> bool:
    return name.startswith(f"{step}.") and ":" not in name and undone_by(name) is None


def _object(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _put(command: Command, ref: Ref, fan_out: FanOut) -> bool:
    outbox = command.batch.outbox
    return all(
        command.step(outbox, "put", intent_id=one.id, gen=ref.gen, tool=one.tool, args=_object(one.args))
        for one in fan_out.intents
    )


def _mismatched(command: Command) -> Decision:
    """Refused; what was stored instead is told as text, as it was put."""
    stored = command.last.fields.get("args")
    return command.refused(None, **({} if stored is None else {"args": args_text(stored)}))


def _states(at: MemoryBatch, names: Sequence[str]) -> list[str]:
    return [at.outbox.intents[name].state.value for name in names]


def _not_joinable(command: Command, run: RunId, fan_out: FanOut) -> Decision | None:
    """Not before every intent has ended; and never, when it is known of none what became of it."""
    intents = command.batch.outbox.intents
    if not all(command.batch.has_effect(run, intent.id) for intent in fan_out.intents):
        return command.refused("unknown_intent")
    states = [intents[intent.id].state for intent in fan_out.intents]
    if any(state in _OPEN for state in states):
        return command.doubted("in_flight")
    return command.refused("stuck") if State.STUCK in states else None


def _is_aborted(command: Command) -> bool:
    return command.last.reason == "window_exhausted"


def _tokens(at: MemoryBatch, step: str, observation: str | None) -> int:
    """What a tool spent is what it says itself; a window that holds no tokens has none to spend."""
    case = at.join.cases.get(step)
    if case is None or case.cost == 0:
        return 0
    said = _object(observation or "")
    tokens = said.get("tokens") if said is not None else None
    return tokens if isinstance(tokens, int) and fits("int", tokens) else 0


def _latest_first(at: MemoryBatch, run: RunId) -> list[str]:
    """The intents of the live conversation."""
    mine = f"{at.chain_name(run)}."
    names = [name for name in at.outbox.intents if name.startswith(mine) and undone_by(name) is None]

    def place(name: str) -> tuple[int, int, str]:
        n, i = (part if part.isdigit() else "0" for part in name.rsplit(".", 2)[-2:])
        return int(n), int(i), name

    return sorted(names, key=place, reverse=True)


def _row(at: MemoryBatch, name: str) -> IntentRow:
    intent = at.outbox.intents[name]
    state = IntentState(intent.state.value)
    return IntentRow(
        name, state, intent.gen, intent.tool, args_text(intent.args), intent.observation, intent.executor or ""
    )
