"""What the passing of time decided, derived from when the entries were recorded.

An entry's id is the server's time at which its step was recorded. The step itself read the same clock, but not always
the same millisecond of it, so a decision that turns on a bound is accepted as recorded within `SLACK_MS` of it.

A worker's heartbeats that kept everything alive are no decisions and leave no entry. So a workspace (fence 8) that was
silent in the history may have been alive all the same, or have been given up for its silence: where the silence was
long enough for both, what was recorded tells which.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from bus.models import Answer
from bus.models.admission import Admission
from bus.models.indoubt import Pair
from bus.models.outbox import Outbox, State
from bus.models.sandbox import Place, Sandbox
from bus.replay.large import LargeInDoubt
from bus.replay.telling import Told, is_same

__all__ = ["SLACK_MS", "Disks", "set_desk_clock", "set_outbox_clock", "set_pair_clock"]

SLACK_MS = 5


def set_desk_clock(desk: Admission, told: Told, now: int) -> None:
    """The time at a desk: a place is taken back when its request has been given up for long enough."""
    desk.now_ms = now
    lease = desk.leases.get(str(told.args.get("lease")))
    if told.op == "reclaim" and lease is not None and lease.expired_ms is not None:
        desk.now_ms = _near(now, lease.expired_ms + desk.reclaim_ms, over=told.verb == "commit")


def set_outbox_clock(outbox: Outbox, told: Told, now: int) -> None:
    """The time of fence 2: a call that left is called over after its bound."""
    outbox.now_ms = now
    at = outbox.intents.get(str(told.args.get("intent_id")))
    if told.op == "recover" and at is not None and at.state is State.AWAITING_ACK:
        outbox.now_ms = _near(now, at.sent_ms + outbox.ack_bound_ms, over=told.verb != "in_doubt")


def set_pair_clock(indoubt: LargeInDoubt, told: Told, now: int, own: Pair | None) -> None:
    """The time of fence 3: a reservation holds for so long. `own`: the pair that is named, if it is there."""
    indoubt.now_ms = now
    pair = own if own is not None and not own.decided else None
    over = told.reason == "lease_expired" if told.op != "recover" else told.reason != "lease_live"
    if told.op == "reserve":
        others = [one for one in indoubt.holders(str(told.args.get("slot"))) if one is not own]
        pair, over = next(iter(others), None), told.reason != "slot_busy"
    if pair is not None:
        indoubt.now_ms = _near(now, pair.since_ms + pair.ttl_ms, over=over)


def _near(now: int, end: int, *, over: bool) -> int:
    """The time that was read: `now`, or a little before or behind it if only so a bound is over at `end`, or not."""
    if over and now < end <= now + SLACK_MS:
        return end
    if not over and end <= now < end + SLACK_MS:
        return end - 1
    return now


class Disks:
    """The workspaces: a model for each run, as on the server, where each run has a row of its own."""

    def __init__(self, heartbeat_ms: int) -> None:
        """Of silence, after which a workspace counts as given up."""
        self.heartbeat_ms = heartbeat_ms
        self.of: dict[str, Sandbox] = {}

    def decide(self, run: str, told: Told, now: int, ask: Callable[[Sandbox], Answer]) -> Answer:
        """Ask the model of a run's workspace, alive or given up as the record has it. See the module's text."""
        model = self.of.setdefault(run, Sandbox(heartbeat_ms=self.heartbeat_ms))
        model.now_ms = now
        place = model.places.get(run)
        if place is None or place.beat_ms is None or now - place.beat_ms < self.heartbeat_ms - SLACK_MS:
            return ask(model)
        alive, lost = self._supposed(model, run, now), self._supposed(model, run, now - self.heartbeat_ms)
        if_alive, if_lost = ask(alive), ask(lost)
        if not is_same(told, if_lost):
            self.of[run] = _proved(alive, run, place, now - self.heartbeat_ms + 1)
            return if_alive
        if not is_same(told, if_alive):
            self.of[run] = lost
        elif told.op != "acquire":  # it says nothing about which of the two it was
            self.of[run] = _proved(alive, run, place, 0)
        return if_lost

    def _supposed(self, model: Sandbox, run: str, beat_ms: int) -> Sandbox:
        supposed = copy.deepcopy(model)
        supposed.places[run].beat_ms = beat_ms
        return supposed


def _proved(model: Sandbox, run: str, before: Place, since: int) -> Sandbox:
    """Alive now: so its last heartbeat came after `since`, and was not this operation unless it was one."""
    place = model.places[run]
    if place.epoch == before.epoch and place.beat_ms is not None and before.beat_ms is not None:
        place.beat_ms = max(before.beat_ms, since)
    return model
