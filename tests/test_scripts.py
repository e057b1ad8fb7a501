"""The scripts and what their headers say of them: includes, positions, keys, answers; and none that raises.

A header is not a comment: callers pass keys and arguments by the names that stand there. So it is compared with the
code below it, with `bus.keys`, with the fences' contract, and with what a server makes of the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files

import msgpack
import pytest

from bus.calling import call, read_decision
from bus.contract import CONTRACT
from bus.errors import ViolationError
from bus.keys import BatchKeys, endpoint
from bus.scripts import Script, all_scripts, expand, parse, script
from bus.target import Target
from bus.types import BatchId, Plane, RunId, Verb
from bus.wire import Wire
from tests.lua_globals import DUMP, globals_of
from tests.presented import evalsha
from tests.script_files import code_of, kinds_of, source_of

SCRIPTS = pytest.mark.parametrize("one", all_scripts(), ids=lambda one: one.name)

OWN_REASONS = {
    "after_close",
    "batch_mismatch",
    "duplicate_entry",
    "ended",
    "its_own_doing",
    "judge_failed",
    "lease_reused",
    "no_batch",
    "no_retries",
    "not_archived",
    "not_ended",
    "not_next",
    "not_owner",
    "not_pruned",
    "not_yet",
    "others_changed",
    "poison",
    "pruned",
    "schema",
    "stale_archivist",
    "stale_lease",
    "server_changed",
    "source_in_use",
    "source_open",
    "still_known",
    "taken",
    "turning",
}
"""What the pipeline refuses for itself; every other reason is a fence's."""

KNOWN_GLOBALS = {
    *("ARGV", "KEYS", "cjson", "cmsgpack", "math", "redis", "string", "table"),
    *("error", "ipairs", "pairs", "pcall", "rawget", "setmetatable", "tonumber", "tostring", "type", "unpack"),
}
"""What a script may use of what a server gives it."""


# --- includes ---------------------------------------------------------------------------------------------


def test_an_include_is_put_in_place_once_and_before_what_needs_it() -> None:
    """Two pieces need a third: it comes before the first of them, and not again before the second."""
    read = {
        "a.lua": '--#include "c.lua"\nA\n',
        "b.lua": '--#include "c.lua"\nB\n',
        "c.lua": "C\n",
    }
    text = expand('--#include "a.lua"\n--#include "b.lua"\nmain\n', read)
    assert text.split() == ["C", "A", "B", "main"]


def test_includes_that_need_each_other_are_refused_with_their_way() -> None:
    """Endless otherwise; the message shows the circle."""
    read = {"a.lua": '--#include "b.lua"\n', "b.lua": '--#include "a.lua"\n'}
    with pytest.raises(ValueError, match=r"include cycle: a\.lua → b\.lua → a\.lua"):
        expand('--#include "a.lua"\n', read)


def test_an_include_that_is_missing_is_refused() -> None:
    """From a given set of texts, and from the package alike."""
    with pytest.raises(ValueError, match=r"no such include: gone\.lua"):
        expand('--#include "gone.lua"\n', {})
    with pytest.raises(ValueError, match=r"no such include: include/gone\.lua"):
        expand('--#include "include/gone.lua"\n')


@pytest.mark.parametrize("line", ['--#include "Row.lua"', "--#include 'row.lua'", '  --#include "row.lua"'])
def test_a_line_that_only_looks_like_an_include_is_refused(line: str) -> None:
    """It would be a comment for Lua, and the script would fail where the piece is missing."""
    with pytest.raises(ValueError, match="not an include"):
        expand(f"{line}\n", {"row.lua": "R\n"})


@SCRIPTS
def test_a_script_holds_each_shared_piece_once(one: Script) -> None:
    """A piece that stood there twice would have two lists of rows, and would write one of them."""
    for only in ("local rows, opened = {}, {}", "local NOTHING = {}", *(["local call = {"] if one.recorded else [])):
        assert one.text.count(f"\n{only}") == 1
    for fence in CONTRACT:
        assert one.text.count(f"\nlocal {fence} = {{}}") <= 1


@SCRIPTS
def test_a_script_carries_no_function_that_it_does_not_use(one: Script) -> None:
    """Each costs an allocation at every call. What it does use is there: see the test for leaked globals."""
    for name in re.findall(r"^(?:local )?function ([a-z_.]+)\(", one.text, re.MULTILINE):
        assert len(re.findall(rf"(?<![\w.]){re.escape(name)}\b", one.text)) > 1, name


