"""What leaves for an endpoint, what comes back, and what of that is an answer."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from pydantic import SecretStr

from bus.errors import InputError
from tests.asking import (
    CANARY,
    DONE,
    HELLO,
    LAST,
    WHOLE,
    ask,
    chunk,
    endpoint_at,
    offline,
    refusal,
    said,
    told,
    tool,
    usage,
)
from tests.sse_server import Exchange, events, serving
from workers.endpoints import (
    Client,
    EndpointSpec,
    OverloadedError,
    Piece,
    Refusal,
    Reply,
    ToolCall,
    Usage,
    make_endpoint,
)
from workers.endpoints.values import Api

# --- what leaves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "line", "header"),
    [
        ("chat", "POST /v1/chat/completions HTTP/1.1", "authorization"),
        ("completions", "POST /v1/completions HTTP/1.1", "authorization"),
        ("anthropic", "POST /v1/messages HTTP/1.1", "x-api-key"),
    ],
)
async def test_what_arrives_is_what_was_hashed_with_the_key_in_one_header(api: Api, line: str, header: str) -> None:
    """A hash of anything but the bytes on the wire would bind an answer to a prompt that nobody sent."""

    async def answer(to: Exchange) -> None:
        await to.head(500)
        await to.end()

    async with serving(answer) as server, endpoint_at(server, api) as endpoint:
        prepared = endpoint.request("¿né? 😀 \u2028", {"temperature": 0, "stop": ["\n"]})
        with pytest.raises(OverloadedError):
            async with endpoint.stream(prepared, "request-1"):
                pass
    [seen] = server.seen
    assert seen.line == line
    assert seen.body == prepared.body
    assert seen.digest == prepared.prompt_hash == hashlib.sha256(prepared.body).hexdigest()
    assert seen.headers["idempotency-key"] == seen.headers["x-request-id"] == "request-1"
    assert [name for name, value in seen.headers.items() if CANARY in value] == [header]
    assert seen.fields["stream"] is True
    assert seen.fields.get("stream_options") == (None if api == "anthropic" else {"include_usage": True})
    assert CANARY not in f"{prepared} {endpoint.spec} {vars(endpoint)}"


def test_the_same_request_has_the_same_bytes_and_a_calls_parameters_go_over_the_suites() -> None:
    """Parameters in any order; a None takes one away. Below the top nothing is sorted: a schema's order is prompt."""
    endpoint = offline(temperature=1, seed=3, top_p=0.5)
    one = endpoint.request(HELLO, {"temperature": 0, "top_p": None, "tools": [{"b": 1, "a": 2}]})
    other = endpoint.request(tuple(HELLO), {"tools": [{"b": 1, "a": 2}], "top_p": None, "temperature": 0})
    assert one == other
    assert one.body.decode() == (
        '{"model":"m","messages":[{"role":"user","content":"Hello"}],"seed":3,"temperature":0,'
        '"tools":[{"b":1,"a":2}],"stream":true,"stream_options":{"include_usage":true}}'
    )
    assert one.prompt_hash != endpoint.request(HELLO, {"temperature": 0.5}).prompt_hash


def test_half_a_surrogate_pair_leaves_as_its_escape() -> None:
    """A solver's text may hold one; it has no UTF-8, and must not stop the run with a traceback."""
    body = offline().request([{"role": "user", "content": "é \ud83d"}]).body
    assert b"\xc3\xa9 \\ud83d" in body
    assert json.loads(body)["messages"][0]["content"] == "é \ud83d"


def test_a_server_that_refuses_stream_options_is_not_sent_them() -> None:
    """And one that knows more of them is sent what the suite says."""
    assert "stream_options" not in json.loads(offline(stream_options=False).request(HELLO).body)
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert json.loads(offline(stream_options=options).request(HELLO).body)["stream_options"] == options


@pytest.mark.parametrize(
    ("api", "messages", "params", "problem"),
    [
        ("chat", HELLO, {"model": "other"}, "'model' cannot be a parameter"),
        ("chat", HELLO, {"stream": False}, "'stream' cannot be a parameter"),
        ("chat", HELLO, {"n": 2}, "'n' must be 1"),
        ("chat", HELLO, {"temperature": float("nan")}, "must be JSON"),
        ("chat", [{"role": "user", "content": {1, 2}}], {}, "must be JSON"),
        ("chat", [], {}, "at least one message"),
        ("completions", HELLO, {}, "takes a text"),
        ("anthropic", HELLO, {}, "'max_tokens'"),
        ("anthropic", [{"role": "system", "content": "x"}], {"max_tokens": 1}, "at least one message"),
        ("anthropic", [{"role": "assistant", "tool_calls": [{}]}], {"max_tokens": 1}, "tool call cannot be read"),
    ],
)
def test_a_request_that_cannot_be_sent_is_the_callers_mistake(
    api: Api, messages: list[dict[str, object]], params: dict[str, object], problem: str
) -> None:
    """One line, before anything is announced or paid for."""
    with pytest.raises(InputError, match=problem):
        offline(api).request(messages, params)


