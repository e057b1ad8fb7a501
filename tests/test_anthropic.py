"""Anthropic's stream: the same answers in another wire format."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.asking import HELLO, offline, refusal, said
from workers.endpoints import (
    BadRequestError,
    CutError,
    OverloadedError,
    Piece,
    RateLimitedError,
    Refusal,
    Reply,
    ToolCall,
    Usage,
)
from workers.modelling.model import Completion


def named(*datas: Mapping[str, object]) -> str:
    """Events, each under its type's name, as this API sends them."""
    return "".join(f"event: {data['type']}\ndata: {json.dumps(data)}\n\n" for data in datas)


def start(**usage: int) -> dict[str, object]:
    """The first event."""
    return {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": usage}}


def block(index: int, **fields: object) -> dict[str, object]:
    """The beginning of a block of content."""
    return {"type": "content_block_start", "index": index, "content_block": fields}


def delta(index: int, **fields: object) -> dict[str, object]:
    """A part of it."""
    return {"type": "content_block_delta", "index": index, "delta": fields}


def end(reason: str = "end_turn", **usage: int) -> str:
    """The last two events."""
    return named({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"})


TEXT = named(
    block(0, type="text", text=""),
    {"type": "ping"},
    delta(0, type="text_delta", text="Hel"),
    delta(0, type="text_delta", text="lo"),
    {"type": "content_block_stop", "index": 0},
)


async def test_cached_tokens_stand_beside_the_input_and_cumulative_usage_is_not_added_up() -> None:
    """10 fresh, 100 read from the cache, 20 written to it: 130 in. Output is 1, then 7, and so 7."""
    first = start(input_tokens=10, cache_read_input_tokens=100, cache_creation_input_tokens=20, output_tokens=1)
    got = await said(named(first), TEXT, end(output_tokens=7), api="anthropic")
    usage = Usage(130, 7, 100)
    assert got.pieces == [
        Piece("", 0, Usage(130, 1, 100)),
        Piece("Hel", 1),
        Piece("lo", 1),
        Piece("", 0, usage),
    ]
    assert got.reply == Reply("Hello", (), "stop", usage, "claude-x", "", "msg_1")


async def test_a_later_figure_replaces_an_earlier_one_of_the_same_name() -> None:
    """The last event may name the input again: with server tools it has grown."""
    got = await said(
        named(start(input_tokens=10, output_tokens=1)), TEXT, end(input_tokens=50, output_tokens=7), api="anthropic"
    )
    assert got.reply is not None
    assert got.reply.usage == Usage(50, 7, 0)


async def test_tool_use_is_put_together_from_its_json_parts() -> None:
    """Beside text and thinking, which is output and no text."""
    got = await said(
        named(
            start(input_tokens=1, output_tokens=1),
            block(0, type="thinking", thinking=""),
            delta(0, type="thinking_delta", thinking="Hmm"),
            delta(0, type="signature_delta", signature="xyz"),
            block(1, type="text", text=""),
            delta(1, type="text_delta", text="I read."),
            block(2, type="tool_use", id="toolu_1", name="read", input={}),
            delta(2, type="input_json_delta", partial_json=""),
            delta(2, type="input_json_delta", partial_json='{"path":'),
            delta(2, type="input_json_delta", partial_json=' "a"}'),
            block(3, type="tool_use", id="toolu_2", name="now", input={}),
        ),
        end("tool_use", output_tokens=9),
        api="anthropic",
    )
    assert got.reply is not None, got.error
    assert got.reply.text == "I read."
    assert got.reply.tool_calls == (ToolCall("toolu_1", "read", '{"path": "a"}'), ToolCall("toolu_2", "now", "{}"))
    assert got.reply.finish_reason == "tool_calls"
    assert sum(piece.tokens for piece in got.pieces) == 6


@pytest.mark.parametrize(
    ("reason", "ours"),
    [("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "content_filter"), ("pause_turn", "pause_turn")],
)
async def test_stop_reasons_have_the_same_names_as_elsewhere(reason: str, ours: str) -> None:
    """A solver that asks whether an answer was cut short need not know whose it is."""
    got = await said(named(start(input_tokens=1)), TEXT, end(reason, output_tokens=2), api="anthropic")
    assert got.reply is not None
    assert got.reply.finish_reason == ours


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", OverloadedError),
        ("api_error", OverloadedError),
        ("rate_limit_error", RateLimitedError),
        ("invalid_request_error", BadRequestError),
    ],
)
async def test_an_error_in_the_stream_is_that_error(kind: str, error: type[Exception]) -> None:
    """After the head said 200, and after pieces that were paid for."""
    told = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    got = await said(named(start(input_tokens=3)), TEXT, named(told), api="anthropic")
    assert isinstance(got.error, error)
    assert "Overloaded" in str(got.error)
    assert not got.error.free
    assert got.usage == Usage(3, 0)


@pytest.mark.parametrize(
    ("reason", "stream"),
    [
        (Refusal.NO_IDENTITY, TEXT + end(output_tokens=1)),
        (Refusal.EMPTY_BODY, named(start(input_tokens=1)) + end(output_tokens=0)),
        (Refusal.NO_FINISH_REASON, named(start()) + TEXT + named({"type": "message_stop"})),
        (Refusal.MALFORMED, named(start()) + "data: {}\n\n"),
        (Refusal.MALFORMED, named({"type": "content_block_delta", "delta": {"type": "input_json_delta"}})),
        (
            Refusal.TRUNCATED_TOOL_CALL,
            named(
                start(),
                block(0, type="tool_use", id="t", name="f"),
                delta(0, type="input_json_delta", partial_json='{"a'),
            )
            + end("max_tokens"),
        ),
    ],
)
async def test_what_only_looks_like_an_answer_is_refused_here_too(reason: Refusal, stream: str) -> None:
    """By the same rules."""
    assert refusal(await said(stream, api="anthropic")) is reason


async def test_a_stream_without_its_last_event_was_cut() -> None:
    """It says why the model stopped, and yet it may not be all."""
    stream = named(start(input_tokens=1)) + TEXT + end(output_tokens=2)
    got = await said(stream[: stream.index("event: message_stop")], api="anthropic")
    assert isinstance(got.error, CutError)
    assert got.error.pieces == 2
    assert got.usage == Usage(1, 2)


def test_messages_and_tools_of_the_chat_form_find_their_place() -> None:
    """A solver is written once. Results of tools that were called together stand in one message of the user."""
    calls = (ToolCall("c1", "read", '{"p": 1}'), ToolCall("c2", "read", '{"p": 1}'))
    answer = Completion("I read.", calls, "tool_calls", Usage(1, 1), "m").message
    assert Completion("Done.", (), "stop", Usage(1, 1), "m").message == {"role": "assistant", "content": "Done."}
    tool = {"type": "function", "function": {"name": "read", "description": "d", "parameters": {"type": "object"}}}
    body = json.loads(
        offline("anthropic", max_tokens=9)
        .request(
            [
                {"role": "system", "content": "Be brief."},
                *HELLO,
                answer,
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
                {"role": "user", "content": [{"type": "text", "text": "as it is"}]},
            ],
            {"tools": [tool, {"name": "native", "input_schema": {}}]},
        )
        .body
    )
    assert body == {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "system": "Be brief.",
        "tools": [
            {"name": "read", "description": "d", "input_schema": {"type": "object"}},
            {"name": "native", "input_schema": {}},
        ],
        "messages": [
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I read."},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"p": 1}},
                    {"type": "tool_use", "id": "c2", "name": "read", "input": {"p": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "as it is"}]},
        ],
    }


def test_system_messages_may_be_texts_and_blocks() -> None:
    """Blocks carry what a text cannot: where the cache is to begin."""
    part = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}
    endpoint = offline("anthropic", max_tokens=9)
    for contents, system in ((["a", "b"], "a\n\nb"), (["a", [part]], [{"type": "text", "text": "a"}, part])):
        messages = [{"role": "system", "content": content} for content in contents] + HELLO
        assert json.loads(endpoint.request(messages).body)["system"] == system


def test_the_version_of_the_api_is_named() -> None:
    """The API refuses a request without it."""
    prepared = offline("anthropic", max_tokens=9).request("Hello")
    assert prepared.headers["anthropic-version"] == "2023-06-01"
