"""Each fence, taken out of a copy of the scripts, is found by chaos: a check that nobody would miss proves nothing.

EVALBUS_LUA names the copy. Where a fault has to meet the check, the check alone is taken out; where no fault that chaos
knows reaches a fence past its neighbours (they would refuse the same thing first), the fence's step is taken out of the
script that joins them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.chaos import Told, chaos
from tests.suites import write_suite

pytestmark = pytest.mark.process

_HEAD = """\
from workers.suite import Suite
import os
lab = os.environ["EVALBUS_LAB"]
suite = Suite(
    cases=[{"id": f"c{n}", "input": f"Say it.\\nLAB-ANSWER: PASS\\n%s", "target": "yes"} for n in range(%d)],
    solver={"python": "agent.py:solve"}, scorer={"kind": "python", "python": "agent.py:score"}, lease="1s", quorum=1,
    timeout="15s", concurrency=4,
"""
_SCORE = "\n\ndef score(case, sealed):\n    return True\n"


def suite_with(*lines: str, mischief: str = "", runs: int = 6) -> str:
    """A suite file with more fields."""
    return _HEAD % (mischief, runs) + "".join(f"    {line},\n" for line in lines) + ")\n"


_MODEL = 'model={"base_url": f"{lab}/v1", "name": "lab-1", "max_tokens": 20, "slots": 4, "retries": 1}'
_BOOKS = (
    'tools={"book": {"http": f"{lab}/tickets", "effects": "outside", "inverse": "cancel", "timeout": "3s", "slots": 8},'
    ' "cancel": {"http": f"{lab}/tickets/undo", "effects": "outside"}}'
)
_ASK = "async def solve(case, run):\n    return (await run.model.complete(case.input)).text" + _SCORE
_BOOK = (
    "from workers.tools import call\n\n\nasync def solve(case, run):\n"
    '    told = await run.tools.gather(*(call("book", seat=n, lab_mischief="late@500ms") for n in range(3)))\n'
    "    return str(len(told))" + _SCORE
)
_WRITE = (
    "import asyncio\n\n\nasync def solve(case, run):\n"
    '    await run.workspace.write("a", case.id)\n    await run.note("written")\n    await asyncio.sleep(0.8)\n'
    '    return "done"' + _SCORE
)
_JUDGE = "Judge {answer}.\nLAB-ANSWER: GRADE: C\nLAB-MISCHIEF: wrong-model\n"
_WAIT = "import asyncio\n\n\nasync def solve(case, run):\n    await asyncio.sleep(0.7)\n    return case.id" + _SCORE
_SLOW_SCORE = (
    "import asyncio\n\n\nasync def solve(case, run):\n    return case.id\n\n\n"
    "async def score(case, sealed):\n    await asyncio.sleep(0.3)\n    return True\n"
)


@dataclass(frozen=True, slots=True)
class Off:
    """A fence without its check, and what it takes to notice."""

    file: str
    check: str
    instead: str
    suite: str
    agent: str
    broken: str
    """The property that must not hold any more."""
    faults: str = "kill"
    options: tuple[str, ...] = field(default=())


FENCES = {
    "plane": Off(
        "plane/fence.lua",
        "if int(planes, 'in_flight') >= int(batch, 'capacity') then return reject('capacity') end",
        "",
        suite_with(_BOOKS, 'shadow={"capacity": 3}'),
        _BOOK,
        "plane.P4",
        options=("--plane", "shadow"),
    ),
    "outbox": Off(
        "outbox/fence.lua",
        "if a.ok and a.echo ~= at.id then return in_doubt('missing_echo') end",
        "",
        suite_with(_BOOKS),
        _BOOK.replace("late@500ms", "missing-echo"),
        "outbox.P9",
    ),
    "indoubt": Off(
        "indoubt/fence.lua",
        "if is_busy(slots, a.slot, now) then return reject('slot_busy') end",
        "",
        suite_with(_BOOKS.replace('"slots": 8', '"slots": 1')),
        _BOOK,
        "indoubt.P6",
    ),
    "completion": Off(
        "completion/fence.lua",
        "if int(run, 'c.model') == 0 then",
        "if false then",
        suite_with(_MODEL, mischief="LAB-MISCHIEF: blank*9"),
        _ASK,
        "completion.P9",
    ),
    "histogram": Off(
        "histogram/fence.lua",
        "if int(batch, 'fenced') >= int(batch, 'max_in_flight') then return reject('backpressure') end",
        "",
        suite_with("max_in_flight=1"),
        _SLOW_SCORE,
        "histogram.P6",
    ),
    "judge": Off(
        "judge/fence.lua",
        "if run.data['j.judge'] ~= a.observed_judge then return mismatch(run, batch, 'judge_mismatch') end",
        "",
        suite_with().replace(
            'scorer={"kind": "python", "python": "agent.py:score"}',
            'scorer={"kind": "model", "prompt": "judge.txt", "grades": {"C": "pass", "I": "fail"}}',
        ),
        "async def solve(case, run):\n    return case.id\n",
        "judge.P1",
    ),
    "transcript": Off(
        "transcript/fence.lua",
        "if transcript.is_live(run, a, floor) then return nil end",
        "if true then return nil end",
        suite_with(runs=60),
        _WAIT,
        "transcript.P2",
        faults="late-ack",
        options=("--minutes", "1.5"),
    ),
    "sandbox": Off(
        "sandbox/fence.lua",
        "place.epoch, place.beat = place.epoch + 1, now",
        "place.epoch, place.beat = math.max(place.epoch, 1), now",
        suite_with("workspace={}", runs=40),
        _WRITE,
        "sandbox.P4",
        options=("--minutes", "1.5"),
    ),
    "workspace": Off(
        "run/score.lua",
        "if run.data.tree ~= '' then",
        "if false then",
        suite_with("workspace={}"),
        _WRITE,
        "run.P9",
    ),
    "ledger": Off(
        "ledger/fence.lua",
        "if int(batch, 'spent') + int(batch, 'reserved') + a.estimate > int(batch, 'budget') then",
        "if false then",
        suite_with(_MODEL, "budget=40"),
        _ASK,
        "ledger.S4",
    ),
    "admission": Off(
        "admission/fence.lua",
        "if int(desk, 'in_flight') >= int(desk, 'bound') then return reject('bound_full') end",
        "",
        suite_with(_MODEL.replace('"slots": 4', '"slots": 1'), mischief="LAB-MISCHIEF: late@500ms"),
        _ASK,
        "admission.P1",
    ),
    "join": Off(
        "run/join.lua",
        "if not step('join.commit', join.commit(run, batch, verdict), verdict) then return refused() end",
        "",
        suite_with(_BOOKS),
        _BOOK,
        "join.P8",
    ),
}


def lua_without(target: Path, off: Off) -> Path:
    """A copy of the scripts without that check."""
    shutil.copytree(Path(__file__).parent.parent / "lua", target)
    file = target / off.file
    text = file.read_text("utf-8")
    assert text.count(off.check) == 1, f"{off.file} has another text now"
    file.write_text(text.replace(off.check, off.instead), "utf-8")
    return target


QUICK = ("admission", "join", "workspace")
"""`make test` has time for these; `make soak` for all twelve (the simulation's mutants are twelve in either)."""


@pytest.mark.parametrize("fence", FENCES if "EVALBUS_SOAK" in os.environ else QUICK)
def test_chaos_finds_a_fence_that_is_switched_off(fence: str, tmp_path: Path) -> None:
    """One check less, and the checker names what it was for."""
    off = FENCES[fence]
    suite = write_suite(tmp_path / "suite", None, suite_DOT_py=off.suite, agent_DOT_py=off.agent, judge_DOT_txt=_JUDGE)
    told: Told = chaos(
        tmp_path, suite, "--faults", off.faults, *off.options, EVALBUS_LUA=str(lua_without(tmp_path / "lua", off))
    )
    assert off.broken in told.broken, told.screen
    assert told.code == 5
    (shortest,) = (tmp_path / "home" / "chaos").rglob(f"*.{off.broken}.shortest.jsonl")
    assert str(shortest) in told.screen
    whole = shortest.with_name(shortest.name.removesuffix(f".{off.broken}.shortest.jsonl") + ".jsonl")
    assert shortest.stat().st_size < whole.stat().st_size
