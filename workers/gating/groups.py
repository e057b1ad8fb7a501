"""Cases by a field of their metadata: the rows of a table, or the clusters of an error.

A batch knows its cases by name only; what they are is in the suite. So the suite is looked at, and must have every case
of the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bus.errors import InputError
from workers.cases import Case, Json
from workers.gating.sources import Found
from workers.suite import load_suite

__all__ = ["MISSING", "Fields", "fields_of"]

MISSING = "(none)"
"""The group of cases that do not have the field."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The cases of a batch, as its suite has them."""

    cases: Mapping[str, Case]
    source: Path
    same: bool
    """Whether it is the very suite that the batch was made from; else another state of it, with the same cases."""

    def by(self, field: str) -> dict[str, str]:
        """Case to its group. Raises InputError for a field that no case has."""
        groups = {name: _group(case.metadata.get(field)) for name, case in self.cases.items()}
        if all(group == MISSING for group in groups.values()):
            known = sorted({name for case in self.cases.values() for name in case.metadata})
            remedy = f"there are {', '.join(map(str, known[:8]))}" if known else "no case has any metadata"
            raise InputError(f"no case has the metadata field {field!r}", file=self.source, remedy=remedy)
        return groups


def fields_of(found: Found, suite: Path | None) -> Fields:
    """`suite`: a copy of it; None: where the batch was made, if that is on this machine, and in TOML.

    A suite in Python is run when it is read. One that is merely named by a server is not run. Raises InputError.
    """
    place = suite
    if place is None:
        place = Path(found.suite_path) if found.suite_path else None
        if place is None or place.suffix != ".toml" or not place.is_file():
            raise InputError(
                f"the metadata of the cases is in the suite of {found.name}, which is not at hand",
                remedy="give a copy of it: --suite DIR",
            )
    loaded = load_suite(place, check_code=False)
    wanted = found.outcome.cases
    cases = {case.id: case for case in loaded.cases if case.id in wanted}
    if missing := sorted(wanted - cases.keys()):
        raise InputError(
            f"does not have {len(missing)} of the cases of {found.name}, {missing[0]!r} for one", file=loaded.source
        )
    return Fields(cases, loaded.source, loaded.digest == found.suite_digest)


def _group(value: Json) -> str:
    if value is None or value == "":
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
