"""One request over HTTP: its body as hashed, its times, its status, its stream; and nothing sent twice.

Every wait for the other side stands in `_Clock.bound`, so that a server that accepts and never answers costs a named
time and no more. The times run on the event loop's clock, as the network does.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from yarl import URL

from bus.errors import InputError
from bus.types import Digest
from workers.endpoints.client import Client
from workers.endpoints.dialect import Answer, Dialect, merge, pack
from workers.endpoints.errors import Refusal, Wait
from workers.endpoints.failures import MAX_ERROR_BODY, Failures
from workers.endpoints.sse import EventTooLarge, SseDecoder, SseEvent
from workers.endpoints.values import EndpointSpec, Messages, Params, Piece, Prepared, Reply, Usage, estimate_tokens

__all__ = ["HttpEndpoint", "HttpStream"]

T = TypeVar("T")

_ERROR_BODY = 5.0
"""Seconds for the body of an error, whose status is known already."""
_TAIL = 0.25
"""Seconds for the end of a response behind its terminator: with it the connection can be used again."""
_OK = 200
_BROKEN = (aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class _Due:
    which: Wait
    at: float
    after: float


class _Clock:
    """The three times of one request."""

    def __init__(self, spec: EndpointSpec, failures: Failures) -> None:
        self._spec, self._failures = spec, failures
        self._start = self._since = self._now()
        self.pieces = 0

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def asked(self) -> None:
        """The caller waits for the next piece: the time that it took for the last one is not the server's silence."""
        self._since = self._now()

    def _due(self) -> _Due:
        spec = self._spec
        total = _Due("total", self._start + spec.total, spec.total)
        if self.pieces:
            return min(_Due("idle", self._since + spec.idle, spec.idle), total, key=lambda due: due.at)
        return min(_Due("first_token", self._start + spec.first_token, spec.first_token), total, key=lambda due: due.at)

    async def bound(self, what: Awaitable[T]) -> T:
        """Wait for it until a time runs out. Raises SilentError."""
        due = self._due()
        late = asyncio.timeout_at(due.at)
        try:
            async with late:
                return await what
        except TimeoutError:
            if not late.expired():
                raise
            raise self._failures.silent(due.which, due.after, self.pieces) from None


