"""The steps of `bus.port_tools` on a server, and the events that are the holder's own to add."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from bus.chain import EMPTY_HEAD, next_head
from bus.envelopes import check_payload
from bus.port_tools import FanOut, IntentRow, IntentState, Outcome, Receipt
from bus.redis_steps import Steps
from bus.replies import hash_of
from bus.texts import text_of
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, RunId, Verb
from bus.values import Entry, Ref

__all__ = ["ToolSteps"]

_UNDO = "~undo"
_PARTS = ("o.i:", "o.t:", "o.a:", "o.r:")  # of an intent in the run's hash: state, tool, arguments, observation
_UNSETTLED = (IntentState.AWAITING_ACK, IntentState.COMPENSATING, IntentState.STUCK)


class ToolSteps(Steps):
    """See the module's text."""

    # --- the holder --------------------------------------------------------------------------------------

    async def append(
        self, ref: Ref, parent: Digest, seq: int, payloads: Sequence[str], receipts: Sequence[Receipt] = ()
    ) -> Decision:
        """Add events to the transcript, and join the writes that they tell of: 8, then 7. Answer: head, length."""
        items: list[str] = []
        head = parent
        for payload in payloads:
            check_payload(payload)
            head = next_head(head, payload)
            items += [head, payload]
        return await self._step(
            "append", ref.batch, run=ref.run, extra_argv={"items": [*items, *_words(receipts)]}, **_held(ref),
            epoch=ref.epoch, parent=parent, seq=seq, events=len(payloads), receipts=len(receipts),
        )  # fmt: skip

    async def write(self, ref: Ref, step: str, path: str, digest: Digest, receipt: str) -> Decision:
        """Say what was put on the holder's disk: 8. Answer: receipt, log_index."""
        return await self._step(
            "write", ref.batch, run=ref.run, **_held(ref), epoch=ref.epoch, step=step, path=path, digest=digest,
            receipt=receipt,
        )  # fmt: skip

    async def put_tools(self, ref: Ref, fan_out: FanOut) -> Decision:
        """Announce a fan-out: 7, 12 and 2 together. Answer: states."""
        return await self._step(
            "put_tools", ref.batch, run=ref.run,
            extra_argv={"items": [word for one in fan_out.intents for word in (one.id, one.tool, one.args)]},
            **_held(ref), **_fan_out(fan_out), window_cost=fan_out.window_cost,
        )  # fmt: skip

    async def join(self, ref: Ref, fan_out: FanOut, payload: str, receipts: Sequence[Receipt] = ()) -> Decision:
        """Join a fan-out whose effects have ended: 8, 12 and 7 together. Answer: head, length."""
        check_payload(payload)
        return await self._step(
            "join", ref.batch, run=ref.run,
            extra_argv={"payload": payload, "items": [*(one.id for one in fan_out.intents), *_words(receipts)]},
            **_held(ref), **_fan_out(fan_out), epoch=ref.epoch, head=next_head(fan_out.parent, payload),
            receipts=len(receipts),
        )  # fmt: skip

    async def turn(self, ref: Ref, abandoned: Digest, payload: str) -> Decision:
        """Give the conversation up: 2 and 1 for what it did, then 3, 12 and 7. Answer: conversation, head, length."""
        check_payload(payload)
        following = self.keys(ref.batch).transcript(ref.run, ref.conversation + 1)
        return await self._step(
            "turn", ref.batch, run=ref.run, extra_keys={"transcript": following}, extra_argv={"payload": payload},
            **_held(ref), abandoned=abandoned, head=next_head(EMPTY_HEAD, payload),
        )  # fmt: skip

    # --- an executor -------------------------------------------------------------------------------------

    async def tool_claim(self, entry: Entry, executor: str, consumer: ConsumerId) -> Decision:
        """Take a tool's message: 2, and 3 where a call fell silent. Answer: intent, gen, tool, args, undo."""
        return await self._step(
            "tool_claim", entry.batch, run=entry.run, intent_id=entry.fields.get("intent", ""), entry=entry.id,
            executor=executor, consumer=consumer,
        )  # fmt: skip

    async def free_slots(self, batch: BatchId, slots: Sequence[str]) -> list[str]:
        """Those of the slots that no call has; writes nothing. The time is asked for when a reservation is found."""
        keys = self.keys(batch)
        found = await self._link.command("HMGET", keys.slots, *slots)
        if not any(found):
            return list(slots)
        clock, (seconds, micros) = await self._link.commands([("HGET", keys.batch_row, "clock"), ("TIME",)])
        now = int(clock) if clock is not None else int(seconds) * 1000 + int(micros) // 1000
        return [slot for slot, held in zip(slots, found, strict=True) if held is None or not _is_live(held, now)]

    async def tool_sent(self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, slot: str) -> Decision:
        """Say that the call is about to leave: 2, 1 and 3 together. Answer: bound_ms. An undo needs no slot."""
        return await self._step(
            "tool_sent", batch, run=run, intent_id=intent, gen=gen, executor=executor, slot=slot or None
        )

    async def tool_complete(
        self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, outcome: Outcome
    ) -> Decision:
        """Say what the tool said: 2, 3 and 1 together. Answer: state.

        The observation is a text that is not empty; 1 and 3 know it by its digest.
        """
        check_payload(outcome.observation)
        return await self._step(
            "tool_complete", batch, run=run, extra_argv={"observation": outcome.observation}, intent_id=intent,
            gen=gen, executor=executor, ok=outcome.ok, echo=outcome.echo or None, digest=_digest(outcome.observation),
        )  # fmt: skip

    # --- reading, and what a planner looks after ---------------------------------------------------------

    async def intents(self, batch: BatchId, run: RunId, ids: Sequence[str]) -> list[IntentRow]:
        """Intents as they stand, those that exist, in the order given."""
        if not ids:
            return []
        fields = [field for one in ids for field in _fields(one)]
        values = await self._link.command("HMGET", self.keys(batch).run(run), *fields)
        found = [None if value is None else text_of(value) for value in values]
        return _rows(dict(zip(fields, found, strict=True)), ids)

    async def effects(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """Every intent of a run and every undo, by id."""
        row = hash_of(await self._link.command("HGETALL", self.keys(batch).run(run)))
        return _rows(row, sorted(field.removeprefix("o.i:") for field in row if field.startswith("o.i:")))

    async def doubts(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """A run's intents that are sent and not known to have ended, compensating, or stuck; undos among them."""
        return [one for one in await self.effects(batch, run) if one.state in _UNSETTLED]

    async def tool_requeue(self, batch: BatchId, run: RunId, intent: str) -> Decision:
        """Emit an effect's message anew when its group no longer knows the one that the run's row names.

        Answer: entry. `reject ended`: nobody has to be given it any more. `reject still_known`: it will be delivered.
        """
        named = await self._link.command("HGET", self.keys(batch).run(run), f"o.e:{intent}")
        if named is None:
            return Decision(Verb.REJECT, "ended", "run.tool_requeue")
        return await self._step("tool_requeue", batch, run=run, intent_id=intent, entry=named.decode())


def _is_live(reservation: bytes, now: int) -> bool:
    """As fence 3 sees it: one that ran out holds its slot no longer."""
    since, ttl, _ = reservation.split(b" ", 2)
    return now - int(since) < int(ttl)


class _Held(TypedDict):
    lease_id: str
    gen: int
    conversation: int


def _held(ref: Ref) -> _Held:
    return _Held(lease_id=ref.lease_id, gen=ref.gen, conversation=ref.conversation)


class _FanOut(TypedDict):
    step: str
    parent: str
    seq: int
    digest: str
    window: str
    intents: int


def _fan_out(one: FanOut) -> _FanOut:
    return _FanOut(
        step=one.step,
        parent=one.parent,
        seq=one.seq,
        digest=one.digest,
        window=one.window,
        intents=len(one.intents),
    )


def _words(receipts: Iterable[Receipt]) -> list[str]:
    return [word for one in receipts for word in (one.step, one.receipt)]


def _digest(text: str) -> Digest:
    return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def _fields(intent: str) -> list[str]:
    """An undo has the arguments of the intent that it undoes."""
    return [part + (intent.removesuffix(_UNDO) if part == "o.a:" else intent) for part in _PARTS]


def _rows(row: Mapping[str, str | None], ids: Sequence[str]) -> list[IntentRow]:
    rows = []
    for intent in ids:
        packed, tool, args, observation = (row.get(field) for field in _fields(intent))
        if packed is not None:
            state, gen, _, executor = packed.split(" ", 3)
            rows.append(
                IntentRow(intent, IntentState(state), int(gen), tool or "", args or "", observation, executor=executor)
            )
    return rows
