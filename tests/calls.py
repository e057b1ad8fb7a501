"""One operation as it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bus.models import Answer, Model
from bus.vector_file import CLOCK

__all__ = ["Call", "play_call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One operation as it is sent; `clock` with `advance_ms` moves the time instead."""

    op: str
    args: Mapping[str, object]


def play_call(model: Model, call: Call) -> Answer | None:
    """Play a call on a model. The clock has no answer."""
    if call.op == CLOCK:
        ms = call.args["advance_ms"]
        assert isinstance(ms, int)
        model.elapse(ms)
        return None
    return model.decide(call.op, call.args)
