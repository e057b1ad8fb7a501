"""The processes of one `evalbus run`: started, and started again when they die.

A process that is started again gets the consumer name of the one that died, so it finds at once, in its own pending
list, what that one held; it need not wait for a lease to run out. (Should the dead one not be dead after all, the
fences tell the two apart: they compare leases, not names.)

The children live in a session of their own, so Ctrl-C at the terminal reaches the starter alone, which then stops
them in order; and they get SIGTERM from the kernel when the starter itself is killed, so no fleet outlives its run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from bus.errors import EvalbusError, InputError, ProcessSpent, ServerError, ViolationError
from workers.processes.parent_death import die_with_parent
from workers.processes.role_options import BLOCKED, STOPPED, Role, RoleOptions
from workers.secret_files import FILE

__all__ = ["Fleet"]

log = structlog.get_logger("evalbus.fleet")

_GRACE = 10.0  # seconds that a process has to hand back its leases before it is killed
_FIRST_PAUSE, _LONGEST_PAUSE = (
    0.2,
    5.0,
)  # seconds between a death and the next start: doubled while it dies at once
_LARGE_LOG = 10_000_000  # bytes beyond which a log starts anew with its process's next life: a solver may print a lot
_AT_ONCE = 2.0  # seconds; a process that lived less died at once
_STILLBORN = 5  # deaths in a row before coming up: something is broken that a restart does not mend


@dataclass(frozen=True, slots=True)
class _Life:
    """What a process's log says of one life of it.

    An exit code alone proves nothing: the suite's code runs in that process, and may end it with any.
    """

    came_up: bool
    ended: bool
    """It found its batch ended."""
    complaint: str
    """What it cannot go on for, as it would say again the next time; empty when it said nothing of the kind."""
    last: str

    @classmethod
    def read(cls, log_file: Path, log_from: int, role: Role) -> _Life:
        """Raises OSError."""
        came_up, ended, complaint, last = False, False, "", "it said nothing"
        own = f"evalbus {role}: "
        with log_file.open("rb") as lines:
            lines.seek(log_from)
            for raw in lines:
                line = raw.decode("utf-8", "replace").strip()
                came_up = came_up or '"role.started"' in line
                ended = ended or ('"role.ended"' in line and _tells_the_end(line))
                complaint = line.removeprefix(own) if line.startswith(own) else complaint
                last = line or last
        return cls(came_up, ended, complaint, last)


def _tells_the_end(line: str) -> bool:
    try:
        told = json.loads(line)
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("event") == "role.ended" and told.get("stopped") is False


@dataclass(slots=True)
class _Member:
    options: RoleOptions
    log_file: Path
    process: asyncio.subprocess.Process | None = None
    deaths: int = 0
    quick_deaths: int = 0
    stillborn: int = 0
    """Deaths in a row before it came up at all."""
    log_from: int = 0
    """Where in the log file its present life begins."""


@dataclass(slots=True)
class Fleet:
    """See the module's text. `log_directory` gets a file for each process."""

    log_directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its processes have in theirs beside this process's own."""
    _members: list[_Member] = field(default_factory=list)
    _keepers: list[asyncio.Task[None]] = field(default_factory=list)
    one_ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a process found its batch ended: whoever waits for that batch looks."""
    _failed: asyncio.Future[None] | None = None
    _stopping: bool = False
    restarts: deque[str] = field(default_factory=lambda: deque(maxlen=100))

    def start(self, options: Sequence[RoleOptions]) -> None:
        """Start a process for each. Raises InputError when their logs can't be kept."""
        try:
            self.log_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"logs cannot be kept here: {(error.strerror or str(error)).lower()}",
                file=self.log_directory,
                remedy="make room, or name another directory: --home DIR",
            ) from error
        self._failed = asyncio.get_running_loop().create_future()
        for number, one in enumerate(options, start=1):
            name = one.name or f"{one.role}-{number}"
            member = _Member(replace(one, name=name), self.log_directory / f"{name}.log")
            self._members.append(member)
            self._keepers.append(asyncio.create_task(self._keep(member)))

    def alive(self, role: Role) -> int | None:
        """How many processes of a role are up; None where there are to be none."""
        members = [member for member in self._members if member.options.role is role]
        up = [one for one in members if one.process is not None and one.process.returncode is None]
        return len(up) if members else None

    @property
    def pids(self) -> set[int]:
        """The processes that it waits for."""
        return {member.process.pid for member in self._members if member.process is not None}

    def members(self, *roles: Role) -> dict[str, int]:
        """The processes of these roles that are at work, and not only starting: consumer name → process id."""
        return {
            str(member.options.name): member.process.pid for member in self._members
            if member.options.role in roles and member.process is not None and member.process.returncode is None
            and _Life.read(member.log_file, member.log_from, member.options.role).came_up
        }  # fmt: skip

    async def failed(self) -> None:
        """Wait until a process ends in a way that a restart does not mend; raises its error."""
        assert self._failed is not None
        await self._failed

    async def _keep(self, member: _Member) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping:
            started = loop.time()
            try:
                code = await self._live(member)
                life = _Life.read(member.log_file, member.log_from, member.options.role)
            except OSError as error:  # no memory, no more processes, the log's directory deleted
                self._fail(EvalbusError(f"{member.options.name} cannot be started: {error}"))
                return
            if self._stopping or (code == 0 and life.ended):
                self.one_ended.set()
                return
            member.deaths += 1
            member.stillborn = 0 if life.came_up else member.stillborn + 1
            if (reason := _beyond_repair(member, code, life)) is not None:
                self._fail(reason)
                return
            member.quick_deaths = member.quick_deaths + 1 if loop.time() - started < _AT_ONCE else 0
            self.restarts.append(f"{member.options.name} ended ({_how(code)}), started again")
            log.warning("process.died", name=member.options.name, code=code, deaths=member.deaths)
            if member.quick_deaths:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (member.quick_deaths - 1), _LONGEST_PAUSE))

    async def _live(self, member: _Member) -> int:
        # The URL may hold a password: any user of the machine can read a command line, but not an environment.
        public = replace(member.options, url=None)
        environment = {**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"}
        environment["EVALBUS_URL"] = member.options.url or ""
        environment.pop("EVALBUS_URL" + FILE, None)  # it was read, and two answers would be one too many
        if environment.get("EVALBUS_LOG") != "debug":
            environment["EVALBUS_LOG"] = "info"  # not less: these files are for the day of trouble, and for `_Life`
        with member.log_file.open("ab") as out:
            if out.tell() > _LARGE_LOG:
                out.truncate(0)
            member.log_from = out.seek(0, os.SEEK_END)
            member.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "workers.role", f"evalbus {member.options.role}", public.as_json(),
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=environment, preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip
        return await member.process.wait()

    def _fail(self, error: EvalbusError) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def stop(self) -> None:
        """SIGTERM to all, wait for them to hand back what they hold, and kill what is left."""
        self._stopping = True
        processes = [member.process for member in self._members if member.process is not None]
        for process in processes:
            if process.returncode is None:
                # Not by `send_signal`: it polls first, and may so reap a process that has ended this very moment. Who
                # waits for that one then finds none, and asyncio says so ("Unknown child process").
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                await asyncio.gather(*(process.wait() for process in processes))
        for process in processes:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._failed is not None:
            self._failed.cancel()


def _how(code: int) -> str:
    if code == STOPPED:
        return "told to stop by somebody else"
    if code == BLOCKED:
        return "its event loop was blocked: where, its log says; what blocks is a plain `def`, or in asyncio.to_thread"
    if code == ProcessSpent.exit_code:
        return "it had no file left to open; what the suite's code opens, it must close"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def _beyond_repair(member: _Member, code: int, life: _Life) -> EvalbusError | None:
    """Why there is no point in starting it again; None when there is."""
    for kind in (InputError, ServerError, ViolationError):
        if code == kind.exit_code and life.complaint:
            return kind(life.complaint)
    if member.stillborn < _STILLBORN:
        return None
    said = life.complaint or life.last
    return EvalbusError(f"{member.options.name} does not come up ({_how(code)}): {said} (see {member.log_file})")