# --- headers ----------------------------------------------------------------------------------------------


def test_every_lua_file_is_a_script_or_is_included_by_one() -> None:
    """A file that nothing names is dead, or misspelt."""
    named = {
        f"{fence}/{'do_fence' if op == 'fence' else op}.lua"
        for fence, op in (one.name.split(".") for one in all_scripts())
    }
    shared = {"include/many.lua", "include/shorthand.lua"}  # put in by `bus.scripts`
    texts = [source_of(one) for one in all_scripts()]
    while texts:
        wanted = set(re.findall(r'#include "(.*)"', "\n".join(texts))) - shared
        shared |= wanted
        texts = [files("lua").joinpath(name).read_text("utf-8") for name in wanted]
    found = {
        f"{folder.name}/{entry.name}"
        for folder in files("lua").iterdir()
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(".lua")
    }
    assert found == named | shared


@SCRIPTS
def test_a_script_begins_with_its_shebang_and_fits_a_screen_or_two(one: Script) -> None:
    """`#!lua` makes a server refuse before the first write what it could not finish: no memory, keys of other slots."""
    assert one.text.startswith("#!lua\n")
    assert source_of(one).startswith(f"--[[ {one.name}: ")
    assert len(source_of(one).splitlines()) <= 120
    assert one.title


@SCRIPTS
def test_a_script_uses_the_keys_and_arguments_that_it_declares_and_no_others(one: Script) -> None:
    """An index beyond the header reads nil; a declared key that nothing uses only widens what a call may touch."""
    code = code_of(one)
    assert _used("KEYS", code) == set(range(1, len(one.keys) + 1))
    # The envelope is read by `begin`; what follows the fixed arguments is counted, so its positions are computed.
    fixed = [name for name in one.argv if not name.endswith("…")]
    assert (one.argv[0] == "envelope") is one.recorded
    assert _used("ARGV", code) | {1} >= set(range(1, len(fixed) + 1))
    if len(fixed) == len(one.argv):
        assert _used("ARGV", code) <= set(range(1, len(fixed) + 1))
        assert "#ARGV" not in code
    else:
        assert "#ARGV ~= 1 + " in code


def _used(table: str, code: str) -> set[int]:
    """Constant indices, and the first position of `T[n + i]`, where i counts from 1."""
    used = {int(index) for index in re.findall(table + r"\[(\d+)\]", code)}
    return used | {int(before) + 1 for before in re.findall(table + r"\[(\d+) \+ [a-z]+\]", code)}


@SCRIPTS
def test_only_the_last_key_and_the_last_argument_may_be_many(one: Script) -> None:
    """Behind a list of unknown length no position is known."""
    for names in (one.keys, one.argv):
        assert not any(name.endswith("…") for name in names[:-1])
        assert len(set(names)) == len(names)


@SCRIPTS
def test_the_keys_in_a_header_are_those_that_the_bus_builds(one: Script) -> None:
    """The templates are what a reader trusts; `bus.keys` is what the server gets."""
    keys = BatchKeys(Plane.LIVE, BatchId("<batch>"))
    built = {
        "run": (keys.run(RunId("<run>")), "HASH"),
        "rows": (keys.run(RunId("<run>")), "HASH"),
        "batch": (keys.batch_row, "HASH"),
        "source": (keys.batch_row, "HASH"),
        "others": (BatchKeys(Plane.LIVE, BatchId("<other>")).batch_row, "HASH"),
        "doomed": (keys.stream("<any>"), "ANY"),
        "leases": (keys.leases, "HASH"),
        "requests": (keys.requests, "HASH"),
        "registry": (keys.registry, "HASH"),
        "endpoint": (endpoint(Plane.LIVE, "<endpoint>"), "HASH"),
        "desk": (keys.desk("runs" if one.name.startswith("run.") else "<name>"), "HASH"),
        "desk_model": (keys.desk("model"), "HASH"),
        "desk_judge": (keys.desk("judge"), "HASH"),
        "desk_any": (keys.desk("<desk>"), "HASH"),
        "transcript": (keys.transcript(RunId("<run>~<conversation>" if "run." in one.name else "<run>")), "LIST"),
        "planes": (keys.planes, "HASH"),
        "undo_live": (keys.undo(Plane.LIVE), "STREAM"),
        "undo_shadow": (keys.undo(Plane.SHADOW), "STREAM"),
        "slots": (keys.slots, "HASH"),
        "index": (keys.index, "LIST"),
        "review": (keys.review, "SET"),
        "history": (keys.history, "STREAM"),
        "dead": (keys.dead, "STREAM"),
        "stream": (keys.stream("<stream>"), "STREAM"),
        **{name: (keys.stream(name), "STREAM") for name in ("runs", "tools", "scores", "results")},
    }
    header = source_of(one).partition("]]")[0]
    lines = re.findall(r"\s(?:\d+…?)\s+([a-z_]+)\s+(evb:\S+)\s+([A-Z]+)\n", header)
    assert [name for name, _, _ in lines] == [name.removesuffix("…") for name in one.keys]
    for name, template, kind in lines:
        assert (template, kind) == built[name]


