"""What the lab really did. This is the witness of the tests: it counts effects, not what clients were told.

Counters are written by the lab's loop and read by anybody, so there is one lock around them; who reads gets
a copy that no longer changes. Nothing that a client sends is kept but ids, keys and counts: no header, no prompt.

    generated   tokens that the model produced, until a cut or until it was noticed that the client had left
    delivered   those of them that were written to a connection not known to be gone
    billed      prompt + generated; a request that was refused before the model read it is billed nothing
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final

from workers.lab.mischief import Api, Kind, Mischief

__all__ = ["Bill", "Counting", "Counts", "KeyCounts", "ModelCounts", "RequestCounts", "Sending", "TicketCounts"]


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """What every interface counts."""

    requests: int = 0
    answered: int = 0
    """Whole answers, of any status, written while the client was there."""
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Answers that were begun, by status."""
    cuts: Mapping[str, int] = field(default_factory=dict)
    """What ended early, by cause: the mischief's name, or `client`: the client left first."""
    mischief: Mapping[str, int] = field(default_factory=dict)
    """What misbehaved, by kind."""
    early: int = 0
    """Requests that came before the time that a `Retry-After` had named."""
    open: int = 0
    """Requests being served now."""
    most_open: int = 0
    """The highest that `open` ever was."""


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """Tokens, over all requests."""

    prompt: int = 0
    generated: int = 0
    billed: int = 0
    delivered: int = 0
    finished: int = 0
    """Answers that were given to their end."""


@dataclass(frozen=True, slots=True)
class TicketCounts:
    """Effects of the ticket interface, over all keys."""

    commits: int = 0
    """Tickets made. One key makes one, unless keys are forgotten."""
    repeats: int = 0
    """Requests that were given the first ticket of their key again."""
    other_body: int = 0
    """Of these, how many asked for something else under the same key."""
    undone: int = 0
    """Tickets undone."""
    tombstones: int = 0
    """Undos that came before the ticket they undo; it can't come any more."""
    undo_repeats: int = 0
    gone: int = 0
    """Requests refused (410), because their key was undone before."""
    plane_mismatch: int = 0
    """Requests refused (403): the header's plane is not that of the key."""
    invalid: int = 0
    """Requests refused (400) for a header or body."""
    after_client_left: int = 0
    """Of the commits, how many were made for a client that had left by then."""


@dataclass(slots=True)
class KeyCounts:
    """What one `Idempotency-Key` has done, on one plane."""

    requests: int = 0
    commits: int = 0
    repeats: int = 0
    undone: int = 0
    gone: int = 0


@dataclass(slots=True)
class Sending:
    """One arrival of a request at the model."""

    prompt: int = 0
    generated: int = 0
    delivered: int = 0
    finished: bool = False
    open: bool = True
    cut: str | None = None

    @property
    def billed(self) -> int:
        """Tokens."""
        return self.prompt + self.generated


@dataclass(frozen=True, slots=True)
class Bill:
    """What a request id cost, over all its sendings."""

    request_id: str
    sendings: tuple[Sending, ...]

    def as_json(self) -> dict[str, object]:
        """As `GET /billing/{request_id}` answers."""
        of = self.sendings
        return {
            "request_id": self.request_id,
            "billed": sum(sending.billed for sending in of),
            "delivered": sum(sending.delivered for sending in of),
            "finished": any(sending.finished for sending in of),
            "open": any(sending.open for sending in of),
            "sendings": [asdict(sending) for sending in of],
        }


@dataclass(frozen=True, slots=True)
class Counts:
    """A copy of all counters, of one moment."""

    seed: int
    requests: Mapping[Api, RequestCounts]
    model: ModelCounts
    tickets: TicketCounts
    by_key: Mapping[str, KeyCounts]
    """By `<plane>/<Idempotency-Key>`."""
    by_request: Mapping[str, Bill]

    def as_json(self) -> dict[str, object]:
        """As `GET /counts` answers."""
        return {
            "seed": self.seed,
            "requests": {api.value: asdict(counts) for api, counts in self.requests.items()},
            "model": asdict(self.model),
            "tickets": asdict(self.tickets),
            "by_key": {key: asdict(counts) for key, counts in self.by_key.items()},
            "by_request": {request_id: bill.as_json() for request_id, bill in self.by_request.items()},
        }


@dataclass(slots=True)
class _Requests:
    requests: int = 0
    answered: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    cuts: Counter[str] = field(default_factory=Counter)
    mischief: Counter[str] = field(default_factory=Counter)
    early: int = 0
    open: int = 0
    most_open: int = 0

    def copy(self) -> RequestCounts:
        return RequestCounts(
            self.requests,
            self.answered,
            dict(self.statuses),
            dict(self.cuts),
            dict(self.mischief),
            self.early,
            self.open,
            self.most_open,
        )


