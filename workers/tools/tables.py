"""The tables `[tools.<name>]` and `[mcp.<name>]` of a suite file: what a solver may call, and what a call does.

A tool says what it changes, and there is no default: `none` (it reads), `workspace` (it changes the run's own
directory, which dies with the attempt), `outside` (it has an effect in the world, which no retry takes back). Whether a
call may be repeated, and who may make it, follows from that and from nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from workers.tables import Command, Count, Flag, Function, Seconds, Table, Text, Variables

__all__ = ["McpServers", "McpTable", "ToolTable", "Tools", "check_tools", "tool_limits"]

BOUNDS: Final = 10
"""A call's bound is this many times its timeout, unless the tool says otherwise: late answers are rare then."""

_RESERVED: Final = re.compile(r"(?i)idempotency-key|evalbus-.*|content-type|content-length|host")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f'{text!r} is not a URL (write "https://host/path")')
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL must not hold a password: name its environment variable in headers_env")
    return text


def _headers(given: dict[str, str]) -> dict[str, str]:
    for header, variable in given.items():
        if not _HEADER.fullmatch(header) or _RESERVED.fullmatch(header):
            raise ValueError(f"{header!r} cannot be set: it is no header's name, or evalbus sets it")
        if not _VARIABLE.fullmatch(variable):
            raise ValueError(f"{variable!r} is not the name of an environment variable")
    return given


def _positive(seconds: float) -> float:
    if not 0 < seconds <= 24 * 3600:
        raise ValueError(f"{seconds:g} s is not a time for a call (up to 24h)")
    return seconds


Url = Annotated[Text, AfterValidator(_url)]
Headers = Annotated[dict[str, str], AfterValidator(_headers)]
"""Header → the environment variable that its value is taken from; the value itself is never written anywhere."""
Time = Annotated[Seconds, AfterValidator(_positive)]


class ToolTable(Table):
    """One tool: exactly one of `python`, `http`, `command` and `mcp`."""

    table = "tools.<name>"

    python: Function | None = None
    """A function of the suite; the call's arguments are its keywords."""
    http: Url | None = None
    """An address: the arguments are POSTed as a JSON object, the body that comes back is the result."""
    command: Command | None = None
    """A program: `{name}` in its words is the call's argument of that name; all of them come as JSON on its input."""
    mcp: Text | None = None
    """A server of `[mcp.<name>]`."""
    tool: Text | None = None
    """mcp: what the tool is called there; by default what it is called here."""
    effects: Literal["none", "workspace", "outside"]
    """What a call changes."""
    remote: Flag = False
    """Whether any worker may make the call; what has effects outside is always called so."""
    inverse: Text | None = None
    """outside: the tool that takes a call back. It gets the same arguments, and the key that it undoes."""
    timeout: Time = 30.0
    """For one call."""
    bound: Time | None = None
    """How long a call that was sent may stay silent before it is taken back, or the run ends. Ten times the timeout."""
    slots: Count = 8
    """Of a tool that is called from the stream: calls at a time, over all workers; in each, where it only reads."""
    env: Variables = ()
    """command: names of the worker's environment variables that it gets to see."""
    headers_env: Headers = Field(default_factory=dict)
    """http: headers whose values come from the worker's environment, such as a key."""

    @model_validator(mode="after")
    def _fits(self) -> ToolTable:
        kinds = [name for name in ("python", "http", "command", "mcp") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("exactly one of python, http, command and mcp is needed")
        for field, kind in (("tool", "mcp"), ("env", "command"), ("headers_env", "http")):
            if field in self.model_fields_set and kinds != [kind]:
                raise ValueError(f"{field} is for a tool that is {kind}, and this one is {kinds[0]}")
        if self.effects == "workspace" and (self.remote or kinds[0] not in ("python", "command")):
            raise ValueError("what changes the workspace is called where that is: a python or command, and not remote")
        if self.inverse is not None and self.effects != "outside":
            raise ValueError('inverse is for a tool with effects = "outside"')
        if self.bound is not None and self.bound <= self.timeout:
            raise ValueError(f"bound: {self.bound:g} s is not longer than the timeout, {self.timeout:g} s")
        return self

    @property
    def from_stream(self) -> bool:
        """Whether a call of it goes through the batch's `tools` stream, to whichever worker reads it."""
        return self.remote or self.effects == "outside"

    @property
    def bound_ms(self) -> int:
        """How long a call that was sent may stay silent, in milliseconds."""
        return round(1000 * (self.bound if self.bound is not None else BOUNDS * self.timeout))


class McpTable(Table):
    """A server that speaks the Model Context Protocol: a `command` on its standard streams, or a `url`."""

    table = "mcp.<name>"

    command: Annotated[tuple[Text, ...], Field(min_length=1)] | None = None
    """Started once in each worker that needs it; `{python}` and `{suite}` in its arguments are replaced."""
    url: Url | None = None
    """An address that speaks streamable HTTP."""
    env: Variables = ()
    """command: names of the worker's environment variables that it gets to see."""
    headers_env: Headers = Field(default_factory=dict)
    """url: headers whose values come from the worker's environment, such as a key."""

    @model_validator(mode="after")
    def _one(self) -> McpTable:
        if (self.command is None) == (self.url is None):
            raise ValueError("exactly one of command and url is needed")
        for field, wrong, kind in (("env", self.url, "command"), ("headers_env", self.command, "url")):
            if field in self.model_fields_set and wrong is not None:
                raise ValueError(f"{field} is for a server that is a {kind}")
        return self


def _names(tables: dict[str, Table]) -> dict[str, Table]:
    for name in tables:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name (letters, digits, '_' and '-', at most 64)")
    return tables


Tools = Annotated[dict[str, ToolTable], AfterValidator(_names)]
McpServers = Annotated[dict[str, McpTable], AfterValidator(_names)]


def check_tools(tools: Mapping[str, ToolTable], servers: Mapping[str, McpTable]) -> None:
    """What no table can see by itself: that each name names something. Raises `ValueError`."""
    for name, tool in tools.items():
        if tool.mcp is not None and tool.mcp not in servers:
            raise ValueError(f"tools.{name}.mcp: there is no table [mcp.{tool.mcp}]")
        if tool.inverse is None:
            continue
        inverse = tools.get(tool.inverse)
        if inverse is None or tool.inverse == name:
            raise ValueError(f"tools.{name}.inverse: there is no other tool {tool.inverse!r}")
        if inverse.effects != "outside":
            raise ValueError(f'tools.{name}.inverse: {tool.inverse} does not have effects = "outside"')


def tool_limits(tools: Mapping[str, ToolTable]) -> dict[str, int | str]:
    """What a batch of these tools declares (`BatchSpec.limits`); nothing when none has effects outside."""
    doubtful = {name: tool for name, tool in tools.items() if tool.effects == "outside"}
    if not doubtful:
        return {}
    inverses = {name: tool.inverse for name, tool in doubtful.items() if tool.inverse is not None}
    return {
        "ack_bound_ms": max(tool.bound_ms for tool in doubtful.values()),
        "inverses": json.dumps(inverses, sort_keys=True),
    }