@SCRIPTS
def test_a_script_can_only_give_answers_that_its_header_names(one: Script) -> None:
    """Every reason that is written out in the script's own file."""
    for verb, reason in re.findall(r"\b(reject|in_doubt|replay)\('([a-z_]+)'", code_of(one)):
        assert f"{verb} {reason}" in one.returns
    for verb in re.findall(r"\b(commit|duplicate)\(", code_of(one)):
        assert verb in one.returns
    assert "reject schema" in one.returns


@SCRIPTS
def test_a_header_promises_no_answer_that_cannot_come(one: Script) -> None:
    """An answer is the script's own, or that of a fence operation that it composes."""
    possible = {"reject schema", "commit", "duplicate"}
    written = re.findall(r"\b(reject|in_doubt|replay)\('([a-z_]+)'", one.text)
    possible |= {f"{verb} {reason}" for verb, reason in written}
    composed = set(re.findall(rf"\b((?:{'|'.join(CONTRACT)})\.[a-z_]+)\(", one.text)) | {one.name}
    for name in composed:
        fence, _, op = name.partition(".")
        if fence in CONTRACT and op in CONTRACT[fence].ops:
            possible |= {str(outcome) for outcome in CONTRACT[fence].ops[op].outcomes}
    assert one.returns <= possible


@SCRIPTS
def test_every_reason_is_a_fences_or_one_of_the_pipelines_own(one: Script) -> None:
    """The words of the refusal counts are a closed set."""
    contract = {
        outcome.reason
        for fence in CONTRACT.values()
        for op in fence.ops.values()
        for outcome in op.outcomes
        if outcome.reason
    }
    for answer in one.returns:
        verb, _, reason = answer.partition(" ")
        assert verb in set(Verb)
        assert bool(reason) == (verb not in ("commit", "duplicate", "compensate"))
        assert reason in contract | OWN_REASONS | {""}


@pytest.mark.parametrize("fence", CONTRACT)
def test_a_fences_scripts_answer_what_its_contract_lists(fence: str) -> None:
    """Each operation has a script, and each script the outcomes of its operation, `schema` among them."""
    for name, op in CONTRACT[fence].ops.items():
        assert script(f"{fence}.{name}").returns == {str(outcome) for outcome in op.outcomes} | {"reject schema"}


HEADER = """--[[ run.test: a title.
WHY      a reason.
KEYS     1 run   evb:{live.0}:b:<batch>:run:<run>  HASH
ARGV     1 envelope  msgpack   2… items
RETURNS  commit <a> | duplicate <the same> | reject schema ended
         | in_doubt turning
]]
"""


def test_a_header_gives_names_positions_and_answers() -> None:
    """What is in angle brackets is the answer's content, not its name."""
    one = parse("run.test", HEADER, HEADER)
    assert one.title == "a title."
    assert one.keys == ("run",)
    assert one.argv == ("envelope", "items…")
    assert one.returns == {"commit", "duplicate", "reject schema", "reject ended", "in_doubt turning"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("run.test:", "run.other:", "the header must begin with"),
        ("--[[ ", "-- ", "the header must begin with"),
        ("KEYS     1 run", "KEYS     2 run", "position 2 of 'run' should be 1"),
        ("2… items", "3… items", "position 3… of 'items' should be 2"),
        ("RETURNS", "ANSWERS", "the header names no answer"),
    ],
)
def test_a_wrong_header_is_refused(old: str, new: str, problem: str) -> None:
    """Callers go by it, so it is read strictly."""
    wrong = HEADER.replace(old, new)
    with pytest.raises(ValueError, match=problem):
        parse("run.test", wrong, wrong)


