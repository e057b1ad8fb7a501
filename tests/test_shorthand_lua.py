"""What the scripts write in the short form is what `bus.shorthand` reads: for each command, with each part, any values.

And its fields are all that there are: an envelope's are counted when it comes, a part's are compared here.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any

import msgpack
import pytest

from bus.chain import EMPTY_HEAD
from bus.scripts import script
from bus.shake import strip
from bus.shorthand import COMMANDS, PARTS, Shape, read, spell
from bus.shorthand_fields import OPEN, Field, fields_of
from bus.shorthand_lua import kinds, lua_writer
from bus.target import Target
from bus.types import MAX_INT
from bus.wire import Wire

_HISTORY = "evb:{live.0}:b:b:history"
_ROW = {"server": "s" * 40, "lives": "3"}
_MAY_BE_ABSENT = re.compile(r"(transcript\.\w+|plane\.(admit|write))\.(run|lease_id|parent|head|intent|plane)$")

_AROUND = strip(files("lua").joinpath("include", "shorthand.lua").read_text("utf-8"))
_HARNESS = """
local given, said = cmsgpack.unpack(ARGV[1]), {}
for i, one in ipairs(given) do
  local packed, history, row, presented, parts = unpack(one)
  parts = {}
  for _, part in ipairs(presented) do
    local is_plain = part[2] == 'commit' and part[3] == ''
    parts[#parts + 1] = is_plain and part[1] or part
    parts[#parts + 1] = is_plain and part[4]
    parts[#parts + 1] = is_plain and part[5]
  end
  local is_well, short = pcall(shorthand, cmsgpack.unpack(packed), packed, history, row, parts)
  said[i] = is_well and short or ''
end
return said
"""

Part = list[Any]
Given = tuple[dict[str, Any], list[Part]]


@pytest.fixture
async def wire(server: Target) -> AsyncIterator[Wire]:
    """A connection."""
    one = await Wire.open(server.address())
    yield one
    one.close()


def packed(fields: dict[str, Any]) -> bytes:
    """As an envelope comes."""
    return bytes(msgpack.packb(fields, use_bin_type=False))


async def written(
    wire: Wire, shape: Shape, given: Sequence[tuple[bytes, str, dict[str, str], list[Part]]]
) -> list[bytes]:
    """What the writer of a command makes of envelopes and parts, any part in any command; b"" where it has no place."""
    text = script(shape.name).text + "".join(f"'{part.name}'" for part in PARTS)
    whole = f"local NOTHING = {{}}\n{lua_writer(shape.name, text, _AROUND)}{_HARNESS}"
    answer = await wire.call("EVAL", whole, 0, msgpack.packb(given, use_bin_type=False))
    assert isinstance(answer, list)
    return answer


class Dice:
    """Values for the fields of one entry. They come from few texts, so that many are repeated."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        runs = ["c0#1", "ü" * 20, "r" * 31, "r" * 32, "r" * 300]
        self._run = self._random.choice(runs)
        self._texts = [EMPTY_HEAD, f"{self._run}~0", f"live:{self._run}:result", "a" * 64, "live", "L1", "x" * 70_000]
        self._texts += [f"{self._random.randrange(9)}" * self._random.randrange(1, 40) for _ in range(4)]

    def text(self) -> str:
        """Rarely one that needs a long sign."""
        return self._random.choices([self._run, *self._texts], weights=[6, 6, 4, 4, 4, 4, 4, 0.02, 1, 1, 1, 1])[0]

    def number(self) -> int:
        """One of each length that a packed number has."""
        return self._random.choice([0, 1, 7, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, MAX_INT])

    def of_kind(self, kind: str) -> object:
        """What the script admits as a field of the envelope."""
        if kind == "bool":
            return self._random.random() < 0.5
        return self.text() if kind == "str" else self.number()

    def envelope(self, shape: Shape) -> dict[str, Any]:
        """Everything that must be there, and any of what may be."""
        fields: dict[str, Any] = {"schema": 1, "plane": "live", "batch": "b"}
        if self._random.random() < 0.5:
            fields["server"] = _ROW["server"]
        admitted = kinds(script(shape.name).text)
        for name in shape.args:
            kind, is_optional = admitted[name]
            if not is_optional or self._random.random() < 0.5:
                fields[name] = self.of_kind(kind)
        if "run" in fields:
            fields["run"] = self._run
        return fields

    def part(self, shape: Shape) -> Part:
        """A granted one."""
        named: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        is_bare = self._random.random() < 0.3
        for position, field in enumerate(fields_of(shape)):
            may_be_absent = _MAY_BE_ABSENT.search(field.path) or (
                shape.name.startswith("transcript.") and "->" not in field.path
            )
            if may_be_absent and (is_bare or self._random.random() < 0.5):
                continue
            named[position >= len(shape.args)][field.name] = self._of_field(field)
        return [shape.name, "commit", "", *named]

    def parts(self) -> list[Part]:
        """Any number, in any order, some of them refused or of no known shape."""
        found = []
        for _ in range(self._random.choice([0, 1, 3, 8, 300])):
            if self._random.random() < 0.1:
                found.append(
                    [self.text()[:30], *self._random.choice([("reject", "stuck"), ("commit", "")]), {"a": 1}, []]
                )
            else:
                found.append(self.part(self._random.choice(PARTS)))
        return found

    def _of_field(self, field: Field) -> object:
        if field.is_text:
            return self.text()
        if field.name in ("ok", "durable"):
            return self._random.random() < 0.5
        is_list = field.name in ("unresolved", "expected", "args")
        return [self.number() for _ in range(self._random.choice([0, 0, 2]))] if is_list else self.number()


@pytest.mark.parametrize("shape", COMMANDS, ids=lambda shape: shape.name)
async def test_what_is_written_is_what_is_read(wire: Wire, shape: Shape) -> None:
    """Values of each length, absent ones, and texts that are repeated where it is expected and where it is not."""
    given = [(dice.envelope(shape), dice.parts()) for dice in map(Dice, range(40))]
    shorts = await written(wire, shape, [(packed(fields), _HISTORY, _ROW, parts) for fields, parts in given])
    for (fields, parts), short in zip(given, shorts, strict=True):
        spelt = spell(read(short), "live", "b", fields.get("server"))
        assert (spelt.command, spelt.envelope) == (shape.name, fields)
        assert [list(part) for part in spelt.parts] == parts
        assert read(short).life == (3 if "server" in fields else 0)


@pytest.mark.parametrize("shape", PARTS, ids=lambda shape: shape.name)
async def test_each_part_is_written_by_itself(wire: Wire, shape: Shape) -> None:
    """By each command that may note it."""
    commands = [command for command in COMMANDS if f"'{shape.name}'" in script(command.name).text]
    assert commands
    for command in commands:
        given = [(dice.envelope(command), [dice.part(shape), dice.part(shape)]) for dice in map(Dice, range(20))]
        shorts = await written(wire, command, [(packed(fields), _HISTORY, _ROW, parts) for fields, parts in given])
        for (fields, parts), short in zip(given, shorts, strict=True):
            spelt = spell(read(short), "live", "b", fields.get("server"))
            assert spelt.envelope == fields
            assert [list(part) for part in spelt.parts] == parts


_CLAIM = next(shape for shape in COMMANDS if shape.name == "run.claim")
_CLAIMED: dict[str, Any] = {
    **{"schema": 1, "plane": "live", "batch": "b", "server": _ROW["server"]},
    **{"run": "c0#1", "lease_id": "L1", "entry": "1-0", "consumer": "w"},
}
_GRANTED: Part = [
    "transcript.lease",
    "commit",
    "",
    {"run": "c0#1~0"},
    {"gen": 1, "head": EMPTY_HEAD, "length": 0, "unresolved": []},
]


async def test_a_claim_takes_as_few_bytes_as_it_can(wire: Wire) -> None:
    """What all entries say, and what this one has said, is referred to by one byte."""
    [short] = await written(wire, _CLAIM, [(packed(_CLAIMED), _HISTORY, _ROW, [_GRANTED])])
    assert msgpack.unpackb(short) == [2, 1, 3, "c0#1", "L1", "1-0", "w", 4, -3, -1, 1, -2, 0, []]
    assert len(short) == 25


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(mood="fair"),
        lambda fields: fields.update(plane="shadow"),
        lambda fields: fields.update(batch="c"),
        lambda fields: fields.update(server="t" * 40),
        lambda fields: fields.pop("batch"),
        lambda fields: fields.pop("consumer"),
    ],
    ids=["one-more", "plane", "batch", "server", "no-batch", "one-less"],
)
async def test_an_envelope_that_says_something_else_has_no_short_form(
    wire: Wire, change: Callable[[dict[str, Any]], object]
) -> None:
    """It would be read as one that says what all of the batch say."""
    fields = dict(_CLAIMED)
    change(fields)
    assert await written(wire, _CLAIM, [(packed(fields), _HISTORY, _ROW, [_GRANTED])]) == [b""]


async def test_an_envelope_that_names_a_field_twice_has_no_short_form(wire: Wire) -> None:
    """Its bytes count, and of two values only one would be kept. However its length is packed."""
    body = packed(_CLAIMED)[1:]
    twice = b"\x89" + body + packed({"run": "c0#1"})[1:]
    long_twice, long = b"\xde\x00\x09" + twice[1:], b"\xde\x00\x08" + body
    given = [(envelope, _HISTORY, _ROW, [_GRANTED]) for envelope in (twice, long_twice, long)]
    shorts = await written(wire, _CLAIM, given)
    assert [bool(short) for short in shorts] == [False, False, True]


@pytest.mark.parametrize(
    ("history", "row"),
    [(_HISTORY.replace(":b:b:", ":b:c:"), _ROW), ("history", _ROW), (_HISTORY, {"server": _ROW["server"]})],
    ids=["another-batch", "no-batch", "no-lives"],
)
async def test_a_history_that_names_another_batch_has_no_short_form(
    wire: Wire, history: str, row: dict[str, str]
) -> None:
    """Nor has one of a batch whose lives are not counted."""
    assert await written(wire, _CLAIM, [(packed(_CLAIMED), history, row, [_GRANTED])]) == [b""]


@pytest.mark.parametrize(
    ("answer", "value"),
    [("gen", -1), ("gen", "7"), ("gen", []), ("head", 7), ("head", None), ("head", True), ("unresolved", None)],
)
async def test_a_part_of_another_kind_has_no_short_form(wire: Wire, answer: str, value: object) -> None:
    """A number below 0 is a reference; what is neither text nor number where one is expected is kept whole."""
    *start, answers = _GRANTED
    part = [*start, {name: value for name, value in {**answers, answer: value}.items() if value is not None}]
    [short] = await written(wire, _CLAIM, [(packed(_CLAIMED), _HISTORY, _ROW, [part])])
    assert short == b"" or spell(read(short), "live", "b", _ROW["server"]).parts[0][4] == part[4]
    assert (short == b"") is (answer != "head" or value is not None)


@pytest.mark.parametrize("name", sorted(OPEN))
async def test_arguments_beside_those_that_a_part_has_are_kept(wire: Wire, name: str) -> None:
    """`effects.give_up` notes these two with all of theirs."""
    shape = next(shape for shape in PARTS if shape.name == name)
    command = next(shape for shape in COMMANDS if shape.name == "run.tool_claim")
    dice = Dice(1)
    part, more = dice.part(shape), dice.part(shape)
    more[3]["executor"] = "w1"
    envelope = packed(dice.envelope(command))
    shorts = await written(wire, command, [(envelope, _HISTORY, _ROW, [one]) for one in (part, more)])
    assert [bool(short) for short in shorts] == [True, False]


def test_a_script_has_what_its_own_command_and_parts_need() -> None:
    """And nothing else: a script is compiled once, and its functions are made at every call."""
    text = script("run.claim").text
    assert "by == 'transcript.lease'" in text
    assert "by == 'histogram.score'" not in text
    assert "local shorthand\n" in script("run.hole").text
    with pytest.raises(ValueError, match=r"^run\.claim does not say of what kind run, .* is$"):
        lua_writer("run.claim", "", _AROUND)


# --- all that a part is noted with has a name ------------------------------------------------------------------


def _balanced(text: str, start: int) -> str:
    """From an opening bracket to the one that closes it, without both."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at]
    raise AssertionError(f"nothing closes {text[start : start + 60]!r}")


def _split(text: str) -> list[str]:
    """At the commas that are in no bracket."""
    found, depth = [""], 0
    for letter in text:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found if part.strip()]


def _names(text: str, value: str, before: int) -> set[str]:
    """The fields of a table that an expression makes, at a place of a script. Raises where that cannot be seen."""
    if value.startswith("{"):
        return {one.partition("=")[0].strip() for one in _split(value[1:-1])}
    called = re.match(r"(\w+)\(", value)
    if called and called.group(1) == "chain_args":
        more = _split(_balanced(value, called.end() - 1))[2:]
        return {"lease_id"}.union(*(_names(text, one, before) for one in more))
    if called:
        body = re.search(rf"^local function {called.group(1)}\(.*?^end", text, re.DOTALL | re.MULTILINE)
        assert body, value
        start = body.group().index("return {") + len("return ")
        return _names(text, "{" + _balanced(body.group(), start) + "}", before)
    assert re.fullmatch(r"\w+", value), value
    last = [*re.finditer(rf"\blocal {value} = ", text[:before])][-1]
    made = text[last.end() :]
    bracket = re.match(r"(\w*)([({])", made)
    assert bracket, f"{value} = {made[:60]}"
    whole = bracket.group() + _balanced(made, bracket.end() - 1) + {"(": ")", "{": "}"}[bracket.group(2)]
    return _names(text, whole, last.start()) | {*re.findall(rf"\b{value}\.(\w+) = ", text[last.end() : before])}


def _noted(text: str) -> Iterator[tuple[str, set[str]]]:
    """The parts that a script notes, and their arguments."""
    for match in re.finditer(r"(?<!function )\bstep(?:_kept)?\('([a-z_.]+)'", text):
        given = _split(_balanced(text, match.start() + match.group().index("(")))
        yield match.group(1), _names(text, given[2], match.start()) if len(given) > 2 else set()


@pytest.mark.parametrize("shape", COMMANDS, ids=lambda shape: shape.name)
def test_arguments_have_their_names_in_the_tables(shape: Shape) -> None:
    """Nobody counts them when an entry is written: one without a name would be lost."""
    known = {part.name: {*part.args} for part in PARTS}
    noted = list(_noted(script(shape.name).text))
    assert {name for name, _ in noted} & known.keys() or shape.name == "run.write"
    for name, args in noted:
        assert name in OPEN or args <= known.get(name, args), (name, args)


@pytest.mark.parametrize("shape", PARTS, ids=lambda shape: shape.name)
def test_answers_have_their_names_in_the_tables(shape: Shape) -> None:
    """Of a grant, wherever the fence gives one."""
    fence, _, op = shape.name.partition(".")
    text = strip(files("lua").joinpath(fence, "fence.lua").read_text("utf-8"))
    body = re.search(rf"^function {fence}\.{op}\(.*?^end", text, re.DOTALL | re.MULTILINE)
    assert body
    grants = [*re.finditer(r"(?<![.\w])commit\(", text[: body.end()])]
    grants = [grant for grant in grants if grant.start() > body.start()]
    assert grants
    for grant in grants:
        for answer in _split(_balanced(text, grant.end() - 1)):
            assert _names(text, answer, grant.start()) <= {*shape.answers}
