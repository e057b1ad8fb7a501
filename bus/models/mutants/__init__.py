"""The naive policies that the fences exist against, each as its model with one check taken out.

They show two things: that a named property breaks without the check, so that a test of it can fail; and, when
a recorded history is replayed under one of them, what the fence prevented.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Model
from bus.models.mutants import (
    admission,
    completion,
    histogram,
    indoubt,
    join,
    judge,
    ledger,
    outbox,
    plane,
    sandbox,
    transcript,
    workspace,
)

__all__ = ["MUTANTS"]

MUTANTS: Mapping[str, Mapping[str, type[Model]]] = {
    "join": join.MUTANTS,
    "plane": plane.MUTANTS,
    "completion": completion.MUTANTS,
    "indoubt": indoubt.MUTANTS,
    "outbox": outbox.MUTANTS,
    "ledger": ledger.MUTANTS,
    "histogram": histogram.MUTANTS,
    "judge": judge.MUTANTS,
    "transcript": transcript.MUTANTS,
    "sandbox": sandbox.MUTANTS,
    "workspace": workspace.MUTANTS,
    "admission": admission.MUTANTS,
}
"""Fence → policy → the model that follows it."""
