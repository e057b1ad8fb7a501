"""Envelopes: what a caller hands in comes out unchanged or stays recognisably wrong; nothing turns legal on the way."""

from __future__ import annotations

from enum import StrEnum

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bus.envelopes import MAX_ENVELOPE, SCHEMA, Head, decode, encode
from bus.errors import InputError
from bus.target import Target
from bus.types import MAX_INT
from bus.wire import Wire

LEGAL = st.one_of(st.booleans(), st.integers(-MAX_INT, MAX_INT), st.text(st.characters(exclude_categories=[])))
NAMES = st.text("abcdefghij_", min_size=1)

UNPACK = """local env = cmsgpack.unpack(ARGV[1])
local v = env.v
if type(v) == 'number' then v = string.format('%.0f', v) end
return {type(env.v), type(v) == 'table' and v[1] or tostring(v)}"""
"""What the server's Lua makes of the field `v`."""


@given(st.dictionaries(NAMES, LEGAL))
def test_text_whole_numbers_and_booleans_come_back_as_they_were(fields: dict[str, object]) -> None:
    """Half a surrogate pair too: no text may stop a refusal from being recorded."""
    assert decode(encode(fields)) == {"schema": SCHEMA, **fields}


@given(st.dictionaries(st.text("abcdefghij", min_size=1), LEGAL | st.none(), max_size=40))
@example({}).via("a head alone")
@example({f"f{n}": n for n in range(11)}).via("15 names with those of the head, the most of a short map")
@example({f"f{n}": n for n in range(12)}).via("16 names, the fewest of a long one")
@example({f"f{n}": n for n in range(15)}).via("15 without the head")
@example({f"f{n}": n for n in range(16)}).via("16 without the head")
def test_an_envelope_with_a_head_is_the_same_byte_for_byte(fields: dict[str, object]) -> None:
    """What is packed once a batch stands before what is packed for each command, as if all had been packed at once."""
    said = {"plane": "live", "batch": "b", "server": "s" * 40}
    assert encode(fields, Head(said)) == encode({**said, **fields})


@pytest.mark.parametrize("value", [2**53, -(2**53), 1.0, 0.5, [], ["a"], {}, {"a": 1}, b"bytes", [[1]]], ids=repr)
def test_what_no_script_takes_is_wrapped_so_that_none_can_take_it_for_something_else(value: object) -> None:
    """Lua would read 1.0 as 1, 2^64-1 as -1 and {} as []. As a list holding a text it fits no kind, and can be read."""
    (text,) = decode(encode({"v": value}))["v"]
    assert isinstance(text, str)


def test_a_field_without_a_value_is_left_out() -> None:
    """None and absent are the same, as an optional argument's are."""
    assert decode(encode({"intent": None, "run": "c#1"})) == {"schema": SCHEMA, "run": "c#1"}


def test_an_enumerations_member_travels_as_its_text() -> None:
    """Planes and groups are enumerations here and words there."""

    class Word(StrEnum):
        LIVE = "live"

    assert decode(encode({"plane": Word.LIVE})) == {"schema": SCHEMA, "plane": "live"}


def test_an_envelope_may_be_as_large_as_the_limit_and_no_larger() -> None:
    """An envelope is identity. What is larger is a payload in the wrong place, and the message says what to do."""
    room = MAX_ENVELOPE - len(encode({"v": "x" * 60_000})) + 60_000
    assert len(encode({"v": "x" * room})) == MAX_ENVELOPE
    with pytest.raises(InputError, match="send the payload as an artifact"):
        encode({"v": "x" * (room + 1)})


@given(st.binary())
def test_bytes_that_are_no_envelope_are_refused_and_nothing_else_is_raised(packed: bytes) -> None:
    """They come from a history that anybody may have edited."""
    try:
        fields = decode(packed)
    except ValueError:
        return
    assert isinstance(fields, dict)


@pytest.mark.parametrize(
    "packed", [msgpack.packb([1]), msgpack.packb("x"), msgpack.packb({1: 2}), b"", b"\xc1"], ids=repr
)
def test_only_a_map_with_names_is_an_envelope(packed: bytes) -> None:
    """A list, a text, a map with numbers for names."""
    with pytest.raises(ValueError):
        decode(packed)


async def test_the_servers_lua_reads_every_legal_value_exactly(any_server: Target) -> None:
    """The envelope is read by two languages. The largest whole number and every kind of text arrive whole."""
    wire = await Wire.open(any_server.address())
    for value, kind in [
        (MAX_INT, "number"),
        (0, "number"),
        ("", "string"),
        ("007", "string"),
        ("é ☃ \U0001f600 \x00 \ud83d", "string"),
        ("x" * 60_000, "string"),
        (True, "boolean"),
        (False, "boolean"),
        (2**53, "table"),
        (1.0, "table"),
        ([], "table"),
    ]:
        seen, text = await wire.call("EVAL", UNPACK, 0, encode({"v": value}))
        assert seen.decode() == kind
        if kind in ("number", "string"):
            assert text == str(value).encode("utf-8", "surrogatepass")
        if kind == "boolean":
            assert text == str(value).lower().encode()
    wire.close()
