"""How a request ends without a reply: statuses, cuts, silences; what each error says, and what it never says."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import socket
import time
from email.utils import formatdate
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from tests.asking import CANARY, DONE, HELLO, LAST, WHOLE, ask, chunk, endpoint_at, said, told
from tests.sse_server import Exchange, events, serving
from tests.waiting import soon
from workers.endpoints import (
    BadRequestError,
    CutError,
    EndpointError,
    EndpointSpec,
    OverloadedError,
    RateLimitedError,
    Refusal,
    RefusedAnswerError,
    SilentError,
    UnusableError,
    Usage,
    make_endpoint,
    open_client,
)
from workers.endpoints.failures import MAX_ERROR_BODY, retry_after
from workers.endpoints.values import Api


async def failed(status: int, body: str | bytes = "", kind: str = "application/json", **headers: str) -> EndpointError:
    """The error that a response becomes."""

    async def answer(to: Exchange) -> None:
        await to.head(status, kind, **headers)
        if body:
            await to.say(body)
        await to.end()

    got = await told(answer)
    assert got.error is not None
    return got.error


# --- statuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "may_pass", "free"),
    [
        (400, BadRequestError, False, True),
        (413, BadRequestError, False, True),
        (422, BadRequestError, False, True),
        (401, UnusableError, False, True),
        (402, UnusableError, False, True),
        (403, UnusableError, False, True),
        (404, UnusableError, False, True),
        (408, OverloadedError, True, False),
        (409, OverloadedError, True, False),
        (429, RateLimitedError, True, True),
        (500, OverloadedError, True, False),
        (503, OverloadedError, True, False),
        (529, OverloadedError, True, False),
    ],
)
async def test_each_status_is_one_error(status: int, error: type[EndpointError], may_pass: bool, free: bool) -> None:
    """What to do next hangs on it: again, never, or pay."""
    found = await failed(status, json.dumps({"error": {"message": "It says why.", "type": "x"}}))
    assert type(found) is error
    assert (found.may_pass, found.free) == (may_pass, free)
    assert f"{status}: It says why." in str(found)
    assert str(found).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("path", "api", "hint"),
    [
        ("", "chat", " (is /v1 missing in base_url?)"),
        ("/api/", "chat", " (is /v1 missing in base_url?)"),
        ("/v1", "chat", ""),
        ("/api/v3/", "chat", ""),
        ("/v1beta/openai", "chat", ""),
        ("", "anthropic", ""),
    ],
)
async def test_an_endpoint_that_is_not_found_says_when_the_version_may_be_missing(
    path: str, api: Api, hint: str
) -> None:
    """The commonest slip in a base URL. Anthropic's has none: its API's own paths begin with the version."""

    async def answer(to: Exchange) -> None:
        await to.head(404, "application/json")
        await to.say('{"error": {"message": "No such page."}}')
        await to.end()

    async with serving(answer) as server, open_client() as client:
        spec = EndpointSpec(api, server.url.removesuffix("/v1") + path, "m", params={"max_tokens": 5})
        got = await ask(make_endpoint(spec, client))
    assert isinstance(got.error, UnusableError)
    assert str(got.error).endswith(f": 404: No such page.{hint}")


async def test_no_other_refusal_asks_for_a_version() -> None:
    """A wrong key is one with any URL."""
    assert "/v1" not in str(await failed(401, json.dumps({"error": {"message": "Who are you?"}})))


@pytest.mark.parametrize("status", [429, 503])
async def test_the_time_to_stay_away_is_read_from_the_response(status: int) -> None:
    """In seconds; None when none is named."""
    assert (await failed(status, retry_after="7")).retry_after == 7.0
    assert (await failed(status)).retry_after is None


def test_retry_after_is_a_number_or_a_date_and_never_more_than_an_hour() -> None:
    """A date counts from the server's own clock, which may not be ours."""
    date = formatdate(1_700_000_000, usegmt=True)
    later = formatdate(1_700_000_030, usegmt=True)
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after": "0"}) == 0.0
    assert retry_after({"retry-after": later, "date": date}) == 30.0
    assert retry_after({"retry-after": date, "date": later}) == 0.0
    assert retry_after({"retry-after": later}) == 0.0
    soon_after = retry_after({"retry-after": formatdate(time.time() + 100, usegmt=True)})
    assert soon_after is not None
    assert 90 < soon_after <= 100
    assert retry_after({"retry-after": "999999999"}) == 3600.0
    assert retry_after({"retry-after": formatdate(4_000_000_000, usegmt=True), "date": date}) == 3600.0
    for none in ("", "soon", "-1", "nan", "inf", "1e9", "9" * 400, "Mon, 99 Foo 2024", "\u0663"):
        assert retry_after({"retry-after": none}) is None, none


