"""`evalbus init DIR`: a suite to begin with. It runs as it is, and is meant to be changed: its fields say what for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console

from workers.formats.converted import write_suite

__all__ = ["begin"]

_CASES: Final = """\
{"id": "sum", "input": "2 + 3", "target": "5", "metadata": {"kind": "easy"}}
{"id": "product", "input": "6 * 7", "target": "42", "metadata": {"kind": "easy"}}
{"id": "quotient", "input": "7 / 2", "target": "3.5", "metadata": {"kind": "hard"}}
"""
_HEAD: Final = """\
# What is asked of whom, how it is judged, and within what limits. Every field: docs/suite.md
cases = "cases.jsonl"    # or .csv, .tsv, .parquet; [fields] says which column is which
trials = 1               # runs of each case
timeout = "60s"          # of one run
"""
_TAIL: Final = """\
solver = {python = "agent.py:solve"}
scorer = {kind = "numeric"}    # or exact, includes, regex, a command, a python function, a model
gate = {min_pass_rate = 0.6, max_holes = 0}
"""
_MODEL: Final = """\

[model]                  # asked at EVALBUS_MODEL_URL for EVALBUS_MODEL, or at base_url for name; key: OPENAI_API_KEY
max_tokens = 500

[tools.calculate]
python = "agent.py:calculate"
effects = "none"         # it reads; "outside" for one that somebody will notice
"""
_CALCULATE: Final = """\
import operator

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


"""
_AGENT: Final = (
    _CALCULATE
    + """\
async def solve(case, run):
    left, sign, right = case.input.split()
    await run.note(f"the sign is {sign}")
    return str(SIGNS[sign](int(left), int(right)))
"""
)
_ASKING: Final = (
    """\
import json
"""
    + _CALCULATE
    + """\
TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Works out an expression of two whole numbers and a sign, with blanks between them.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}


def calculate(expression):
    left, sign, right = expression.split()
    return str(SIGNS[sign](int(left), int(right)))


async def solve(case, run):
    messages = [{"role": "user", "content": f"What is {case.input}? Answer with the number only."}]
    for _ in range(10):
        reply = await run.model.complete(messages, tools=[TOOL])
        if not reply.tool_calls:
            return reply.text
        messages.append(reply.message)
        for call in reply.tool_calls:
            result = await run.tools.call(call.name, **json.loads(call.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return "no answer in ten steps"
"""
)


def begin(directory: Path, console: Console, *, model: bool) -> None:
    """Write it. `model`: an agent that asks a model and calls a tool. Raises InputError; then nothing was written."""
    budget = "budget = 20_000          # tokens of the whole batch\n" if model else ""
    suite = _HEAD + budget + _TAIL + (_MODEL if model else "")
    texts: Mapping[str, str] = {"cases.jsonl": _CASES, "agent.py": _ASKING if model else _AGENT, "suite.toml": suite}
    write_suite(directory, texts, directory)
    console.print(f"{directory}: {', '.join(texts)}", markup=False, soft_wrap=True)
    named = "EVALBUS_MODEL_URL=URL EVALBUS_MODEL=NAME " if model else ""
    console.print(f"next: {named}evalbus run {shlex.quote(str(directory))}", markup=False, soft_wrap=True)
