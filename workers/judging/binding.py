"""What binds a score to a model that judges: fence 6 compares it with what the answer shows.

    <digest> <model> at <base URL> as {"model": …}

The digest is of the suite, so of prompt, system text, scale, parser and parameters; then who is asked, and what it must
say of itself. What is observed has the same beginning, since this process put the question, and the identity that came
with the answer. An alias behind which another model stands now so gives another text, and no score.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from bus.errors import InputError
from workers.judging.table import MAX_IDENTITY, IdentityTable
from workers.modelling.table import Target

__all__ = ["Binding", "other_judge"]

_BETWEEN = " as "


@dataclass(frozen=True, slots=True)
class Binding:
    """The judge of a suite."""

    digest: str
    """Of all that the question and the reading of its answer are made of."""
    target: Target
    identity: IdentityTable

    def __str__(self) -> str:
        """As it is bound, before anything was asked."""
        return self._said(self.identity.model or self.target.name, self.identity.fingerprint)

    def observed(self, model: str, fingerprint: str) -> str:
        """As an answer shows it: that names its model, and its fingerprint where it has one."""
        return self._said(model, fingerprint if self.identity.fingerprint is not None else None)

    def remark(self, model: str, fingerprint: str) -> str:
        """One line for who wants to know what the endpoint said of itself, and how to bind that."""
        tables = {"model": _bounded(model)}
        if fingerprint and self.identity.fingerprint is not None:
            tables["fingerprint"] = _bounded(fingerprint)
        wanted = self._identity(self.identity.model or self.target.name, self.identity.fingerprint)
        rows = ", ".join(f"{name} = {json.dumps(value)}" for name, value in tables.items())
        said = f"the judge says that it is {_shown(tables)}, bound is {_shown(wanted)}"
        return f"{said}; to bind it, in [scorer]: identity = {{ {rows} }}"

    def _said(self, model: str, fingerprint: str | None) -> str:
        identity = json.dumps(self._identity(model, fingerprint))
        return f"{self.digest} {self.target}{_BETWEEN}{identity}"

    @staticmethod
    def _identity(model: str, fingerprint: str | None) -> dict[str, str]:
        told = {"model": _bounded(model)}
        return told if fingerprint is None else {**told, "fingerprint": _bounded(fingerprint)}


def other_judge(batch: str, bound: str, here: str) -> InputError:
    """What is said to a process whose environment names another judge than the batch is bound to."""
    return InputError(
        f"batch {batch!r} is judged by {_who(bound)}, and this environment names {_who(here)}",
        remedy="set EVALBUS_JUDGE_MODEL and EVALBUS_JUDGE_URL as they were where the batch was made",
    )


def _who(binding: str) -> str:
    return binding.partition(" ")[2].rpartition(_BETWEEN)[0] or "a scorer that is no model"


def _bounded(said: str) -> str:
    """An identity stands in envelopes and rows: one that goes on for ever is known by its digest."""
    if len(said) <= MAX_IDENTITY:
        return said
    return f"sha256 {hashlib.sha256(said.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _shown(identity: dict[str, str]) -> str:
    return " / ".join(repr(value) for value in identity.values())
