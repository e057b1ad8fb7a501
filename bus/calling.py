"""Scripts called: their keys and arguments by name, one command or many in a call, and the decisions read.

Scripts are called by the digest of their text (EVALSHA), so workers of two releases can run side by side, each with
its own, as long as both keep the same things in the keys (the changelog says when that changes). The first call of
each script on a connection brings the text along, in the same write: nobody asks which scripts a server knows, nothing
that a process does not call is put together, and no call is overtaken by those after it. A server that lost its script
cache later (SCRIPT FLUSH) answers NOSCRIPT; then the text is loaded and the same call sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from bus.errors import ReplyError, ViolationError
from bus.scripts import Script
from bus.types import Decision, Verb
from bus.wire import Reply, Wire

__all__ = ["Command", "call", "call_together", "flatten", "read_decision", "words_of"]

_VERBS = {verb.value: verb for verb in Verb}
_ONE, _MANY = (str, bytes), (list, tuple)
"""What a name stands for: one value, or any number of them."""


class Command(NamedTuple):
    """One of the commands that a call carries: its own keys, in the header's order, and its arguments."""

    keys: tuple[str, ...]
    argv: tuple[str | bytes, ...]


def flatten(name: str, declared: tuple[str, ...], given: Mapping[str, object]) -> list[str | bytes]:
    """The values of the `declared` names, in order, lists in place. Raises ValueError for others than are declared."""
    if len(given) != len(declared):
        raise ValueError(f"{name} takes {', '.join(declared)}, not {', '.join(given)}")
    flat: list[str | bytes] = []
    for item in declared:
        many = item[-1] == "…"
        value = given.get(item[:-1] if many else item)
        if value is None:
            raise ValueError(f"{name} takes {', '.join(declared)}, not {', '.join(given)}")
        if not isinstance(value, _MANY if many else _ONE):
            raise ValueError(f"{name} takes {item!r}: {'a list' if many else 'one value'}")
        if many:
            flat.extend(cast(Sequence[str], value))
        else:
            flat.append(cast(str, value))
    return flat


async def call(
    wire: Wire, target: Script, keys: Mapping[str, object], argv: Mapping[str, object]
) -> Decision | list[Decision]:
    """Send one command, its keys and arguments by name, and read its decision. Raises ReplyError, ServerUnreachable."""
    if target.own_keys:
        shared = flatten(target.name, target.shared_keys, {name: keys.get(name) for name in target.shared_keys})
        own = flatten(target.name, target.own_keys, {name: keys.get(name) for name in target.own_keys})
        command = Command(cast(tuple[str, ...], tuple(own)), tuple(flatten(target.name, target.argv, argv)))
        [answer] = await call_together(wire, target, cast(list[str], shared), [command])
        if isinstance(answer, ReplyError):
            raise answer
        return answer
    flat = flatten(target.name, target.keys, keys)
    reply = await _evaluate(wire, target, [len(flat), *flat, *flatten(target.name, target.argv, argv)])
    if not reply or isinstance(reply[0], list):
        return [read_decision(target, one) for one in reply]
    return read_decision(target, reply)


def words_of(shared: Sequence[str], commands: Sequence[Command]) -> list[str | bytes | int]:
    """What follows the digest in a call that carries `commands`; see `lua/include/many.lua`."""
    own = [key for command in commands for key in command.keys]
    counts = " ".join([str(len(command.argv)) for command in commands])
    return [len(shared) + len(own), *shared, *own, counts, *[word for command in commands for word in command.argv]]


async def call_together(
    wire: Wire, target: Script, shared: Sequence[str], commands: Sequence[Command]
) -> list[Decision | ReplyError]:
    """Send several commands of one kind as one call; an answer each, in order. An error is that one command's own.

    Raises ReplyError, ServerUnreachable for the call as a whole.
    """
    replies = await _evaluate(wire, target, words_of(shared, commands))
    return [one if isinstance(one, ReplyError) else read_decision(target, one) for one in replies]


async def _evaluate(wire: Wire, target: Script, tail: Sequence[str | bytes | int]) -> Reply:
    loads = wire.loads[target.sha]
    if not loads:
        loads = wire.loads[target.sha] = 1
        # Its answer is of no interest: where it failed, the call finds no script, and whoever loads it then says why.
        wire.call("SCRIPT", "LOAD", target.text).add_done_callback(_forget)
    try:
        return await wire.call("EVALSHA", target.sha, *tail, text=True)
    except ReplyError as error:
        if error.code != "NOSCRIPT":
            raise
        return await _load_and_call(wire, target, loads, tail)


def _forget(answer: asyncio.Future[Reply]) -> None:
    if not answer.cancelled():
        answer.exception()


async def _load_and_call(wire: Wire, target: Script, loads: int, tail: Sequence[str | bytes | int]) -> Reply:
    """Load the text and send the call again, both in one write, so that no flush comes between them.

    Thousands of calls may meet NOSCRIPT at once. A connection is answered in order: whoever finds that the text was
    sent on it after its own call (`loads` has grown since) need not send it again.
    """
    commands: list[Sequence[str | bytes | int]] = [("EVALSHA", target.sha, *tail)]
    if wire.loads[target.sha] == loads:
        wire.loads[target.sha] += 1
        commands.insert(0, ("SCRIPT", "LOAD", target.text))
    answers = await wire.calls(commands, text=True)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer from None
    return answers[-1]


def read_decision(target: Script, reply: Reply) -> Decision:
    """`[verb, reason, by, name, value, …]` as a Decision. An answer that the header does not admit is a bug: raises."""
    verb, reason, by = reply[:3]
    said = f"{verb} {reason}" if reason else verb
    if said not in target.returns:
        raise ViolationError(f"{target.name} answered {said!r}, which its header does not name")
    return Decision(_VERBS[verb], reason or None, by, dict(zip(reply[3::2], reply[4::2], strict=True)))
