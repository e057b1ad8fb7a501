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
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from bus.errors import EvalbusError, InputError, ServerError
from workers.parent_death import die_with_parent
from workers.role_options import STOPPED, Role, RoleOptions

__all__ = ["Fleet"]

log = structlog.get_logger("evalbus.fleet")

_GRACE = 10.0  # seconds that a process has to hand back its leases before it is killed
_FIRST_PAUSE, _LONGEST_PAUSE = (
    0.2,
    5.0,
)  # seconds between a death and the next start: doubled while it dies at once
_AT_ONCE = 2.0  # seconds; a process that lived less died at once
_STILLBORN = 5  # deaths in a row before coming up: something is broken that a restart does not mend
_LAST_LINES = 4_000  # bytes of a log in which the reason of an end is looked for


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
    _members: list[_Member] = field(default_factory=list)
    _keepers: list[asyncio.Task[None]] = field(default_factory=list)
    _failed: asyncio.Future[None] | None = None
    _stopping: bool = False
    restarts: deque[str] = field(default_factory=lambda: deque(maxlen=100))

    def start(self, options: Sequence[RoleOptions]) -> None:
        """Start a process for each."""
        self.log_directory.mkdir(parents=True, exist_ok=True)
        self._failed = asyncio.get_running_loop().create_future()
        for number, one in enumerate(options, start=1):
            name = one.name or f"{one.role}-{number}"
            member = _Member(replace(one, name=name), self.log_directory / f"{name}.log")
            self._members.append(member)
            self._keepers.append(asyncio.create_task(self._keep(member)))

    def alive(self, role: Role) -> int:
        """How many processes of a role are up."""
        return sum(
            1 for member in self._members
            if member.options.role is role and member.process is not None and member.process.returncode is None
        )  # fmt: skip

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
            except OSError as error:  # no memory, no more processes, the log's directory deleted
                self._fail(EvalbusError(f"{member.options.name} cannot be started: {error}"))
                return
            if self._stopping or code == 0:
                return
            member.deaths += 1
            member.stillborn = 0 if self._came_up(member) else member.stillborn + 1
            if code in (2, 4) or member.stillborn >= _STILLBORN:
                # Wrong input, or no server: it will say the same the next time. Its own last line is the reason.
                self._fail(_reason(member, code))
                return
            member.quick_deaths = member.quick_deaths + 1 if loop.time() - started < _AT_ONCE else 0
            self.restarts.append(f"{member.options.name} ended ({_how(code)}), started again")
            log.warning("process.died", name=member.options.name, code=code, deaths=member.deaths)
            if member.quick_deaths:
                await asyncio.sleep(min(_FIRST_PAUSE * 2 ** (member.quick_deaths - 1), _LONGEST_PAUSE))

    async def _live(self, member: _Member) -> int:
        # The URL may hold a password: any user of the machine can read a command line, but not an environment.
        public = replace(member.options, url=None)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "EVALBUS_URL": member.options.url or ""}
        if environment.get("EVALBUS_LOG") != "debug":
            environment["EVALBUS_LOG"] = "info"  # not less: these files are for the day of trouble, and for `_came_up`
        with member.log_file.open("ab") as out:
            member.log_from = out.tell()
            member.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "workers.role", f"evalbus {member.options.role}", public.as_json(),
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=environment, preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip
        return await member.process.wait()

    def _came_up(self, member: _Member) -> bool:
        with member.log_file.open("rb") as log_file:
            log_file.seek(member.log_from)
            return any(b'"role.started"' in line for line in log_file)

    def _fail(self, error: EvalbusError) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def stop(self) -> None:
        """SIGTERM to all, wait for them to hand back what they hold, and kill what is left."""
        self._stopping = True
        processes = [member.process for member in self._members if member.process is not None]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
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
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def _reason(member: _Member, code: int) -> EvalbusError:
    tail = member.log_file.read_bytes()[-_LAST_LINES:].decode("utf-8", "replace").strip().splitlines()
    said = next((line for line in reversed(tail) if line.startswith("evalbus ")), None)
    if said is None:
        last = tail[-1] if tail else "it said nothing"
        return EvalbusError(f"{member.options.name} does not come up ({_how(code)}): {last} (see {member.log_file})")
    text = said.partition(": ")[2] or said
    return ServerError(text) if code == ServerError.exit_code else InputError(text)
