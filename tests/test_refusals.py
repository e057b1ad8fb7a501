"""A refusal is an event: it is recorded whole, and changes nothing.

Redis does not roll a script back. So a script that writes and then refuses has written; and an argument that it did not
check may stop it in the middle. Here the server's data are compared before and after every refusal that the contract
names, and after everything malformed that could be thought of.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping

import msgpack
import pytest

from bus.chain import EMPTY_HEAD
from bus.connection import Endpoint
from bus.contract import CONTRACT, Arg, Kind, OpContract
from bus.envelopes import MAX_ENVELOPE
from bus.history import read_history
from bus.keys import BatchKeys
from bus.link import Link
from bus.models.model import fits
from bus.port import BatchSpec, Group, NextRuns, Ref
from bus.recorded import Recorded
from bus.redis_bus import RedisBus
from bus.scripts import Script, all_scripts
from bus.target import Target
from bus.types import BatchId, ConsumerId, Digest, LeaseId, Plane, RunId, Verb
from tests.both import Both, both, data_of, outcome_of, shortest_sessions
from tests.calls import Call
from tests.driver import ABSENT, BAD
from tests.fences import FENCES
from tests.presented import evalsha
from tests.script_files import kinds_of
from workers.runtime import SystemRuntime

# --- every refusal that the contract names ----------------------------------------------------------------------

REFUSALS = [
    pytest.param(fence.name, f"{op.name} {outcome}", id=f"{fence.name} {op.name} {outcome}".replace(" ", "-"))
    for fence in CONTRACT.values()
    for op in fence.ops.values()
    for outcome in op.outcomes
    if outcome.verb not in (Verb.COMMIT, Verb.DUPLICATE)
]


@pytest.mark.parametrize(("fence", "outcome"), REFUSALS)
async def test_a_refusal_is_recorded_whole_and_changes_nothing_else(server: Target, fence: str, outcome: str) -> None:
    """The shortest way into each refusal: before its last step and after it the server holds the same data."""
    session = shortest_sessions(fence)[outcome]
    *way, last = session.calls
    async with both(server, fence, session.config) as pair:
        for call in way:
            await pair.send(call)
        answer = await _refused(pair, last, FENCES[fence].RECORDED_BY.get(outcome, frozenset()))
        assert outcome == outcome_of(last, answer)


async def _refused(pair: Both, call: Call, changed: frozenset[bytes] = frozenset()) -> Mapping[str, object]:
    """Send a call that is refused, and look at all that is there before and after. Returns the answer."""
    keys, link = pair.server.keys, pair.link
    before, counts = await data_of(link), await pair.counts()
    known = [entry.id async for entry in read_history(link, keys)]

    answer = await pair.send(call)
    assert answer is not None
    verb, reason = answer["verb"], answer["reason"]

    after = await data_of(link)
    before_dead, after_dead = before.pop(keys.dead, None), after.pop(keys.dead, None)
    buried = (pair.fence, call.op, verb) == ("transcript", "append", "reject") and reason != "schema"
    assert (before_dead != after_dead) is buried
    assert _without(after, changed) == _without(before, changed)

    refused = int(verb in ("reject", "replay"))
    assert (await pair.counts()).get(f"refused:{reason}", 0) == counts.get(f"refused:{reason}", 0) + refused

    [entry] = [entry async for entry in read_history(link, keys) if entry.id not in known]
    assert entry.command == f"{pair.fence}.{call.op}"
    assert [(f"{part.fence}.{part.op}", part.verb, part.reason) for part in entry.parts] == [
        (entry.command, verb, reason)
    ]
    for name, value in call.args.items():
        assert _presented(entry, name) == _as_it_travels(value), name
    return answer


def _without(data: Mapping[str, object], fields: frozenset[bytes]) -> dict[str, object]:
    left = {
        key: {name: text for name, text in value.items() if name not in fields} if isinstance(value, dict) else value
        for key, value in data.items()
    }
    return {key: value for key, value in left.items() if value != {}}  # a hash without fields does not exist


def _presented(entry: Recorded, name: str) -> object:
    """What the history shows of an argument. A payload stands beside the envelope, unless it was no text."""
    if name == "payload" and entry.presented.get(2):
        return entry.presented[2].decode()
    if name == "schema":  # an envelope's own `schema` is its version
        return entry.envelope.get("verdict_schema")
    return entry.envelope.get(name)


def _as_it_travels(value: object) -> object:
    """Text, whole numbers and booleans travel as they are; all else as the one element of a list: its JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    if isinstance(value, str) and value.isprintable():
        return value
    return AnyList()