async def test_a_429_for_want_of_money_is_no_rate_limit() -> None:
    """It does not pass by waiting."""
    body = {"error": {"message": "You exceeded your current quota", "type": "x", "code": "insufficient_quota"}}
    assert isinstance(await failed(429, json.dumps(body), retry_after="1"), UnusableError)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """It would take the key to another place. The error says where it pointed, without what may be a secret."""
    async with serving(lambda to: to.stream(WHOLE)) as other:
        found = await failed(status, location=f"{other.url}/chat/completions?token=x")
        assert other.seen == []
    assert isinstance(found, UnusableError)
    assert f"a redirect to {other.url}/chat/completions;" in str(found)
    assert "token" not in str(found)


async def test_a_page_in_the_place_of_a_message_is_shown_as_one_short_line() -> None:
    """Without its tags, scripts and control characters: a terminal obeys those."""
    page = "<html><style>a{}</style><h1>502\nBad\x1b[31m Gateway</h1>" + "<p>long</p>" * 500
    found = str(await failed(502, page, "text/html"))
    assert ": 502: 502 Bad [31m Gateway long long" in found
    assert len(found) < 300
    assert "\x1b" not in found


async def test_an_error_whose_body_never_ends_is_known_by_its_status() -> None:
    """The status was there; what is missing is only what it says."""

    async def answer(to: Exchange) -> None:
        await to.head(503)
        for _ in range(100):
            await to.say("x" * 1024)
        await to.until_left()

    assert isinstance((await told(answer)).error, OverloadedError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "no", "code": 400}, BadRequestError),
        ({"message": "no", "code": "429"}, RateLimitedError),
        ({"message": "no", "code": 502}, OverloadedError),
        ({"message": "no", "type": "BadRequestError", "code": 400}, BadRequestError),
        ({"message": "no", "code": "context_length_exceeded"}, BadRequestError),
        ({"message": "no", "type": "server_error"}, OverloadedError),
        ("no", OverloadedError),
    ],
)
async def test_an_error_object_in_the_stream_is_that_error_and_not_free(error: object, kind: type) -> None:
    """The head said 200, and pieces were delivered: they are owed."""
    got = await said(events(chunk("a"), {"error": error}) + DONE)
    assert type(got.error) is kind
    assert got.text == "a"
    assert not got.error.free  # type: ignore[union-attr]
    assert "no" in str(got.error)


async def test_an_error_as_json_with_a_200_is_that_error() -> None:
    """Some gateways know one status."""
    found = await failed(200, json.dumps({"error": {"message": "slow down", "code": 429}}))
    assert isinstance(found, RateLimitedError)
    assert found.free


# --- cuts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_a_connection_that_is_cut_says_how_many_pieces_were_delivered(pieces: int) -> None:
    """They were paid for, whatever becomes of the rest."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(
            *(events(chunk(str(n), usage={"prompt_tokens": 9, "completion_tokens": n})) for n in range(pieces))
        )
        to.cut()

    got = await told(answer)
    assert isinstance(got.error, CutError)
    assert got.error.pieces == len(got.pieces) == pieces
    assert got.usage == (Usage(9, pieces - 1) if pieces else None)
    assert got.error.may_pass
    assert not got.error.free


@pytest.mark.parametrize(
    "stream", [events(chunk("a")), events(chunk("a"), chunk(finish="stop"), LAST), WHOLE[: -len("]\n\n")]]
)
async def test_an_answer_without_its_terminator_was_cut(stream: str) -> None:
    """Also when the body ended in good order: a proxy ends what its server did not."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(stream)
        await to.end()

    assert isinstance((await told(answer)).error, CutError)


