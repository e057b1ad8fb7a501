"""Fence 4, completion: bind both planes or nothing.

Problem   a worker is preempted while its prompt is under way: the answer comes back to a run that has another holder,
          or is delivered twice, or answers a request that was given up, and is taken for the step's own.
States    a run is free or held by one lease (lease_id, gen); it has two budgets of retries, compute and model, and
          is exhausted once a model retry is wanted that is not there.
          a shard (run, step) has at most one request that counts, the latest:
              open ──▶ asked ── bind, whole ──▶ bound, for good
               ▲         │ ── bind, corrupt ──▶ replay: used up
               └─────────┴──────── open: a later request supersedes it
Invariants
  P1 a bound completion's lease and gen were live when it was bound.
  P2 its prompt left under that very lease, for this very shard.   P3 no later request had superseded it.
  P4 a shard is bound once, and stays as it was bound.
  P5 a retry costs one: each lease after a run's first, each request that was answered corrupt; nothing else does.
  P6 after the close nothing is bound.                             P7 an exhausted run is granted nothing any more.
  P8 only `lease` and `fence` move a lease, and gens grow: a model retry extends none that is dead.
  L1 every shard comes to an end: bound, or its run has no retry left, or the batch is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, reject, replay

__all__ = ["Bound", "Completion", "Lease", "Request", "Run", "Shard"]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act for a run. Both are compared: a number alone may repeat after a failover."""

    lease_id: str
    gen: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One model call of a run."""

    run: str
    step: str

    def __str__(self) -> str:
        """As the state names it."""
        return f"{self.run}/{self.step}"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, as it was opened: for which shard, under which lease, and its hash."""

    shard: Shard
    lease: Lease
    prompt_hash: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The one completion that counts for a shard."""

    request_id: str
    gen: int
    digest: str


@dataclass(slots=True)
class Run:
    """Who holds a run, and what it may still retry."""

    compute_left: int
    model_left: int
    live: Lease | None = None
    gen: int = 0
    """The last one minted."""
    exhausted: bool = False


class Completion(Model):
    """The model calls of one batch."""

    FENCE = "completion"
    CONFIG = "compute_retries int, model_retries int"
    OPS: ClassVar = {
        "lease": "run str, lease_id str",
        "fence": "run str, gen int",
        "open": "run str, step str, lease_id str, gen int, request_id str, prompt_hash str",
        "bind": "run str, step str, lease_id str, gen int, request_id str, prompt_hash str, "
        "payload_ok bool, digest str",
        "close": "",
    }

    def __init__(self, *, compute_retries: int, model_retries: int, draw: Callable[[], str] | None = None) -> None:
        """Both budgets are a run's own."""
        super().__init__(draw=draw)
        self.compute_retries = compute_retries
        self.model_retries = model_retries
        self.closed = False
        self.runs: dict[str, Run] = {}
        self.granted: dict[str, str] = {}
        """Lease id → the run that it was granted to, for ever: a late message can't take a run back."""
        self.requests: dict[str, Request] = {}
        """Request id → what was opened under it, for ever."""
        self.latest: dict[Shard, str] = {}
        """Shard → the id of the request that counts."""
        self.replayed: set[str] = set()
        """Ids of requests whose answer was corrupt: they are used up."""
        self.bound: dict[Shard, Bound] = {}

    def lease(self, *, run: str, lease_id: str) -> Answer:
        at = self._at(run)
        if at.exhausted:
            return reject("retries_exhausted")
        if at.live is not None and at.live.lease_id == lease_id:
            return duplicate(gen=at.gen)
        if lease_id in self.granted:
            return reject("lease_reused")
        if run in self.runs and at.compute_left == 0:
            return reject("retries_exhausted")

        at.compute_left -= run in self.runs
        at.gen += 1
        at.live = Lease(lease_id, at.gen)
        self.runs[run] = at
        self.granted[lease_id] = run
        return commit(gen=at.gen)

    def fence(self, *, run: str, gen: int) -> Answer:
        at = self._at(run)
        if at.live is None or at.live.gen != gen:
            return reject("stale_lease")

        at.live = None
        return commit()

    def open(self, *, run: str, step: str, lease_id: str, gen: int, request_id: str, prompt_hash: str) -> Answer:
        at, shard = self._at(run), Shard(run, step)
        request = Request(shard, Lease(lease_id, gen), prompt_hash)
        if at.live != request.lease:
            return reject("stale_lease")
        if self.requests.get(request_id) == request and self._unanswered(shard, request_id):
            return duplicate()
        if request_id in self.requests:
            return reject("request_reused")
        if shard in self.bound:
            return reject("already_bound")
        if at.exhausted:
            return reject("retries_exhausted")

        self.requests[request_id] = request
        self.latest[shard] = request_id
        return commit()

    def bind(
        self,
        *,
        run: str,
        step: str,
        lease_id: str,
        gen: int,
        request_id: str,
        prompt_hash: str,
        payload_ok: bool,
        digest: str,
    ) -> Answer:
        at, shard = self._at(run), Shard(run, step)
        if self.closed:
            return reject("after_close")
        if foreign := self._foreign(request_id, Request(shard, Lease(lease_id, gen), prompt_hash)):
            return foreign
        if bound := self.bound.get(shard):
            return duplicate(model_left=at.model_left) if bound.digest == digest else reject("already_bound")
        if at.exhausted:
            return reject("retries_exhausted")
        if request_id in self.replayed:
            return replay("payload_corrupt", model_left=at.model_left)
        if not payload_ok and at.model_left == 0:
            at.exhausted = True
            return reject("retries_exhausted")
        if not payload_ok:
            at.model_left -= 1
            self.replayed.add(request_id)
            return replay("payload_corrupt", model_left=at.model_left)

        self.bound[shard] = Bound(request_id, gen, digest)
        return commit(model_left=at.model_left)

    def close(self) -> Answer:
        if self.closed:
            return duplicate()

        self.closed = True
        return commit()

    def _foreign(self, request_id: str, presented: Request) -> Answer | None:
        """Whether this is no answer to the shard's present request, opened under the live lease."""
        if self._at(presented.shard.run).live != presented.lease:
            return reject("stale_lease")
        if not self._opened_by(request_id, presented):
            return reject("unknown_request")
        if self.latest.get(presented.shard) != request_id:
            return reject("superseded")
        if self.requests[request_id].prompt_hash != presented.prompt_hash:
            return reject("prompt_hash")
        return None

    def _opened_by(self, request_id: str, presented: Request) -> bool:
        """The live lease can't adopt the request of a dead one: its prompt is of another life of the run."""
        opened = self.requests.get(request_id)
        return opened is not None and (opened.shard, opened.lease) == (presented.shard, presented.lease)

    def _unanswered(self, shard: Shard, request_id: str) -> bool:
        return self.latest[shard] == request_id and shard not in self.bound and request_id not in self.replayed

    def _at(self, run: str) -> Run:
        """The run; one that was never leased has its whole budgets, and is kept only once a lease is granted."""
        return self.runs.get(run) or Run(self.compute_retries, self.model_retries)

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "closed": self.closed,
            "runs": {
                run: {
                    "live": at.live is not None,
                    "compute_left": at.compute_left,
                    "model_left": at.model_left,
                    "exhausted": at.exhausted,
                }
                for run, at in self.runs.items()
            },
            "bound": {
                str(shard): {"request_id": bound.request_id, "gen": bound.gen, "digest": bound.digest}
                for shard, bound in self.bound.items()
            },
        }
