"""A model behind no network: what `workers.modelling.calls` asks in a simulation.

An answer's length follows from its request, and it comes in pieces; cut, late, refused or corrupt where a fault says
so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from pydantic import SecretStr

from bus.types import Digest
from workers.endpoints import (
    CutError,
    EndpointSpec,
    OverloadedError,
    Piece,
    Prepared,
    RateLimitedError,
    RefusedAnswerError,
    Reply,
    Usage,
)
from workers.endpoints.errors import Refusal
from workers.endpoints.values import Messages, Params, estimate_tokens
from workers.modelling.plane import LimitsOf, ModelPlane
from workers.modelling.table import ModelTable, Target
from workers.simulating.lab import Asked
from workers.simulating.process import Process

__all__ = ["SimulatedPlane"]

_MOST: Final = 24
"""Pieces of an answer."""


class SimulatedPlane(ModelPlane):
    """A suite's model as one simulated process reaches it."""

    def __init__(
        self,
        table: ModelTable,
        target: Target,
        process: Process,
        limits_of: LimitsOf | None = None,
        says: Callable[[str], str] | None = None,
    ) -> None:
        """`process`: who asks. `says`: the verdict on a question, of a model that judges."""
        super().__init__(table, target, limits_of)
        self._simulated = _Endpoint(process, target, says)
        self._lab = process.lab

    async def endpoint(self) -> _Endpoint:
        """The endpoint."""
        return self._simulated

    async def figure_of(self, request_id: str) -> int | None:
        """See ModelPlane."""
        return self._lab.figure(request_id)


class _Endpoint:
    """See `workers.endpoints.Endpoint`."""

    def __init__(self, process: Process, target: Target, says: Callable[[str], str] | None) -> None:
        self._process, self._says = process, says
        self.spec = EndpointSpec("chat", target.base_url, target.name, SecretStr(""))

    def request(self, messages: Messages, params: Params | None = None) -> Prepared:
        body = json.dumps([messages, dict(params or {})], sort_keys=True, default=list).encode()
        return Prepared(self.spec.base_url, {}, body, Digest(hashlib.sha256(body).hexdigest()), estimate_tokens(body))

    @asynccontextmanager
    async def stream(self, prepared: Prepared, request_id: str) -> AsyncIterator[_Stream]:
        process = self._process
        await process.gate()
        fault = process.strikes("model" if self._says is None else "judge", "model")
        kind = "" if fault is None else fault.kind
        if kind == "model-429":
            raise RateLimitedError("simulated: 429", None)
        if kind == "model-500":
            process.lab.requests[request_id] = Asked(0, open=False)
            raise OverloadedError("simulated: 500")
        asked = process.lab.requests[request_id] = Asked(prepared.input_estimate)
        try:
            await asyncio.sleep(process.latency() + (fault.seconds if fault is not None else 0.0))
            await process.gate()
            model = "another model" if kind == "judge-other" else self.spec.model
            yield _Stream(asked, prepared, request_id, model, self._verdict(prepared, kind), kind)
        finally:
            asked.open = False  # the connection is closed, and servers stop generating then

    def _verdict(self, prepared: Prepared, kind: str) -> str | None:
        """What a judge says; None of any other model."""
        if self._says is None:
            return None
        if kind == "judge-vague":
            return "It is hard to say."
        messages, _ = json.loads(prepared.body)
        return self._says(messages[-1]["content"])


class _Stream:
    """See `workers.endpoints.Stream`."""

    def __init__(
        self, asked: Asked, prepared: Prepared, request_id: str, model: str, text: str | None, kind: str
    ) -> None:
        self._asked, self._model, self._request = asked, model, request_id
        self._input, self._text, self._kind = prepared.input_estimate, text, kind
        self._pieces = 1 + int(prepared.prompt_hash[:8], 16) % _MOST
        self._came = 0
        self.usage: Usage | None = None

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        if self._kind == "model-cut" and self._came * 2 >= self._pieces:
            raise CutError("simulated: cut", self._came)
        if self._came == self._pieces:
            if self._kind == "model-corrupt":
                raise RefusedAnswerError("simulated: an answer that is none", Refusal.NO_IDENTITY)
            raise StopAsyncIteration
        if self._came % 8 == 0:
            await asyncio.sleep(0.05)
        self._came += 1
        self._asked.billed += 1
        if self._came == self._pieces:
            self.usage = Usage(self._input, self._came)
        return Piece(f"word{self._came} ", 1, self.usage)

    @property
    def reply(self) -> Reply:
        text = f"an answer of {self._pieces} words" if self._text is None else self._text
        return Reply(text, (), "stop", Usage(self._input, self._pieces), self._model, "", self._request[:12])
