"""A step under a false identity: what an impostor, a twin after a failover or a misled process would present.

Only that is bent by which a fence knows who speaks, or of what: a lease, a generation, a parent, a tree. A step of the
live holder that says something else would be nobody's lie, and would rightly be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from bus.port import FanOut, Judgement, ModelCall, ModelReply, Outcome
from bus.types import Digest, Gen, LeaseId

__all__ = ["BENDABLE", "Forged", "bent", "writes"]

_FORGED: Final = Digest("f" * 64)
_TWIN: Final = "twin"


@dataclass(frozen=True, slots=True)
class Forged:
    """Arguments for a step."""

    args: tuple[Any, ...]
    named: Mapping[str, Any]


_Bend: TypeAlias = Callable[[list[Any]], list[Any]]


def bent(name: str, args: Sequence[Any], named: Mapping[str, Any], chance: float) -> Forged | None:
    """The call of a step with another identity; None for a step that has none. `chance` in [0, 1) chooses which."""
    ways = list(_WAYS.get(name, ()))
    if name in _HELD:
        ways += [_twin, _older, _newer]
    if not ways:
        return None
    return Forged(tuple(ways[int(chance * len(ways))](list(args))), named)


def writes(name: str, args: Sequence[Any]) -> bool:
    """Whether the step writes under a key of its plane. What a tool did not do is written nowhere."""
    return name == "seal" or (name == "tool_complete" and args[5].ok)


# --- who speaks -------------------------------------------------------------------------------------------


def _twin(args: list[Any]) -> list[Any]:
    """Two holders of one generation."""
    return [replace(args[0], lease_id=LeaseId(_TWIN)), *args[1:]]


def _older(args: list[Any]) -> list[Any]:
    """A holder that was fenced."""
    return [replace(args[0], lease_id=LeaseId(_TWIN), gen=Gen(max(args[0].gen - 1, 1))), *args[1:]]


def _newer(args: list[Any]) -> list[Any]:
    """A number that was never given out."""
    return [replace(args[0], gen=Gen(args[0].gen + 1)), *args[1:]]


# --- of what ----------------------------------------------------------------------------------------------


def _forged_prefix(args: list[Any]) -> list[Any]:
    """The prefix of another world: append(ref, parent, seq, payloads), seal(ref, parent, seq, payload, …)."""
    payload = ["forged"] if isinstance(args[3], list | tuple) else "forged"
    return [args[0], _FORGED, args[2], payload, *args[4:]]


def _other_request(args: list[Any]) -> list[Any]:
    """An answer to a request that this holder never opened: bind_call(ref, call, desk_gen, reply)."""
    call, reply = args[1], args[3]
    assert isinstance(call, ModelCall)
    assert isinstance(reply, ModelReply)
    payload = "an answer to another question"
    return [args[0], replace(call, request_id="another"), args[2], replace(reply, payload=payload, digest=_FORGED)]


def _other_prompt(args: list[Any]) -> list[Any]:
    """Another prompt than the one that left."""
    return [args[0], replace(args[1], prompt_hash=_FORGED), *args[2:]]


def _other_place(args: list[Any]) -> list[Any]:
    """A place at the desk of another generation."""
    return [args[0], args[1], args[2] + 1, *args[3:]]


def _twin_with_nothing(args: list[Any]) -> list[Any]:
    """Somebody who does not hold the run says that what came is no answer."""
    reply = args[3]
    assert isinstance(reply, ModelReply)
    return [*_twin(args)[:3], replace(reply, ok=False)]


def _old_receipts(args: list[Any]) -> list[Any]:
    """What was written is told of under a disk that is gone: append(ref, parent, seq, payloads, receipts)."""
    if len(args) < 5 or not args[4]:  # noqa: PLR2004 - it tells of no write
        return _forged_prefix(args)
    return [replace(args[0], epoch=max(args[0].epoch - 1, 0)), *args[1:]]


def _judged(change: Callable[[Judgement], Judgement]) -> _Bend:
    """score(ref, judgement)."""
    return lambda args: [args[0], change(args[1])]


def _other_window(args: list[Any]) -> list[Any]:
    """Results of another fan-out under this one's name: join(ref, fan_out, payload, receipts)."""
    fan_out = args[1]
    assert isinstance(fan_out, FanOut)
    return [args[0], replace(fan_out, window=_FORGED), "forged results", *args[3:]]


def _executor(args: list[Any]) -> list[Any]:
    """tool_complete(batch, run, intent, gen, executor, outcome) and tool_sent(…, executor, slot), by another."""
    return [*args[:4], _TWIN, *args[5:]]


def _next_gen(args: list[Any]) -> list[Any]:
    """Likewise, of another generation."""
    return [*args[:3], Gen(args[3] + 1), *args[4:]]


def _no_echo(args: list[Any]) -> list[Any]:
    """A success that does not prove whose it is."""
    outcome = args[5]
    assert isinstance(outcome, Outcome)
    return [*args[:5], replace(outcome, ok=True, observation="anything", echo=None)]


def _old_epoch(args: list[Any]) -> list[Any]:
    """A write on a disk that is gone: write(ref, step, path, digest, receipt)."""
    return [replace(args[0], epoch=max(args[0].epoch - 1, 0)), *args[1:4], f"{args[4]}.old"]


def _other_consumer(args: list[Any]) -> list[Any]:
    """claim(entry, lease_id, consumer), by somebody to whom it was not given."""
    return [args[0], LeaseId(f"{args[1]}.{_TWIN}"), _TWIN]


_WAYS: Final[Mapping[str, Sequence[_Bend]]] = {
    "append": (_forged_prefix, _old_receipts),
    "seal": (_forged_prefix,),
    "bind_judge": (_other_request, _other_place, _twin_with_nothing),
    "bind_call": (_other_request, _other_prompt, _other_place, _twin_with_nothing),
    "score": (
        _judged(lambda one: replace(one, head=_FORGED)),
        _judged(lambda one: replace(one, tree_hash=_FORGED)),
        _judged(lambda one: replace(one, judge_epoch=one.judge_epoch + 1)),
        _judged(lambda one: replace(one, judge="another judge")),
    ),
    "join": (_other_window,),
    "tool_complete": (_executor, _next_gen, _no_echo),
    "tool_sent": (_executor, _next_gen),
    "write": (_old_epoch,),
    "claim": (_other_consumer,),
    "score_claim": (_other_consumer,),
    "tool_claim": (_other_consumer,),
}

_HELD: Final = frozenset(
    {
        "append", "seal", "give_back", "hole", "open_call", "bind_call", "resolve", "write", "put_tools", "join",
        "turn", "open_judge", "bind_judge", "score", "score_give_back", "score_hole",
    }
)  # fmt: skip
"""Steps of a run's holder."""

BENDABLE: Final = frozenset(_WAYS) | _HELD
"""The steps that say who speaks, or of what."""
