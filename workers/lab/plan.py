"""Which request meets which mischief: by the seed, unless somebody has asked for one.

A draw depends on the seed, the interface, the request's id and how often that id was sent, and on nothing
else: not on time, not on the order in which concurrent requests arrive. So a run of the lab can be repeated,
and what is sent again under the same id may fare better. Only refusals in a row (`429@n`) strike whoever
comes next.
"""

from __future__ import annotations

import json
import random
import time
import tomllib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from bus.errors import InputError
from workers.lab.mischief import Api, Kind, Mischief, parse

__all__ = ["Plan", "Rate", "Rates", "read_rates"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A mischief, and the share of requests that meets it."""

    mischief: Mischief
    share: float


Rates = Mapping[Api, tuple[Rate, ...]]


class Plan:
    """Decides; used by the lab's loop only, but for `script`, which any thread may call."""

    def __init__(self, seed: int, rates: Rates, retry_after: float) -> None:
        """`retry_after`: seconds that a refusal (429, 503) asks the client to wait."""
        self.seed, self.rates, self.retry_after = seed, rates, retry_after
        self._sendings: Counter[tuple[Api, str]] = Counter()
        self._met: Counter[tuple[str, str]] = Counter()
        self._row: Counter[Api] = Counter()
        self._scripted: dict[Api, deque[Mischief | None]] = {api: deque() for api in Api}
        self._quiet_until: dict[Api, float] = {}

    def script(self, mischief: Mischief | None, apis: frozenset[Api], times: int) -> None:
        """The next `times` requests of each of `apis` meet it; None: they meet nothing."""
        for api in apis:
            self._scripted[api].extend([mischief] * times)

    def choose(self, api: Api, request_id: str, asked: Mischief | str | None, content: str) -> Mischief | None:
        """What this request meets. `asked`: by the request itself, "" when it asks for nothing in particular.

        `content` is what `*times` counts by: the same question, whatever its id.
        """
        self._sendings[api, request_id] += 1
        chosen = self._choose(api, request_id, asked, content)
        if chosen is not None and chosen.kind in (Kind.RATE_LIMITED, Kind.OVERLOADED):
            self._quiet_until[api] = time.monotonic() + self.retry_after
        return chosen

    def _choose(self, api: Api, request_id: str, asked: Mischief | str | None, content: str) -> Mischief | None:
        if not isinstance(asked, str):
            return self._started(api, self._within_times(asked, content))
        if self._scripted[api]:
            return self._started(api, self._scripted[api].popleft())
        if self._row[api] > 0:
            self._row[api] -= 1
            return Mischief(Kind.RATE_LIMITED, 1)
        return self._started(api, self._within_times(self._drawn(api, request_id), content))

    def is_early(self, api: Api) -> bool:
        """Whether a request that comes now disregards the last `Retry-After`."""
        return time.monotonic() < self._quiet_until.get(api, 0.0)

    def _started(self, api: Api, chosen: Mischief | None) -> Mischief | None:
        if chosen is not None and chosen.kind is Kind.RATE_LIMITED:
            self._row[api] = chosen.row - 1
        return chosen

    def _within_times(self, mischief: Mischief | None, content: str) -> Mischief | None:
        if mischief is None or mischief.times is None:
            return mischief
        self._met[mischief.kind, content] += 1
        return mischief if self._met[mischief.kind, content] <= mischief.times else None

    def _drawn(self, api: Api, request_id: str) -> Mischief | None:
        drawn = _chance(f"{self.seed}/{api}/{request_id}/{self._sendings[api, request_id]}")
        place, share = drawn.random(), drawn.random()
        for rate in self.rates.get(api, ()):
            if place < rate.share:
                return replace(rate.mischief, share=share)
            place -= rate.share
        return None


def _chance(name: str) -> random.Random:
    return random.Random(int.from_bytes(sha256(name.encode()).digest()))  # noqa: S311 - it must be repeatable


# --- how rates are written -------------------------------------------------------------------------------

_ALL: Final = frozenset(Api)


def read_rates(written: str | Mapping[str, object] | None) -> Rates:
    """The rates of `"cut=0.2,tickets.late@2s=0.1"`, of a TOML or JSON file's path, or of such a file's content.

    Raises `InputError`. A kind without an interface's name goes to each interface that can do it.
    """
    if written is None or written == "":
        return {}
    if isinstance(written, str) and written.endswith((".toml", ".json")):
        path = Path(written)
        try:
            return _rates(_flat(_load(path)))
        except ValueError as error:
            raise InputError(str(error), file=path) from None
    try:
        return _rates(_split(written) if isinstance(written, str) else _flat(written))
    except ValueError as error:
        raise InputError(f"--mischief: {error}") from None


def _load(path: Path) -> Mapping[str, object]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=path) from None
    try:
        content: object = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except RecursionError:
        raise ValueError("too deeply nested") from None
    if not isinstance(content, dict):
        raise ValueError("not a table of rates")
    return content


def _split(written: str) -> dict[str, object]:
    rates: dict[str, object] = {}
    for part in filter(None, (part.strip() for part in written.split(","))):
        name, equals, share = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} has no rate (write it as {part}=0.1)")
        try:
            rates[name.strip()] = float(share)
        except ValueError:
            raise ValueError(f"{share!r} is not a rate of {name} (a number from 0 to 1)") from None
    return rates


def _flat(content: Mapping[str, object]) -> dict[str, object]:
    """`{"model": {"cut": 0.1}, "500": 0.2}` as `{"model.cut": 0.1, "500": 0.2}`."""
    flat: dict[str, object] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{kind}": share for kind, share in value.items()}
        else:
            flat[name] = value
    return flat


def _rates(flat: Mapping[str, object]) -> Rates:
    rates: dict[Api, list[Rate]] = {api: [] for api in Api}
    for name, share in flat.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"{share!r} is not a rate of {name} (a number from 0 to 1)")
        apis, kind = _named(name)
        mischief = parse(kind)
        if mischief is None:
            raise ValueError("'none' has no rate: it is what the others leave")
        if apis is not _ALL and not apis <= mischief.kind.apis:
            raise ValueError(f"{mischief.kind} is no mischief of {', '.join(apis)}")
        for api in sorted(apis & mischief.kind.apis):
            rates[api].append(Rate(mischief, share))
    for api, of_api in rates.items():
        if (total := sum(rate.share for rate in of_api)) > 1 + 1e-9:
            raise ValueError(f"the rates of {api} add up to {total:g}, which is more than 1")
    return {api: tuple(of_api) for api, of_api in rates.items()}


def _named(name: str) -> tuple[frozenset[Api], str]:
    place, dot, kind = name.partition(".")
    if dot and place in set(Api):  # the dot of `late@0.5` is another
        return frozenset({Api(place)}), kind
    return _ALL, name
