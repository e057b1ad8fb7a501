"""The close: what stands in the snapshot, and that nothing moves behind it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bus.checker.board import Board
from bus.checker.histogram import Histogram
from bus.checker.outbox import Outbox
from bus.checker.runs import Runs
from bus.checker.said import Said
from bus.checker.setting import Setting

__all__ = ["Closing"]

_LATE_SPEND = frozenset({"chunk", "cut", "reconcile", "release", "expire", "reclaim"})


class Closing:
    """Reads behind the fences, which hold what the snapshot must say."""

    def __init__(self, board: Board, setting: Setting, histogram: Histogram, outbox: Outbox, runs: Runs) -> None:
        """What was declared, and what the fences know."""
        self._policy = setting.policy
        self._histogram, self._outbox, self._runs = histogram, outbox, runs
        self._was_open = True
        p = board.add
        self._p1 = p("close.P1", "nothing moves behind the close but late spend", "steps accepted behind the close")
        self._p2 = p("close.P2", "intended = scored + holes, and each run is one of them", "runs declared")
        self._p3 = p("close.P3", "a run with a stuck intent is a hole", "stuck intents")
        self._p4 = p("snapshot.P1", "each run stands in the snapshot once", "runs in the snapshot")
        self._p5 = p("snapshot.P2", "the snapshot is what the history leads to", "snapshots")
        self._p6 = p(
            "snapshot.P3", "its name is the hash of its content, and the one that closed the batch", "snapshots"
        )
        self._p7 = p("snapshot.P4", "there is a snapshot if and only if the batch has closed", "histories")

    def take(self, parts: Sequence[Said]) -> None:
        """All parts of one entry; the fences have seen them."""
        applied = [said for said in parts if said.done and said.fence != "run"]
        if not self._was_open and applied:
            moved = [said for said in applied if not _is_late_spend(said)]
            self._p1.see(not moved, applied[0], f"{moved[0].fence}.{moved[0].op} was accepted" if moved else "")
        self._was_open = self._histogram.state == "open"

    def end(self, snapshot: Mapping[str, Any] | None) -> None:
        """There are no more lines; the last one shows this snapshot."""
        histogram = self._histogram
        is_open = histogram.state == "open"
        self._p7.see((snapshot is None) == is_open, "the last line", "the batch is {}", histogram.state)
        if is_open:
            return
        for name, run in histogram.runs.items():
            self._p2.see((run.row is None) != (run.hole is None), name, "it is neither, or both")
        missing = max(self._policy["intended"] - len(histogram.runs), 0)
        self._p2.lack(missing, "the close", f"{missing} runs were declared and are nowhere")
        for at in self._outbox.intents.values():
            if at.state == "stuck" and at.undoes is None and at.run in self._runs.runs:
                self._p3.see(bool(self._runs.runs[at.run].hole), at.id, "its run is no hole")
        if snapshot is not None:
            self._compare(snapshot)

    def _compare(self, snapshot: Mapping[str, Any]) -> None:
        shown = dict(snapshot)
        named = shown.pop("snapshot_id", None)
        seen: set[str] = set()
        for row in [*shown.get("rows", []), *shown.get("holes", [])]:
            self._p4.see(row[0] not in seen, str(row[0]), "it stands there twice")
            seen.add(row[0])
        derived, content = self._derived(), _canonical(shown)
        wrong = sorted(name for name in derived.keys() | shown.keys() if derived.get(name) != shown.get(name))
        self._p5.see(_canonical(derived) == content, "the snapshot", "its {} do not follow", ", ".join(wrong))
        ids = {named, hashlib.sha256(content).hexdigest(), self._histogram.snapshot_id or named}
        self._p6.see(len(ids) == 1, "the snapshot", "it is called {}, by its content and at the close otherwise", named)

    def _derived(self) -> dict[str, Any]:
        histogram, policy = self._histogram, self._policy
        bins = dict.fromkeys(policy["bins"], 0)
        rows, holes = [], []
        for name, run in histogram.runs.items():
            if run.row is not None:
                rows.append([name, *run.row])
                bins[run.row[2]] = bins.get(run.row[2], 0) + 1
            if run.hole is not None:
                holes.append([name, run.hole])
        return {
            "accepted": len(rows),
            "bins": bins,
            "holes": sorted(holes, key=_by_bytes),
            "intended": policy["intended"],
            "quorum": policy["quorum"],
            "rows": sorted(rows, key=_by_bytes),
        }


def _is_late_spend(said: Said) -> bool:
    return said.fence in ("ledger", "admission") and said.op in _LATE_SPEND


def _by_bytes(row: list[Any]) -> bytes:
    return str(row[0]).encode("utf-8", "surrogatepass")


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