class AnyList:
    """Equal to any list of one text."""

    def __eq__(self, other: object) -> bool:
        """See the class."""
        return isinstance(other, list) and len(other) == 1 and isinstance(other[0], str)

    __hash__ = None  # type: ignore[assignment]


# --- malformed arguments, one at a time -------------------------------------------------------------------------

OPS = [
    pytest.param(fence.name, op, id=f"{fence.name}-{op.name}")
    for fence in CONTRACT.values()
    for op in fence.ops.values()
]

WORSE: tuple[object, ...] = (
    2**64 - 1,
    2**64,
    -(2**63),
    1e300,
    math.nan,
    math.inf,
    [[["x"]]],
    {"a": {"b": []}},
    "\udfff",
)


@pytest.mark.parametrize(("fence", "op"), OPS)
async def test_a_call_that_would_be_granted_is_refused_for_one_malformed_argument(
    server: Target, fence: str, op: OpContract
) -> None:
    """Each argument in turn is missing, of another type, out of range, or no text: nothing is converted."""
    session = shortest_sessions(fence)[f"{op.name} commit"]
    *way, last = session.calls
    async with both(server, fence, session.config) as pair:
        for call in way:
            await pair.send(call)
        for arg in op.args:
            for value in (*BAD, *WORSE):
                if _acceptable(arg, value):
                    continue
                answer = await _refused(pair, _with(last, arg.name, value))
                assert (answer["verb"], answer["reason"]) == ("reject", arg.otherwise), (arg, value)
        granted = await pair.send(last)
        assert granted is not None
        assert granted["verb"] == "commit"


def _acceptable(arg: Arg, value: object) -> bool:
    if value is ABSENT or value is None:
        return arg.optional or arg.kind is Kind.DRAWN
    return fits("|".join(arg.choices) or arg.kind.value, value)


def _with(call: Call, name: str, value: object) -> Call:
    others = {key: item for key, item in call.args.items() if key != name}
    return Call(call.op, others if value is ABSENT else {**others, name: value})


# --- bytes that are no envelope, to every script ----------------------------------------------------------------

BATCH = BatchId("b")
RUN = RunId("c#1")
BUS_SPEC = BatchSpec(BATCH, "s", Digest("d"), "", 2, 1, ("pass", "fail"), 2, 2, 5, 1000)

NO_ENVELOPES: Mapping[str, bytes] = {
    "nothing": b"",
    "not msgpack": b"\xc1",
    "text": msgpack.packb("text"),
    "a number": msgpack.packb(7),
    "nil": msgpack.packb(None),
    "a list": msgpack.packb([1, 2, 3]),
    "an empty map": msgpack.packb({}),
    "cut off": msgpack.packb({"schema": 1, "run": "c#1"})[:-3],
    "numbers for names": msgpack.packb({1: 2}),
    "nested deeply": b"\x91" * 10_000 + b"\xc0",
    "a length that is not there": b"\xdf\xff\xff\xff\xff",
}

WRONG: Mapping[str, tuple[object, ...]] = {
    "str": (7, -1.5, True, "", [], {}, ["text"], b"\xff\x00", {"a": "b"}),
    "int": (-1, 1.5, 2**53, 2**63, 2**64 - 1, 1e300, math.nan, math.inf, -math.inf, "1", "", True, [], [1]),
    "int1": (0, -1, 1.5, 2**53, 2**64 - 1, math.nan, math.inf, "1", "", True, [], [1]),
    "bool": (0, 1, "true", "", [], 1.0),
}
"""For each kind of argument, what is not one of it. Bytes are packed as msgpack's `bin`, which no script reads."""

GOOD: Mapping[str, object] = {"str": "text", "int": 0, "int1": 1, "bool": True}


@pytest.fixture
async def link(server: Target) -> AsyncIterator[Link]:
    """A link to a server on which batch `b` has a run that is held, with one event."""
    bus, link = RedisBus(Endpoint(server), SystemRuntime()), Link(Endpoint(server), SystemRuntime())
    await bus.create(BUS_SPEC)
    await bus.admit(BATCH, NextRuns(0, [RUN], [], ConsumerId("p"), "candidate", "judge"))
    [entry] = await bus.read(Group.WORKER, ConsumerId("w"), [BATCH], 1, 1)
    claimed = await bus.claim(entry, LeaseId("lease"), ConsumerId("w"))
    await bus.append(Ref(BATCH, RUN, LeaseId("lease"), claimed.answer["gen"]), EMPTY_HEAD, 1, ["event"])
    yield link
    link.close()
    await bus.aclose()


