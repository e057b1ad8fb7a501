"""A suite's model as one worker process reaches it: the endpoint, what may be asked of it, what its calls cost so far.

It is made when the suite is prepared and lives as long as the process. What a run does with it is in
`workers.modelling.calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol

import structlog
from pydantic import SecretStr

from bus.endpoint_limits import EndpointRates
from workers.endpoints import Client, Endpoint, EndpointSpec, UnusableError, make_endpoint, open_client
from workers.modelling.billing import figure_of
from workers.modelling.metering import Expectation
from workers.modelling.model import in_words_of
from workers.modelling.table import ModelTable, Target
from workers.processes.machine import machine_error
from workers.processes.reach import Reach
from workers.redaction import hide

__all__ = ["Limits", "LimitsOf", "ModelPlane", "Unlimited", "rates_of"]

log = structlog.get_logger("evalbus.model")


_TRIED: Final = 15.0
"""Seconds for an endpoint to say anything at all."""


class Limits(Protocol):
    """What all workers together may ask of the endpoint: `bus.endpoint_limits.EndpointLimits`."""

    async def take(self, tokens: int) -> float:
        """0.0: a request of so many tokens may leave now. Else seconds until it is worth asking again."""

    async def backoff(self, seconds: float) -> None:
        """Nobody's request leaves for so long."""

    async def retry(self) -> bool:
        """Spend one retry; False when there is none."""

    async def answered(self) -> None:
        """Say to all workers that an answer has come."""

    async def answers(self) -> int:
        """How often that was said."""


class Unlimited:
    """Nobody else asks the endpoint, and nothing bounds what is asked; retries are bounded by the call itself."""

    def __init__(self, rates: EndpointRates) -> None:
        """Of the rates only `retries = 0` has a meaning for one alone."""
        self._retries = rates.retries

    async def take(self, _tokens: int) -> float:
        """See Limits."""
        return 0.0

    async def backoff(self, _seconds: float) -> None:
        """See Limits."""

    async def retry(self) -> bool:
        """See Limits."""
        return self._retries > 0

    async def answered(self) -> None:
        """See Limits: nobody listens."""

    async def answers(self) -> int:
        """See Limits."""
        return 0


LimitsOf = Callable[[str, EndpointRates], Limits]
"""The limits of an endpoint, by its base URL."""


def rates_of(table: ModelTable) -> EndpointRates:
    """What the table says of the whole fleet."""
    return EndpointRates(table.requests_per_minute, table.tokens_per_minute, retries=table.retry_budget)


class ModelPlane:
    """See the module's text."""

    def __init__(self, table: ModelTable, target: Target, limits_of: LimitsOf | None = None) -> None:
        """Reads the key. Raises InputError when a key is wanted and is not there."""
        self.table, self.target = table, target
        key = table.key()
        if key is not None:
            hide(key)
        self._spec = EndpointSpec(
            table.api,
            target.base_url,
            target.name,
            SecretStr(key or ""),
            in_words_of(table.api, _params(table)),
            first_token=table.first_token,
            idle=table.idle,
            total=table.timeout,
        )
        self.limits = (limits_of or (lambda _url, rates: Unlimited(rates)))(target.base_url, rates_of(table))
        self.reach = Reach(self.limits, self._try_it)
        self.expectation = Expectation(table.expected)
        self.desk = asyncio.Semaphore(table.slots)
        """No more of this process's calls ask for a place than could have one: they wait here, in order."""
        self.asking: set[str] = set()
        """Requests that this process has under way."""
        self._told = False
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._endpoint: Endpoint | None = None

    async def endpoint(self) -> Endpoint:
        """The endpoint, its connections opened on the loop that uses them. Raises InputError."""
        async with self._opening:
            if self._endpoint is None:
                self._client = await self._stack.enter_async_context(open_client())
                self._endpoint = make_endpoint(self._spec, self._client)
        return self._endpoint

    async def figure_of(self, request_id: str) -> int | None:
        """What the endpoint itself says that a request cost which was given up; None where it cannot be asked."""
        if self.table.billing_url is None or self._client is None:
            return None
        return await figure_of(self._client, self.table.billing_url, request_id)

    async def _try_it(self) -> None:
        """Whether there is a way to the endpoint. Any answer is one. Raises MachineError."""
        import aiohttp  # noqa: PLC0415 - see `Client`

        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(_TRIED):
                await client.get(self.target.base_url)
        except (aiohttp.ClientError, OSError) as error:  # a time that ran out is an OSError
            why = f"{self.target.base_url}: cannot be reached: {type(error).__name__}"
            raise machine_error(why, self._try_it) from error

    def tell(self, error: UnusableError) -> None:
        """Tell the operator that the endpoint takes nothing, once: every run's hole says it as well."""
        if not self._told:
            self._told = True
            log.error("endpoint.unusable", model=self.target.name, why=str(error), again=error.may_pass)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()
        self._client = self._endpoint = None


def _params(table: ModelTable) -> dict[str, object]:
    given: dict[str, object] = {
        "temperature": table.temperature,
        "max_tokens": table.max_tokens,
        "top_p": table.top_p,
        "stop": None if table.stop is None else list(table.stop),
        "seed": table.seed,
    }
    said = {name: value for name, value in given.items() if value is not None}
    if not table.include_usage and table.api != "anthropic":
        said["stream_options"] = False
    return said | dict(table.extra)
