"""The solver of a suite with `[inspect]`: a run is put into the worker's eval, and what comes out is its answer."""

from __future__ import annotations

from typing import Final

from bus.errors import InputError
from workers.cases import Case
from workers.inspecting.hosting import host
from workers.inspecting.loading import Loaded
from workers.run import Run

__all__ = ["InspectSolver", "SampleFailedError"]

_SAID: Final = 1_500  # characters of a sample's error; a hole's detail has 2,000


class SampleFailedError(Exception):
    """The sample ended in an error of its own; `str(error)` is one line."""


class InspectSolver:
    """See the module's text. `workers.solving` gives it the protocol's errors."""

    def __init__(self, loaded: Loaded) -> None:
        """`loaded`: the task, as this process has it."""
        self._loaded = loaded

    async def solve(self, case: Case, run: Run) -> str:
        """The sample as its solver left it, as JSON. Raises SampleFailedError; InputError when there is no eval."""
        sealed = await host().run(self._loaded, self._loaded.samples[case.id], run.trial)
        sample = sealed.sample
        if sample.error is not None:
            raise SampleFailedError(" ".join(sample.error.message.split())[:_SAID])
        if (str(sample.id), sample.epoch) != (str(self._loaded.samples[case.id].id), run.trial):
            raise InputError(f"the eval gave sample {sample.id!r}, epoch {sample.epoch}, for run {run.id}")
        return sealed.dumps()

    async def aclose(self) -> None:
        """End the eval, if it is this task's: a process has one at a time, and another suite's may have begun."""
        await host().end(self._loaded)
