"""Whatever comes from outside, bytes and texts that nobody meant: read, or refused in the way that is foreseen.

What would be a traceback for a user is a failure here, and so is a verdict on what is not true.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zstandard
from hypothesis import strategies as st

from bus.envelopes import decode
from bus.errors import EvalbusError, InputError
from bus.replay.replayed import Replay
from bus.server_url import parse_url
from tests.fuzzing import fuzzed
from workers.cases import read_cases
from workers.endpoints.anthropic import ANTHROPIC
from workers.endpoints.chat import CHAT
from workers.endpoints.completions import COMPLETIONS
from workers.endpoints.errors import EndpointError
from workers.endpoints.failures import Failures
from workers.endpoints.sse import EventTooLarge, SseDecoder
from workers.endpoints.values import EndpointSpec
from workers.formats.yaml_file import YamlFile
from workers.histories.history_files import reading
from workers.suite import load_suite

HISTORY = Path(__file__).parent / "histories_of_releases" / "schema-1.jsonl.zst"
PACKED = HISTORY.read_bytes()
LINES = zstandard.ZstdDecompressor().decompressobj().decompress(PACKED).splitlines(keepends=True)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


# --- envelopes ----------------------------------------------------------------------------------------------


@fuzzed("envelopes", st.binary(max_size=400), count=1000)
def test_any_bytes_as_an_envelope(data: bytes) -> None:
    """A map, or a ValueError: never another exception, and nothing that is no map."""
    with contextlib.suppress(ValueError):
        assert isinstance(decode(data), dict)


# --- suites and cases ---------------------------------------------------------------------------------------

FIELDS: Mapping[str, Any] = {
    "cases": "cases.jsonl", "trials": 2, "quorum": "50%", "bound": 8, "lease": "5s", "budget": 1000,
    "solver": {"command": ["cat"]}, "scorer": {"kind": "exact", "strip": True}, "gate": {"min_pass_rate": 0.5},
    "limits": {"memory": "1 GB"}, "model": {"name": "m", "base_url": "http://127.0.0.1:1/v1"},
    "tools": {"t": {"http": "http://127.0.0.1:1/"}}, "fields": {"id": "id"}, "ignore": ["*.log"],
}  # fmt: skip


@st.composite
def suites(draw: st.DrawFn) -> str:
    """A suite file in which one thing is not what it was."""
    fields = json.loads(json.dumps(FIELDS))
    name = draw(st.sampled_from([*FIELDS, "zzz"]))
    value = draw(JSON.filter(lambda one: one is not None))
    if isinstance(fields.get(name), dict) and draw(st.booleans()):
        fields[name][draw(st.sampled_from([*fields[name], "zzz"]))] = value
    else:
        fields[name] = value
    return "".join(f"{_toml(key)} = {_toml(one)}\n" for key, one in fields.items())


def _toml(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + "}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case float():
            return repr(value)
        case None:
            return '""'
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def loaded(text: str, cases: str = '{"id": "a", "input": "x"}\n') -> None:
    """Load a suite of that text: it loads, or it is an InputError of one line."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "cases.jsonl").write_text(cases)
        (root / "suite.toml").write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            load_suite(root)
        except InputError as error:
            assert "\n" not in str(error)


@fuzzed("suite files", suites(), count=300)
def test_any_value_in_a_suite(text: str) -> None:
    """Of any type, in any field."""
    tomllib.loads(text)  # the test's own: it is TOML
    loaded(text)


@fuzzed("suite files", st.text(max_size=300), count=200)
def test_any_text_as_a_suite(text: str) -> None:
    """TOML or not."""
    loaded(text)


@fuzzed("case files", st.sampled_from([".jsonl", ".csv", ".parquet"]), st.binary(max_size=300), count=300)
def test_any_bytes_as_cases(suffix: str, data: bytes) -> None:
    """In each kind of file."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / f"cases{suffix}"
        path.write_bytes(data)
        try:
            assert read_cases(path)
        except InputError as error:
            assert "\n" not in str(error)


@fuzzed("YAML files", st.text(max_size=200), count=200)
def test_any_text_as_yaml(text: str) -> None:
    """What another tool's configuration may hold."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "any.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            YamlFile(path)
        except InputError as error:
            assert "\n" not in str(error)


@fuzzed("URLs", st.text(max_size=60) | st.text(max_size=40).map("redis://{}".format), count=500)
def test_any_text_as_a_url(text: str) -> None:
    """A target, or an InputError."""
    try:
        parse_url(text)
    except InputError as error:
        assert "\n" not in str(error)


# --- histories ----------------------------------------------------------------------------------------------


