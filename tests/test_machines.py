"""Machines that are broken, beside others that are not: nothing of it is a verdict, nor a hole.

A broken machine fails fast. Without more it would have a free slot before all others, and draw the whole batch: each
run that it touches would be a hole, with the candidate's name on it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from bus.artifacts import ArtifactStore, DirectoryArtifacts
from bus.errors import ArtifactNotFound, ArtifactUnreachable, MachineError, ProcessSpent
from bus.port import BatchStatus, Bus, Counters, Group, RunState
from bus.redis_bus import RedisBus
from bus.rests import Resting, Rests
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId, ConsumerId, Digest, Plane, RunId
from tests.batches import FixedDoor
from tests.fleet import Stage, eventually
from tests.suites import MINIMAL, make_suite
from tests.waiting import PATIENCE, soon, until
from workers import archives, consumer, trees
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.namesakes import Namesakes
from workers.news.rests import RestNews
from workers.planner import Planner
from workers.processes.breaker import Breaker, Rest
from workers.processes.machine import Disks, fault_of, insisted, machine_error
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.solving import _PythonSolver
from workers.worker import Worker

BATCH = BatchId("b")
ROOT = Path(__file__).parent.parent
RUNS = 12
CASES = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(RUNS))

PLAIN = 'lease = "300ms"\nmax_deliveries = 2\nconcurrency = 4\n' + MINIMAL.replace(
    'command = ["cat"]', 'python = "agent.py:solve"'
)
IN_A_TREE = PLAIN + '[workspace]\nignore = ["*.log"]\n'

STORED = IN_A_TREE.replace("300ms", "1s")

WRITES = """\
async def solve(case, run):
    await run.workspace.write("done.txt", case.input)
    return case.input
"""
LARGE = """\
import os

async def solve(case, run):
    (run.workspace.path / "large.bin").write_bytes(os.urandom(270_000))  # too much for the server
    return case.input
"""
SCRATCH = """\
async def solve(case, run):
    (run.workspace.path / "used").write_text("1")
    return case.input
"""


LEAVES_NONE = """\
import errno

async def solve(case, run):
    raise OSError(errno.EMFILE, "Too many open files")
"""
FILLS = """\
import errno

async def solve(case, run):
    raise OSError(errno.ENOSPC, "No space left on device")
"""
FILLS_ONE = FILLS.replace("    raise", '    if case.id != "c1":\n        return case.input\n    raise')
IS_BUSY = """\
import asyncio, errno
from pathlib import Path

async def solve(case, run):
    if "broken" in run.workspace.path.parts:
        raise OSError(errno.ENOSPC, "No space left on device")
    Path("GO.waits").touch()
    while not Path("GO").exists():
        await asyncio.sleep(0.01)
    return case.input
"""
_MANY = 5
NO_TERMINAL = """\
import errno

async def solve(case, run):
    raise OSError(errno.ENXIO if case.id == "c1" else errno.EROFS, "of the system's", "/dev/tty")
