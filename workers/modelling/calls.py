"""A run's model calls: answered from its conversation, or asked, as often as it takes and as is allowed.

What one attempt does is in `workers.modelling.attempt`. Between two attempts stands what the endpoint said: an error
that another attempt may pass costs one retry of the whole fleet's and a pause, an endpoint that asks for peace is left
in peace by all workers, and what will never pass ends the run as the hole `endpoint_error`. That there is no way to it
may be this machine's fault: then the run is another's (`workers.processes.reach`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from bus.types import Digest
from workers.endpoints import EndpointError, UnusableError
from workers.modelling.attempt import Attempt, Question, Site, TryAgain
from workers.modelling.model import Completion
from workers.processes.reach import Streak
from workers.solver_time import SolverTime
from workers.verdict import Broken, Over

__all__ = ["ModelCalls"]

log = structlog.get_logger("evalbus.model")

_FIRST_RETRY, _LONGEST_RETRY = 0.25, 30.0  # seconds before a failed request is sent again
_ATTEMPTS = 8  # at one call: an endpoint that fails so often in a row is down


class ModelCalls:
    """`workers.modelling.model.Asker` of one run."""

    def __init__(self, site: Site) -> None:
        """`site`: where the run's calls are made from."""
        self._site, self._plane = site, site.plane

    @property
    def api(self) -> str:
        """Of the suite's table."""
        return self._plane.table.api

    @property
    def name(self) -> str:
        """The model's, at its endpoint."""
        return self._plane.target.name

    def default(self, name: str) -> object:
        """What the suite says of a parameter."""
        return getattr(self._plane.table, name)

    async def ask(
        self, messages: Sequence[Mapping[str, object]] | str, params: Mapping[str, object], max_tokens: int | None
    ) -> Completion:
        """The answer. Does not return when there will be none. Raises InputError for what cannot be asked."""
        async with self._site.conversation.exchange():
            endpoint = await self._plane.endpoint()
            prepared = endpoint.request(messages, params)
            event = await self._site.conversation.answered("model", prepared.prompt_hash)
            if event is not None:
                return Completion.of_event(await self._whole(event))
            estimate = self._plane.expectation.of_call(len(prepared.body), max_tokens)
            async with _InLine(self._plane.desk, self._site.time):
                return await self._answer(Question(endpoint, prepared, estimate, _FIRST_RETRY))

    async def settled(self) -> None:
        """Wait for what was given up to be off the books."""
        if self._site.dropping:
            await asyncio.wait(self._site.dropping)

    async def _answer(self, question: Question) -> Completion:
        failures, streak = 0, Streak(self._plane.reach, self._site.runtime)
        while True:
            try:
                answer = await Attempt(self._site, question).make()
            except TryAgain:
                continue
            except EndpointError as error:
                failures += 1
                if (fault := await streak.fault(error)) is not None:
                    await self._site.conversation.leave(Broken(fault))
                await self._after(error, failures)
                question = replace(question, peace=_pause(failures))
            else:
                await self._plane.reach.answered(self._site.runtime)
                return answer

    async def _after(self, error: EndpointError, failures: int) -> None:
        """The endpoint failed: return for another attempt after a while, if there may be one."""
        site, limits = self._site, self._plane.limits
        if isinstance(error, UnusableError):
            self._plane.tell(error)
            if error.local and failures < _ATTEMPTS:  # it has met nobody, so nobody is asked for a retry
                await site.runtime.sleep(_pause(failures) * (0.75 + 0.5 * site.runtime.jitter()))
                return
        if not error.may_pass:
            await site.conversation.leave(Over("endpoint_error", str(error)))
        if failures >= _ATTEMPTS:
            await site.conversation.leave(Over("endpoint_error", f"{error}; so it was {failures} times in a row"))
        if not await limits.retry():
            await site.conversation.leave(Over("endpoint_error", f"{error}; the retry budget has none left"))
        log.info("call.retried", why=str(error), attempt=failures)
        if error.retry_after is None:  # else the whole fleet waits, this call among them
            await site.runtime.sleep(_pause(failures) * (0.75 + 0.5 * site.runtime.jitter()))

    async def _whole(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event with its reply, wherever that is."""
        if "artifact" not in event:
            return event
        data = await self._site.bus.get_blob(self._site.conversation.ref.batch, Digest(event["artifact"]))
        return {**event, "reply": json.loads(data)}


def _pause(failures: int) -> float:
    """Seconds after so many failures in a row."""
    return min(_FIRST_RETRY * 2.0 ** (failures - 1), _LONGEST_RETRY)


class _InLine:
    """A place in this process's line for the endpoint's desk."""

    def __init__(self, desk: asyncio.Semaphore, time: SolverTime) -> None:
        self._desk, self._time = desk, time

    async def __aenter__(self) -> None:
        with self._time.stopped():
            await self._desk.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._desk.release()
