"""Fence 4: bind both planes or nothing.

What is looked at: the leases of each run, each request under the lease that sent it, and the one answer of each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Completion"]


@dataclass(slots=True)
class _Run:
    gen: int = 0
    live: str | None = None
    leases: int = 0
    replays: int = 0


@dataclass(frozen=True, slots=True)
class _Request:
    id: str
    lease_id: str
    gen: int
    prompt_hash: str


class Completion(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Both retry budgets are those of a run."""
        super().__init__()
        self._compute, self._model = setting.limit("compute_retries", 0), setting.limit("model_retries", 0)
        self._floor = 0
        self._runs: dict[str, _Run] = {}
        self._opened: set[str] = set()
        self._latest: dict[tuple[str, str], _Request] = {}
        self._bound: set[tuple[str, str]] = set()
        self._corrupt: set[str] = set()
        self._closed = False
        self._p1 = board.add("completion.P1", "each answer's lease was live when it was bound", "answers bound")
        self._p2 = board.add(
            "completion.P2", "its prompt left under that very lease, and no later one", "answers bound"
        )
        self._p3 = board.add("completion.P3", "no step is bound twice", "answers bound")
        self._p4 = board.add("completion.P4", "nothing is bound behind the close", "answers bound")
        self._p5 = board.add("completion.P5", "each prompt leaves under a live lease", "requests")
        self._p6 = board.add("completion.P6", "a request's id is used once", "requests")
        self._p7 = board.add("completion.P7", "a run's generations grow, above every restart", "leases")
        self._p8 = board.add("completion.P8", "no run is leased beyond its compute budget", "leases")
        self._p9 = board.add("completion.P9", "no answer is asked for anew beyond the model's budget", "replays")
        self._p10 = board.add("completion.P10", "a lease is taken away by the generation that it has", "fences")
        self._p11 = board.add("completion.P11", "what was refused as stale was stale", "refusals as stale")
        self.on = {
            "lease": self._lease,
            "fence": self._fence,
            "open": self._open,
            "bind": self._bind,
            "close": self._close,
        }
        self.also = {"bind replay": self._replay, "open reject": self._refused, "bind reject": self._refused}

    def _run(self, said: Said) -> _Run:
        return self._runs.setdefault(said.args["run"], _Run())

    def _is_live(self, said: Said) -> bool:
        run = self._run(said)
        gen: int = said.args["gen"]
        held: str = said.args["lease_id"]
        return run.live == held and run.gen == gen > self._floor

    def _lease(self, said: Said) -> None:
        run, gen = self._run(said), said.answer["gen"]
        self._p7.see(gen > max(run.gen, self._floor), said, "generation {} behind {}", gen, max(run.gen, self._floor))
        run.gen, run.live = gen, said.args["lease_id"]
        run.leases += 1
        self._p8.see(run.leases <= 1 + self._compute, said, "its lease number {}", run.leases)

    def _fence(self, said: Said) -> None:
        run = self._run(said)
        is_live = run.live is not None and run.gen == said.args["gen"] > self._floor
        self._p10.see(is_live, said, f"generation {run.gen} is live" if run.live else "none is live")
        run.live = None

    def _open(self, said: Said) -> None:
        args = said.args
        self._p5.see(self._is_live(said), said, "{} of generation {} is not live", args["lease_id"], args["gen"])
        shard = (args["run"], args["step"])
        self._p6.see(args["request_id"] not in self._opened, said, "{} was opened before", args["request_id"])
        self._opened.add(args["request_id"])
        self._latest[shard] = _Request(args["request_id"], args["lease_id"], args["gen"], args["prompt_hash"])

    def _bind(self, said: Said) -> None:
        args = said.args
        shard = (args["run"], args["step"])
        asked = _Request(args["request_id"], args["lease_id"], args["gen"], args["prompt_hash"])
        self._p1.see(self._is_live(said), said, "{} of generation {} is not live", args["lease_id"], args["gen"])
        is_own = self._latest.get(shard) == asked and args["request_id"] not in self._corrupt
        self._p2.see(is_own and args["payload_ok"], said, "{} is not what the step waits for", args["request_id"])
        self._p3.see(shard not in self._bound, said, "{} was bound before", args["step"])
        self._p4.see(not self._closed, said, "the batch is closed")
        self._bound.add(shard)

    def _replay(self, said: Said) -> None:
        if said.args["request_id"] in self._corrupt:
            return  # that request gets the same answer for ever, and pays once
        self._corrupt.add(said.args["request_id"])
        run = self._run(said)
        run.replays += 1
        self._p9.see(run.replays <= self._model, said, "its replay number {}", run.replays)

    def _refused(self, said: Said) -> None:
        if said.reason == "stale_lease":
            self._p11.see(not self._is_live(said), said, "{} was live", said.args["lease_id"])

    def _close(self, said: Said) -> None:
        self._closed = True

    def void(self, floor: int) -> None:
        """Leases up to it are not live any more."""
        self._floor = max(self._floor, floor)