"""


@dataclass(slots=True)
class Machines:
    """One batch on a server, and roles each of which stands for a machine of its own."""

    target: Target
    root: Path
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    buses: list[RedisBus] = field(default_factory=list)
    handlers: list[Worker | ScorerRole] = field(default_factory=list)
    rests: dict[str, list[Rest | None]] = field(default_factory=dict)
    """What each has told of itself."""
    suite: Any = None

    def bus(self, artifacts: ArtifactStore | None = None) -> RedisBus:
        """A connection, with the store that this machine reaches."""
        store = artifacts or DirectoryArtifacts(self.root / "artifacts")
        self.buses.append(RedisBus(FixedDoor(self.target.address()), SystemRuntime(), artifacts=store))
        return self.buses[-1]

    async def declare(self, toml: str, agent: str = WRITES, cases: str = CASES, **files: str) -> None:
        """A batch, its planner, and nobody to work on it."""
        self.suite = make_suite(self.root / "suite", toml, agent_DOT_py=agent, cases_DOT_jsonl=cases, **files)
        bus = self.bus()
        assert (await bus.create(spec_of(self.suite, BATCH))).applied
        planner = Planner(bus, SystemRuntime(), ConsumerId("p"), Catalogue(bus, self.suite, BATCH))
        self.tasks.append(asyncio.create_task(planner.run()))

    def start(
        self,
        name: str,
        kind: type[Worker | ScorerRole],
        artifacts: ArtifactStore | None = None,
        work: Path | None = None,
        own: Disks | None = None,
        **options: Any,  # noqa: ANN401 - the consumer's
    ) -> Consumer:
        """A worker or a scorer on a machine called `name`. `own`: the disks that its handler looks at."""
        bus, runtime, told = self.bus(artifacts), SystemRuntime(), self.rests.setdefault(name, [])

        async def tell(rest: Rest | None) -> None:
            told.append(rest)

        handler = kind(cast("Bus", bus), runtime, ConsumerId(name), work or self.root / "work" / name, disks=own)
        self.handlers.append(handler)
        group = Group.WORKER if kind is Worker else Group.SCORER
        served = Catalogue(bus, self.suite, BATCH)
        consumer = Consumer(bus, runtime, group, ConsumerId(name), served, handler, told=tell, **options)
        self.tasks.append(asyncio.create_task(consumer.run()))
        return consumer

    async def rested(self, name: str) -> str:
        """Wait until that machine rests; why."""
        await until(lambda: bool(self.rests.get(name)), f"{name} rests")
        first = self.rests[name][0]
        assert first is not None
        return first.why

    async def closed(self) -> Counters:
        """The counters of the batch when it has closed; fails when a role fails before."""
        async with asyncio.timeout(PATIENCE):
            while not (counters := await self.buses[0].counters(BATCH)).status.ended:
                for task in self.tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)
        return counters

    async def all_passed(self) -> None:
        """Every run was scored: none is a hole, for what the broken machine held it has handed back."""
        counters = await self.closed()
        assert (counters.status, counters.bins, counters.holes) == (BatchStatus.CLOSED, {"pass": RUNS, "fail": 0}, 0)

    async def aclose(self) -> None:
        """End all."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for handler in self.handlers:
            await handler.aclose()
        for bus in self.buses:
            await bus.aclose()


@pytest.fixture
async def machines(server: Target, tmp_path: Path) -> AsyncIterator[Machines]:
    """Nothing declared yet."""
    one = Machines(server, tmp_path)
    yield one
    await one.aclose()


def no_directory(root: Path) -> Path:
    """A place below which nothing can be made: that of a home that cannot be written to, as root is told as well."""
    (root / "a file").write_text("")
    return root / "a file" / "work"


# --- workers ----------------------------------------------------------------------------------------------


async def test_a_worker_that_can_make_no_workspace_hands_its_runs_back(machines: Machines, tmp_path: Path) -> None:
    """It was there first, alone, and with a free slot for each that it gave up."""
    await machines.declare(IN_A_TREE)
    machines.start("broken", Worker, work=no_directory(tmp_path))
    assert "Not a directory" in await machines.rested("broken")
    machines.start("sound", Worker)
    machines.start("scorer", ScorerRole)
    await machines.all_passed()


async def test_a_worker_that_cannot_store_what_it_sealed_hands_its_runs_back(machines: Machines) -> None:
    """A file where the store's directory should be. The role ended by that, and its supervisor started it again."""
    await machines.declare(STORED, LARGE)
    (machines.root / "elsewhere").write_text("")
    machines.start("broken", Worker, DirectoryArtifacts(machines.root / "elsewhere"))
    assert "an artifact cannot be stored" in await machines.rested("broken")
    machines.start("sound", Worker)
    machines.start("scorer", ScorerRole)
    await machines.all_passed()


