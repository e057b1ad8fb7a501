"""The question that a judge is asked: a text of the suite's with the case and the answer put in.

Four names in braces are replaced, each where it stands, in one pass. Nothing else is interpreted: braces of the
template's own stay, and what is put in is never looked at again, so a case or an answer that holds `{target}` shows
just that.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bus.errors import InputError
from workers.cases import Case, Json
from workers.rows import read_text
from workers.scorer_table import ScorerTable, is_file_name

__all__ = ["JudgePrompt"]

_PLACE: Final = re.compile(r"\{(input|target|answer|metadata)\}")


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """A suite's question, and the instructions that come before it; those may be empty."""

    template: str
    system: str

    @classmethod
    def of(cls, root: Path, source: Path, table: ScorerTable) -> JudgePrompt:
        """As the suite's files have it. Raises InputError when the answer would not be in it."""
        assert table.prompt is not None, "its kind is model"
        template = read_text(root / table.prompt, root / table.prompt)
        if "{answer}" not in template:
            raise InputError(
                f"scorer.prompt: {table.prompt} does not show the judge what it judges",
                file=source,
                remedy="write {answer} where the answer belongs",
            )
        system = table.system or ""
        if is_file_name(system):
            system = read_text(root / system, root / system)
        return cls(template, system)

    def fill(self, case: Case, answer: str) -> str:
        """The question about an answer to a case."""
        values = {
            "input": case.prompt,
            "target": _shown(case.target),
            "answer": answer,
            "metadata": json.dumps(dict(case.metadata), ensure_ascii=False, sort_keys=True),
        }
        return _PLACE.sub(lambda place: values[place[1]], self.template)

    def messages(self, api: str, case: Case, answer: str) -> list[dict[str, object]] | str:
        """The same, as the API takes it."""
        question = self.fill(case, answer)
        if api == "completions":
            return f"{self.system}\n\n{question}" if self.system else question
        before: list[dict[str, object]] = [{"role": "system", "content": self.system}] if self.system else []
        return [*before, {"role": "user", "content": question}]


def _shown(value: Json) -> str:
    """A target as a reader wants it: text as it is, nothing as nothing, all else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
