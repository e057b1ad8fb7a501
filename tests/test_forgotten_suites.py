"""What a role has made for a suite goes with the suite's last batch, and what it had open is closed.

A pool without a suite of its own meets another state of it at each commit: what it kept of each would be its end.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import structlog

from bus.errors import MachineError
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import BatchSpec, Group
from bus.types import BatchId, ConsumerId, Digest, LeaseId
from tests.judge_stage import PROMPT, SAYS
from tests.suites import MINIMAL, make_suite
from tests.waiting import soon, until
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue, Served
from workers.closing import Closable, close_all
from workers.consumer import Consumer, Handler
from workers.lease import Lease
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.suite import Suite
from workers.tools.serving import Toolroom
from workers.usercode import load_file
from workers.worker import Worker

B, C = BatchId("b"), ConsumerId("c")

MODEL = '[model]\nbase_url = "http://127.0.0.1:9/v1"\nname = "m"\n'
JUDGED = (
    'cases = "cases.jsonl"\n[solver]\npython = "agent.py:solve"\n[scorer]\nkind = "model"\nprompt = "judge.txt"\n'
    'grades = { C = "pass", I = "fail" }\n[scorer.model]\nbase_url = "http://127.0.0.1:9/v1"\nname = "m"\n'
)

DESK = """\
[mcp.desk]
command = ["{python}", "{suite}/desk.py"]
[tools.add]
mcp = "desk"
effects = "none"
"""

DESK_SERVER = """\
from mcp.server.mcpserver import MCPServer

server = MCPServer("desk")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

server.run("stdio")
"""


@pytest.fixture
def bus() -> MemoryBus:
    """An empty bus."""
    runtime = SystemRuntime()
    return MemoryBus(MemoryWorld(runtime), runtime)


async def test_a_worker_lets_go_of_an_ended_suites_endpoint_and_keeps_that_of_the_next_commit(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """Both ask the same model, each with its own times and places."""
    first = make_suite(tmp_path / "1", MINIMAL + MODEL)
    second = make_suite(tmp_path / "2", MINIMAL + MODEL + "slots = 3\n")
    worker = Worker(bus, SystemRuntime(), C, tmp_path / "work")
    for suite in (first, second):
        worker.prepare(suite, spec_of(suite, B))
    assert worker._planes[second.digest].table.slots == 3
    gone = worker._planes[first.digest]
    assert worker.forget_all_but([second.digest]) == [gone]
    assert worker._planes.keys() == worker._solvers.keys() == {second.digest}
    await worker.aclose()
    assert not worker._planes


async def test_a_scorer_lets_go_of_an_ended_suites_judge_and_keeps_that_of_the_next_commit(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """It is the same model under another limit."""
    files = {"agent_DOT_py": SAYS, "judge_DOT_txt": PROMPT}
    first = make_suite(tmp_path / "1", JUDGED, **files)
    second = make_suite(tmp_path / "2", JUDGED.replace('"model"\n', '"model"\ntimeout = "7s"\n', 1), **files)
    scorer = ScorerRole(bus, SystemRuntime(), C, tmp_path / "work")
    for suite in (first, second):
        scorer.prepare(suite, spec_of(suite, B))
    gone = scorer._judges[first.digest]
    assert scorer.forget_all_but([second.digest]) == [gone]
    assert scorer._judges.keys() == {second.digest}
    await scorer.aclose()
    assert not scorer._judges


async def test_a_server_of_tools_ends_with_the_last_batch_of_its_suite_and_is_not_started_again(
    bus: MemoryBus, tmp_path: Path
) -> None:
    """No call of its tools came from the stream, and still the toolbox is the process's to let go."""
    pytest.importorskip("mcp")
    suite = make_suite(tmp_path / "suite", MINIMAL + DESK, desk_DOT_py=DESK_SERVER)
    assert (await bus.create(spec_of(suite, B))).applied
    catalogue, room = Catalogue(bus), Toolroom()
    assert [one.batch for one in await catalogue.open_batches()] == [B]
    tools = room.consumer(bus, SystemRuntime(), C, catalogue)
    box = room._boxes.of(suite)
    server = box._servers["desk"]
    looks = _counted(tools._handler)
    consuming = asyncio.create_task(tools.run())
    try:
        assert await soon(box.ready("add")) is None
        await until(lambda: looks, "a look while its batch is open")
        assert server._connection is not None
        assert suite.digest in room._boxes._boxes
        catalogue._served.clear()  # as when its batch has ended
        await until(lambda: not server._owners, "the end of the server")
        assert suite.digest not in room._boxes._boxes
        assert "not served any more" in str(await box.ready("add"))
    finally:
        tools.stop()
        await soon(consuming)
        await room.aclose()