async def test_a_solver_that_meets_a_full_disk_loses_nothing_by_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite's own code writes, and its error is raised through the suite's own functions."""
    write = Path.write_text

    def full(path: Path, *args: Any, **kwargs: Any) -> int:  # noqa: ANN401 - whatever it takes
        if "broken" in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    wrapped = SCRATCH.replace("    (run", "    try:\n        (run").replace(
        "    return", "    except OSError as error:\n        raise ValueError('no scratch file') from error\n    return"
    )
    await machines.declare(PLAIN, wrapped)
    machines.start("broken", Worker)
    assert "No space left on device" in await machines.rested("broken")
    machines.start("sound", Worker)
    machines.start("scorer", ScorerRole)
    await machines.all_passed()


async def test_a_process_whose_code_has_left_no_file_to_open_ends(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rest closes what was left open: it rested for ever, with the run in hand that had done it."""
    await machines.declare(PLAIN.replace("concurrency = 4", "concurrency = 1"), LEAVES_NONE)
    monkeypatch.setattr(consumer, "spent", lambda _error=None: ProcessSpent("all files are open"))
    machines.start("leaky", Worker)
    machines.start("scorer", ScorerRole)
    with pytest.raises(ProcessSpent):
        await machines.closed()
    bus = machines.buses[0]
    rows = await bus.rows(BATCH, await bus.run_ids(BATCH))
    assert {row.attempts for row in rows if row.gen} == {1}, "counted: who does so to each worker ends as poison"
    assert machines.rests["leaky"] == []


LEAKS = """
import gc, os, resource
from workers.processes.machine import spent

def opens_all(into):
    while True:
        into.append(open(os.devnull))

def raises(into):
    try:
        opens_all(into)
    except OSError as error:
        return spent(error) is not None

class Ring(list):
    me = None

def leaves_a_ring():
    ring = Ring()
    ring.me = ring
    return raises(ring)

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
gc.disable()
kept = []
print(spent() is not None, (lambda: raises([]))(), leaves_a_ring(), spent() is not None, raises(kept))
"""


def test_only_who_keeps_its_files_open_has_none_left() -> None:
    """A frame that an error came through has them open, too, and so has a ring that nobody reaches."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LEAKS], cwd=ROOT, check=True, capture_output=True)
    assert done.stdout.split() == [b"False", b"True", b"True", b"False", b"True"]


async def test_what_is_so_on_every_machine_is_the_solvers(machines: Machines) -> None:
    """No terminal, a file of the system that can only be read: each machine rested for it, a run took half an hour."""
    await machines.declare(PLAIN, NO_TERMINAL)
    machines.start("worker", Worker, own=Disks([machines.root]))
    machines.start("scorer", ScorerRole)
    counters = await machines.closed()
    assert (counters.hole_reasons, machines.rests["worker"]) == ({"solver_error": RUNS}, [])


def test_a_disk_that_can_only_be_read_is_the_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the code of a suite made of it."""
    there = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _place: _ReadOnly(there))
    assert Disks([tmp_path]).full() == f"{tmp_path}: its disk can only be read"
    assert not Disks([]).full(), "a run that wants no temporary files needs no place for them"


@dataclass(frozen=True, slots=True)
class _ReadOnly:
    """A disk's figures, with the flag."""

    found: os.statvfs_result

    def __getattr__(self, name: str) -> int:
        return os.ST_RDONLY if name == "f_flag" else int(getattr(self.found, name))


class _Opened:
    """Stands for a file: closed when nobody has it."""


async def test_what_a_solver_has_open_is_closed_before_anybody_else_goes_on() -> None:
    """Its neighbours in the process would find no file to open, and be counted as what brought it down."""
    opened = []

    def solve(_case: object, _run: object) -> str:
        opened.append(weakref.ref(one := _Opened()))
        raise OSError(errno.EMFILE, f"Too many open files, {one} among them")

    with pytest.raises(MachineError) as raised:
        await _PythonSolver(solve).solve(cast("Any", None), cast("Any", None))
    assert raised.value.__cause__ is not None
    assert opened[0]() is None


