"""Tools in the path of a run: effects counted at a real HTTP server, with deaths of holders and executors.

A `holder` is a worker that executes nothing for others; an `executor` reads the `tools` stream and nothing else. Each
has a bus of its own, and may halt at a chosen step (`tests.fragile`): from there on it is dead, or had only
stalled. However they die, the tool is asked at most once for each step, or once and an undo.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from bus.errors import ServerUnreachable
from bus.port import BatchStatus, Bus, Group
from bus.redis_bus import RedisBus
from bus.types import ConsumerId
from tests.fragile import Fragile, Moment
from tests.stage import BATCH, A, InMemory, Lasting, OnServer, Place, Process, Stage
from tests.tool_server import ToolServer
from tests.waiting import soon, until
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.results.status import show_one
from workers.runtime import SystemRuntime
from workers.tools.observing import UNDONE
from workers.tools.serving import JointConsumer, Toolroom
from workers.tools.slots import Slot
from workers.worker import Worker

ONE = '{"id": "a", "input": "1", "target": "done"}\n'

AGENT = """
import json
from pathlib import Path
from workers.tools import ToolFailedError, call

LOG = Path(__file__).parent.parent / "calls.log"

def look(what):
    with LOG.open("a") as log:
        log.write(what + "\\n")
    return {"seen": what}

async def solve(case, run):
    seen = await SOLVER(run)
    (LOG.parent / "told.json").write_text(json.dumps(seen))
    return "done"
"""

TABLES = """
[tools.book]
http = "{url}"
effects = "outside"
timeout = "{timeout}"
bound = "{bound}"
inverse = "cancel"
slots = {slots}
headers_env = {{ X-Key = "BOOKING_CANARY" }}
[tools.pay]
http = "{url}"
effects = "outside"
timeout = "{timeout}"
bound = "{bound}"
[tools.cancel]
http = "{cancel}"
effects = "outside"
timeout = "{timeout}"
bound = "{bound}"
[tools.look]
python = "agent.py:look"
effects = "none"
[tools.far]
python = "agent.py:look"
effects = "none"
remote = true
"""

SUITE = """
cases = "cases.jsonl"
lease = "300ms"
max_deliveries = 3
timeout = "20s"
ignore = ["agent.py.told"]
[solver]
python = "agent.py:solve"
[scorer]
kind = "exact"
"""

QUICK = {"timeout": "750ms", "bound": "1500ms"}  # as long to be sent, once it is licensed, as to be answered
SLOW = {"timeout": "5s", "bound": "1h"}
BOOK = 'await run.tools.gather(call("book", seat=1))'
CANARY = "canary-4711-canary"


@dataclass(slots=True)
class Crew(Stage):
    """A stage whose workers have tools. Everything runs until it is told to die."""

    tool: ToolServer = field(default_factory=ToolServer)

    async def begin(
        self, solver: str, *, quick: bool = False, slots: int = 8, tables: str = "", lease: str = "300ms"
    ) -> None:
        """Declare the batch, and start its planner and scorer. `solver`: an expression, or lines with `return`.

        `quick`: calls have a short time, and are in doubt for a short time. `lease`: longer where nobody dies, and one
        executor must not be suspected by another.
        """
        body = solver if "return" in solver else f"return {solver}"
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        listed = "return [[one.tool, one.ok, one.text] for one in await seen(run)]"
        code = f"{AGENT}\nasync def seen(run):\n{lines}\n\nasync def SOLVER(run):\n    {listed}\n"
        tables += TABLES.format(
            url=self.tool.url(), cancel=self.tool.url("cancel"), slots=slots, **(QUICK if quick else SLOW)
        )
        await self.declare(SUITE.replace("300ms", lease) + tables, agent_DOT_py=code, cases_DOT_jsonl=ONE)
        self.planner()
        self.scorer()

    def holder(self, *moments: Moment) -> Process:
        """Start a worker that executes nothing for others."""
        fragile, name = self._process(moments)
        bus, runtime, room = cast("Bus", fragile), SystemRuntime(), Toolroom()
        worker = Worker(bus, runtime, name, self.root / "work" / name, tools_of=room.tools_of(bus, runtime))
        role = Consumer(bus, runtime, Group.WORKER, name, Catalogue(bus, self.suite, BATCH), worker)
        return self._start(fragile, role)

    async def executor(self, *moments: Moment, catalogue: type[Catalogue] = Catalogue) -> Process:
        """Start a worker that holds no run."""
        fragile, name = self._process(moments)
        bus = cast("Bus", fragile)
        served = catalogue(bus, self.suite, BATCH)
        await served.open_batches()
        return self._start(fragile, Toolroom().consumer(bus, SystemRuntime(), name, served))

    def _process(self, moments: tuple[Moment, ...]) -> tuple[Fragile, ConsumerId]:
        return Fragile(self.place.bus(), moments), ConsumerId(f"c{len(self.processes)}")

    @property
    def told(self) -> Any:  # noqa: ANN401
        """What the solver was told: tool, ok, text of each call."""
        return json.loads((self.root / "told.json").read_text())

    @property
    def looks(self) -> list[str]:
        """What the function `look` was asked."""
        log = self.root / "calls.log"
        return log.read_text().split() if log.exists() else []

    async def status(self) -> str:
        """What `evalbus status b` prints."""
        console = Console(record=True, width=200, file=io.StringIO())
        await show_one(cast("RedisBus", self.bus), BATCH, console)
        return console.export_text()

    async def events(self) -> list[dict[str, Any]]:
        """The run's transcript."""
        return [json.loads(event.payload) for event in await self.bus.transcript(BATCH, A)]


