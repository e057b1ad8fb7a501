"""The tools of a suite, as one process calls them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from bus.errors import MachineError
from bus.types import Digest
from workers.closing import Closable, close_all, forget_all_but
from workers.programs import fault_of_absence
from workers.redaction import hide_variable, redacted
from workers.suite import Suite
from workers.tools.code import functions_of
from workers.tools.functions import FunctionTool
from workers.tools.http_tool import HttpTool
from workers.tools.mcp_tool import McpServer, McpTool
from workers.tools.programs import ProgramTool
from workers.tools.tables import ToolTable
from workers.tools.text import shortened, well_formed
from workers.tools.values import Answer, Order, SilenceError

__all__ = ["Toolbox", "Toolboxes"]


class _Tool(Protocol):
    """One way of making a call."""

    async def run(self, order: Order) -> Answer:
        """Make it. Raises `SilenceError`."""


class Toolbox:
    """The tools of one suite."""

    def __init__(self, suite: Suite) -> None:
        """Imports their code. Raises `InputError`."""
        self.tables: Mapping[str, ToolTable] = suite.tools
        for variable in _secret_variables(suite):
            hide_variable(variable)
        functions = functions_of(suite)
        values = {"python": sys.executable, "suite": str(suite.root)}
        self._servers = {name: McpServer(name, table, values) for name, table in suite.mcp.items()}
        self._tools = {name: self._make(name, tool, suite, values, functions) for name, tool in suite.tools.items()}

    async def ready(self, name: str) -> str | None:
        """Do what takes time before a call can be made: no part of the call. Returns why it cannot be made, if so."""
        tool = self._tools[name]
        return await tool.ready(probe=self.tables[name].effects == "outside") if isinstance(tool, McpTool) else None

    def check(self, name: str) -> None:
        """Before a call is claimed that another machine may make as well. Raises MachineError."""
        tool = self._tools[name]
        command = tool.command if isinstance(tool, ProgramTool) else tool.command if isinstance(tool, McpTool) else None
        if command and (fault := fault_of_absence(command[0])) is not None:
            raise fault

    async def run(self, order: Order) -> Answer:
        """Make a call. Raises `SilenceError` when nobody knows what came of it; KeyError for an unknown tool.

        Of a tool without effects outside that is known: it failed. A workspace that a failed call has half changed is
        the solver's to look at. Raises MachineError when it cannot be made here; not of one with effects outside: that
        was licensed, to be made here and nowhere else.
        """
        table = self.tables[order.tool]
        # Of what has effects outside, the executor has asked before it was licensed.
        if table.effects != "outside" and (why := await self.ready(order.tool)) is not None:
            return Answer(False, _clean(why))
        # A program is killed at its time, and that takes a moment.
        patience = table.timeout + (1.0 if table.command is not None else 0.0)
        try:
            async with asyncio.timeout(patience):
                answer = await self._tools[order.tool].run(order)
        except TimeoutError:
            silence = f"no answer within {table.timeout:g} s"
        except SilenceError as error:
            silence = str(error)
        except MachineError as error:
            if table.effects != "outside":
                raise
            return Answer(False, _clean(f"{error}; nothing was done"))
        else:
            read = answer.ok and table.effects != "outside"  # no effect, so nothing that a key could be lost of
            return Answer(answer.ok, _clean(answer.text), order.context.key if read else answer.echo)
        if table.effects == "outside":
            raise SilenceError(_clean(silence)) from None
        return Answer(False, _clean(silence))

    async def aclose(self) -> None:
        """Let go of what the tools hold open."""
        for server in self._servers.values():
            await server.aclose()

    def _make(
        self,
        name: str,
        tool: ToolTable,
        suite: Suite,
        values: Mapping[str, str],
        functions: Mapping[str, Callable[..., object]],
    ) -> _Tool:
        if tool.http is not None:
            return HttpTool(tool.http, tool.headers_env)
        if tool.command is not None:
            return ProgramTool(tool.command, tool.env, values, suite.limits.of_commands, tool.timeout)
        if tool.mcp is not None:
            return McpTool(self._servers[tool.mcp], tool.tool or name)
        return FunctionTool(functions[name])


class Toolboxes:
    """The toolboxes of a process, one for each suite that it serves."""

    def __init__(self) -> None:
        """None yet."""
        self._boxes: dict[Digest, Toolbox] = {}
        self._lock = threading.Lock()
        self._last: tuple[Suite, Toolbox] | None = None

    def prepare(self, suite: Suite) -> None:
        """Import the tools of a suite; in any thread. Raises `InputError`."""
        with self._lock:
            if suite.digest not in self._boxes:
                self._boxes[suite.digest] = Toolbox(suite)

    def of(self, suite: Suite) -> Toolbox:
        """Those of a suite, which was prepared or is now."""
        last = self._last
        if last is None or last[0] is not suite:
            self.prepare(suite)
            last = self._last = suite, self._boxes[suite.digest]
        return last[1]

    def forget_all_but(self, suites: Collection[Digest]) -> list[Closable]:
        """Drop the others, which are returned: what they hold open is to be let go of."""
        with self._lock:
            if self._last is not None and self._last[0].digest not in suites:
                self._last = None
            return forget_all_but(self._boxes, suites)

    async def aclose(self) -> None:
        """Let go of what they hold open."""
        await close_all(self.forget_all_but(()))


def _secret_variables(suite: Suite) -> set[str]:
    named = [(*tool.env, *tool.headers_env.values()) for tool in suite.tools.values()]
    named += [(*server.env, *server.headers_env.values()) for server in suite.mcp.values()]
    return {variable for variables in named for variable in variables}


def _clean(text: str) -> str:
    return shortened(redacted(well_formed(text)))