def test_a_script_that_does_not_exist_is_refused() -> None:
    """By name, as a caller writes it."""
    with pytest.raises(ValueError, match=r"no script run\.nothing"):
        script("run.nothing")


def test_an_answer_that_the_header_does_not_name_is_a_violation() -> None:
    """A script and its header have drifted apart: nobody would know what to do with the answer."""
    one = parse("run.test", HEADER, HEADER)
    assert read_decision(one, ["reject", "ended", "run.test"]).reason == "ended"
    with pytest.raises(ViolationError, match="'reject poison'"):
        read_decision(one, ["reject", "poison", "run.test"])
    with pytest.raises(ViolationError, match="'replay'"):
        read_decision(one, ["replay", "", "run.test"])


# --- on a server ------------------------------------------------------------------------------------------


@pytest.fixture
async def wire(server: Target) -> Iterator[Wire]:  # type: ignore[misc]
    """A connection to the session's server."""
    one = await Wire.open(server.address())
    yield one
    one.close()


async def test_a_call_names_all_its_keys_and_arguments_and_no_others(wire: Wire) -> None:
    """A forgotten key would shift the others by one place."""
    target = script("transcript.resume")
    keys: dict[str, object] = {"run": "r", "batch": "b", "history": "h"}
    envelope: dict[str, object] = {"envelope": b""}
    for wrong in ({"run": "r", "batch": "b"}, keys | {"desk": "d"}, {"run": "r", "batch": "b", "dead": "d"}):
        with pytest.raises(ValueError, match=r"transcript\.resume takes run, batch, history, not"):
            await call(wire, target, wrong, envelope)
    with pytest.raises(ValueError, match="one value"):
        await call(wire, target, keys | {"run": ["r"]}, envelope)
    with pytest.raises(ValueError, match="a list"):
        lists = {"batch": "b", "desk_any": "d", "history": "h", "rows": "r"}
        await call(wire, script("run.sweep"), lists, envelope | {"items": []})


async def test_text_that_is_no_unicode_is_sent_as_it_is(wire: Wire) -> None:
    """A solver's answer may hold half a surrogate pair; its event is refused or written, but never a traceback."""
    target = script("transcript.append")
    keys: dict[str, object] = {name: f"evb:{{t.0}}:{name}" for name in target.keys}
    envelope = msgpack.packb({"schema": 1, "run": "r", "lease_id": "l", "gen": 1, "parent": "p", "seq": 1, "head": "h"})
    decision = await call(wire, target, keys, {"envelope": envelope, "payload": "half a pair: \ud83d"})
    assert not isinstance(decision, list)
    assert decision.reason == "stale_gen"
    (_, letter), *_ = await wire.call("XRANGE", keys["dead"], "-", "+")  # type: ignore[arg-type]
    assert "half a pair: \ud83d".encode("utf-8", "surrogatepass") in letter


@SCRIPTS
async def test_a_script_leaks_no_globals(wire: Wire, one: Script) -> None:
    """A forgotten `local` raises, but only on the branch that meets it; the compiler has met all of them."""
    found = globals_of(await wire.call("EVAL", DUMP, 0, one.text.removeprefix("#!lua\n")))
    assert found.written == set()
    assert found.read <= KNOWN_GLOBALS


async def test_a_leaked_global_would_be_found(wire: Wire) -> None:
    """In a branch that never runs, in a function inside a function."""
    chunk = "local function f() return function() if false then leaked = other end end end return f"
    found = globals_of(await wire.call("EVAL", DUMP, 0, chunk))
    assert (found.written, found.read) == ({"leaked"}, {"other"})


@dataclass(frozen=True, slots=True)
class Presented:
    """A command as a confused or hostile client might send it."""

    script: Script
    what: str
    envelope: bytes
    rest: tuple[bytes, ...] = (b"payload",)

    def keys(self) -> dict[str, str]:
        """Keys that nobody else uses."""
        return {key.removesuffix("…"): f"evb:{{t.0}}:{self.script.name}:{self.what}:{key}" for key in self.script.keys}


