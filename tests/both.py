"""A reference model and a live server, given the same operations.

What is sent goes to both, and a difference fails at once, with everything that was sent until then:

    async with both(target, "transcript", {}) as pair:
        answer = await pair.send(call)      compares the two answers
        await pair.compare()                compares the two states
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from bus.connection import Endpoint
from bus.contract import CONTRACT, Kind
from bus.link import Link
from bus.models import Model, Verb, build
from bus.server_player import ServerPlayer
from bus.target import Target
from tests.driver import Call, Session, play_call, random_config, random_op
from workers.runtime import SystemRuntime

__all__ = ["Both", "both", "data_of", "outcome_of", "shortest_sessions"]

Answer = Mapping[str, object]


@dataclass(slots=True)
class Both:
    """One batch, twice."""

    fence: str
    model: Model
    server: ServerPlayer
    link: Link
    """Another connection to the same server, to look at it."""
    sent: list[Call] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)
    """`<op> <verb> <reason>` of every answer so far."""

    async def send(self, call: Call) -> Answer | None:
        """Play one call on both sides. The clock has no answer."""
        self.sent.append(call)
        decided = play_call(self.model, call)
        if decided is None:
            ms = call.args["advance_ms"]
            assert isinstance(ms, int)
            await self.server.advance(ms)
            return None
        expected = decided.as_dict()
        args = dict(call.args)
        for arg in CONTRACT[self.fence].ops[call.op].args:
            if arg.kind is Kind.DRAWN and args.get(arg.name) is None and decided.verb is Verb.COMMIT:
                args[arg.name] = expected.get(arg.name)  # the id that the model drew in the client's place
        answer = await self.server.apply(call.op, args)
        assert _text(answer) == _text(expected), self._story("the answers differ (server, then model)")
        self.outcomes.add(outcome_of(call, answer))
        return answer

    async def compare(self) -> None:
        """Compare the whole state."""
        state = await self.server.dump()
        assert _text(state) == _text(self.model.dump()), self._story("the states differ (server, then model)")

    async def counts(self) -> dict[str, int]:
        """The numbers in the batch's row and in its desk's: what the scripts count beside the rows themselves."""
        keys = self.server.keys
        flat = [*await self.link.command("HGETALL", keys.batch_row), *await self.link.command("HGETALL", keys.desk())]
        row = {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}
        return {name: int(value) for name, value in row.items() if value.isdecimal()}

    def _story(self, problem: str) -> str:
        calls = "\n".join(f"  {call.op} {json.dumps(dict(call.args))}" for call in self.sent)
        return f"{self.fence}: {problem}, after\n{calls}"


@contextlib.asynccontextmanager
async def both(target: Target, fence: str, config: Mapping[str, object]) -> AsyncIterator[Both]:
    """A model and a server in the empty state; the server is left as it was found."""
    player = ServerPlayer(Endpoint(target), SystemRuntime())
    link = Link(Endpoint(target), SystemRuntime())
    try:
        await player.begin(fence, config)
        yield Both(fence, build(fence, config), player, link)
    finally:
        await player.end()
        await player.aclose()
        link.close()


def outcome_of(call: Call, answer: Answer) -> str:
    """`append reject seq_gap`, `append commit`."""
    return " ".join(str(word) for word in (call.op, answer["verb"], answer["reason"]) if word is not None)


@cache
def shortest_sessions(fence: str, seeds: int = 400, steps: int = 40) -> Mapping[str, Session]:
    """For every outcome that random operations bring out, the shortest session seen that ends with it."""
    found: dict[str, Session] = {}
    for seed in range(seeds):
        rng = random.Random(seed)
        config = random_config(rng, fence)
        model = build(fence, config)
        calls: list[Call] = []
        for _ in range(steps):
            calls.append(random_op(rng, model, calls))
            answer = play_call(model, calls[-1])
            if answer is None:
                continue
            outcome = outcome_of(calls[-1], answer.as_dict())
            if outcome not in found or len(found[outcome].calls) > len(calls):
                found[outcome] = Session(fence, config, tuple(calls))
    return found


async def data_of(link: Link) -> dict[str, object]:
    """Everything on the server, as it can be compared: hashes by field, all else as the server dumps it.

    Left out is what every refusal adds to: the history, and the batch's counts of refusals.
    """
    keys = sorted(key for key in await link.command("KEYS", "*") if not key.endswith(b":history"))
    kinds = await link.commands([("TYPE", key) for key in keys])
    commands = [("HGETALL" if kind == b"hash" else "DUMP", key) for key, kind in zip(keys, kinds, strict=True)]
    data: dict[str, object] = {}
    for key, kind, value in zip(keys, kinds, await link.commands(commands), strict=True):
        if kind == b"hash":
            fields = dict(zip(value[::2], value[1::2], strict=True))
            data[key.decode()] = {name: text for name, text in fields.items() if not name.startswith(b"refused:")}
        else:
            data[key.decode()] = value
    return data


def _text(value: object) -> str:
    """As JSON, in which `true` is not `1` and `{}` not `[]`."""
    return json.dumps(value, sort_keys=True, default=dict)
