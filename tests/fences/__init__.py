"""One module a fence: all that the tests know of it. `FENCES[name]` is the module."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from tests.fences import (
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

__all__ = ["FENCES"]

FENCES: Mapping[str, ModuleType] = {
    "join": join,
    "plane": plane,
    "completion": completion,
    "indoubt": indoubt,
    "outbox": outbox,
    "ledger": ledger,
    "histogram": histogram,
    "judge": judge,
    "transcript": transcript,
    "sandbox": sandbox,
    "workspace": workspace,
    "admission": admission,
}
