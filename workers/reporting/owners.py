"""Whose a line of a history is: the run that it is about.

`workers.explaining.entries.Picker` answers "is this about run X?". A report has thousands of runs and would have to ask
each; here one look says which, by the same rules. A line names its run in its envelope, or its part does: by itself, by
a step, a call or a chain of its, by its key at the plane, or by a place at a desk that the run took before.
"""

from __future__ import annotations

from bus.export_format import Line
from workers.explaining.entries import given, run_of_step

__all__ = ["Owners", "is_of_batch"]

_RESULT = ":result"


def is_of_batch(line: Line) -> bool:
    """Whether this is about the batch as a whole, and belongs to the story of each of its runs."""
    return (line.fence, line.op) in (("histogram", "close"), ("run", "restarted")) and "run" not in line.envelope


class Owners:
    """Lines must come in order. Memory grows with the places that were taken at desks: runs, and calls of models."""

    def __init__(self) -> None:
        """No line was seen."""
        self._places: dict[str, str] = {}

    def run_of(self, line: Line) -> str | None:
        """The run that this line is about; None when it is about the batch, or about none that can be told."""
        named = line.envelope.get("run")
        run = named if isinstance(named, str) else self._by_part(line)
        lease = given(line, "lease")
        if run is not None and line.op == "acquire" and isinstance(lease, str):
            self._places[lease] = run
        return run

    def _by_part(self, line: Line) -> str | None:
        args = line.args
        for name in ("run", "workspace", "step"):
            value = args.get(name)
            if isinstance(value, str) and _is_run(value):
                return value
        lease = args.get("lease")
        if isinstance(lease, str) and lease in self._places:
            return self._places[lease]
        for name in ("step", "case", "intent_id", "run"):
            value = args.get(name)
            if isinstance(value, str) and (run := run_of_step(value)):
                return run
        key = args.get("key")
        rest = key.partition(":")[2] if isinstance(key, str) else ""
        return rest.removesuffix(_RESULT) if rest.endswith(_RESULT) else None


def _is_run(name: str) -> bool:
    """`c#1`, and not `c#1~0` or `c#1~0.2`: only a run's last part has the number of its trial."""
    return "#" in name.rpartition("~")[2]
