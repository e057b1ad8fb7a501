"""A stage for suites that a model judges: a batch, its processes, and a lab as the judge's endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bus.types import Digest, RunId
from tests.model_stage import ModelStage
from tests.stage import BATCH
from workers.lab import Lab

__all__ = ["PROMPT", "SAYS", "JudgeStage", "answers", "judged_by"]

PROMPT = "Is {answer} right?\nSo says the case: {target}\n{answer}\n"
"""The lab answers what a line of it asks for: so a candidate's answer scripts its judge."""

SAYS = "async def solve(case, run):\n    return case.input\n"


def judged_by(lab: Lab, judge: str = "", model: str = "", top: str = "", rest: str = "") -> str:
    """A suite whose judge is the lab, with more lines in `[scorer]`, in `[scorer.model]`, at the top, at the end."""
    return (
        f'cases = "cases.jsonl"\nlease = "300ms"\nmax_deliveries = 3\nquorum = 1\n{top}\n'
        '[solver]\npython = "agent.py:solve"\n'
        '[scorer]\nkind = "model"\nprompt = "judge.txt"\ngrades = { C = "pass", I = "fail" }\n'
        f'{judge}\n[scorer.model]\nbase_url = "{lab.url}/v1"\nname = "lab-1"\n'
        f'billing_url = "{lab.url}/billing/{{request_id}}"\n{model}\n{rest}'
    )


def answers(said: Mapping[str, str]) -> str:
    """A case file: each case's answer is what makes its judge say the text given, and meet what mischief it names."""
    rows = []
    for name, text in said.items():
        line, _, mischief = text.partition(" | ")
        more = f"\nLAB-MISCHIEF: {mischief}" if mischief else ""
        rows.append({"id": name, "input": f"\nLAB-ANSWER: {json.dumps(line)}{more}\n", "target": name})
    return "".join(json.dumps(row) + "\n" for row in rows)


@dataclass(slots=True)
class JudgeStage(ModelStage):
    """See the module's text."""

    async def judge(self, toml: str, said: Mapping[str, str], **files: str) -> None:
        """Declare a batch whose judge says so."""
        given = {"agent_DOT_py": SAYS, "judge_DOT_txt": PROMPT, "cases_DOT_jsonl": answers(said)}
        await self.declare(toml, **{**given, **files})

    async def bins(self, runs: Sequence[RunId]) -> list[str]:
        """What became of each run: its bin, or its hole."""
        rows = await self.bus.rows(BATCH, runs)
        return [row.bin or row.hole for row in rows]

    async def judgement(self, run: RunId) -> dict[str, Any]:
        """A score's value, and under `text` what the judge said."""
        value: dict[str, Any] = json.loads((await self.row(run)).value)
        text = await self.bus.get_blob(BATCH, Digest(value["judgement"]))
        return {**value, "text": text.decode()}
