"""Server users: a role may do its work on its plane, and nothing on the other. With real users on real servers.

The plane fence refuses what a confused worker sends. These rules hold when the fence itself is gone: each crossing is
tried with the prefix check in place, and with it taken out of the script.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.acl import AclRole, key_patterns, rule, steps_of, user_name
from bus.calling import call
from bus.envelopes import encode
from bus.errors import ReplyError
from bus.fitness import check_fit
from bus.held_loops import HeldLoop, held_loops, note_held_loop
from bus.keys import BatchKeys, mark, registry
from bus.redis_bus import RedisBus
from bus.scripts import Script, script
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId, Plane, RunId
from bus.wire import Wire
from tests.batches import FixedDoor
from tests.fleet import Stage, case, eventually
from tests.servers import RealServer
from workers.runtime import SystemRuntime

BATCH, RUN = BatchId("b"), RunId("a#1")
WORD = "open-sesame"
LIVE, SHADOW = BatchKeys(Plane.LIVE, BATCH), BatchKeys(Plane.SHADOW, BATCH)


@pytest.fixture
def users(any_real_server: RealServer) -> Iterator[RealServer]:
    """A server with every role's user on both planes."""
    with any_real_server.client() as client:
        for plane in Plane:
            for role in AclRole:
                client.execute_command("ACL", "SETUSER", *rule(role, plane, WORD).split())
        yield any_real_server
        client.flushall()
        client.execute_command("ACL", "DELUSER", *(user_name(role, plane) for plane in Plane for role in AclRole))


def as_user(server: RealServer, role: AclRole, plane: Plane) -> Target:
    """The server, for one who logs in as that user."""
    return replace(server.target, username=user_name(role, plane), password=WORD)


@pytest.mark.parametrize("role", list(AclRole))
def test_a_rule_names_keys_of_its_plane_only(role: AclRole) -> None:
    """A pattern that does not begin with the plane would open the other."""
    for plane in Plane:
        for pattern in key_patterns(role, plane):
            assert pattern.lstrip("%R").startswith(f"~evb:{{{plane}.*}}:"), pattern


def test_every_step_belongs_to_a_role() -> None:
    """A step that is added and not listed would be denied in the middle of a run."""
    listed = {step for role in (AclRole.PLANNER, AclRole.WORKER, AclRole.SCORER) for step in steps_of(role)}
    there = {path.stem for path in (Path(__file__).parent.parent / "lua" / "run").glob("*.lua")}
    assert there - listed == {"create", "retire", "remove"}  # the operator's
    assert listed <= there


@pytest.mark.parametrize("plane", list(Plane))
@pytest.mark.parametrize("role", [AclRole.PLANNER, AclRole.WORKER, AclRole.SCORER, AclRole.OPERATOR])
async def test_a_role_finds_its_server_fit(users: RealServer, role: AclRole, plane: Plane) -> None:
    """What is asked before anything is spent is granted."""
    assert (await check_fit(as_user(users, role, plane), plane=plane)).role == "master"


@pytest.mark.parametrize("role", [AclRole.PLANNER, AclRole.OPERATOR])
async def test_who_closes_may_wait_until_the_close_would_survive(users: RealServer, role: AclRole) -> None:
    """A bus passes over a refusal, for the sake of readers: a planner that is refused would wait for nothing."""
    wire = await Wire.open(as_user(users, role, Plane.SHADOW).address())
    try:
        assert await wire.call("SET", mark(Plane.SHADOW), 1) == b"OK"
        assert await wire.call("WAIT", 0, 1) == 0
        with pytest.raises(ReplyError, match="NOPERM"):
            await wire.call("SET", mark(Plane.LIVE), 1)
    finally:
        wire.close()