TICKET_EVENTS: Final = tuple(TicketCounts.__dataclass_fields__)


class Counting:
    """The counters, being written."""

    def __init__(self, seed: int) -> None:
        """`seed` is only told."""
        self.seed = seed
        self._lock = threading.Lock()
        self._requests = {api: _Requests() for api in Api}
        self._tickets: Counter[str] = Counter()
        self._keys: dict[str, KeyCounts] = {}
        self._bills: dict[str, list[Sending]] = {}
        self._names: dict[str, str] = {}
        self._too_late: set[str] = set()

    # --- any interface ---

    @contextmanager
    def serving(self, api: Api) -> Iterator[None]:
        """A request is being served."""
        with self._lock:
            counts = self._requests[api]
            counts.requests += 1
            counts.open += 1
            counts.most_open = max(counts.most_open, counts.open)
        try:
            yield
        finally:
            with self._lock:
                counts.open -= 1

    def status(self, api: Api, status: int) -> None:
        """An answer was begun."""
        with self._lock:
            self._requests[api].statuses[str(status)] += 1

    def answered(self, api: Api) -> None:
        """An answer was ended as it should."""
        with self._lock:
            self._requests[api].answered += 1

    def cut(self, api: Api, cause: str) -> None:
        """An answer ended early, or never came."""
        with self._lock:
            self._requests[api].cuts[cause] += 1

    def misbehaved(self, api: Api, mischief: Mischief | Kind) -> None:
        """It was done, and not only drawn."""
        kind = mischief.kind if isinstance(mischief, Mischief) else mischief
        with self._lock:
            self._requests[api].mischief[kind.value] += 1

    def early(self, api: Api) -> None:
        """A request disregarded a `Retry-After`."""
        with self._lock:
            self._requests[api].early += 1

    # --- model ---

    def sending(self, request_id: str, answer_id: str) -> Sending:
        """A request has arrived at the model. Its bill is found under both names."""
        sending = Sending()
        with self._lock:
            self._names[answer_id] = request_id
            self._bills.setdefault(request_id, []).append(sending)
        return sending

    def bill(self, name: str) -> Bill | None:
        """By the request's id or an answer's; None: the lab has never seen it."""
        with self._lock:
            request_id = name if name in self._bills else self._names.get(name, name)
            sendings = self._bills.get(request_id)
            return None if sendings is None else _bill(request_id, sendings)

    def last_bill(self, name: str) -> Bill:
        """The same, for who will not ask again: what has not come by now costs nothing, and must not come any more."""
        if (bill := self.bill(name)) is not None:
            return bill
        with self._lock:
            self._too_late.add(name)
        return Bill(name, ())

    def is_too_late(self, request_id: str) -> bool:
        """Whether somebody was told that this request has cost nothing."""
        with self._lock:
            return request_id in self._too_late

    # --- tickets ---

    def ticket(self, event: str, plane: str | None = None, key: str | None = None) -> None:
        """Count an event, a field's name of `TicketCounts`, and where it has one, its key."""
        assert event in TICKET_EVENTS, event
        with self._lock:
            self._tickets[event] += 1
            if key is not None and event in KeyCounts.__dataclass_fields__:
                counts = self._keys.setdefault(f"{plane}/{key}", KeyCounts())
                setattr(counts, event, getattr(counts, event) + 1)

    def key_request(self, plane: str, key: str) -> None:
        """A request to make a ticket came under this key."""
        with self._lock:
            self._keys.setdefault(f"{plane}/{key}", KeyCounts()).requests += 1

    # --- reading ---

    def read(self) -> Counts:
        """A copy of everything."""
        with self._lock:
            bills = {request_id: _bill(request_id, of_id) for request_id, of_id in self._bills.items()}
            sendings = [sending for bill in bills.values() for sending in bill.sendings]
            return Counts(
                self.seed,
                {api: counts.copy() for api, counts in self._requests.items()},
                ModelCounts(
                    sum(sending.prompt for sending in sendings),
                    sum(sending.generated for sending in sendings),
                    sum(sending.billed for sending in sendings),
                    sum(sending.delivered for sending in sendings),
                    sum(sending.finished for sending in sendings),
                ),
                TicketCounts(**{event: self._tickets[event] for event in TICKET_EVENTS}),
                {key: KeyCounts(**asdict(counts)) for key, counts in self._keys.items()},
                bills,
            )


def _bill(request_id: str, sendings: list[Sending]) -> Bill:
    return Bill(request_id, tuple(Sending(**asdict(sending)) for sending in sendings))