@pytest.mark.parametrize(
    ("base", "api", "url"),
    [
        ("https://h/v1/", "chat", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions", "chat", "https://h/v1/chat/completions"),
        ("https://h", "anthropic", "https://h/v1/messages"),
        ("https://h/v1", "anthropic", "https://h/v1/messages"),
        ("https://h/p/v1/messages", "anthropic", "https://h/p/v1/messages"),
        ("https://h/d?api-version=2024", "completions", "https://h/d/completions?api-version=2024"),
    ],
)
def test_a_base_url_is_taken_as_people_write_it(base: str, api: Api, url: str) -> None:
    """With or without a slash, a version, or the path itself."""
    endpoint = make_endpoint(EndpointSpec(api, base, "m", params={"max_tokens": 1}), Client())
    assert endpoint.request("x").url == url


@pytest.mark.parametrize("base", ["", "h/v1", "ftp://h", "http://", "http://h:x/", "http://u:sk-canary@h/v1"])
def test_a_url_that_is_none_or_holds_a_password_is_refused(base: str) -> None:
    """A password in a URL would be in every log line."""
    with pytest.raises(InputError, match="the endpoint's URL") as caught:
        make_endpoint(EndpointSpec("chat", base, "m"), Client())
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-canary\nx", "sk canary", "sk-canary-é"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    """The client library would raise it, with the key in its message. A line's end behind it is common, and no part."""
    with pytest.raises(InputError, match="the endpoint's key") as caught:
        make_endpoint(EndpointSpec("chat", "http://h", "m", SecretStr(key)), Client())
    assert "canary" not in f"{caught.value!r} {caught.value.__context__!r}"


async def test_a_key_from_a_file_loses_its_line_end_and_an_empty_key_is_not_sent() -> None:
    """`$(cat key)` in a shell has none; an environment file often has."""

    async def answer(to: Exchange) -> None:
        await to.stream(WHOLE)

    async with serving(answer) as server:
        async with endpoint_at(server, key="abc\n") as endpoint:
            assert (await ask(endpoint)).error is None
        async with endpoint_at(server, key="") as endpoint:
            assert (await ask(endpoint)).error is None
    assert [seen.headers.get("authorization") for seen in server.seen] == ["Bearer abc", None]


async def test_cookies_are_not_kept() -> None:
    """What one response sets would make the next request another one than was prepared."""

    async def answer(to: Exchange) -> None:
        await to.head(set_cookie="who=me")
        await to.say(WHOLE)
        await to.end()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        await ask(endpoint)
        await ask(endpoint)
    assert "cookie" not in server.seen[1].headers


# --- answers ----------------------------------------------------------------------------------------------------


async def test_a_chat_is_pieces_and_a_reply_with_its_identity() -> None:
    """Usage comes behind the last choice; its cached tokens are a part of the prompt's."""
    got = await said(WHOLE)
    assert got.pieces == [Piece("Hel", 1), Piece("lo", 1), Piece("", 0, Usage(9, 2, 4))]
    assert got.reply == Reply("Hello", (), "stop", Usage(9, 2, 4), "m-2024", "fp_1", "chatcmpl-1")
    assert got.reply.usage.total == 11


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_a_stream_is_read_in_any_packets_with_any_line_ends_comments_and_bytes_between(end: str) -> None:
    """A packet for each byte: the euro sign arrives in three, CR and LF in two."""
    text = "€ 😀 \u2028"
    stream = f": hello{end}{end}event: message{end}" + events(chunk(text), chunk(finish="stop"), "[DONE]", end=end)
    raw = stream.encode()
    got = await said(*(raw[n : n + 1] for n in range(len(raw))))
    assert got.reply is not None, got.error
    assert got.reply.text == got.text == text


async def test_an_event_in_several_data_lines_and_one_of_100_kb_are_read() -> None:
    """Both are rare, and both are in the standard."""
    large = "x" * 100_000
    first = json.dumps(chunk("a"), indent=1).replace("\n", "\ndata: ")
    packets = f"data: {first}\n\n" + events(chunk(large), chunk(finish="stop")) + DONE
    got = await said(*(packets[n : n + 4096] for n in range(0, len(packets), 4096)))
    assert got.reply is not None
    assert got.reply.text == "a" + large


async def test_a_compressed_stream_is_read() -> None:
    """It was not asked for; some proxies compress all the same."""

    async def answer(to: Exchange) -> None:
        await to.head(content_encoding="gzip")
        packed = gzip.compress(WHOLE.encode())
        await to.say(packed[:20], packed[20:])
        await to.end()

    got = await told(answer)
    assert got.text == "Hello"
    assert got.reply is not None


async def test_a_compressed_stream_that_is_none_is_refused() -> None:
    """By the library's own error otherwise."""

    async def answer(to: Exchange) -> None:
        await to.head(content_encoding="gzip")
        await to.say(WHOLE)
        await to.end()

    assert refusal(await told(answer)) is Refusal.MALFORMED


async def test_a_completion_is_text() -> None:
    """For base models: no roles, no deltas."""
    parts = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("a", "b")]
    got = await said(
        events(
            *(chunk() | part for part in parts), chunk(choices=[{"index": 0, "text": "", "finish_reason": "length"}])
        )
        + DONE,
        api="completions",
    )
    assert got.reply is not None
    assert (got.reply.text, got.reply.finish_reason) == ("ab", "length")