class HttpStream:
    """See `workers.endpoints.endpoint.Stream`."""

    def __init__(self, response: aiohttp.ClientResponse, answer: Answer, clock: _Clock, failures: Failures) -> None:
        """`response`: its head was looked at, its body not yet."""
        self._body = response.content
        self._answer, self._clock, self._failures = answer, clock, failures
        self._decoder = SseDecoder()
        self._events: Iterator[SseEvent] = iter(())
        self._reply: Reply | None = None
        self._began = False

    @property
    def usage(self) -> Usage | None:
        """The endpoint's last figure so far."""
        return self._answer.usage

    @property
    def reply(self) -> Reply:
        """The whole answer. Raises RuntimeError before the last piece was read."""
        if self._reply is None:
            raise RuntimeError("the reply is there when the last piece was read")
        return self._reply

    def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces, once."""
        return self

    async def __anext__(self) -> Piece:
        """The next piece."""
        waits = False
        while not self._answer.done:
            event = self._next_event()
            if event is None:
                if not waits:
                    self._clock.asked()
                    waits = True
                await self._read()
            elif (piece := self._answer.feed(event)) is not None:
                self._clock.pieces += 1 if piece.tokens else 0
                return piece
        if self._reply is None:
            self._reply = self._answer.reply()
        raise StopAsyncIteration

    def _next_event(self) -> SseEvent | None:
        try:
            return next(self._events, None)
        except EventTooLarge as error:
            raise self._failures.refused(Refusal.TOO_LARGE, str(error)) from None
        except UnicodeDecodeError:
            raise self._failures.refused(Refusal.MALFORMED, "the stream is no UTF-8") from None

    async def _read(self) -> None:
        try:
            data = _arrived(self._body) or await self._clock.bound(self._body.readany())
        except _BROKEN as error:
            raise self._failures.of_transport(error, self._clock.pieces) from None
        if data:
            self._began = True
            self._events = self._decoder.feed(data)
        elif (last := self._decoder.end()) is not None:
            self._events = iter((last,))
        elif not self._began:
            raise self._failures.refused(Refusal.EMPTY_BODY, "a response in good order, without a byte")
        else:
            raise self._failures.cut("it has no terminator", self._clock.pieces)

    async def drain(self) -> None:
        """Read the end of a response that was read up to its terminator."""
        if self._body.is_eof():
            return
        with suppress(*_BROKEN):
            async with asyncio.timeout(_TAIL):
                while await self._body.readany():
                    pass


class HttpEndpoint:
    """See `workers.endpoints.endpoint.Endpoint`."""

    def __init__(self, spec: EndpointSpec, client: Client, dialect: Dialect) -> None:
        """Raises InputError when the URL or the key cannot be used."""
        self.spec = spec
        self._client, self._dialect = client, dialect
        self._url = _url(spec, dialect.path)
        hint = "" if _has_version(self._url) else "is /v1 missing in base_url?"
        self._failures = Failures(spec, f"{self._url.scheme}://{self._url.authority}", hint)
        _check_key(spec)

    def request(self, messages: Messages, params: Params | None = None) -> Prepared:
        """See Endpoint."""
        body = pack(self._dialect.body(self.spec.model, messages, merge(self.spec.params, params)))
        headers = {"content-type": "application/json", "accept": "text/event-stream", **self._dialect.headers}
        digest = Digest(hashlib.sha256(body).hexdigest())
        return Prepared(str(self._url), headers, body, digest, estimate_tokens(body))

    @asynccontextmanager
    async def stream(self, prepared: Prepared, request_id: str) -> AsyncIterator[HttpStream]:
        """See Endpoint."""
        clock = _Clock(self.spec, self._failures)
        try:
            response = await clock.bound(
                self._client.post(prepared.url, self._headers(prepared, request_id), prepared.body)
            )
        except _BROKEN as error:
            raise self._failures.of_transport(error, 0) from None
        try:
            await self._look_at(response, clock)
            answer = self._dialect.answer(self._failures, prepared.input_estimate)
            stream = HttpStream(response, answer, clock, self._failures)
            yield stream
            if answer.done:
                await stream.drain()
        finally:
            response.close()

    def _headers(self, prepared: Prepared, request_id: str) -> Mapping[str, str]:
        """What the request carries; the key stands nowhere else, and in no variable that a traceback would show."""
        return {
            **prepared.headers,
            # Compressed, a stream may be held back until a block is full. What comes compressed is read all the same.
            "accept-encoding": "identity",
            "idempotency-key": request_id,
            "x-request-id": request_id,
            **(self._dialect.authorise(self.spec.key.get_secret_value().strip()) if self.spec.key else {}),
        }

    async def _look_at(self, response: aiohttp.ClientResponse, clock: _Clock) -> None:
        """Raise unless an event stream follows."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status != _OK:
            body = await _some(response, clock)
            raise self._failures.of_status(response.status, response.headers, body)
        if kind == "text/event-stream":
            return
        if kind != "application/json":
            raise self._failures.refused(Refusal.CONTENT_TYPE, f"a response of type {kind or 'none'}")
        raise self._failures.of_json(await _some(response, clock))


async def _some(response: aiohttp.ClientResponse, clock: _Clock) -> bytes:
    """The beginning of a body that is no stream, as far as it comes in time."""
    body = bytearray()

    async def read() -> None:
        while len(body) < MAX_ERROR_BODY and (data := await response.content.readany()):
            body.extend(data)

    with suppress(*_BROKEN):
        async with asyncio.timeout(_ERROR_BODY):
            await read()
    return bytes(body[:MAX_ERROR_BODY])


def _arrived(body: aiohttp.StreamReader) -> bytes:
    """What is there by now, without waiting; empty when nothing is.

    Also when the connection has broken since: what came before that was delivered, and is paid for. None of the
    reader's public methods gives it then.
    """
    return body._read_nowait(-1)


def _url(spec: EndpointSpec, path: str) -> URL:
    """The whole URL. A base that ends with the path, or with its version, is taken as it was meant."""
    try:
        url = URL(spec.base_url)
    except ValueError as error:
        raise InputError(f"the endpoint's URL cannot be read: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(f"the endpoint's URL must begin with http:// or https://, not {url.scheme or url.path!r}")
    if url.raw_user is not None or url.raw_password is not None:
        raise InputError("the endpoint's URL holds a password", remedy="put the key where the suite names it")
    base = url.raw_path.rstrip("/")
    if base.endswith(path):
        return url.with_path(base, encoded=True, keep_query=True)
    version = "/v1"
    if path.startswith(f"{version}/") and base.endswith(version):
        path = path.removeprefix(version)
    return url.with_path(base + path, encoded=True, keep_query=True)


def _has_version(url: URL) -> bool:
    """Whether a part of the path is one: `v1`, `v3`, `v1beta`. Nearly every server has its API below one."""
    return any(re.fullmatch(r"v[0-9]+[a-z0-9]*", part) for part in url.path.split("/"))


def _check_key(spec: EndpointSpec) -> None:
    """Raise for a key that no header can carry. The client library would raise too, and show the key in its message."""
    if not all("!" <= character <= "~" for character in spec.key.get_secret_value().strip()):
        raise InputError("the endpoint's key has blanks or characters that are no ASCII", remedy="is it a key at all?")
