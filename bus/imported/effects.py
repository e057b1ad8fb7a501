"""How the effects of an imported batch stand: what became of each call of a tool, and of each undo.

Only what a row says of an effect is followed, so that whoever asks for a run's doubts is shown them. Replay has already
found that each decision was right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bus.models.outbox import UNDO, State, undone_by
from bus.replay.telling import Told

__all__ = ["Effects"]


@dataclass(slots=True)
class _Effect:
    run: str
    tool: str
    args: str
    """JSON text."""
    gen: int
    state: State = State.QUEUED
    executor: str = ""
    observation: str | None = None


class Effects:
    """Takes the decisions of fence 2 in order."""

    def __init__(self, inverses: Mapping[str, str]) -> None:
        """`inverses`: tool → the tool that undoes it, as the batch declares them."""
        self._inverses = inverses
        self._all: dict[str, _Effect] = {}

    def follow(self, told: Told) -> None:
        """One decision."""
        name = told.args.get("intent_id")
        if not isinstance(name, str):
            return
        if (told.op, told.verb) == ("put", "commit"):
            self._all[name] = _Effect(str(told.envelope["run"]), told.args["tool"], _text(told), told.args["gen"])
        elif (at := self._all.get(name)) is not None:
            self._decided(name, at, told)

    def _decided(self, name: str, at: _Effect, told: Told) -> None:
        match told.op, told.verb:
            case "claim", "commit":
                at.state, at.executor = State.EXECUTING, told.args["executor"]
            case "sent", "commit":
                at.state = State.AWAITING_ACK
            case "complete", "commit":
                at.state, at.observation = State(told.answer["state"]), told.args["observation"]
                self._undone(name, State.COMPENSATED if told.args["ok"] else State.STUCK)
            case "recover", "commit":
                at.state, at.executor = State.QUEUED, ""
            case "recover", "reject":
                at.state = State.STUCK
                self._undone(name, State.STUCK)
            case ("recover", "compensate") | ("revoke", "commit"):
                at.state = State.COMPENSATING
                self._all.setdefault(name + UNDO, _Effect(at.run, self._inverses.get(at.tool, ""), at.args, 0))
            case "advance", "commit":
                at.gen = told.answer["gen"]

    def _undone(self, name: str, state: State) -> None:
        """What becomes of an undo becomes of the effect that it undoes."""
        undone = self._all.get(undone_by(name) or "")
        if undone is not None:
            undone.state = state

    def fields(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each effect's run, and its fields in the run's row, by the names that `lua/outbox/fence.lua` gives them."""
        for name, at in self._all.items():
            fields = {f"o.i:{name}": f"{at.state.value} {at.gen} 0 {at.executor}", f"o.t:{name}": at.tool}
            if undone_by(name) is None:
                fields[f"o.a:{name}"] = at.args
            if at.observation is not None:
                fields[f"o.r:{name}"] = at.observation
            yield at.run, fields


def _text(told: Told) -> str:
    """The arguments as a client of ours spells them; text, of a release before, as it came."""
    args: Any = told.answer.get("args", told.args["args"])
    return (
        args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    )
