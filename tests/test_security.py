"""SECURITY.md: each line of its threat model names the tests that show it, and they exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bus.acl import AclRole, rule, user_name
from bus.errors import ReplyError
from bus.keys import BatchKeys
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId, Plane, RunId
from bus.wire import Wire
from tests.fleet import Stage, case
from tests.servers import RealServer

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| cannot |", "| what |"))]
CLAIMS = [line for line in ROWS if not re.search(r"\| *[0-9,]+ \|$", line)]  # those of the other table are counts


@cache
def _tests_of(stem: str) -> frozenset[str]:
    file = ROOT / "tests" / f"{stem}.py"
    if not file.is_file():
        return frozenset()
    defined = ast.walk(ast.parse(file.read_text(encoding="utf-8")))  # also those of a class
    return frozenset(one.name for one in defined if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_is_named_exists() -> None:
    """A test that is renamed takes its line along."""
    named = NAMED.findall(PAGE)
    assert len(named) > 50
    assert [f"{stem}::{name}" for stem, name in named if name not in _tests_of(stem)] == []


def test_every_claim_names_a_test() -> None:
    """What no test shows is no claim."""
    assert len(CLAIMS) > 30
    assert [line for line in CLAIMS if not NAMED.search(line)] == []


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own."""
    with Stage.opened(tmp_path) as opened:
        yield opened


async def test_a_reader_writes_nothing_on_its_own_plane_either(valkey: RealServer, server: Target) -> None:
    """By no command that writes, and by no script."""
    keys, user = BatchKeys(Plane.LIVE, BatchId("b")), user_name(AclRole.READER, Plane.LIVE)
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", *rule(AclRole.READER, Plane.LIVE, "open-sesame").split())
        wire = await Wire.open(replace(server, username=user, password="open-sesame").address())
        try:
            assert await wire.call("HGETALL", keys.batch_row) == []
            for command in (
                ("HSET", keys.run(RunId("a#1")), "h.bin", "pass"),
                ("XADD", keys.history, "*", "o", "forged"),
                ("DEL", keys.batch_row),
                ("EVAL", "return redis.call('HSET', KEYS[1], 'a', 1)", 1, keys.batch_row),
                ("XGROUP", "CREATE", keys.stream("runs"), "mine", "0", "MKSTREAM"),
                ("FLUSHALL",),
            ):
                with pytest.raises(ReplyError, match="NOPERM"):
                    await wire.call(*command)
        finally:
            wire.close()
            client.execute_command("ACL", "DELUSER", user)
        assert client.keys("*") == []


@pytest.mark.process
async def test_a_row_that_a_worker_forges_is_seen_by_whoever_reads_the_number(
    stage: Stage, valkey: RealServer, server: Target
) -> None:
    """A worker's user may write rows, as its scripts do. The number that was closed is then not shown any more."""
    url, user = unix_url(Path(server.path or "")), user_name(AclRole.WORKER, Plane.LIVE)
    suite = stage.suite([case("a"), case("b", target="2")])
    run = ("run", suite, "--url", url, "--batch", "b", "--workers", 1, "--scorers", 1)
    assert (await stage.call(*run)).code == 0
    assert (await stage.call("gate", "b", "--url", url)).code == 0
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", *rule(AclRole.WORKER, Plane.LIVE, "open-sesame").split())
        try:
            wire = await Wire.open(replace(server, username=user, password="open-sesame").address())
            await wire.call("HSET", BatchKeys(Plane.LIVE, BatchId("b")).run(RunId("b#1")), "h.bin", "pass")
            wire.close()
        finally:
            client.execute_command("ACL", "DELUSER", user)
    for command in ("gate", "replay"):
        done = await stage.call(command, "b", "--url", url)
        assert done.code == 5, (command, done.out, done.err)