@st.composite
def edited(draw: st.DrawFn) -> list[bytes]:
    """A real history with one to three edits: a byte, a line dropped, doubled, moved, cut at, a field replaced."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["byte", "drop", "double", "swap", "field", "cut"])):
            case "byte":
                where = draw(st.integers(0, len(lines[at]) - 1))
                changed = bytearray(lines[at])
                changed[where] = draw(st.integers(0, 255))
                lines[at] = bytes(changed)
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "field":
                lines[at] = _with_field(lines[at], draw)
            case "cut":
                lines = lines[: max(at, 1)]
        if not lines:
            break
    return lines


def _with_field(line: bytes, draw: st.DrawFn) -> bytes:
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    if not isinstance(fields, dict) or not fields:
        return line
    fields[draw(st.sampled_from(sorted(fields)))] = draw(JSON)
    return json.dumps(fields, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass") + b"\n"


@fuzzed("edited histories", edited(), count=300)
def test_an_edited_history(lines: list[bytes]) -> None:
    """Untrue, or no whole history; and if nothing was changed after all, true."""
    replay = Replay("edited.jsonl")
    try:
        for line in lines:
            replay.feed(line)
        replay.finish()
    except EvalbusError as error:
        assert "\n" not in str(error)
    else:
        assert [json.loads(line) for line in lines] == [json.loads(line) for line in LINES]


@fuzzed("history files", st.binary(max_size=300), st.sampled_from([".jsonl", ".jsonl.zst"]), count=200)
def test_any_bytes_as_a_history(data: bytes, suffix: str) -> None:
    """Packed or plain, also with a beginning that is one."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / f"h{suffix}"
        path.write_bytes(PACKED[: len(data) * 7] + data if suffix.endswith("zst") else data)
        replay = Replay("h")
        try:
            with reading(path) as lines:
                while raw := lines.readline(1 << 20):
                    replay.feed(raw)
            replay.finish()
        except EvalbusError as error:
            assert "\n" not in str(error)
        else:
            raise AssertionError("it was taken for a history")


# --- what an endpoint says ----------------------------------------------------------------------------------

CALL = {"index": 0, "id": "t", "function": {"name": "n", "arguments": "{}"}}
CHUNK = {
    "id": "c-1", "model": "m", "system_fingerprint": "f",
    "choices": [{"index": 0, "delta": {"content": "word", "tool_calls": [CALL]}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}},
    "type": "message_start", "message": {"id": "c-1", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}},
    "delta": {"type": "text_delta", "text": "word", "stop_reason": "end_turn"}, "index": 0,
    "content_block": {"type": "text", "text": ""}, "error": None,
}  # fmt: skip
TYPES = (
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "ping", "error",
)  # fmt: skip


FAILURES = Failures(EndpointSpec(base_url="http://127.0.0.1:1/v1", model="m", api="chat"), "the endpoint")


def _changed(value: Any, draw: st.DrawFn) -> Any:  # noqa: ANN401 - JSON
    """The value with one thing in it replaced, however deep."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _changed(value[key], draw)}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        return [_changed(value[0], draw), *value[1:]]
    return draw(JSON)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Events that are nearly right, with bytes between them that are not."""
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        chunk = {**CHUNK, "type": draw(st.sampled_from(TYPES))}
        match draw(st.integers(0, 3)):
            case 0:
                chunk = _changed(chunk, draw)
            case 1:
                parts.append(draw(st.binary(max_size=30)))
        data = json.dumps(chunk).encode("utf-8", "surrogatepass")
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        name = kind if isinstance(kind, str) else "x"
        parts.append(b"event: " + name.encode("utf-8", "surrogatepass") + b"\ndata: " + data + b"\n\n")
    if draw(st.booleans()):
        parts.append(b"data: [DONE]\n\n")
    return b"".join(parts)


def answered(dialect: Any, packets: list[bytes]) -> None:  # noqa: ANN401 - one of the three
    """Decode packets as an answer: a reply, or an error that endpoints may raise."""
    answer = dialect.answer(FAILURES, 3)
    decoder = SseDecoder()
    try:
        for packet in packets:
            for event in decoder.feed(packet):
                answer.feed(event)
        if (last := decoder.end()) is not None:
            answer.feed(last)
        reply = answer.reply()
    except (EndpointError, EventTooLarge, UnicodeDecodeError):  # the last two as `SseDecoder` says
        return
    reply.text.encode()  # what is bound can be sent
    assert reply.model
    assert reply.usage.input >= 0
    assert reply.usage.output >= 0


@fuzzed("endpoint answers", st.sampled_from([CHAT, COMPLETIONS, ANTHROPIC]), streams(), st.integers(1, 200), count=600)
def test_any_answer_of_an_endpoint(dialect: Any, stream: bytes, size: int) -> None:  # noqa: ANN401
    """In packets of any size."""
    answered(dialect, [stream[at : at + size] for at in range(0, len(stream), size)])


@fuzzed(
    "endpoint answers", st.sampled_from([CHAT, COMPLETIONS, ANTHROPIC]), st.lists(st.binary(max_size=60)), count=300
)
def test_any_bytes_of_an_endpoint(dialect: Any, packets: list[bytes]) -> None:  # noqa: ANN401
    """Not even nearly right."""
    answered(dialect, packets)