@pytest.fixture(params=["memory", "server"])
async def crew(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    """Nothing declared yet, in either place; the tool server is there."""
    monkeypatch.setenv("BOOKING_CANARY", CANARY)
    place: Place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    async with ToolServer() as tool:
        one = Crew(place, tmp_path, tool=tool)
        yield one
        await one.aclose()


def only(crew: Crew) -> tuple[int, int]:
    """How often the only key was asked to be made, and to be undone."""
    assert len(crew.tool.made) <= 1, crew.tool.made
    return sum(crew.tool.made.values()), len(crew.tool.undone)


# --- nobody dies ------------------------------------------------------------------------------------------


async def test_each_call_of_a_fan_out_has_its_effect_once_and_its_answer_in_the_transcript(crew: Crew) -> None:
    """The key, the plane and a header from the environment arrive; the value of the last is written nowhere."""
    await crew.begin('await run.tools.gather(call("book", seat=1), call("book", seat=2), call("pay", euro=3))')
    crew.holder()
    await crew.executor()
    counters = await crew.closed()
    assert (counters.status, counters.bins, counters.effects_open) == (BatchStatus.CLOSED, {"pass": 1, "fail": 0}, 0)
    assert sorted(crew.tool.made.values()) == [1, 1, 1]
    assert crew.told == [["book", True, 'booked {"seat": 1}'], ["book", True, 'booked {"seat": 2}'],
                         ["pay", True, 'booked {"euro": 3}']]  # fmt: skip
    info = await crew.bus.info(BATCH)
    assert info is not None
    assert {request["headers"]["evalbus-plane"] for request in crew.tool.requests} == {"live"}
    keys = [request["headers"].get("x-key") for request in crew.tool.requests if "seat" in request["body"]]
    assert keys == [CANARY, CANARY]
    assert set(crew.tool.made) == {f"live:{info.incarnation}:a#1~0.1.{number}" for number in range(3)}
    [event, answer] = await crew.events()
    assert (event["kind"], event["step"], answer["kind"]) == ("tools", "a#1~0.1", "answer")
    assert CANARY not in json.dumps([await crew.events(), crew.told])


async def test_tools_that_only_read_are_called_here_and_are_one_event(crew: Crew) -> None:
    """Nothing goes through the stream, so no executor is needed."""
    await crew.begin('await run.tools.gather(call("look", what="x"), call("look", what="y"))')
    crew.holder()
    await crew.closed()
    assert sorted(crew.looks) == ["x", "y"]
    assert [event["kind"] for event in await crew.events()] == ["tools", "answer"]


async def test_calls_here_and_elsewhere_are_joined_together(crew: Crew) -> None:
    """In the order in which they were asked."""
    await crew.begin('await run.tools.gather(call("look", what="x"), call("book", seat=1), call("far", what="z"))')
    crew.holder()
    await crew.executor()
    await crew.closed()
    assert crew.told == [["look", True, '{"seen":"x"}'], ["book", True, 'booked {"seat": 1}'],
                         ["far", True, '{"seen":"z"}']]  # fmt: skip


async def test_a_tool_that_refuses_has_failed_and_nothing_is_undone(crew: Crew) -> None:
    """It said that nothing was done."""
    crew.tool.plan = ["refuse"]
    await crew.begin(
        'try:\n    await run.tools.call("book", seat=1)\n'
        "except ToolFailedError as error:\n    return [error.observation]"
    )
    crew.holder()
    await crew.executor()
    await crew.closed()
    assert crew.told == [["book", False, "HTTP 422: sold out"]]
    assert only(crew) == (0, 0)


async def test_a_failure_that_the_solver_does_not_catch_is_its_own(crew: Crew) -> None:
    """The hole tells which tool it was."""
    crew.tool.plan = ["refuse"]
    await crew.begin('await run.tools.call("book", seat=1)\nreturn []')
    crew.holder()
    await crew.executor()
    counters = await crew.closed()
    assert counters.hole_reasons == {"solver_error": 1}
    assert (await crew.row(A)).detail == "ToolFailedError: book: HTTP 422: sold out (agent.py:19)"


@pytest.mark.parametrize(
    "asked",
    [
        'call("bok", seat=1)',
        'call("book", seat={1})',
        'call("book", seat=float("nan"))',
        'call("book", seat=eval("[" * 100 + "]" * 100))',
        'call("book", seat="x" * 1_000_000)',
    ],
)
async def test_what_cannot_be_called_is_the_solvers_mistake(crew: Crew, asked: str) -> None:
    """Nothing was announced. What is nested too deep could be called, and then nobody could export the history."""
    await crew.begin(f"await run.tools.gather({asked})")
    crew.holder()
    assert (await crew.closed()).hole_reasons == {"solver_error": 1}
    assert only(crew) == (0, 0)


async def test_a_tool_is_called_by_as_many_as_it_has_slots(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all executors: two of them here, with a call each in hand. Who finds none free looks again, unrecorded."""
    monkeypatch.setattr("workers.tools.serving.SLOTS", 1)
    looked, choose = [], Slot.choose

    def chosen(slot: Slot, names: Sequence[str], free: Collection[str]) -> bool:
        looked.append(choose(slot, names, free))
        return looked[-1]

    monkeypatch.setattr(Slot, "choose", chosen)
    crew.tool.plan = ["hold", "", ""]
    await crew.begin('await run.tools.gather(*(call("book", seat=n) for n in range(3)))', slots=1, lease="5s")
    crew.holder()
    await crew.executor()
    await crew.executor()
    await until(lambda: len(crew.tool.requests) == 1, "the first call")
    await until(lambda: looked.count(False) >= 5, "the other to look, again and again")
    assert len(crew.tool.requests) == 1
    crew.tool.gate.set()
    assert (await crew.closed()).refusals.get("slot_busy", 0) <= 2  # races that were lost
    assert sorted(crew.tool.made.values()) == [1, 1, 1]


async def test_calls_that_wait_for_slots_leave_nothing_in_the_history(crew: Crew) -> None:
    """Each question for a slot that another had was a line there: hundreds for a few fan-outs of fifty."""
    await crew.begin('await run.tools.gather(*(call("book", seat=n) for n in range(30)))', slots=2, lease="5s")
    crew.holder()
    for _ in range(3):
        await crew.executor()
    counters = await crew.closed()
    assert sorted(crew.tool.made.values()) == [1] * 30
    assert counters.refusals.get("slot_busy", 0) < 30  # lost races: two looked, and one was faster


async def test_an_executor_that_loses_the_race_for_a_slot_takes_another(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked, and another was faster: that is a refusal, and its call is neither lost nor made twice."""
    crew.tool.plan = ["hold", ""]
    await crew.begin('await run.tools.gather(call("book", seat=1), call("book", seat=2))', slots=2, lease="5s")
    monkeypatch.setattr("workers.tools.serving.SLOTS", 1)
    monkeypatch.setattr(SystemRuntime, "jitter", lambda _: 0.0)  # both prefer the first
    crew.holder()
    slow = await crew.executor(Moment("before", "tool_sent"))
    await slow.halted()
    await crew.executor()
    await until(lambda: len(crew.tool.requests) == 1, "the first call")
    slow.bus.resume()
    counters = await crew.until(lambda now: now.refusals.get("slot_busy", 0) == 1)
    await until(lambda: len(crew.tool.requests) == 2, "the second call, by the other slot")
    crew.tool.gate.set()
    counters = await crew.closed()
    assert (counters.refusals, sorted(crew.tool.made.values())) == ({"slot_busy": 1}, [1, 1])


# --- an executor dies, or falls silent --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "asked", "undone"),
    [
        (Moment("before", "tool_claim"), 1, 0),
        (Moment("after", "tool_claim"), 1, 0),
        (Moment("before", "tool_sent"), 1, 0),
        (Moment("after", "tool_sent"), 0, 1),
        (Moment("before", "tool_complete"), 1, 1),
        (Moment("after", "tool_complete"), 1, 0),
    ],
    ids=str,
)
async def test_an_executor_that_dies_leaves_one_effect_or_one_and_its_undo(
    crew: Crew, moment: Moment, asked: int, undone: int
) -> None:
    """Before the licence another one calls; after it nobody does, and what may be there is undone after the bound."""
    await crew.begin(BOOK, quick=bool(undone))
    crew.holder()
    first = await crew.executor(moment)
    await first.halted()
    await crew.executor()
    counters = await crew.closed()
    assert (counters.scored, counters.effects_open, counters.stuck) == (1, 0, 0)
    assert only(crew) == (asked, undone)
    assert crew.told == [["book", not undone, UNDONE if undone else 'booked {"seat": 1}']]


@pytest.mark.parametrize("fault", ["cut", "500", "mute", "bare", "hold"])
async def test_a_tool_that_does_not_say_what_it_did_is_not_asked_again_but_undone(crew: Crew, fault: str) -> None:
    """A connection that dies, an error of the server's, a 200 without the key, no answer in time."""
    crew.tool.plan = [fault]
    await crew.begin(BOOK, quick=True)
    crew.holder()
    await crew.executor()
    await crew.closed()
    assert only(crew) == (1, 1)
    assert crew.tool.undone == list(crew.tool.made)
    assert crew.told == [["book", False, UNDONE]]


async def test_a_slow_original_does_not_land_after_its_undo(crew: Crew) -> None:
    """The tool was told which key is undone, before it did what it was asked under it."""
    crew.tool.plan = ["late"]
    await crew.begin(BOOK, quick=True)
    crew.holder()
    await crew.executor()
    await crew.closed()
    crew.tool.gate.set()
    assert crew.tool.undone == [crew.tool.requests[0]["headers"]["idempotency-key"]]


async def test_what_is_in_doubt_and_cannot_be_undone_ends_the_run_by_name(crew: Crew) -> None:
    """`pay` has no inverse. The batch closes over the hole, and the count of what is stuck stays to be seen."""
    crew.tool.plan = ["cut"]
    await crew.begin('await run.tools.gather(call("pay", euro=1))', quick=True)
    crew.holder()
    await crew.executor()
    await crew.until(lambda now: now.effects_open == 1)
    counters = await crew.closed()
    assert (counters.hole_reasons, counters.effects_open, counters.stuck) == ({"stuck": 1}, 0, 1)
    assert only(crew) == (1, 0)
    assert "pay" in (await crew.row(A)).detail


async def test_an_undo_that_falls_silent_too_ends_the_run_by_name(crew: Crew) -> None:
    """There is no undo of an undo."""
    crew.tool.plan = ["cut", "cut"]
    await crew.begin(BOOK, quick=True)
    crew.holder()
    await crew.executor()
    counters = await crew.closed()
    assert (counters.hole_reasons, counters.effects_open) == ({"stuck": 1}, 0)
    assert only(crew) == (1, 0)


async def test_an_executor_that_stalls_past_its_licence_sends_nothing(crew: Crew) -> None:
    """It wakes up when the call was given up and undone: by its own clock it is too late."""
    await crew.begin(BOOK, quick=True)
    crew.holder()
    stalled = await crew.executor(Moment("after", "tool_sent"), catalogue=Lasting)
    await stalled.halted()
    await crew.executor()
    await crew.closed()
    stalled.bus.resume()
    await until(lambda: any(str(one).startswith("reject already_final") for one in stalled.bus.decided), "its refusal")
    assert only(crew) == (0, 1)


async def test_a_tool_that_only_reads_is_read_again_when_its_executor_dies(crew: Crew) -> None:
    """No bound is waited for, nothing is undone, and a conversation that is given up is not held up by it."""
    await crew.begin('await run.tools.gather(call("far", what="x"))')
    crew.holder()
    first = await crew.executor(Moment("before", "tool_complete"))
    await first.halted()
    await crew.executor()
    counters = await crew.closed()
    assert crew.looks == ["x", "x"]
    assert crew.told == [["far", True, '{"seen":"x"}']]
    assert counters.stuck == 0


async def test_an_executor_that_is_told_to_stop_awaits_what_it_has_sent(crew: Crew) -> None:
    """Its answer is known in a moment; given up, it would be in doubt."""
    crew.tool.plan = ["hold"]
    await crew.begin(BOOK)
    crew.holder()
    executor = await crew.executor()
    await until(lambda: crew.tool.requests, "the call")
    stopping = asyncio.create_task(executor.stopped())
    await until(executor.role._stopping.is_set, "the stop")
    await asyncio.sleep(0)
    assert not stopping.done()
    crew.tool.gate.set()
    await stopping
    await crew.closed()
    assert only(crew) == (1, 0)
    assert crew.told[0][1]


# --- a holder dies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [Moment("before", "put_tools"), Moment("after", "put_tools"), Moment("before", "join"), Moment("after", "join")],
    ids=str,
)
async def test_a_holder_that_dies_around_a_fan_out_causes_no_second_effect(crew: Crew, moment: Moment) -> None:
    """Its successor announces the same intents, and finds them and their answers."""
    await crew.begin('await run.tools.gather(call("book", seat=1), call("look", what="x"))')
    first = crew.holder(moment)
    await crew.executor()
    await first.halted()
    crew.holder()
    counters = await crew.closed()
    assert counters.scored == 1
    assert only(crew) == (1, 0)
    assert crew.told == [["book", True, 'booked {"seat": 1}'], ["look", True, '{"seen":"x"}']]
    assert (await crew.row(A)).gen == 2


