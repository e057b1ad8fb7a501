"""A model that judges, in a simulation: the scorer's own code, with a question of ours and the simulated endpoint.

The question shows the answer and the case's target, so the model that is asked can judge by it as `acting.score` does.
The grade is searched by the judge's own code, but for the process in which it does that: there is none here, and no
text that anybody else wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from bus.errors import MachineError
from bus.port import BatchSpec, Event, Ref
from workers.catalogue import Served
from workers.judging import reading
from workers.judging.judge import Judge, Judged
from workers.judging.prompt import JudgePrompt
from workers.lease import Lease
from workers.processes.commands import Finished
from workers.processes.machine import machine_error
from workers.scorer import ScorerRole
from workers.scoring import Sealed
from workers.simulating.endpoint import SimulatedPlane
from workers.simulating.process import Process
from workers.suite import Suite

__all__ = ["SimulatedScorer", "scorer_table", "searched_here"]

_PROMPT: Final = JudgePrompt("Is this right?\n{answer}\nSo says the case:\n{target}", "")


def scorer_table(bins: Sequence[str], model: Mapping[str, Any]) -> dict[str, Any]:
    """`[scorer]` of a suite that is simulated. `model`: `[scorer.model]`."""
    return {
        "kind": "model", "prompt": "judge.txt", "grades": {"C": bins[0], "I": bins[1]}, "timeout": 20.0, "model": model,
    }  # fmt: skip


def _verdict(question: str) -> str:
    """What the model says to the question above."""
    _, answer, _, target = question.splitlines()
    return f"They are compared.\nGRADE: {'C' if answer == target else 'I'}"


class _Judge(Judge):
    """One whose question is in no file, and whose model is simulated."""

    def __init__(self, suite: Suite, process: Process) -> None:
        binding = suite.judge_binding
        assert binding is not None, "its kind is model"
        self._suite, self._table, self._binding, self._prompt = suite, suite.scorer.model, binding, _PROMPT
        self._plane = SimulatedPlane(self._table, binding.target, process, says=_verdict)


class SimulatedScorer(ScorerRole):
    """A scorer whose judge is simulated."""

    process: Process

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """See ScorerRole."""
        if suite.scorer.kind == "model" and suite.digest not in self._judges:
            self._judges[suite.digest] = _Judge(suite, self.process)
        super().prepare(suite, spec)

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """See ScorerRole."""
        if await super().give_back(lease, fault):
            return True
        assert lease.ref is not None, "it was ended"
        self.process.ends_for_machines(lease.ref.run)
        return False

    async def _verdict(self, lease: Lease, ref: Ref, served: Served, events: Sequence[Event], sealed: Sealed) -> Judged:
        self.process.begins("verdict", ref.run)
        if why := self.process.unable(ref.run):
            raise machine_error(why)
        return await super()._verdict(lease, ref, served, events, sealed)


@contextmanager
def searched_here() -> Iterator[None]:
    """Within it a grade is searched in this process: a simulated clock does not wait for another one."""
    names = vars(reading)
    apart, names["run_limited"] = names["run_limited"], _searched
    try:
        yield
    finally:
        names["run_limited"] = apart


async def _searched(_argv: Sequence[str], *, stdin: bytes, **_: object) -> Finished:
    """What the other process would have found."""
    asked = json.loads(stdin)
    found = [match.group(1) for match in re.finditer(asked["pattern"], asked["said"], asked["flags"])]
    last = json.dumps(found[-1] if found else None)
    return Finished(0, None, last.encode(), b"", timed_out=False, truncated=False, seconds=0.0)