@pytest.mark.parametrize("role", list(AclRole))
async def test_a_shadow_user_touches_no_live_key(users: RealServer, role: AclRole) -> None:
    """By no command, and through no script: the server looks at the keys before anything runs."""
    wire = await Wire.open(as_user(users, role, Plane.SHADOW).address())
    try:
        for command in (
            ("HSET", LIVE.run(RUN), "state", "scored"),
            ("XADD", LIVE.history, "*", "o", "forged"),
            ("SET", LIVE.blob(hashlib.sha256(b"").hexdigest()), b""),  # type: ignore[arg-type]
            ("HGETALL", registry(Plane.LIVE)),
            ("GET", LIVE.batch_row),
        ):
            with pytest.raises(ReplyError, match="NOPERM"):
                await wire.call(*command)
        for forbidden in (("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("ACL", "LIST")):
            with pytest.raises(ReplyError, match="NOPERM"):
                await wire.call(*forbidden)
    finally:
        wire.close()
    with users.client() as client:
        assert list(client.scan_iter("evb:{live.*")) == []


async def test_a_workers_user_may_say_who_holds_its_loop_and_a_readers_may_see_it(users: RealServer) -> None:
    """By the rights that it has for its steps alone it could not; no other role has anything to say there."""
    held = HeldLoop("w", 1.0, "agent.py:8")

    def bus_of(role: AclRole) -> RedisBus:
        return RedisBus(FixedDoor(as_user(users, role, Plane.SHADOW).address()), SystemRuntime(), plane=Plane.SHADOW)

    buses = {role: bus_of(role) for role in (AclRole.WORKER, AclRole.SCORER, AclRole.READER)}
    try:
        await note_held_loop(buses[AclRole.WORKER], BATCH, RUN, held)
        assert await held_loops(buses[AclRole.READER], BATCH) == {RUN: held}
        assert await held_loops(buses[AclRole.SCORER], BATCH) == {}
        with pytest.raises(ReplyError, match="NOPERM"):
            await note_held_loop(buses[AclRole.SCORER], BATCH, RUN, held)
    finally:
        for bus in buses.values():
            await bus.aclose()


def without_the_check(name: str) -> Script:
    """The fence's script with its comparison of key and plane taken out: a fence with a bug."""
    right = script(name)
    text = right.text.replace("local crossed = crosses(known, a)", "local crossed = nil")
    text = text.replace("known.key ~= a.key", "false")
    assert text != right.text
    return replace(right, text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


async def crossing(wire: Wire, write: Script, row: BatchKeys) -> str:
    """A shadow admission, then a write of a *live* key with it; `row`: whose rows the caller names."""
    keys = {"run": row.run(RUN), "planes": SHADOW.planes, "batch": SHADOW.batch_row, "history": SHADOW.history}
    token = {"batch": BATCH, "run": RUN, "admission": "ad"}
    admit = script("plane.admit")
    envelope = encode({"plane": "shadow", "key": "shadow:a#1:s", **token})
    await call(
        wire, admit, {name: keys[name] for name in admit.keys} | {"run": SHADOW.run(RUN)}, {"envelope": envelope}
    )
    envelope = encode({"plane": "shadow", "key": "live:a#1:s", "body": "x", **token})
    decision = await call(wire, write, {name: keys[name] for name in write.keys}, {"envelope": envelope})
    assert not isinstance(decision, list)
    return str(decision)


async def test_the_fence_refuses_a_crossing_and_the_server_does_where_the_fence_is_gone(users: RealServer) -> None:
    """Two walls. Without either, the live row is there: so this test can see a crossing when there is one."""
    with users.client() as client:
        client.hset(SHADOW.batch_row, "capacity", 8)
        mighty = await Wire.open(users.target.address())
        shadow = await Wire.open(as_user(users, AclRole.WORKER, Plane.SHADOW).address())
        try:
            assert "plane_key" in await crossing(mighty, script("plane.write"), LIVE)
            assert not client.exists(LIVE.run(RUN))
            for write in (script("plane.write"), without_the_check("plane.write")):
                with pytest.raises(ReplyError, match="NOPERM"):
                    await crossing(shadow, write, LIVE)
            assert not client.exists(LIVE.run(RUN))
            assert "commit" in await crossing(mighty, without_the_check("plane.write"), LIVE)
            assert client.exists(LIVE.run(RUN))
        finally:
            mighty.close()
            shadow.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own."""
    with Stage.opened(tmp_path) as opened:
        yield opened


@pytest.mark.process
async def test_a_shadow_batch_ends_under_users_that_reach_nothing_else(stage: Stage, users: RealServer) -> None:
    """Every role under its own user, workspace and all; beside it, nothing live is written. The rights suffice."""
    url = unix_url(Path(users.target.path or ""))

    def login(role: AclRole) -> str:
        return url.replace("unix://", f"unix://{user_name(role, Plane.SHADOW)}:{WORD}@")

    suite = stage.suite([case("a"), case("b", target="2"), case("c")])
    both = ("--plane", "shadow", "--batch", "b")
    run = stage.start(
        "run", suite, *both, "--url", login(AclRole.OPERATOR), "--workers", 0, "--scorers", 0, "--json", "out.json"
    )
    with users.client() as client:
        await eventually(lambda: _async(client.exists(SHADOW.batch_row)), "the batch to be declared")
        roles = [
            stage.start(role.value, *both, "--url", login(role), "--suite", suite)
            for role in (AclRole.PLANNER, AclRole.WORKER, AclRole.SCORER)
        ]
        assert (done := await run.end()).code == 0, done.err
        for one in roles:
            ended = await one.end()  # with the batch that it was started for
            assert ended.code == 0 and "NOPERM" not in ended.err, ended.err
        assert list(client.scan_iter("evb:{live.*")) == []
    told = json.loads((stage.root / "out.json").read_text())
    assert (told["plane"], told["bins"], told["holes"]) == ("shadow", {"pass": 2, "fail": 1}, {})
    reader = login(AclRole.READER)
    assert (await stage.call("status", "b", "--plane", "shadow", "--url", reader)).code == 0
    assert (await stage.call("gate", "b", "--plane", "shadow", "--url", reader)).code == 0
    assert (await stage.call("export", "b", "-", "--plane", "shadow", "--url", reader)).code == 0
    for words in (("status",), ("gate", "b"), ("replay", "b")):  # of the live plane, which is not theirs
        refused = await stage.call(*words, "--url", reader)
        assert refused.code == 4
        assert "this user has too few rights: NOPERM" in refused.complaint
        assert "(give it the rights with ACL SETUSER)" in refused.complaint and WORD not in refused.err


async def _async(value: object) -> object | None:
    return value or None