async def test_a_run_that_five_machines_hand_back_ends_with_its_own_word(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went round twenty times more, and was `poison`, as if its workers had died of it. The fifth is not broken."""
    closed: list[str] = []

    def seen(error: MachineError) -> None:
        assert error.__cause__ is not None
        closed.append(type(error.__cause__.__cause__).__name__)

    monkeypatch.setattr(consumer, "spent", seen)
    await machines.declare(PLAIN.replace("300ms", "5s"), FILLS, '{"id": "c0", "input": "1", "target": "1"}\n')
    for number in range(_MANY):
        machines.start(f"worker-{number}", Worker)
    machines.start("scorer", ScorerRole)
    counters = await machines.closed()
    assert counters.hole_reasons == {"solver_error": 1}
    [row] = await machines.buses[0].rows(BATCH, await machines.buses[0].run_ids(BATCH))
    assert (row.gen >= _MANY, row.attempts) == (True, 1)
    assert "No space left on device" in row.detail
    assert closed == ["OSError"] * row.gen, (
        "what the error's frames had open is closed before the hole's script is read"
    )
    rests = machines.rests.values()
    await until(lambda: [told[-1] for told in rests if told].count(None) == 1, "the one that ended it serves again")


async def test_a_machine_that_breaks_where_its_own_look_does_not_see_it_costs_a_run_nothing(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All others are busy for long: it had the same run twenty times, and that was a hole."""
    monkeypatch.setattr(Breaker, "seconds", 0.0)
    code = IS_BUSY.replace("GO", str(tmp_path / "go"))
    toml = PLAIN.replace("300ms", "5s").replace("concurrency = 4", "concurrency = 1")
    await machines.declare(toml, code, "".join(CASES.splitlines(keepends=True)[:2]))
    machines.start("sound", Worker)
    bus = machines.buses[0]
    await until((tmp_path / "go.waits").exists, "the sound machine is busy")
    machines.start("broken", Worker)

    async def often() -> bool:
        rows = await bus.rows(BATCH, await bus.run_ids(BATCH))
        return bool(rows) and max(row.gen for row in rows) > 30

    await eventually(often, "the broken one has had a run more often than there were hand-backs")
    (tmp_path / "go").touch()
    machines.start("scorer", ScorerRole)
    counters = await machines.closed()
    assert (counters.bins, counters.holes) == ({"pass": 2, "fail": 0}, 0)


async def test_what_machines_find_wrong_with_themselves_is_no_runs_doing(machines: Machines, tmp_path: Path) -> None:
    """A store that is away for a whole fleet made holes of what was done last: six machines, one behind the other."""
    code = IS_BUSY.replace('"broken" in', '"sound" not in').replace("GO", str(tmp_path / "go"))
    (tmp_path / "go").touch()
    await machines.declare(PLAIN.replace("300ms", "5s"), code, CASES.splitlines(keepends=True)[0])
    away = Disks([no_directory(tmp_path)])
    for number in range(_MANY + 1):
        machines.start(f"broken-{number}", Worker, disks=away)
        await machines.rested(f"broken-{number}")
    machines.start("sound", Worker)
    machines.start("scorer", ScorerRole)
    counters = await machines.closed()
    assert (counters.bins, counters.holes) == ({"pass": 1, "fail": 0}, 0)


class _Hangs(Disks):
    """A network's disk that answers nobody any more."""

    looks = 0

    def full(self) -> str:
        """Not asked: it would hang here, too."""
        return ""

    async def recheck(self) -> None:
        """For ever."""
        self.looks += 1
        await asyncio.Event().wait()


@pytest.mark.parametrize("looks", [1, 2], ids=["for-the-run", "for-itself-too"])
async def test_who_is_stopped_while_it_looks_at_its_disk_hands_back_what_it_held(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A disk that hangs is what it is stopped for, and the look takes a lease time: the run was left as by a death.

    The next one, before it takes another, took for ever.
    """
    if looks == 2:
        monkeypatch.setattr(Breaker, "seconds", 0.0)
    await machines.declare(PLAIN.replace("300ms", "60s"), FILLS, CASES.splitlines(keepends=True)[0])
    disks = _Hangs([])
    broken = machines.start("broken", Worker, disks=disks)
    await until(lambda: disks.looks == looks, "its look at the disk")
    broken.stop()
    await soon(machines.tasks[-1])
    [row] = await machines.buses[0].rows(BATCH, [RunId("c0#1")])
    assert (row.state, row.attempts) == (RunState.QUEUED, 0)


async def test_the_only_machine_ends_a_run_that_it_cannot_do_behind_all_others(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rested twenty-five times for it. What it can do is done."""
    monkeypatch.setattr(Breaker, "seconds", 0.0)
    await machines.declare(PLAIN.replace("300ms", "5s"), FILLS_ONE)
    machines.start("only", Worker, own=Disks([machines.root]))
    machines.start("scorer", ScorerRole)
    counters = await machines.closed()
    assert (counters.hole_reasons, counters.bins) == ({"solver_error": 1}, {"pass": RUNS - 1, "fail": 0})
    [row] = await machines.buses[0].rows(BATCH, [RunId("c1#1")])
    assert (row.attempts, "No space left" in row.detail) == (1, True)
    assert row.gen >= 10, "what is handed back while others are in hand is not counted"


# --- scorers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EMFILE, errno.EROFS])
async def test_a_scorer_without_room_finds_no_artifact_corrupt(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It has read the bytes, and cannot unpack them: that says nothing about them."""
    write = trees.write_entry

    def full(entry: Any, into: Path) -> None:  # noqa: ANN401 - an entry
        if "broken" in into.parts:
            raise OSError(number, os.strerror(number), str(into))
        write(entry, into)

    monkeypatch.setattr(archives, "write_entry", full)
    await machines.declare(IN_A_TREE)
    machines.start("worker", Worker)
    machines.start("broken", ScorerRole)
    assert os.strerror(number) in await machines.rested("broken")
    machines.start("sound", ScorerRole)
    await machines.all_passed()


class _Refuses(DirectoryArtifacts):
    """A store that answers in a way of its own."""

    def __init__(self, root: Path, answer: Callable[[], bytes | None]) -> None:
        super().__init__(root)
        self.answer = answer

    async def get(self, digest: Digest) -> bytes | None:
        """Nothing that helps."""
        return self.answer()


def _unreachable() -> bytes | None:
    raise ArtifactUnreachable("s3://bucket cannot be used (PermissionDeniedError)")


@pytest.mark.parametrize(
    ("answer", "said"),
    [(_unreachable, "PermissionDenied"), (lambda: None, "no artifact")],
    ids=["unreachable", "not there"],
)
async def test_a_scorer_that_reaches_no_store_lets_others_judge(
    machines: Machines, answer: Callable[[], bytes | None], said: str
) -> None:
    """Not mounted, no rights, no answer: it is another machine's to judge, and the role does not end by it."""
    await machines.declare(STORED, LARGE)
    machines.start("worker", Worker)
    machines.start("broken", ScorerRole, _Refuses(machines.root / "artifacts", answer))
    assert said in await machines.rested("broken")
    machines.start("sound", ScorerRole)
    await machines.all_passed()


async def test_an_artifact_that_comes_late_is_waited_for(machines: Machines) -> None:
    """It was stored a moment ago, on a disk that tells its other readers a little later: nobody rests for that."""
    asked: set[str] = set()
    there = DirectoryArtifacts(machines.root / "artifacts")

    class Late(DirectoryArtifacts):
        async def get(self, digest: Digest) -> bytes | None:
            if digest not in asked:
                asked.add(digest)
                return None
            return await there.get(digest)

    await machines.declare(STORED.replace("1s", "5s"), LARGE)
    machines.start("worker", Worker)
    machines.start("scorer", ScorerRole, Late(machines.root / "artifacts"))
    await machines.all_passed()
    assert len(asked) == RUNS
    assert machines.rests["scorer"] == []


async def test_bytes_that_were_read_and_are_others_are_corrupt(machines: Machines) -> None:
    """That is what the name means."""
    await machines.declare(STORED, LARGE)
    machines.start("worker", Worker)
    machines.start("scorer", ScorerRole, _Refuses(machines.root / "artifacts", lambda: b"other bytes"))
    counters = await machines.closed()
    assert counters.hole_reasons == {"artifact_corrupt": RUNS}


# --- names ------------------------------------------------------------------------------------------------


async def test_two_workers_of_one_name_do_not_fence_each_other_for_ever(machines: Machines) -> None:
    """Each found the other's runs under its name, and took them, until none might be delivered any more: `poison`."""
    first_is_slow = "    await asyncio.sleep(1.0 if case.id == 'c0' else 0)\n    (run"
    slow = "import asyncio\n" + SCRATCH.replace("    (run", first_is_slow, 1)
    toml = PLAIN.replace("max_deliveries = 2", "max_deliveries = 4").replace("concurrency = 4", "concurrency = 1")
    await machines.declare(toml, slow)
    machines.start("twin", Worker)
    counters = machines.buses[0].counters
    async with asyncio.timeout(PATIENCE):
        while not (await counters(BATCH)).running:
            await asyncio.sleep(0.01)
    machines.start("twin", Worker, work=machines.root / "work" / "other")
    machines.start("scorer", ScorerRole)
    await machines.all_passed()


def test_what_a_restart_voided_is_taken_back_once() -> None:
    """A restart voids leases, and no deliveries; who is fenced again has a namesake."""
    names = Namesakes()
    names.connected(0, 10.0)
    names.connected(1, 10.0)
    names.fenced("e", 10.0, 1.0)
    assert (names.has("e", 10.5, 1.0), names.has("e", 11.5, 1.0), names.has("other", 10.5, 1.0)) == (True, False, False)
    names.connected(1, 11.0)
    assert names.has("e", 11.0, 1.0)
    names.connected(2, 11.0)
    assert not names.has("e", 11.0, 1.0)
    names.fenced("e", 11.5, 1.0)
    assert not names.has("e", 11.5, 1.0)
    names.fenced("e", 12.0, 1.0)
    assert names.has("e", 12.0, 1.0)


# --- the breaker ------------------------------------------------------------------------------------------


class _Clock(SystemRuntime):
    """A time that the test sets, and no jitter."""

    at = 100.0

    def now(self) -> float:
        return self.at

    def jitter(self) -> float:
        return 0.5


async def test_it_rests_longer_each_time_and_begins_with_one() -> None:
    """A machine that is looked at every second by fifty workers does not get well by it."""
    clock, told = _Clock(), list[Rest | None]()

    async def tell(rest: Rest | None) -> None:
        told.append(rest)

    still = True

    async def recheck() -> None:
        if still:
            raise MachineError("still full")

    breaker = Breaker(clock, tell)
    assert (breaker.is_on, breaker.room(8, 0)) == (False, 8)
    await breaker.begin(machine_error("full", recheck), 10.0)
    await breaker.begin(machine_error("another word for it"), 10.0)  # of a run that was under way beside it
    assert told == [Rest("full", 10.0)]
    for seconds in (20.0, 40.0, 80.0, 120.0, 120.0):
        clock.at += breaker.seconds
        await breaker.look()
        assert breaker.is_on
        assert told[-1] == Rest("still full", seconds)
    still = False
    clock.at += breaker.seconds
    await breaker.look()
    assert (breaker.is_on, breaker.tries, breaker.room(8, 0), breaker.room(8, 1)) == (False, True, 1, 0)
    await breaker.begin(machine_error("full after all"), 10.0)
    assert told[-1] == Rest("full after all", 120.0), "what did not help does not count as a recovery"
    clock.at += breaker.seconds
    await breaker.look()
    assert not breaker.has_lasted(9.0)
    assert breaker.has_lasted(10.0)
    await breaker.went_well()
    assert (told[-1:], breaker.why, breaker.room(8, 1)) == ([None], "", 8)
    await breaker.begin(machine_error("full"), 10.0)
    assert told[-1] == Rest("full", 10.0)


async def test_a_look_that_hangs_ends_and_the_next_one_may_not() -> None:
    """What a disk was asked for may never come, also when it is right again: it would rest for ever."""
    clock, hangs, looks = _Clock(), True, 0

    async def recheck() -> None:
        nonlocal looks
        looks += 1
        if hangs:
            await asyncio.Event().wait()

    breaker = Breaker(clock)
    await breaker.begin(machine_error("no answer", recheck), 0.01)
    await asyncio.wait_for(breaker.look(), PATIENCE)
    assert (breaker.is_on, breaker.why, looks) == (True, "no answer", 1), "one that hangs has not come right"
    hangs = False
    clock.at += breaker.seconds
    await breaker.look()
    assert (breaker.tries, looks) == (True, 2)


async def test_a_machine_that_got_well_works_again(machines: Machines, tmp_path: Path) -> None:
    """Nobody starts it anew: it looks by itself, and finds that there is room."""
    await machines.declare(IN_A_TREE)
    place = no_directory(tmp_path)
    disks = Disks([place])
    machines.start("only", Worker, work=place, disks=disks)
    machines.start("scorer", ScorerRole)
    await machines.rested("only")
    with pytest.raises(MachineError, match="Not a directory"):
        await disks.recheck()
    (tmp_path / "a file").unlink()
    await machines.all_passed()
    assert machines.rests["only"][-1] is None


async def test_a_disk_without_room_is_seen_before_anything_is_taken(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program of the suite's makes of a full disk is an exit code like any other."""
    monkeypatch.setattr(Disks, "full", lambda _self: "/work: 0 bytes are free on its disk")
    await machines.declare(PLAIN)
    machines.start("broken", Worker, disks=Disks([tmp := machines.root / "work"]))
    assert await machines.rested("broken") == "/work: 0 bytes are free on its disk"
    machines.start("sound", Worker, work=tmp)
    machines.start("scorer", ScorerRole)
    await machines.all_passed()
    bus = machines.buses[0]
    rows = await bus.rows(BATCH, await bus.run_ids(BATCH))
    assert {row.gen for row in rows} == {1}, "the broken one claimed none"


class _FullAfterwards(Disks):
    """Nothing was to be seen when the run was taken."""

    def full(self) -> str:
        """As it is when the run has failed."""
        return "/work: 0 bytes are free on its disk"


async def test_a_wrong_verdict_of_a_program_on_a_full_disk_is_none(machines: Machines) -> None:
    """Hidden tests that cannot write their cache fail as those of a wrong answer do: exit code 1."""
    judging = (
        "from pathlib import Path\n\n"
        "def score(case, sealed):\n    return Path(__file__).with_name('sound.log').exists()\n"
    )
    toml = PLAIN.replace('kind = "exact"', 'kind = "python"\npython = "judge.py:score"')
    await machines.declare('ignore = ["*.log"]\n' + toml, judge_DOT_py=judging)
    machines.start("worker", Worker)
    machines.start("broken", ScorerRole, own=_FullAfterwards([]))
    assert await machines.rested("broken") == "/work: 0 bytes are free on its disk"
    (machines.root / "suite" / "sound.log").touch()
    machines.start("sound", ScorerRole, own=Disks([]))
    await machines.all_passed()


async def test_a_solver_that_fails_on_a_full_disk_has_not_failed(machines: Machines) -> None:
    """Whatever it says of it."""
    failing = (
        "from pathlib import Path\n\n"
        "def solve(case, run):\n"
        "    if not Path(__file__).with_name('sound.log').exists():\n        raise SystemExit('tar: short write')\n"
        "    return case.input\n"
    )
    await machines.declare('ignore = ["*.log"]\n' + PLAIN, failing)
    machines.start("broken", Worker, own=_FullAfterwards([]))
    assert await machines.rested("broken") == "/work: 0 bytes are free on its disk"
    (machines.root / "suite" / "sound.log").touch()
    machines.start("sound", Worker, own=Disks([]))
    machines.start("scorer", ScorerRole)
    await machines.all_passed()


# --- whose fault ------------------------------------------------------------------------------------------


def _raised(error: BaseException, *causes: BaseException) -> BaseException:
    for cause in causes:
        error.__cause__ = cause
        error = cause
    return error


def test_the_fault_of_the_machine_is_found_behind_what_was_raised_from_it() -> None:
    """A library, or an agent, tells it in words of its own."""
    full = OSError(errno.ENOSPC, "no", "/data/x")
    outer = RuntimeError("could not save")
    _raised(outer, ValueError("bad"), full)
    assert str(fault_of(outer)) == "/data/x: No space left on device"
    assert str(fault_of(ExceptionGroup("several", [outer]))) == "/data/x: No space left on device"
    own = machine_error("no way to the store")
    assert fault_of(_raised(RuntimeError(), own)) is own
    assert fault_of(ValueError("bad")) is None
    assert fault_of(FileNotFoundError(errno.ENOENT, "no", "x")) is None
    forgotten = RuntimeError("x")
    forgotten.__context__, forgotten.__suppress_context__ = full, True
    assert fault_of(forgotten) is None
    ring = RuntimeError("a")
    ring.__cause__ = ValueError("b")
    ring.__cause__.__cause__ = ring
    assert fault_of(ring) is None


async def test_what_is_in_the_way_for_a_moment_is_tried_again() -> None:
    """And what is wrong for good is told at once."""
    tries = 0

    async def late() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ArtifactNotFound("not yet")
        return tries

    async def wrong() -> int:
        raise ValueError("wrong")

    async def never() -> int:
        raise ArtifactNotFound("never")

    assert await insisted(SystemRuntime(), 5.0, late) == 3
    failing: list[tuple[Callable[[], Awaitable[int]], type[Exception]]] = [
        (wrong, ValueError), (never, ArtifactNotFound),
    ]  # fmt: skip
    for call, error in failing:
        with pytest.raises(error):
            await insisted(SystemRuntime(), 0.1, call)


async def test_a_run_says_again_that_all_rests_when_a_longer_rest_begins() -> None:
    """It was said once, in the first second, and never again in the hour that nothing was done."""
    resting: list[Resting] = []

    class Bus:
        class rests:  # noqa: N801 - an attribute of the bus
            @staticmethod
            async def all() -> list[Resting]:
                return resting

    async def said(why: str, seconds: float) -> list[str]:
        resting[:] = [Resting(ConsumerId("w"), "there", why, seconds)] if why else []
        return await news.news(cast("Any", None))

    news = RestNews(cast("Any", Bus))
    line = "w on there takes nothing, and looks again in {} s: full"
    assert await said("full", 10.0) == [line.format(10)]
    assert await said("full", 8.0) == []
    assert await said("full", 20.0) == [], "soon enough"
    assert await said("full", 40.0) == [line.format(40)]
    assert await said("full", 38.0) == []
    assert await said("full", 120.0) == [line.format(120)]
    assert await said("", 0.0) == ["w works again"]


async def test_who_died_at_rest_is_no_longer_said_to_rest_when_it_is_back(server: Target, tmp_path: Path) -> None:
    """It served for minutes while `status` said that it took nothing."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime(), artifacts=DirectoryArtifacts(tmp_path))
    rests = Rests(bus.link, Plane.LIVE, 0)
    try:
        for name in ("back", "away"):
            await rests.tell(name, "there", "full", 600.0)
        url = unix_url(Path(server.path or ""))
        with Stage.opened(tmp_path) as stage:
            worker = stage.start("worker", "--url", url, "--name", "back")
            await eventually(lambda: _only(rests, "away"), "the word of the dead one to be taken back")
            worker.process.send_signal(signal.SIGTERM)
            await worker.end()
    finally:
        await bus.aclose()


async def _only(rests: Rests, name: str) -> bool:
    return [one.consumer for one in await rests.all()] == [name]
