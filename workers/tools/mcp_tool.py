"""Tools of servers that speak the Model Context Protocol, through its official client.

A server is connected to once in each process, by a task that owns the connection from its beginning to its end: the
client's task groups want to be left by the task that entered them. A call that fails with its connection leaves open
what it has done, and the next one connects anew. Calls that come while it is being connected wait for that one attempt,
and fail with it: fifty of them that each tried by themselves would wait fifty times for a server that never starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers.processes.commands import fill, passed_on
from workers.programs import fault_of_absence
from workers.redaction import redacted
from workers.tools.headers import complaint, headers_of
from workers.tools.tables import McpTable
from workers.tools.text import as_text, first_line, json_of
from workers.tools.values import Answer, Order, SilenceError
from workers.usercode import describe
from workers.workspace import suite_environment

if TYPE_CHECKING:
    import anyio
    from mcp import Client
    from mcp.types import CallToolResult

__all__ = ["KEY", "McpServer", "McpTool"]

KEY: Final = "evalbus/idempotency-key"
PLANE: Final = "evalbus/plane"
UNDOES: Final = "evalbus/undoes"
NOTHING_DONE: Final = "evalbus/nothing-done"
"""Names in a call's `_meta`; the last is in a result's, set to true by a tool that failed and has done nothing."""

_NOT_CALLED: Final = frozenset({-32700, -32600, -32601, -32602})
"""JSON-RPC's errors by which a server says that it has called nothing: no request, no such tool, wrong arguments."""

_CONNECT: Final = 20.0
"""Seconds for a server to start and to say which tools it has."""

_END: Final = 20.0
"""Seconds for a server that is let go to end. The client gives it two to do so by itself, and then ends it."""


class _UnreachableError(Exception):
    """No connection: nothing was asked."""


@dataclass(frozen=True, slots=True)
class _Connection:
    """A client, the tools that it was told of, and the task that owns both."""

    client: Client
    tools: frozenset[str]
    owner: asyncio.Task[None]
    close: asyncio.Event