async def test_usage_with_each_chunk_is_cumulative_and_the_last_one_counts() -> None:
    """vLLM's continuous_usage_stats: added up, three chunks would cost twice what they did."""
    got = await said(
        events(
            chunk("a", usage=usage(9, 1)),
            chunk("b", usage=usage(9, 2)),
            chunk("c", usage=usage(9, 5)),
            chunk(finish="stop", usage=usage(9, 5)),
        )
        + DONE
    )
    assert [piece.usage.output if piece.usage else None for piece in got.pieces] == [1, 2, 5, 5]
    assert got.reply is not None
    assert got.reply.usage == Usage(9, 5)


@pytest.mark.parametrize("figures", [None, {}, usage(0, 0), usage(-1, 2), {"prompt_tokens": "9"}, usage(True, 1)])
async def test_usage_that_is_no_figure_is_estimated_and_marked(figures: object) -> None:
    """Four bytes a token, and one a piece at the least."""
    got = await said(events(chunk("12345678"), chunk("9"), chunk("0"), chunk(finish="stop", usage=figures)) + DONE)
    assert got.usage is None
    assert got.reply is not None
    body = offline().request(HELLO).body
    assert got.reply.usage == Usage(-(-len(body) // 4), 3, estimated=True)


async def test_reasoning_counts_as_output_and_is_no_text() -> None:
    """It is paid for, and it is not the answer."""
    thought = chunk(choices=[{"index": 0, "delta": {"reasoning_content": "Hmm"}}])
    got = await said(events(thought, chunk("x"), chunk(finish="stop")) + DONE)
    assert [(piece.text, piece.tokens) for piece in got.pieces] == [("", 1), ("x", 1)]
    assert got.reply is not None
    assert got.reply.text == "x"


async def test_a_surrogate_pair_that_was_cut_in_two_is_put_together() -> None:
    """Servers in JavaScript cut between the halves of a character."""
    halves = (json.dumps(chunk("X")).replace("X", half) for half in (r"\ud83d", r"\ude00"))
    got = await said(events(*halves, chunk(finish="stop")) + DONE)
    assert got.reply is not None
    assert got.reply.text == "😀"


async def test_tool_calls_are_put_together_from_their_parts() -> None:
    """Two at once, their parts mixed; one without arguments, which some servers send as nothing."""
    got = await said(
        events(
            tool(0, "read", "", "c0"),
            tool(1, "now", "", "c1"),
            tool(0, arguments='{"pa'),
            tool(0, arguments='th": "é"}'),
            chunk(finish="tool_calls"),
        )
        + DONE
    )
    assert got.reply is not None, got.error
    assert got.reply.tool_calls == (ToolCall("c0", "read", '{"path": "é"}'), ToolCall("c1", "now", "{}"))
    assert (got.reply.text, got.text) == ("", "")
    assert [piece.tokens for piece in got.pieces] == [1, 1, 1, 1]


async def test_tool_calls_without_an_index_are_each_whole() -> None:
    """As some compatible servers send them; merged, their names and arguments would be nonsense."""
    got = await said(
        events(tool(None, "a", "{}", "c0"), tool(None, "b", '{"x":1}', "c1"), chunk(finish="tool_calls")) + DONE
    )
    assert got.reply is not None, got.error
    assert [(call.name, call.arguments) for call in got.reply.tool_calls] == [("a", "{}"), ("b", '{"x":1}')]


@pytest.mark.parametrize(
    ("finish", "content"), [("length", "abc"), ("content_filter", "abc"), ("content_filter", None)]
)
async def test_an_answer_that_was_ended_early_is_a_reply(finish: str, content: str | None) -> None:
    """Too long, or filtered: the model's answer, and no error of anyone's. A filter may leave nothing."""
    got = await said(events(chunk(content), chunk(finish=finish)) + DONE)
    assert got.reply is not None, got.error
    assert (got.reply.finish_reason, got.reply.text) == (finish, content or "")


async def test_an_answer_whose_tokens_all_went_into_reasoning_is_a_reply() -> None:
    """It has no text and ended at its limit: another try would end the same."""
    thought = chunk(choices=[{"index": 0, "delta": {"reasoning_content": "Hmm"}}])
    assert (await said(events(thought, chunk(finish="length")) + DONE)).reply is not None
    assert refusal(await said(events(chunk(finish="length")) + DONE)) is Refusal.EMPTY_BODY


# --- what is no answer ------------------------------------------------------------------------------------------

STOP = chunk(finish="stop")


@pytest.mark.parametrize(
    ("reason", "stream"),
    [
        (Refusal.NO_IDENTITY, events(chunk("a", id=None), chunk(finish="stop", id=""))),
        (Refusal.NO_IDENTITY, events(chunk("a", model=None), chunk(finish="stop", model=None))),
        (Refusal.IDENTITY_CHANGED, events(chunk("a"), chunk("b", id="chatcmpl-2"), STOP)),
        (Refusal.IDENTITY_CHANGED, events(chunk("a"), chunk("b", model="other"), STOP)),
        (Refusal.EMPTY_BODY, events(STOP)),
        (Refusal.EMPTY_BODY, events(chunk(""), STOP, LAST)),
        (Refusal.NO_FINISH_REASON, events(chunk("a"))),
        (Refusal.TRUNCATED_TOOL_CALL, events(tool(0, "f", '{"a": [1, ', "c"), chunk(finish="tool_calls"))),
        (Refusal.TRUNCATED_TOOL_CALL, events(tool(0, "f", '{"a": 1}', "c"), tool(1, "g", "{"), chunk(finish="length"))),
        (Refusal.TRUNCATED_TOOL_CALL, events(tool(0, "", "{}", "c"), chunk(finish="tool_calls"))),
        (Refusal.TRUNCATED_TOOL_CALL, events(tool(0, "f", "[]", "c"), chunk(finish="tool_calls"))),
        (Refusal.TRUNCATED_TOOL_CALL, events(tool(0, "f", '{"a":NaN}', "c"), chunk(finish="tool_calls"))),
        (Refusal.MALFORMED, events("<html>")),
        (Refusal.MALFORMED, events("[1]")),
        (Refusal.MALFORMED, events("[" * 100_000)),
        (Refusal.MALFORMED, events(chunk(choices={}))),
        (Refusal.MALFORMED, events(chunk(choices=[1]))),
        (Refusal.MALFORMED, events(chunk(choices=[{"index": 1, "delta": {"content": "b"}}]))),
        (Refusal.MALFORMED, events(chunk(choices=[{"index": 0}, {"index": 0}]))),
        (Refusal.MALFORMED, events(chunk(choices=[{"delta": {"content": ["a"]}}]))),
        (Refusal.MALFORMED, events(chunk(choices=[{"delta": "a"}]))),
        (Refusal.MALFORMED, events(tool(True, "f"))),
    ],
)
async def test_what_only_looks_like_an_answer_is_refused_with_its_reason(reason: Refusal, stream: str) -> None:
    """It ended in good order, and must not be bound."""
    assert refusal(await said(stream + DONE)) is reason


async def test_a_stream_that_is_no_utf8_is_refused() -> None:
    """Replacement characters would be text that no model has said."""
    assert refusal(await said(events(chunk("X")).encode().replace(b"X", b"\xff"), DONE)) is Refusal.MALFORMED


async def test_an_event_without_end_is_refused_before_it_fills_the_memory() -> None:
    """A server that sends one line for ever."""

    async def answer(to: Exchange) -> None:
        await to.head()
        for _ in range(10_000):
            await to.say(b"x" * 65_536)

    assert refusal(await told(answer)) is Refusal.TOO_LARGE


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("text/html", "<html>Please log in</html>", Refusal.CONTENT_TYPE),
        ("", WHOLE, Refusal.CONTENT_TYPE),
        ("text/plain", WHOLE, Refusal.CONTENT_TYPE),
        ("application/json; charset=utf-8", json.dumps(chunk("a")), Refusal.NOT_A_STREAM),
        ("application/json", "{", Refusal.NOT_A_STREAM),
    ],
)
async def test_a_success_of_another_content_type_is_refused(kind: str, body: str, reason: Refusal) -> None:
    """A proxy's login form is a 200 as well; an answer in one piece was not asked for."""

    async def answer(to: Exchange) -> None:
        await to.head(kind=kind)
        await to.say(body)
        await to.end()

    assert refusal(await told(answer)) is reason


async def test_a_refused_answer_was_paid_for() -> None:
    """What the endpoint billed stands in the stream, also when its answer is none."""
    got = await said(events(STOP, LAST) + DONE)
    assert refusal(got) is Refusal.EMPTY_BODY
    assert got.usage == Usage(9, 2, 4)