async def test_what_was_read_before_a_death_is_not_read_again(crew: Crew) -> None:
    """The event holds it: the successor is told the same, whatever the world says now."""
    await crew.begin(
        'one = await run.tools.gather(call("look", what="x"))\n'
        'return one + await run.tools.gather(call("look", what="y"))'
    )
    first = crew.holder(Moment("before", "seal"))
    await first.halted()
    crew.holder()
    await crew.closed()
    assert crew.looks == ["x", "y"]
    assert [one[2] for one in crew.told] == ['{"seen":"x"}', '{"seen":"y"}']


async def test_a_solver_that_asks_for_something_else_after_a_death_has_the_first_undone(crew: Crew) -> None:
    """The fan-out was announced and made; the next attempt wants another seat."""
    await crew.begin('await run.tools.gather(call("book", seat=run.gen))')
    first = crew.holder(Moment("before", "join"))
    await crew.executor()
    await first.halted()
    crew.holder()
    await crew.closed()
    assert sorted(crew.tool.made.values()) == [1, 1]
    assert len(crew.tool.undone) == 1
    assert crew.told == [["book", True, 'booked {"seat": 2}']]
    assert (await crew.row(A)).conversation == 1


@pytest.mark.parametrize(
    ("seat", "write", "why"),
    [
        ("run.gen", "", "it went another way: "),
        ("1", "await run.workspace.write('notes.txt', 'one')\n", "the files that it wrote are lost"),
    ],
    ids=["another way", "lost writes"],
)
async def test_a_run_that_cannot_start_over_says_why_it_would_have(crew: Crew, seat: str, write: str, why: str) -> None:
    """What it paid has no inverse. A solver that repeats itself to the letter was told that it went another way."""
    solver = f'{write}return await run.tools.gather(call("pay", seat={seat}))'
    await crew.begin(solver, tables="[workspace]\n")
    first = crew.holder(Moment("after", "join"))
    await crew.executor()
    await first.halted()
    crew.holder()
    counters = await crew.closed()
    assert counters.hole_reasons == {"stuck": 1}
    assert (await crew.row(A)).detail.startswith(f"what it did outside cannot be undone, and {why}")