def _malformed(one: Script) -> Iterator[Presented]:
    fields = _fields(one)
    yield Presented(one, "nothing", b"")
    yield Presented(one, "no msgpack", b"\xc1\xff")
    yield Presented(one, "cut off", msgpack.packb(fields)[:-1] if fields else b"\x81")
    yield Presented(one, "two at once", 2 * msgpack.packb(fields))
    yield Presented(one, "too large", msgpack.packb(fields | {"more": "x" * 65536}))
    yield Presented(one, "a list", msgpack.packb([1, 2, 3]))
    yield Presented(one, "a number", msgpack.packb(1))
    yield Presented(one, "text", msgpack.packb("reject"))
    yield Presented(one, "no schema", msgpack.packb({k: v for k, v in fields.items() if k != "schema"}))
    yield Presented(one, "later schema", msgpack.packb(fields | {"schema": 2}))
    for name, kind in kinds_of(one).items():
        for n, wrong in enumerate(_WRONG[kind.rstrip("?")]):
            yield Presented(one, f"{name} {n}", msgpack.packb(fields | {name: wrong}))
        if not kind.endswith("?"):
            yield Presented(one, f"{name} absent", msgpack.packb({k: v for k, v in fields.items() if k != name}))
    if one.argv[-1].endswith("…"):
        yield Presented(one, "too few", msgpack.packb(fields), ())
        yield Presented(one, "too many", msgpack.packb(fields), tuple(b"x" for _ in range(9)))


_RIGHT: Mapping[str, object] = {"str": "x", "int": 1, "int1": 1, "bool": True}
_WRONG: Mapping[str, tuple[object, ...]] = {
    "str": ("", 1, True, ["x"], {"x": 1}),
    "int": ("1", -1, 1.5, 2**53, True, [1]),
    "int1": ("1", 0, -1, 1.5, 2**53, True, [1]),
    "bool": ("true", 1, [True]),
}


def _fields(one: Script) -> dict[str, object]:
    return {"schema": 1} | {name: _RIGHT[kind.rstrip("?")] for name, kind in kinds_of(one).items()}


UNRECORDED = {"run.retire", "run.remove"}
"""They remove a batch: the record of a refusal would stand behind its archive's end, or be all that there is of it."""


async def test_a_malformed_command_is_refused_recorded_and_changes_nothing(any_server: Target) -> None:
    """Whatever stands in the envelope: `reject schema`, one record with it as it came, one count, and no error."""
    presented = [one for target in all_scripts() if target.recorded for one in _malformed(target)]
    assert len(presented) > 500
    wire = await Wire.open(any_server.address())
    await wire.calls([("SCRIPT", "LOAD", target.text) for target in all_scripts()])
    sent: list[list[str | bytes | int]] = []
    for one in presented:
        keys = list(one.keys().values())
        sent.append(evalsha(one.script, keys, [one.envelope, *one.rest]))
    await wire.calls([("HSET", one.keys()["batch"], "status", "open") for one in presented])
    replies = await wire.calls(sent)
    expected = set()
    for one, answer in zip(presented, replies, strict=True):
        assert not isinstance(answer, Exception), (one.script.name, one.what, answer)
        reply = answer[0] if one.script.own_keys else answer
        assert reply[:2] == [b"reject", b"schema"], (one.script.name, one.what, reply)
        batch = one.keys()["batch"]
        expected.add(batch.encode())
        if one.script.name in UNRECORDED:
            assert await wire.call("HGETALL", batch) == [b"status", b"open"], (one.script.name, one.what)
            continue
        history = one.keys()["history"]
        counted = [b"status", b"open", b"refused:schema", b"1"]
        assert await wire.call("HGETALL", batch) == counted, (one.script.name, one.what)
        ((_, record),) = await wire.call("XRANGE", history, "-", "+")
        fields = dict(zip(record[::2], record[1::2], strict=True))
        assert (fields[b"o"].decode(), fields[b"e"]) == (one.script.name, one.envelope)
        assert msgpack.unpackb(fields[b"p"])[0][1:3] == ["reject", "schema"]
        expected.add(history.encode())
    assert set(await wire.call("KEYS", "*")) == expected
    wire.close()
