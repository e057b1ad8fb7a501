"""The contract of the fences, all of them: whatever plays, sends or checks an operation reads it here.

The loader of vectors, the typed operations, the tests that compare scripts and models. The reference models declare
their arguments by themselves, so that a slip in these tables cannot hide in both; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bus.contract_table import PROTOCOLS, Arg, FenceContract, Kind, OpContract, Outcome
from bus.contracts import (
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

__all__ = ["CONTRACT", "PROTOCOLS", "Arg", "FenceContract", "Kind", "OpContract", "Outcome"]

CONTRACT: Mapping[str, FenceContract] = MappingProxyType(
    {
        module.CONTRACT.name: module.CONTRACT
        for module in (
            histogram,
            judge,
            transcript,
            sandbox,
            workspace,
            admission,
            plane,
            completion,
            indoubt,
            ledger,
            outbox,
            join,
        )
    }
)
"""The fences of this release, by name."""
