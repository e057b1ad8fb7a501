"""Servers for tests: `server` for one who needs any, `any_server` to run on each kind that is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import structlog

from bus.target import Target
from tests.fuzzing import TRIED
from tests.servers import Kind, Missing, RealServer, binary, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that start processes first: they take longest, and one that begins last keeps everybody waiting."""
    slow = {item.path for item in items if item.get_closest_marker("process")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many inputs were tried, where that is the question: `make fuzz`."""
    if "EVALBUS_SOAK" in os.environ and TRIED:
        terminalreporter.section("inputs tried")
        for what, count in sorted(TRIED.items()):
            terminalreporter.write_line(f"{count:10,}  {what}")


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """A command that was called within this process has set up its logs, for good: the next test begins without."""
    yield
    if not structlog.is_configured():
        return
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    for name, module in list(sys.modules.items()):
        if name.startswith(("bus.", "workers.")) and (log := vars(module).get("log")) is not None:
            vars(log).pop("bind", None)  # what it has cached


@pytest.fixture(scope="session")
def valkey() -> Iterator[RealServer]:
    """One private Valkey for the whole session."""
    with running(Kind.VALKEY9) as server:
        yield server


@pytest.fixture
def server(valkey: RealServer) -> Target:
    """The session's Valkey, emptied."""
    return _emptied(valkey)


@pytest.fixture(scope="session", params=list(Kind))
def any_real_server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """One server of each kind for the whole session; a kind that is not installed is skipped."""
    program = binary(request.param)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    with running(request.param) as server:
        yield server


@pytest.fixture
def any_server(any_real_server: RealServer) -> Target:
    """Each kind of server in turn, emptied."""
    return _emptied(any_real_server)


def _emptied(server: RealServer) -> Target:
    with server.client() as client:
        client.flushall()
    return server.target