UNRECORDED = ("run.remove", "run.retire")
"""They remove a batch and record nothing in it; what they refuse is tried in `tests/test_scripts.py`."""

COMMANDS = pytest.mark.parametrize(
    "target",
    [one for one in all_scripts() if one.recorded and one.name not in UNRECORDED],
    ids=lambda target: target.name,
)


@COMMANDS
async def test_a_script_refuses_what_is_no_envelope_before_it_writes(link: Link, target: Script) -> None:
    """Whatever the bytes are, they are refused as `schema`, kept as they came, and nothing else is touched."""
    await _all_refused(link, target, NO_ENVELOPES)


@COMMANDS
async def test_a_script_refuses_an_envelope_with_one_field_wrong_before_it_writes(link: Link, target: Script) -> None:
    """One field missing, of another type, or out of range; another schema number; too many bytes."""
    await _all_refused(link, target, dict(_spoilt_envelopes(target)))


async def _all_refused(link: Link, target: Script, envelopes: Mapping[str, bytes]) -> None:
    before = await data_of(link)
    wire = await link.wire()
    history = BatchKeys(Plane.LIVE, BATCH).history
    await wire.call("SCRIPT", "LOAD", target.text)
    for what, packed in envelopes.items():
        reply = await wire.call(*evalsha(target, _keys(target), _argv(target, packed)))
        reply = reply[0] if target.own_keys else reply
        assert reply[:2] == [b"reject", b"schema"], what
        [[_, flat]] = await wire.call("XREVRANGE", history, "+", "-", "COUNT", 1)
        recorded = dict(zip(flat[::2], flat[1::2], strict=True))
        assert (recorded[b"o"].decode(), recorded[b"e"]) == (target.name, packed), what
    assert await data_of(link) == before


def _keys(target: Script) -> list[str]:
    keys = BatchKeys(Plane.LIVE, BATCH)
    named = {
        "run": keys.run(RUN),
        "rows…": keys.run(RUN),
        "batch": keys.batch_row,
        "desk": keys.desk(),
        "desk_model": keys.desk("model"),
        "desk_judge": keys.desk("judge"),
        "desk_any": keys.desk("any"),
        "source": BatchKeys(Plane.LIVE, BatchId("source")).batch_row,
        "registry": keys.registry,
        "leases": keys.leases,
        "requests": keys.requests,
        "planes": keys.planes,
        "undo_live": keys.undo(Plane.LIVE),
        "undo_shadow": keys.undo(Plane.SHADOW),
        "slots": keys.slots,
        "index": keys.index,
        "review": keys.review,
        "history": keys.history,
        "dead": keys.dead,
        "transcript": keys.transcript(RUN),
        "stream": keys.stream("runs"),
        **{name: keys.stream(name) for name in ("runs", "tools", "scores", "results")},
    }
    return [named[name] for name in target.keys]


def _argv(target: Script, packed: bytes) -> list[bytes]:
    assert target.argv[0] == "envelope"
    return [packed, *(b"text" for _ in target.argv[1:])]


def _spoilt_envelopes(target: Script) -> Iterator[tuple[str, bytes]]:
    kinds = kinds_of(target)
    good = {"schema": 1, **{name: GOOD[kind.rstrip("?")] for name, kind in kinds.items()}}
    for schema in (0, 2, "1", True, 1.5, 2**64 - 1, [1]):
        yield f"schema {schema!r}", _packed({**good, "schema": schema})
    yield "no schema", _packed({name: value for name, value in good.items() if name != "schema"})
    yield "more after it", _packed(good) + _packed(good)
    yield "too many bytes", _packed({**good, "more": "x" * MAX_ENVELOPE})
    for name, kind in kinds.items():
        if not kind.endswith("?"):
            yield f"no {name}", _packed({key: value for key, value in good.items() if key != name})
            yield f"{name} nil", _packed({**good, name: None})
        for value in WRONG[kind.rstrip("?")]:
            yield f"{name} {value!r}", _packed({**good, name: value})


def _packed(fields: Mapping[str, object]) -> bytes:
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed
