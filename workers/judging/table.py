"""The tables of a model-graded scorer: the judge's endpoint, and what it must say of itself.

`[scorer.model]` has the fields of `[model]`. What is left out is looked up in the judge's own variables of the
environment, then in the candidate's: a suite whose judge is the model that it tests need not be told twice.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from workers.modelling.table import ModelTable
from workers.tables import Table

__all__ = ["MAX_IDENTITY", "IdentityTable", "JudgeModelTable"]

MAX_IDENTITY: Final = 200
"""Characters of what an endpoint says of itself, as far as it is compared letter by letter."""

Said = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_IDENTITY)]


class JudgeModelTable(ModelTable):
    """Which model judges, and how much of it may be asked for; `slots` requests at once, at a desk of its own."""

    table = "scorer.model"

    def _url_variables(self) -> tuple[str, ...]:
        return ("EVALBUS_JUDGE_URL", *super()._url_variables())

    def _name_variables(self) -> tuple[str, ...]:
        return ("EVALBUS_JUDGE_MODEL", *super()._name_variables())


class IdentityTable(Table):
    """What the endpoint must say of itself in each answer for its verdict to count."""

    table = "scorer.identity"

    model: Said | None = None
    """Else the name by which it is asked."""
    fingerprint: Said | None = None
    """Its `system_fingerprint`. Else that is not compared: most endpoints give none, and some a new one each week."""
