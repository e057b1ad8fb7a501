"""What all workers together may ask of one model endpoint: requests and tokens a minute, and how often again.

An endpoint counts an account's requests, and not a worker's. So the buckets stand on the server, one hash an endpoint,
and every worker takes from them before its request leaves:

    while wait := await limits.take(tokens):     # 0.0 is the licence; anything else, seconds until it is worth asking
        await runtime.sleep(wait)

- **Rates.** One bucket of requests and one of tokens, each optional. A bucket holds `burst` seconds of its rate
  (a minute's allowance is not to be spent in its first second, and providers count by the second too) and is full at
  first: in any time t at most rate · (t + burst) leaves; or, where one request is more than the bucket holds, that one
  and what the rate refills. Tokens are taken by estimate before the request leaves, and not given back.
- **Pause.** Whoever is told 429 with a Retry-After calls `backoff`, and nobody's request leaves before that is over.
- **Retries.** `retry` spends from a bucket of `retries` that refills over `window`: at most that many at once, and that
  many a window in the long run, for all runs and workers together. With 0 retries the answer is always no.

The clock is the server's. A call whose answer was lost is sent again, and may so be counted twice: then fewer leave
than could have, and never more. The limits are those of whoever asks; two suites that name different rates for one
endpoint share its buckets, each refilled as the asker says.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from bus.link import Link
from bus.scripts import script
from bus.types import Decision, Verb

__all__ = ["EndpointLimits", "EndpointRates"]

_MINUTE = 60_000_000  # µs
_SECOND = 1_000_000  # µs
_ANSWERS = "answers"
"""A field beside the buckets, which no script looks at."""
_LONGEST = 3600.0
"""Seconds of the longest pause: what an endpoint says stops the whole fleet, and it may say anything."""


@dataclass(frozen=True, slots=True)
class EndpointRates:
    """What an endpoint allows to everyone together. None: no bound of that kind."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    burst: float = 1.0
    """Seconds of its rate that a bucket holds."""
    retries: int = 60
    """At once, and in each `window`; 0: never."""
    window: float = 60.0
    """Seconds in which the retries refill."""

    def __post_init__(self) -> None:
        """Raise ValueError for what is no rate: it would be a division by zero in the middle of a batch."""
        for name in ("requests_per_minute", "tokens_per_minute"):
            rate: float | None = getattr(self, name)
            if rate is not None and not 0 < rate < math.inf:
                raise ValueError(f"{name} must be above 0, not {rate}")
        if not 0 <= self.burst <= _LONGEST or not 0 < self.window <= 24 * _LONGEST or self.retries < 0:
            raise ValueError("burst, window and retries must not be negative, nor longer than an hour and a day")


class EndpointLimits:
    """See the module's text. Each method is one script on the server and raises ServerUnreachable like any."""

    def __init__(self, link: Link, key: str, rates: EndpointRates | None = None) -> None:
        """`key`: of the endpoint's hash, from `bus.keys.endpoint`."""
        self._link, self._key = link, key
        self.rates = rates or EndpointRates()
        self._asking: asyncio.Task[float] | None = None

    async def take(self, tokens: int) -> float:
        """Ask for one request of `tokens` to leave. 0.0: it may, now. Else seconds to wait before asking again."""
        rates = self.rates
        if rates.requests_per_minute is not None or rates.tokens_per_minute is not None:
            return await self._take(tokens)
        # Nothing is counted, and only a pause can be in the way: one answer is that of all who ask in one round of the
        # event loop. Who is told to wait asks for a turn of its own.
        asking, is_first = self._asking, self._asking is None
        if asking is None:
            asking = self._asking = asyncio.create_task(self._take_for_all())
            asking.add_done_callback(_told)
        wait = await asyncio.shield(asking)
        return wait if is_first or not wait else await self._take(tokens)

    async def _take_for_all(self) -> float:
        self._asking = None  # whoever comes now comes too late for this one
        return await self._take(0)

    async def _take(self, tokens: int) -> float:
        rates = self.rates
        request = _refill(1, rates.requests_per_minute)
        decision = await self._run(
            "take", request=request, tokens=_refill(tokens, rates.tokens_per_minute), depth=round(rates.burst * _SECOND)
        )
        if decision.verb is Verb.COMMIT:
            return 0.0
        return max(int(decision.answer["wait"]), 1) / _SECOND

    async def backoff(self, seconds: float) -> None:
        """Nobody's request leaves for so long, at most an hour. A shorter pause does not end a longer one."""
        await self._run("backoff", pause=round(min(max(seconds, 0.0), _LONGEST) * _SECOND))

    async def retry(self) -> bool:
        """Spend one retry of the common budget. False: there is none left now, or there never is any."""
        if self.rates.retries == 0:
            return False
        cost = max(math.ceil(self.rates.window * _SECOND / self.rates.retries), 1)
        return (await self._run("retry", cost=cost, depth=cost * self.rates.retries)).applied

    async def answered(self) -> None:
        """Say that an answer of the endpoint's has come: a witness for those that find no way to it."""
        await self._link.command("HINCRBY", self._key, _ANSWERS, 1)

    async def answers(self) -> int:
        """How often that was said."""
        return int(await self._link.command("HGET", self._key, _ANSWERS) or 0)

    async def _run(self, op: str, **argv: int) -> Decision:
        arguments = {name: str(value) for name, value in argv.items()}
        return await self._link.run(script(f"endpoint.{op}"), {"endpoint": self._key}, arguments)


def _told(asked: asyncio.Task[float]) -> None:
    """Its error is that of whoever asked; when they are all gone, of nobody."""
    if not asked.cancelled():
        asked.exception()


def _refill(count: int, per_minute: float | None) -> int:
    """The µs in which so many refill, rounded up: rounding may only slow down."""
    return 0 if per_minute is None else math.ceil(count * _MINUTE / per_minute)
