"""What Lua and Redis cannot do, and what they do without saying so: none of it reaches an answer, a row or the history.

Numbers are exact below 2^53 only. msgpack in Lua turns what is nested deeply into nil, and forgets an empty list; a
reply cuts floats and ends at the first nil. A script is not rolled back when it is stopped, so it must not be stopped
in the middle: not by a full memory, not by an operator, not by a right that is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

import pytest

from bus.chain import EMPTY_HEAD
from bus.connection import Endpoint
from bus.contract import CONTRACT, Kind
from bus.endpoint_limits import EndpointLimits, EndpointRates
from bus.errors import ReplyError
from bus.history import read_history
from bus.keys import endpoint
from bus.link import Link
from bus.models import build
from bus.models.ledger import Ledger
from bus.port import Group, Held
from bus.redis_bus import RedisBus
from bus.rights import ARCHIVING, COMMANDS, PRUNING
from bus.scripts import all_scripts
from bus.server_player import ServerPlayer
from bus.target import Target
from bus.types import MAX_INT, Plane
from bus.wire import Wire
from tests.batches import W1, Batch
from tests.both import Both, both, shortest_sessions
from tests.driver import Call, play_call, random_config, random_op
from tests.model_calls import check_calls
from tests.servers import Kind as Server
from tests.servers import Missing, RealServer, binary, free_port, running, wait_for
from tests.waiting import soon
from tests.walks import SPEC, grants, steps
from workers.runtime import SystemRuntime

FENCES = sorted(CONTRACT)
WORD = "open sesame"
WHOLE = (Kind.INT, Kind.INT1)


def with_arg(call: Call, name: str, value: object) -> Call:
    """The call with one argument replaced."""
    return Call(call.op, {**call.args, name: value})


# --- big numbers ------------------------------------------------------------------------------------------------


async def test_the_largest_whole_number_arrives_exactly_and_one_more_is_refused(any_server: Target) -> None:
    """2^53 - 1 in each argument in turn: decided as the model decides it, and in the history to the last digit."""
    for fence in FENCES:
        for session in grants(fence):
            *way, last = session.calls
            for arg in (arg for arg in CONTRACT[fence].ops[last.op].args if arg.kind in WHOLE):
                async with both(any_server, fence, session.config) as pair:
                    for call in way:
                        await pair.send(call)
                    await pair.send(with_arg(last, arg.name, 2**53))
                    too_large = await _last_line(pair)
                    assert (too_large["verb"], too_large["reason"]) == ("reject", arg.otherwise)
                    await pair.send(with_arg(last, arg.name, MAX_INT))
                    largest = await _last_line(pair)
                    assert largest["reason"] != "schema"
                    assert largest["envelope"][arg.name] == MAX_INT  # type: ignore[index]
                    await pair.compare()


async def _last_line(pair: Both) -> Mapping[str, object]:
    *_, entry = [entry async for entry in read_history(pair.link, pair.server.keys)]
    [part] = entry.parts
    return {"verb": part.verb, "reason": part.reason, "envelope": entry.envelope}


@pytest.mark.parametrize("fence", FENCES)
async def test_rows_that_hold_large_numbers_count_on_exactly(server: Target, fence: str) -> None:
    """Random operations whose numbers are near the limit, and limits that are there themselves."""
    for seed in range(5):
        rng = random.Random(seed)
        config = {
            name: MAX_INT if isinstance(value, int) and rng.random() < 0.5 else value
            for name, value in random_config(rng, fence).items()
        }
        async with both(server, fence, config) as pair:
            for _ in range(25):
                call = random_op(rng, pair.model, pair.sent)
                for arg in CONTRACT[fence].ops[call.op].args if call.op in CONTRACT[fence].ops else ():
                    if arg.kind in WHOLE and rng.random() < 0.25:
                        call = with_arg(call, arg.name, rng.choice([MAX_INT, MAX_INT - 1, 2**52 + 1]))
                await pair.send(call)
                await pair.compare()


async def test_spend_is_refused_before_its_sum_is_inexact(any_server: Target) -> None:
    """Two legal numbers make an odd one above 2^53, which Lua would round: no bill may be off by one."""
    attempt = {"step": "s", "attempt": 1}
    chunk = {**attempt, "durable": True}
    async with both(any_server, "ledger", {"budget": MAX_INT}) as pair:
        await pair.send(Call("admit", {**attempt, "estimate": MAX_INT}))
        await pair.send(Call("chunk", {**chunk, "seq": 1, "tokens": MAX_INT - 1}))
        for tokens, answer in {2: "schema", MAX_INT: "schema", 1: None}.items():
            sent = await pair.send(Call("chunk", {**chunk, "seq": 2, "tokens": tokens}))
            assert sent is not None
            assert sent["reason"] == answer
        await pair.send(Call("cut", attempt))
        late = await pair.send(Call("chunk", {**chunk, "seq": 3, "tokens": 1}))
        await pair.send(Call("reconcile", {**attempt, "gateway_billed": MAX_INT}))
        await pair.compare()
        assert late is not None
        assert late["reason"] == "schema"
        assert isinstance(pair.model, Ledger)
        assert pair.model.spent == MAX_INT


# --- floats, nil, deep and empty things -------------------------------------------------------------------------


def nested(depth: int, inner: object) -> object:
    """`inner`, so deep in lists and maps in turn."""
    for level in range(depth):
        inner = [inner] if level % 2 else {"in": inner}
    return inner


NO_ARGUMENTS: tuple[object, ...] = (
    *(nested(depth, "x") for depth in (1, 16, 17, 40)),
    *(2**53, 2**64 - 1, -(2**63), 0.5, float("nan")),
    *([], {}, [None], {"in": None}),
)
"""What msgpack carries, and Lua would take for something else."""

BESIDE: Mapping[str, object] = {
    "deep": nested(40, {}),
    "huge": [2**64 - 1, -(2**63)],
    "float": [1.0, 0.1, 1e300],
    "empty": [[], {}, ""],
    "nothing": [None, {"in": None}],
}
"""Fields that no script knows."""


async def test_what_lua_cannot_hold_is_no_argument(any_server: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent as it is, without the wrapping that the client does: refused, and in the history byte by byte."""
    monkeypatch.setattr("bus.envelopes._flat", lambda value: value)
    for fence in FENCES:
        for session in grants(fence):
            *way, last = session.calls
            async with both(any_server, fence, session.config) as pair:
                for call in way:
                    await pair.send(call)
                for arg in CONTRACT[fence].ops[last.op].args:
                    if arg.kind in (Kind.OBJ, Kind.STRS) or arg.name == "schema":
                        continue  # these travel as JSON text; and an envelope has a `schema` of its own
                    for value in NO_ARGUMENTS:
                        answer = await pair.server.apply(last.op, {**last.args, arg.name: value})
                        assert (answer["verb"], answer["reason"]) == ("reject", arg.otherwise), (arg, value)
                    *_, entry = [entry async for entry in read_history(pair.link, pair.server.keys)]
                    assert repr(entry.envelope[arg.name]) == repr(NO_ARGUMENTS[-1])


