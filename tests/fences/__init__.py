"""One module a fence: all that the tests know of it. `FENCES[name]` is the module."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from tests.fences import admission, histogram, judge, transcript

__all__ = ["FENCES"]

FENCES: Mapping[str, ModuleType] = {
    "histogram": histogram,
    "judge": judge,
    "transcript": transcript,
    "admission": admission,
}
