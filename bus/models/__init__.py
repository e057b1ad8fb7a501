"""The reference models: each fence as a pure value machine, the executable form of its specification."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bus.models.admission import Admission
from bus.models.completion import Completion
from bus.models.histogram import Histogram
from bus.models.indoubt import InDoubt
from bus.models.join import Join
from bus.models.judge import Judge
from bus.models.ledger import Ledger
from bus.models.model import Answer, Model, Verb
from bus.models.mutants import MUTANTS
from bus.models.outbox import Outbox
from bus.models.plane import Plane
from bus.models.sandbox import Sandbox
from bus.models.transcript import Transcript
from bus.models.workspace import Workspace

__all__ = ["MODELS", "MUTANTS", "Answer", "Model", "Verb", "build"]

MODELS: Mapping[str, type[Model]] = {
    model.FENCE: model
    for model in (
        Histogram,
        Judge,
        Transcript,
        Sandbox,
        Workspace,
        Admission,
        Ledger,
        Completion,
        InDoubt,
        Outbox,
        Plane,
        Join,
    )
}


def build(
    fence: str,
    config: Mapping[str, object],
    *,
    mutant: str | None = None,
    draw: Callable[[], str] | None = None,
) -> Model:
    """A model of a fence in its empty state. `config` has exactly the fields of `CONFIG`, already checked.

    `mutant` names a naive policy of `MUTANTS[fence]`. An unknown fence or policy is a `KeyError`.
    """
    model: Callable[..., Model] = MODELS[fence] if mutant is None else MUTANTS[fence][mutant]
    return model(**config, draw=draw)
