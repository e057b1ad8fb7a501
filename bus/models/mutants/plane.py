"""The naive policies that fence plane exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Model
from bus.models.plane import Admission, Plane

__all__ = ["MUTANTS"]


class SharedKey(Plane):
    """A job is named by its run and step: the plane is a label, and whoever was admitted writes what it brings."""

    def _crosses(self, known: Admission, key: str, plane: str) -> str | None:
        return None

    def _is_its_key(self, known: Admission, key: str) -> bool:
        return known.key.partition(":")[2] == key.partition(":")[2]


MUTANTS: Mapping[str, type[Model]] = {
    "shared_key": SharedKey,
}
"""Policy → the model that follows it."""