# --- in one process, and in a workspace -------------------------------------------------------------------


async def test_one_worker_alone_executes_what_its_own_runs_wait_for(crew: Crew) -> None:
    """It would otherwise wait for itself. Both of its consumers end with the batch."""
    await crew.begin('await run.tools.gather(call("book", seat=1), call("far", what="x"))')
    bus, beside, runtime, name = crew.place.bus(), crew.place.bus(), SystemRuntime(), ConsumerId("both")
    room, catalogue = Toolroom(), Catalogue(bus, crew.suite, BATCH)
    worker = Worker(bus, runtime, name, crew.root / "work", tools_of=room.tools_of(bus, runtime))
    runs = Consumer(bus, runtime, Group.WORKER, name, catalogue, worker)
    both = asyncio.create_task(JointConsumer([runs, room.consumer(beside, runtime, name, catalogue)]).run())
    try:
        await crew.closed()
        await soon(both)
    finally:
        await bus.aclose()
        await beside.aclose()
    assert only(crew) == (1, 0)


class _Failing:
    """A consumer whose server has gone, or one that only ends when it is told to."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.told = error, asyncio.Event()

    def stop(self) -> None:
        self.told.set()

    def patience(self) -> float:
        return 1.0

    def lease(self) -> float:
        return 1.0

    async def run(self) -> None:
        if self.error is not None:
            raise self.error
        await self.told.wait()


async def test_when_one_of_a_roles_consumers_fails_the_other_stops_and_the_failure_is_told() -> None:
    """A worker that claims runs but executes no tools would look alive."""
    other = _Failing(None)
    with pytest.raises(ServerUnreachable, match="gone"):
        await soon(JointConsumer([other, _Failing(ServerUnreachable("gone"))]).run())
    assert other.told.is_set()


async def test_a_tool_that_changes_the_workspace_is_called_in_it(crew: Crew) -> None:
    """And what it wrote is sealed."""
    await crew.begin(
        'await run.tools.gather(call("save", name="kept"))',
        tables='[workspace]\n[tools.save]\ncommand = ["touch", "{name}"]\neffects = "workspace"\n',
    )
    crew.holder()
    await crew.closed()
    row = await crew.row(A)
    assert row.tree
    assert crew.told == [["save", True, ""]]
    assert crew.suite.workspace is not None


async def test_what_is_in_doubt_or_stuck_is_named_by_status(crew: Crew) -> None:
    """A person who has to look at the tool's own records needs the call's name."""
    if not isinstance(crew.place, OnServer):
        pytest.skip("the command looks at a server")
    crew.tool.plan = ["cut"]
    await crew.begin('await run.tools.gather(call("pay", euro=1))', quick=True)
    crew.holder()
    executor = await crew.executor()
    await until(lambda: crew.tool.made, "the call")
    await executor.stopped()  # so that nobody finds it to be stuck before it was looked at
    assert "a#1~0.1.0   pay: sent, and not answered yet" in await crew.status()
    await crew.executor()
    await crew.closed()
    told = await crew.status()
    assert "effects    0 calls of tools have not ended · 1 stuck" in told
    assert "a#1~0.1.0   pay: stuck: nobody knows" in told