def _counted(handler: Handler) -> list[int]:
    """A number for each time that it was told what to keep."""
    looks: list[int] = []
    forget = handler.forget_all_but

    def counted(suites: Collection[Digest]) -> Sequence[Closable]:
        looks.append(len(suites))
        return forget(suites)

    handler.forget_all_but = counted  # type: ignore[method-assign]
    return looks


class Keeping:
    """A handler with something open for the suite that it was prepared for. `closing`: what to do then."""

    def __init__(self, made: Closable) -> None:
        self.made: dict[Digest, Closable] = {}
        self._what = made

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """See Handler."""
        self.made[suite.digest] = self._what

    def forget_all_but(self, suites: Collection[Digest]) -> Sequence[Closable]:
        """See Handler."""
        return [self.made.pop(digest) for digest in self.made.keys() - set(suites)]

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> None:
        """See Handler."""

    def time_of(self, served: Served) -> float:
        """See Handler."""
        return 1.0

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """See Handler."""
        return True


class Slow:
    """Takes until it is told to close; then it fails at that."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.ended = False

    async def aclose(self) -> None:
        """See Closable."""
        self.begun.set()
        await self.may_end.wait()
        self.ended = True
        raise OSError("it would not close")


async def test_a_consumer_goes_on_while_something_closes_and_ends_when_it_has(
    bus: MemoryBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of tools may take seconds to end, and may not do so well: that is no other suite's loss."""
    suite = make_suite(tmp_path / "suite")
    assert (await bus.create(spec_of(suite, B))).applied
    slow, catalogue = Slow(), Catalogue(bus)
    consumer = Consumer(bus, SystemRuntime(), Group.SCORER, C, catalogue, Keeping(slow))
    consuming = asyncio.create_task(consumer.run())
    with structlog.testing.capture_logs() as logged:
        await until(lambda: consumer._served, "the batch")
        monkeypatch.setattr(bus, "batches", _none)  # as when it has ended
        await soon(slow.begun.wait())
        await until(lambda: not consumer._served, "the next look")
        consumer.stop()
        asyncio.get_running_loop().call_later(0.1, slow.may_end.set)  # later than it ends if it waits for nothing
        await soon(consuming)
        assert slow.ended
    assert "close.broke" in [line["event"] for line in logged]


async def test_a_role_that_stops_does_not_wait_for_ever_for_what_does_not_close(
    bus: MemoryBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for what an ended suite had open nor for what the process has; and one keeps no other from closing."""
    monkeypatch.setattr("workers.closing._FAREWELL", 0.05)
    assert (await bus.create(spec_of(make_suite(tmp_path / "suite"), B))).applied
    hangs, well = Slow(), Slow()
    consumer = Consumer(bus, SystemRuntime(), Group.SCORER, C, Catalogue(bus), Keeping(hangs))
    consuming = asyncio.create_task(consumer.run())
    await until(lambda: consumer._served, "the batch")
    monkeypatch.setattr(bus, "batches", _none)
    await soon(hangs.begun.wait())
    consumer.stop()
    await soon(consuming)
    well.may_end.set()
    await soon(close_all([Slow(), well]))
    assert (hangs.ended, well.ended) == (False, True)


async def _none() -> list[BatchId]:
    return []


def test_two_threads_may_forget_an_ended_suites_modules_at_once(tmp_path: Path) -> None:
    """A worker loads suites in one thread and their tools in another; who came second ended the role."""
    first, second = (tmp_path / name / "code.py" for name in ("first", "second"))
    for file in (first, second):
        file.parent.mkdir()
        file.write_text("")
    load_file(first, first.parent)

    class Leaving(ModuleType):
        """A module that has gone by the time that it is known to be one of the suite's."""

        def __getattr__(self, name: str) -> str:
            """Where it is from."""
            if name != "__file__":
                raise AttributeError(name)
            sys.modules.pop(self.__name__, None)
            return str(first)

    sys.modules["leaving"] = Leaving("leaving")
    assert load_file(second, second.parent).__file__ == str(second)
    assert "leaving" not in sys.modules


def test_a_tools_function_is_not_remembered_beyond_its_toolbox(tmp_path: Path) -> None:
    """With it goes the module that it is from, and all that this has imported."""
    toml = MINIMAL + '[tools.touch]\npython = "tool.py:touch"\neffects = "none"\n'
    suite = make_suite(tmp_path / "suite", toml, tool_DOT_py="def touch(context):\n    return 1\n")
    room = Toolroom()
    seen = weakref.ref(room._boxes.of(suite))
    assert room._boxes.forget_all_but([]) == [seen()]
    gc.collect()
    assert seen() is None