async def test_a_response_without_a_byte_is_an_empty_body_and_no_cut() -> None:
    """In good order, so nothing broke: a retry of the run's, which is bounded, and not one of the whole fleet's."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.end()

    error = (await told(answer)).error
    assert isinstance(error, RefusedAnswerError)
    assert error.reason is Refusal.EMPTY_BODY


async def test_a_terminator_without_its_empty_line_is_one() -> None:
    """Some servers leave it out at the very end."""
    got = await said(WHOLE[:-1])
    assert got.reply is not None


async def test_a_connection_that_ends_before_a_head_was_cut() -> None:
    """The server may have begun to spend: nobody knows."""

    async def answer(to: Exchange) -> None:
        to.cut()

    got = await told(answer)
    assert isinstance(got.error, CutError)
    assert got.error.pieces == 0


async def test_nobody_there_may_pass_and_costs_nothing() -> None:
    """A server that is restarted is back soon; and no request has left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with open_client() as client:
        endpoint = make_endpoint(EndpointSpec("chat", f"http://127.0.0.1:{port}", "m", SecretStr(CANARY)), client)
        error = (await soon(ask(endpoint))).error
    assert isinstance(error, UnusableError)
    assert (error.unreachable, error.may_pass, error.free) == (True, True, True)
    assert str(error).endswith(": cannot be reached: Connection refused")


# --- silences ---------------------------------------------------------------------------------------------------


async def test_a_server_that_takes_the_request_and_says_nothing_costs_a_named_time() -> None:
    """No head: the connection is closed from here, which is how the server learns of it."""

    async def answer(to: Exchange) -> None:
        await to.until_left()

    async with serving(answer) as server, endpoint_at(server, first_token=0.1) as endpoint:
        got = await soon(ask(endpoint))
        await soon(server.left.wait())
    assert isinstance(got.error, SilentError)
    assert (got.error.which, got.error.pieces, got.error.free) == ("first_token", 0, False)


async def test_a_head_and_pings_are_no_token() -> None:
    """A proxy sends both for a model that is dead."""

    async def answer(to: Exchange) -> None:
        await to.head()
        while True:
            await to.say(": ping\n\n", events(chunk("")))
            await asyncio.sleep(0.005)

    async with serving(answer) as server, endpoint_at(server, first_token=0.15) as endpoint:
        got = await soon(ask(endpoint))
        await soon(server.left.wait())
    assert isinstance(got.error, SilentError)
    assert got.error.which == "first_token"


async def test_a_flood_of_comments_does_not_outlive_the_time() -> None:
    """Each read finds something at once."""

    async def answer(to: Exchange) -> None:
        await to.head()
        flood = ": x\n" * 10_000
        while True:
            await to.say(flood)

    got = await told(answer, first_token=0.2)
    assert isinstance(got.error, SilentError)


@pytest.mark.parametrize("last", [chunk("b"), chunk(finish="stop"), LAST])
async def test_a_silence_after_a_piece_is_told_apart(last: dict[str, object]) -> None:
    """In the middle, and before the terminator: both are no end."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(events(chunk("a"), last))
        await to.until_left()

    async with serving(answer) as server, endpoint_at(server, idle=0.1) as endpoint:
        got = await soon(ask(endpoint))
        await soon(server.left.wait())
    assert isinstance(got.error, SilentError)
    assert got.error.which == "idle"
    assert got.error.pieces == (2 if last == chunk("b") else 1)


async def test_an_endless_answer_ends_with_the_total_time() -> None:
    """Token after token, never silent."""

    async def answer(to: Exchange) -> None:
        await to.head()
        while True:
            await to.say(events(chunk("a")))
            await asyncio.sleep(0.005)

    got = await told(answer, total=0.2)
    assert isinstance(got.error, SilentError)
    assert got.error.which == "total"
    assert got.error.pieces > 0


async def test_the_callers_own_slowness_is_not_the_servers_silence() -> None:
    """A flush to the ledger may take longer than `idle` while the next piece already waits here."""

    async def answer(to: Exchange) -> None:
        await to.stream(events(chunk("a")), events(chunk("b"), chunk(finish="stop")) + DONE)

    async with serving(answer) as server, endpoint_at(server, idle=0.1) as endpoint:
        text = ""
        async with endpoint.stream(endpoint.request(HELLO), "r") as stream:
            async for piece in stream:
                text += piece.text
                await asyncio.sleep(0.15)
    assert text == stream.reply.text == "ab"


# --- leaving ----------------------------------------------------------------------------------------------------


async def test_leaving_the_context_closes_the_connection() -> None:
    """That is the cancel: a server stops generating for a client that has gone."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(events(chunk("a")))
        await to.until_left()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        async with endpoint.stream(endpoint.request(HELLO), "r") as stream:
            assert (await anext(aiter(stream))).text == "a"
            assert not server.left.is_set()
        await soon(server.left.wait())
        with pytest.raises(RuntimeError, match="last piece"):
            stream.reply  # noqa: B018


