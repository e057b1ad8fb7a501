"""The judge: one run's judgement, from the question to a grade and to who gave it.

The question is put by the very loop that makes the candidate's calls. What was said is kept as an artifact, named in
the score's value. An answer without a grade is asked for again, as often as the table allows; then the run is the hole
`judge_unparsed`, which says what was said instead. Whose answer counts is not decided here: the identity that came with
it is presented to fence 6, which alone knows what is bound.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from bus.errors import InputError, MachineError
from bus.port import Bus, Ref, Runtime
from bus.types import Digest
from workers.cases import Case
from workers.judging.hearing import Hearing, JudgeError, JudgeSteps
from workers.judging.prompt import JudgePrompt
from workers.judging.reading import grade_of
from workers.lease import Lease
from workers.modelling.attempt import Site
from workers.modelling.calls import ModelCalls
from workers.modelling.model import Completion, Model
from workers.modelling.plane import LimitsOf, ModelPlane
from workers.processes.machine import insisted
from workers.redaction import redacted
from workers.scoring import Score
from workers.solver_time import SolverTime
from workers.suite import Suite

__all__ = ["Bench", "Judge", "Judged"]

log = structlog.get_logger("evalbus.judge")

_SHOWN: Final = 200  # characters of an answer without a grade, in the hole's detail
_INSIST: Final = 10.0  # seconds for which an answer that was paid for is tried to be stored
_TICK: Final = 0.05  # seconds at least between two looks at a clock that stands
_GRACE: Final = 10.0  # seconds for a request that is given up to be off the books


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and the judge who gave it, as it is presented to fence 6; `remark` when that is not the one bound."""

    score: Score
    judge: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a run is judged: under which lease, over which sealed transcript."""

    bus: Bus
    runtime: Runtime
    lease: Lease
    ref: Ref
    head: Digest
    length: int


class Judge:
    """A suite's judge, as one scorer process reaches it."""

    def __init__(self, suite: Suite, limits_of: LimitsOf | None = None) -> None:
        """Reads the prompt and the key. Raises InputError."""
        binding = suite.judge_binding
        assert binding is not None, "its kind is model"
        self._suite, self._table, self._binding = suite, suite.scorer.model, binding
        self._prompt = JudgePrompt.of(suite.root, suite.source, suite.scorer)
        self._plane = ModelPlane(self._table, binding.target, limits_of)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._plane.aclose()

    async def judge(self, bench: Bench, case: Case, answer: str) -> Judged:
        """The verdict on an answer. Raises JudgeError, or ScorerError when reading it fails."""
        time = bench.lease.time = SolverTime(bench.runtime.now)
        hearing = Hearing(bench.lease, bench.ref, bench.head, bench.length, self._table.retries)
        calls = ModelCalls(Site(JudgeSteps(bench.bus, hearing), bench.runtime, hearing, self._plane, time))
        task = asyncio.ensure_future(self._verdict(bench, calls, case, answer))
        try:
            return await self._awaited(task, time)
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE)
            if task.done() and not task.cancelled():
                task.exception()  # whatever it raised on its way out is no longer asked for
            await calls.settled()

    async def _awaited(self, task: asyncio.Task[Judged], time: SolverTime) -> Judged:
        """Waiting for a place, or for tokens that others may give back, is no fault of the judge's."""
        limit = self._suite.scorer.timeout
        while (left := limit - time.spent()) > 0:
            await asyncio.wait({task}, timeout=max(left, _TICK))
            if task.done():
                return task.result()
        raise JudgeError("judge_error", f"no verdict within {limit:g} s")

    async def _verdict(self, bench: Bench, calls: ModelCalls, case: Case, answer: str) -> Judged:
        model = Model(calls, self._table.api)
        said = None
        try:
            messages = self._prompt.messages(self._table.api, case, answer)
            for _ in range(1 + self._table.retries):
                said = await model.complete(messages)
                grade = await grade_of(said.text, self._suite)
                if grade is not None:
                    data = said.text.encode("utf-8", "surrogatepass")
                    store = partial(bench.bus.put_blob, bench.ref.batch, data)
                    kept = await insisted(bench.runtime, _INSIST, store)
                    value = json.dumps({"grade": grade.name, "judgement": kept}, ensure_ascii=False)
                    return self._judged(said, Score(grade.bin, value))
                log.info("judgement.unparsed", said=_brief(said))
        except MachineError:
            raise
        except InputError as error:  # a question that cannot be sent, an answer that cannot be kept
            raise JudgeError("judge_error", str(error)) from error
        assert said is not None, "it was asked once at least"
        raise JudgeError("judge_unparsed", f"no grade in: {_brief(said)}")

    def _judged(self, said: Completion, score: Score) -> Judged:
        judge = redacted(self._binding.observed(said.model, said.fingerprint))
        if judge == str(self._binding):
            return Judged(score, judge)
        return Judged(score, judge, redacted(self._binding.remark(said.model, said.fingerprint)))


def _brief(said: Completion) -> str:
    """The beginning of what was said, in one line."""
    return repr(said.text[:_SHOWN])