async def test_unknown_fields_change_nothing_and_are_recorded(
    any_server: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later release may send more than this one knows. What Lua cannot read it does not have to write."""
    monkeypatch.setattr("bus.envelopes._flat", lambda value: value)
    for fence in FENCES:
        for session in grants(fence):
            *way, last = session.calls
            async with both(any_server, fence, session.config) as pair:
                for call in way:
                    await pair.send(call)
                decided = pair.model.decide(last.op, last.args)
                drawn = {
                    arg.name: decided.fields[arg.name]
                    for arg in CONTRACT[fence].ops[last.op].args
                    if arg.kind is Kind.DRAWN and last.args.get(arg.name) is None
                }
                answer = await pair.server.apply(last.op, {**BESIDE, **last.args, **drawn})
                assert answer == decided.as_dict()
                await pair.compare()
                *_, entry = [entry async for entry in read_history(pair.link, pair.server.keys)]
                assert {name: entry.envelope[name] for name in BESIDE} == BESIDE


async def test_json_is_carried_as_it_is_however_deep_large_or_empty(any_server: Target) -> None:
    """A tool's arguments are the model's own, and an executor gets them to the last digit. Lua only looks at them."""
    args = {**BESIDE, "beyond": 2**64, "deeper": nested(200, 1.5), "text": "é \U0001f600 \x00"}
    async with both(any_server, "outbox", {"ack_bound_ms": 1, "inverses": {}}) as pair:
        await pair.send(Call("put", {"intent_id": "i", "gen": 0, "tool": "t", "args": args}))
        claimed = await pair.send(Call("claim", {"intent_id": "i", "gen": 0, "executor": "e"}))
        await pair.compare()
    assert claimed is not None
    assert (claimed["verb"], claimed["args"]) == ("commit", args)


# --- replies ----------------------------------------------------------------------------------------------------


def test_no_answer_holds_what_a_reply_would_change() -> None:
    """A float is cut, false ends the reply, and so does nil: answers are text, whole numbers, and lists of text."""
    for fence in FENCES:
        for session in shortest_sessions(fence).values():
            model = build(fence, session.config)
            for call in session.calls:
                answer = play_call(model, call)
                if answer is None or "args" in answer.fields:  # an object, which travels as JSON text
                    continue
                for value in answer.fields.values():
                    words = value if isinstance(value, list) else [value]
                    assert all(isinstance(word, str) or type(word) is int for word in words), (fence, call, value)


async def test_empty_texts_and_lists_in_an_answer_do_not_cut_it_short(any_server: Target) -> None:
    """What stands behind them in the reply is still there."""
    async with both(any_server, "sandbox", {"heartbeat_ms": 100}) as pair:
        acquired = await pair.send(Call("acquire", {"workspace": "w", "known_index": 0}))
        assert acquired is not None
        assert (acquired["kept"], acquired["epoch"]) == ([], 1)
    batch = await Batch.open(any_server.address(), runs=1, limits={"heartbeat_ms": 60_000})
    await batch.admit()
    held = await batch.claimed()
    assert held.decision.answer == {
        **{"gen": 1, "attempts": 1, "conversation": 0, "turning": False, "head": EMPTY_HEAD, "length": 0},
        **{"unresolved": [], "windows": [], "epoch": 1, "wrote": False},
    }
    assert await batch.bus._beat(Group.WORKER, W1, batch.name, [], [held.entry.id]) == {}
    await batch.seal(held)
    scoring = await batch.scoring()
    assert (scoring.decision.answer["tree_hash"], scoring.decision.answer["artifact"]) == ("", "")
    assert {"head", "epoch", "candidate", "judge", "judge_epoch"} <= scoring.decision.answer.keys()
    await batch.check()
    await batch.aclose()


# --- keys -------------------------------------------------------------------------------------------------------


async def walk(server: Target, looks: Target | None = None) -> None:
    """Every script once. `looks`: as whom the tests themselves look and meddle, when the server limits its user."""
    runtime = SystemRuntime()
    batch = await Batch.open((looks or server).address(), through=server.address(), **SPEC)  # type: ignore[arg-type]
    async for step in steps(batch):
        await step.send()
    await batch.aclose()
    link = Link(Endpoint(looks or server), runtime)
    for fence in FENCES:
        player = ServerPlayer(Endpoint(server), runtime)
        for session in grants(fence):
            await player.begin(fence, session.config)
            pair = Both(fence, build(fence, session.config), player, link)
            for call in session.calls:
                await pair.send(call)
            await pair.compare()
        await player.aclose()
    link.close()
    counting = Link(Endpoint(server), runtime)
    limits = EndpointLimits(counting, endpoint(Plane.LIVE, "e"), EndpointRates(60, 60))
    assert await limits.take(1) == 0
    assert await limits.retry()
    await limits.backoff(1)
    counting.close()


@pytest.fixture(scope="module", params=list(Server))
def cluster(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A cluster of one node. It refuses a script that touches two slots, or a key of another slot than declared."""
    program = binary(request.param)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    with running(request.param, settings, tcp=True) as server, server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster")
        yield server.target


async def test_all_keys_of_a_script_are_in_one_slot(cluster: Target) -> None:
    """So that a batch can be on any shard of a cluster. Each script is called, and goes through."""
    wire = await Wire.open(cluster.address())
    for body, keys in {"return redis.call('GET', 'b')": ["a"], "return redis.call('GET', KEYS[2])": ["a", "b"]}.items():
        sha = await wire.call("SCRIPT", "LOAD", f"#!lua\n{body}")
        with pytest.raises(ReplyError, match=r"slot|non local"):  # else the walk below would prove nothing
            await wire.call("EVALSHA", sha, len(keys), *keys)
    await walk(cluster)
    wire.close()


async def test_a_script_touches_the_keys_that_it_was_given_and_no_others(
    any_server: Target, any_real_server: RealServer
) -> None:
    """The server does not look; a cluster does only at the slot. What each script called is compared with its keys."""
    called: set[str] = set()
    names = {one.sha: one.name for one in all_scripts()}
    with any_real_server.client(encoding_errors="replace") as client, client.monitor() as monitor:
        await walk(any_server)
        with any_real_server.client() as other:
            other.echo("the end")
        keys: set[str] = set()
        for line in iter(monitor.connection.read_response, b"OK"):
            text = line.decode("utf-8", "replace")
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
            if words == ["ECHO", "the end"]:
                break
            if words[0].upper() == "EVALSHA":
                called.add(names[words[1]])
                keys = set(words[3 : 3 + int(words[2])])
            elif " lua] " in text and words[0] != "TIME":
                assert (words[2] if words[0] in ("XGROUP", "XINFO") else words[1]) in keys, text
    assert called == set(names.values())


# --- rights -----------------------------------------------------------------------------------------------------


async def test_a_user_with_exactly_the_rights_that_are_asked_for_can_do_everything(
    any_server: Target, any_real_server: RealServer
) -> None:
    """`check_fit` lets in who has these. One that is missing would stop a script behind its first write."""
    named = [line.replace("KEY ", "").split() for line in (*COMMANDS, *PRUNING, *ARCHIVING)]
    rules = {f"+{words[0]}|{words[1]}" if words[0] in ("xgroup", "xinfo") else f"+{words[0]}" for words in named}
    rules |= {"+evalsha", "+script|load", "+script|exists", "+auth", "+client|setname", "+info"}
    with any_real_server.client() as client:
        client.execute_command("ACL", "SETUSER", "bob", "reset", "on", f">{WORD}", "~evb:*", "-@all", *sorted(rules))
        await walk(Target(path=any_server.path, username="bob", password=WORD), looks=any_server)
        client.execute_command("ACL", "DELUSER", "bob")


# --- memory -----------------------------------------------------------------------------------------------------

ROOMS = (-(10**9), 0, 200, 2_000)
"""Bytes above what is used: far too few, whatever is given back meanwhile; then none, and up to some writes' worth."""


async def whole_of(wire: Wire) -> dict[bytes, object]:
    """All data, the history too."""
    data: dict[bytes, object] = {}
    for key in await wire.call("KEYS", "*"):
        if await wire.call("TYPE", key) == b"hash":
            flat = await wire.call("HGETALL", key)
            data[key] = dict(zip(flat[::2], flat[1::2], strict=True))
        else:
            data[key] = await wire.call("DUMP", key)
    return data


async def squeezed(wire: Wire, send: Callable[[], Awaitable[object]]) -> int:
    """Send under a limit that is raised little by little, until it is applied. Returns how often it was refused."""
    before = await whole_of(wire)
    try:
        for refusals, room in enumerate(ROOMS):
            used = re.search(rb"used_memory:(\d+)", await wire.call("INFO", "memory"))
            assert used is not None
            await wire.call("CONFIG", "SET", "maxmemory", max(1, int(used[1]) + room))
            try:
                await send()
            except ReplyError as error:
                assert error.code == "OOM"
                assert await whole_of(wire) == before
            else:
                return refusals
    finally:
        await wire.call("CONFIG", "SET", "maxmemory", 0)
    await send()
    return len(ROOMS)


async def test_a_step_that_meets_a_full_memory_is_refused_whole_and_goes_on_when_there_is_room(
    any_server: Target,
) -> None:
    """A script that began below the limit and passes it goes on; one that begins above it does not begin."""
    batch = await Batch.open(any_server.address(), **SPEC)  # type: ignore[arg-type]
    await batch.bus.aclose()
    batch.bus = RedisBus(Endpoint(any_server), SystemRuntime(), patience=0.0)
    wire = await batch.bus.link.wire()
    for one in all_scripts("run"):  # what a text takes of the memory is not what is measured here
        await wire.call("SCRIPT", "LOAD", one.text)
        wire.loads[one.sha] = 1
    async for step in steps(batch):
        assert await squeezed(batch.wire, step.send) > 0, step.script
    await batch.wire.call("DEL", *await batch.wire.call("KEYS", f"*:b:{batch.name}-*"))  # those beside it
    await batch.check()
    await check_calls(batch)
    await batch.aclose()


@pytest.mark.parametrize("fence", FENCES)
async def test_an_operation_that_meets_a_full_memory_is_refused_whole(any_server: Target, fence: str) -> None:
    """And applied whole as soon as there is room: the model, which was asked once, agrees."""
    wire = await Wire.open(any_server.address())
    bus = RedisBus(Endpoint(any_server), SystemRuntime(), patience=0.0)
    for session in grants(fence):
        player = ServerPlayer(Endpoint(any_server), SystemRuntime(), bus=bus)
        await player.begin(fence, session.config)
        pair = Both(fence, build(fence, session.config), player, bus.link)
        *way, last = session.calls
        for call in way:
            await pair.send(call)
        decided = pair.model.decide(last.op, last.args)
        drawn = {name: decided.fields[name] for name in ("lease_id", "receipt") if name in decided.fields}
        assert await squeezed(wire, lambda: player.apply(last.op, {**drawn, **last.args})) > 0  # noqa: B023
        await pair.compare()
        await player.end()
    await bus.aclose()
    wire.close()


# --- scripts that are flushed, or killed ------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def flooded(server: Target, *command: str) -> AsyncIterator[None]:
    """Another connection sends a command over and over, while the block runs."""
    wire = await Wire.open(server.address())

    async def flood() -> None:
        while True:
            await wire.calls([command] * 5)

    task = asyncio.create_task(flood())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        wire.close()


@pytest.mark.parametrize("fence", FENCES)
async def test_scripts_flushed_before_and_during_every_call_change_no_decision(any_server: Target, fence: str) -> None:
    """NOSCRIPT means that nothing was done: the text is loaded, and the same call sent again."""
    rng = random.Random(fence)
    async with both(any_server, fence, random_config(rng, fence)) as pair:
        for _ in range(10):
            await pair.link.command("SCRIPT", "FLUSH")
            await pair.send(random_op(rng, pair.model, pair.sent))
        async with flooded(any_server, "SCRIPT", "FLUSH", "ASYNC"):
            for _ in range(10):
                await pair.send(random_op(rng, pair.model, pair.sent))
        await pair.compare()


@pytest.fixture(scope="module", params=list(Server))
def impatient(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A server that lets a script be killed as soon as it has run for a millisecond."""
    program = binary(request.param)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    with running(request.param, {"busy-reply-threshold": "1"}) as server:
        yield server.target


async def insist(send: Callable[[], Awaitable[object]]) -> int:
    """Send until it is not killed. Returns how often it was."""
    kills = 0
    while True:
        try:
            await send()
        except ReplyError as error:
            assert "killed" in str(error)
            kills += 1
        else:
            return kills


async def test_a_large_step_that_somebody_kills_happens_whole_or_not_at_all(impatient: Target) -> None:
    """A script may be killed until it has written. The largest that we have: a hundred runs, five hundred leases."""
    batch = await Batch.open(impatient.address(), runs=500, bound=1000)
    async with flooded(impatient, "SCRIPT", "KILL"):
        endless = await batch.wire.call("SCRIPT", "LOAD", "#!lua\nwhile true do end")
        with pytest.raises(ReplyError, match="killed"):  # else the flood would prove nothing
            await soon(batch.wire.call("EVALSHA", endless, 0))
        for admitted in range(100, 501, 100):
            await insist(lambda: batch.admit(100))
            assert await batch.batch_field("cursor") == await batch.batch_field("n:queued") == str(admitted)
    await batch.check()

    entries = await batch.bus.read(Group.WORKER, W1, [batch.name], 500, 1)
    claims = await asyncio.gather(*(batch.claimed(W1, entry) for entry in entries))
    held = Held(tuple(claim.ref for claim in claims), tuple(entries))
    runs = batch.keys.stream("runs")
    for _ in range(3):
        await batch.wire.call("XCLAIM", runs, "worker", W1, 0, *(e.id for e in entries), "IDLE", 10**9, "JUSTID")
        async with flooded(impatient, "SCRIPT", "KILL"):
            await insist(lambda: batch.bus.heartbeat(Group.WORKER, W1, held))
        assert await batch.wire.call("XPENDING", runs, "worker", "IDLE", 10**8, "-", "+", 1) == []
    await batch.check()
    await batch.aclose()