@pytest.mark.parametrize("when", ["before the head", "in the stream"])
async def test_a_cancelled_caller_leaves_no_connection_behind(when: str) -> None:
    """Else an endpoint would generate, and bill, for nobody."""
    reached = asyncio.Event()

    async def answer(to: Exchange) -> None:
        if when == "in the stream":
            await to.head()
            await to.say(events(chunk("a")))
        reached.set()
        await to.until_left()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        asking = asyncio.ensure_future(ask(endpoint))
        await soon(reached.wait())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(asking)
        await soon(server.left.wait())


async def test_a_connection_whose_answer_was_whole_is_used_again() -> None:
    """A new one for each call would cost a TLS handshake each. One that was left is closed, and not used."""
    async with serving(lambda to: to.stream(WHOLE)) as server, endpoint_at(server) as endpoint:
        for _ in range(3):
            assert (await soon(ask(endpoint))).reply is not None
        assert server.connections == 1


async def test_a_server_that_keeps_the_response_open_behind_its_terminator_is_not_waited_for() -> None:
    """The answer is whole; the connection is not worth more than a moment."""

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(WHOLE)
        await to.until_left()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        got = await soon(ask(endpoint))
        await soon(server.left.wait())
    assert got.reply is not None


# --- secrets ----------------------------------------------------------------------------------------------------


def spellings() -> dict[str, str]:
    """The key as a server might send it back."""
    quoted = json.dumps(CANARY)[1:-1]
    return {
        "plain": CANARY,
        "json": quoted,
        "html": html.escape(CANARY),
        "url": quote(CANARY),
        "url all": quote(CANARY, ""),
    }


@pytest.mark.parametrize("spelling", spellings())
@pytest.mark.parametrize("place", ["json", "page", "at the cut", "location", "stream", "id", "reason", "content type"])
async def test_a_server_that_sends_the_key_back_finds_it_in_no_error(place: str, spelling: str) -> None:
    """In any place from which an error's text is made, and in each spelling; nor its first half, where it was cut."""
    key = spellings()[spelling]
    text = f"Incorrect key {key} provided"
    match place:
        case "json":
            error: EndpointError | None = await failed(401, json.dumps({"error": {"message": text}}))
        case "page":
            error = await failed(500, f"<p>{text}</p>", "text/html")
        case "at the cut":
            error = await failed(500, "<" + " " * (MAX_ERROR_BODY - 12) + ">" + key, "text/html")
        case "location":
            error = await failed(302, location=f"/login/{key}")
        case "stream":
            error = (await said(events(chunk("a"), {"error": {"message": text, "type": key}}))).error
        case "id":
            error = (await said(events(chunk("a"), chunk("b", id=key), DONE))).error
        case "reason":
            error = (await said(f"data: {text}\n\n")).error
        case _:
            error = await failed(200, "x", f"text/{key}")
    assert error is not None
    for shown in (str(error), repr(error), repr(error.args), repr(error.__dict__)):
        assert not any(one in shown for one in spellings().values()), shown
        assert "canary" not in shown.lower(), shown


async def test_no_log_of_a_client_library_is_written_even_at_the_lowest_level(caplog: pytest.LogCaptureFixture) -> None:
    """A solver may set the root logger to DEBUG; a library would then tell URLs, and headers that came."""
    caplog.set_level(logging.DEBUG)

    async def answer(to: Exchange) -> None:
        await to.head(x_echo=to.request.headers["authorization"])
        await to.say(WHOLE)
        await to.end()

    assert (await told(answer)).reply is not None
    names = {record.name.partition(".")[0] for record in caplog.records}
    assert not names & {"aiohttp", "httpx", "httpcore"}
    assert "canary" not in caplog.text