class McpServer:
    """One server, as this process reaches it. Connects when it is first called."""

    def __init__(self, name: str, table: McpTable, values: Mapping[str, str]) -> None:
        """`values`: what `{name}` stands for in its command."""
        self.name = name
        self._table, self._values = table, values
        self._lock = asyncio.Lock()
        self._connection: _Connection | None = None
        self._attempt: asyncio.Task[_Connection] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        self._over = False

    @property
    def command(self) -> Sequence[str] | None:
        """What starts it; None for one that is reached by its address."""
        return self._table.command

    async def call(self, tool: str, args: Mapping[str, object], meta: dict[str, object]) -> Answer:
        """Make a call. Raises `SilenceError`."""
        from mcp import MCPError  # noqa: PLC0415 - an optional dependency

        try:
            connection = await self._reach()
        except _UnreachableError as error:
            return Answer(False, self._unreachable(error))
        if tool not in connection.tools:
            return Answer(False, f"the server {self.name} has no tool {tool!r}")
        try:
            result = await connection.client.call_tool(tool, dict(args), meta=meta)  # type: ignore[arg-type]
        except MCPError as error:
            if error.code in _NOT_CALLED:
                return Answer(False, error.message)
            await self._drop(connection)
            raise SilenceError(f"the server {self.name}: {describe(error)}") from error
        except Exception as error:
            await self._drop(connection)
            raise SilenceError(f"the server {self.name}: {describe(error)}") from error
        return _answer(result, str(meta.get(KEY, "")))

    async def ready(self, *, probe: bool) -> str | None:
        """Make sure of the connection, which takes time and may fail.

        `probe`: also of one that is there, before a call that must not be left in doubt.
        """
        try:
            await self._reach(probe=probe)
        except _UnreachableError as error:
            return self._unreachable(error)
        return None

    def _unreachable(self, error: _UnreachableError) -> str:
        if self.command and (fault := fault_of_absence(self.command[0])) is not None:
            raise fault from error
        return f"the server {self.name} cannot be reached, nothing was asked: {error}"

    async def aclose(self) -> None:
        """End the connection, or the attempt at one; a server that is a command ends with it."""
        async with self._lock:
            self._over = True
            if self._attempt is not None:
                self._attempt.cancel()
                await asyncio.wait({self._attempt})
            if self._connection is not None:
                await self._drop(self._connection)
            if self._owners:
                await asyncio.wait(self._owners, timeout=_END)

    async def _reach(self, *, probe: bool = False) -> _Connection:
        async with self._lock:
            if self._over:  # by whoever holds on to it, nobody would close it again
                raise _UnreachableError("its suite is not served any more")
            if self._connection is not None and self._connection.owner.done():
                self._connection = None
            if self._connection is not None and probe:
                try:
                    async with asyncio.timeout(_CONNECT):
                        await _tools_of(self._connection.client)
                except Exception:  # it has gone while nobody asked
                    await self._drop(self._connection)
            if self._connection is not None:
                return self._connection
            if self._attempt is None or self._attempt.done():
                self._attempt = asyncio.create_task(self._connect())
                self._attempt.add_done_callback(_heard)
            attempt = self._attempt
        return await asyncio.shield(attempt)  # it goes on without a caller whose time is up: the next one needs it

    async def _drop(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
        connection.close.set()
        with contextlib.suppress(Exception):
            await asyncio.wait({connection.owner}, timeout=_END)

    async def _connect(self) -> _Connection:
        import anyio  # noqa: PLC0415 - the client's own dependency

        if (why := complaint(self._table.headers_env)) is not None:
            raise _UnreachableError(why)
        loop = asyncio.get_running_loop()
        reached: asyncio.Future[tuple[Client, frozenset[str]]] = loop.create_future()
        # The client ends its server's process on the way out, and shields that from this kind of cancellation only.
        close, life = asyncio.Event(), anyio.CancelScope()
        owner = asyncio.create_task(self._own(reached, close, life))
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        try:
            async with asyncio.timeout(_CONNECT):
                client, tools = await asyncio.shield(reached)
        except TimeoutError:
            life.cancel()
            raise _UnreachableError(f"no word within {_CONNECT:g} s") from None
        except asyncio.CancelledError:
            life.cancel()
            raise
        self._connection = _Connection(client, tools, owner, close)
        return self._connection

    async def _own(
        self,
        reached: asyncio.Future[tuple[Client, frozenset[str]]],
        close: asyncio.Event,
        life: anyio.CancelScope,
    ) -> None:
        with life, tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            try:
                async with self._client(said.fileno()) as client:
                    tools = await _tools_of(client)
                    if not reached.done():
                        reached.set_result((client, tools))
                    await close.wait()
            except Exception as error:
                said.seek(0)
                lines = [line for line in said.read().splitlines() if line.strip()]
                why = describe(error) + (f"; it said: {first_line(lines[-1])}" if lines else "")
                if not reached.done():
                    reached.set_exception(_UnreachableError(redacted(why)))
                    reached.exception()  # whoever waited may be gone

    @contextlib.asynccontextmanager
    async def _client(self, said: int) -> AsyncIterator[Client]:
        """`said`: the descriptor that takes a command's error output."""
        from mcp import Client, StdioServerParameters  # noqa: PLC0415
        from mcp.client.stdio import stdio_client  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        if self._table.command is not None:
            program, *rest = fill(self._table.command, self._values)
            env = {"PATH": os.environ.get("PATH", os.defpath), **suite_environment(self._values)}
            server = StdioServerParameters(
                command=program, args=rest, env=env | passed_on(self._table.env), cwd=self._values.get("suite")
            )
            with os.fdopen(os.dup(said), "w", encoding="utf-8") as errors:
                async with Client(stdio_client(server, errlog=errors), cache=None) as client:
                    yield client
            return
        import httpx2  # noqa: PLC0415 - the client's own HTTP library

        headers = headers_of(self._table.headers_env)
        assert self._table.url is not None
        timeout = httpx2.Timeout(None, connect=_CONNECT)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
            Client(streamable_http_client(self._table.url, http_client=http), cache=None) as client,
        ):
            yield client


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of a server. Where the server's program is not on this machine, its methods raise MachineError.

    An answer belongs to its request by the protocol's own numbers, so one that comes back without the key counts. A
    result that is an error does not say whether anything was done, unless its `_meta` does.
    """

    server: McpServer
    name: str

    @property
    def command(self) -> Sequence[str] | None:
        """See `McpServer.command`."""
        return self.server.command

    async def ready(self, *, probe: bool) -> str | None:
        """See `McpServer.ready`."""
        return await self.server.ready(probe=probe)

    async def run(self, order: Order) -> Answer:
        """Make the call. Raises `SilenceError`."""
        context = order.context
        meta: dict[str, object] = {PLANE: context.plane.value}
        if context.key:
            meta[KEY] = context.key
        if context.undoes is not None:
            meta[UNDOES] = context.undoes
        return await self.server.call(self.name, order.args, meta)


def _heard(attempt: asyncio.Task[_Connection]) -> None:
    """Whoever waited for it may be gone: then its failure is nobody's to hear."""
    if not attempt.cancelled():
        attempt.exception()


async def _tools_of(client: Client) -> frozenset[str]:
    found: set[str] = set()
    cursor: str | None = None
    for _ in range(100):  # pages; a listing that never ends is cut
        page = await client.list_tools(cursor=cursor)
        found |= {tool.name for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    return frozenset(found)


def _answer(result: CallToolResult, key: str) -> Answer:
    parts = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    text = as_text("\n".join(parts))
    if not parts and result.structured_content is not None:
        text = json_of(result.structured_content)
    told = result.meta or {}
    if not result.is_error:
        return Answer(True, text, str(told.get(KEY, key)))
    if told.get(NOTHING_DONE) is True:
        return Answer(False, text)
    raise SilenceError(text or "the tool failed without a word")
