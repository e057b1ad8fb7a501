"""The web application: addresses to pages and streams.

    /                           the batches
    /batch/<b>                  one of them, live
    /batch/<b>/run?run=<r>      → /batch/<b>/run/<r>, one run explained
    /batch/<b>/report           the report of one that has ended
    /events, /batch/<b>/events  what changes on the first two, as server-sent events

An event holds the parts of the page that are not as the follower has them. Whoever comes back says which it saw last,
and gets nothing until there is something newer; after a restart the numbers begin under another name, and it gets all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from bus.archived import ArchivedError
from bus.errors import InputError, ServerError, ViolationError
from bus.types import BatchId
from workers.explaining import svg
from workers.explaining.reading import read_server
from workers.naming import batch_name
from workers.watching import pages
from workers.watching.feed import Feed, Moment
from workers.watching.looking import Watcher
from workers.watching.pages import Parts, Site, batch_parts, list_parts, run_path
from workers.watching.reports import Reports

__all__ = ["Web"]

_FOLLOWERS: Final = 100  # streams at a time; each is a connection
_LINGER: Final = 3.0  # seconds; a page has been read when its stream is opened, and need not be read anew
_PING: Final = 15  # seconds; proxies give up after a minute of silence
_SEND: Final = 20.0  # seconds for a follower to take an event; a laptop that was closed takes none
_EXPLAINING: Final = 1  # histories read at a time: each is read whole
_FIRST_LOOK: Final = 3.0  # seconds that a page waits for what it shows; the stream brings it later


@dataclass(slots=True)
class Web:
    """What the application knows."""

    watcher: Watcher
    site: Site
    reports: Reports
    feeds: dict[BatchId | None, Feed[Parts]] = field(default_factory=dict)
    boot: str = field(default_factory=lambda: secrets.token_hex(4))
    ended: bool = False
    streams: int = 0
    explaining: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_EXPLAINING))

    def app(self) -> Starlette:
        """The application, without its guard."""
        return Starlette(
            routes=[
                Route("/", self.listing),
                Route("/events", self.list_events),
                Route("/batch/{batch}", self.batch),
                Route("/batch/{batch}/events", self.batch_events),
                Route("/batch/{batch}/report", self.report),
                Route("/batch/{batch}/run", self.find_run),
                Route("/batch/{batch}/run/{run:path}", self.run),
                Route("/static/explain.css", _explain_css),
                Mount("/static", StaticFiles(directory=pages.HERE / "static")),
            ],
            exception_handlers={
                ArchivedError: self._archived,
                InputError: self._wrong,
                ServerError: self._gone,
                ViolationError: self._untrue,
                404: self._missing,
            },
        )

    def end(self) -> None:
        """End every stream: the server stops."""
        self.ended = True
        for feed in self.feeds.values():
            feed.end()

    # --- pages -------------------------------------------------------------------------------------------

    async def listing(self, _: Request) -> Response:
        """The batches."""
        moment = await self._now(None)
        return HTMLResponse(self.site.listing(moment.seen, moment.trouble))

    async def batch(self, request: Request) -> Response:
        """One batch. 404 when there is none of that name; while the server is away, a page that waits for it."""
        name = batch_name(request.path_params["batch"])
        with contextlib.suppress(ServerError):
            await self._exists(name)
        moment = await self._now(name)
        return HTMLResponse(self.site.batch(name, moment.seen, moment.trouble))

    async def find_run(self, request: Request) -> Response:
        """Where the form leads."""
        name = batch_name(request.path_params["batch"])
        return RedirectResponse(run_path(name, request.query_params.get("run", "").strip()), 303)

    async def run(self, request: Request) -> Response:
        """One run. Its batch's whole history is read for it, so that one is read at a time."""
        name = batch_name(request.path_params["batch"])
        async with self.explaining:
            told = await read_server(self.watcher.bus, name, request.path_params["run"], self.watcher.archive)
        return HTMLResponse(await asyncio.to_thread(self.site.run, told))

    async def report(self, request: Request) -> Response:
        """The report of a batch that has ended."""
        name = batch_name(request.path_params["batch"])
        made = await self.reports.of(name)
        return FileResponse(made.file, media_type="text/html", headers={"Content-Security-Policy": made.policy})

    # --- streams -----------------------------------------------------------------------------------------

    async def list_events(self, request: Request) -> Response:
        """What changes in the list."""
        return self._stream(request, self._feed(None))

    async def batch_events(self, request: Request) -> Response:
        """What changes in a batch."""
        name = batch_name(request.path_params["batch"])
        with contextlib.suppress(ServerError):
            await self._exists(name)
        return self._stream(request, self._feed(name))

    def _feed(self, batch: BatchId | None) -> Feed[Parts]:
        if batch not in self.feeds:
            for name in [name for name, feed in self.feeds.items() if not feed.polling]:
                del self.feeds[name]
            self.feeds[batch] = Feed(self._look_at(batch), lambda parts: parts.refresh, linger=_LINGER)
        return self.feeds[batch]

    def _look_at(self, batch: BatchId | None) -> Callable[[], Awaitable[Parts]]:
        async def look() -> Parts:
            if batch is None:
                return list_parts(await self.watcher.briefs())
            return batch_parts(await self.watcher.view(batch))

        return look

    async def _exists(self, batch: BatchId) -> None:
        """Raises InputError, with the nearest names, when there is no such batch: before a page is begun."""
        await self.watcher.check(batch)

    async def _now(self, batch: BatchId | None) -> Moment[Parts]:
        """What a page begins with. Nobody waits long for a server that is away: the page says so, and waits itself."""
        try:
            async with asyncio.timeout(_FIRST_LOOK), contextlib.aclosing(self._feed(batch).follow()) as moments:
                async for moment in moments:
                    return moment
        except TimeoutError:
            pass
        return Moment(0, None, "Still reading. What there is appears here by itself.")

    def _stream(self, request: Request, feed: Feed[Parts]) -> Response:
        boot, _, number = request.headers.get("last-event-id", "").partition("-")
        after = int(number) if boot == self.boot and number.isdecimal() else 0
        return _Stream(self, self._events(feed, after))

    async def _events(self, feed: Feed[Parts], after: int) -> AsyncIterator[ServerSentEvent]:
        shown: dict[str, str] = {}
        async with contextlib.aclosing(feed.follow(after)) as moments:
            async for moment in moments:
                yield self._event(moment, shown)

    def _event(self, moment: Moment[Parts], shown: dict[str, str]) -> ServerSentEvent:
        """`shown` is what this follower has; it is brought up to date."""
        number = f"{self.boot}-{moment.number}"
        if moment.trouble or moment.seen is None:
            return ServerSentEvent(moment.trouble, event="trouble", id=number)
        parts = moment.seen
        changed = {name: html for name, html in parts.html.items() if shown.get(name) != html}
        shown.update(changed)
        news = {"html": changed, "state": parts.state, "sentence": parts.sentence, "title": parts.title}
        return ServerSentEvent(json.dumps(news), event="parts", id=number)

    # --- what goes wrong ---------------------------------------------------------------------------------

    async def _wrong(self, _: Request, error: Exception) -> Response:
        return HTMLResponse(self.site.problem("Not found", str(error)), 404)

    async def _archived(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, ArchivedError)
        said = f"{error.problem}. It is read from there with: evalbus serve --archive DIR"
        return HTMLResponse(self.site.problem("Part of the history is in an archive", said), 404)

    async def _missing(self, _: Request, __: Exception) -> Response:
        return HTMLResponse(self.site.problem("Not found", "There is no such page."), 404)

    async def _gone(self, _: Request, error: Exception) -> Response:
        page = self.site.problem("The data server does not answer", str(error))
        return HTMLResponse(page, 503, {"Retry-After": "5"})

    async def _untrue(self, _: Request, error: Exception) -> Response:
        return HTMLResponse(self.site.problem("The history is not true", str(error)), 500)


class _Stream(EventSourceResponse):
    """A follower's stream, or that there are too many.

    Who follows is counted here, and not by the feeds: there one counts when its stream is first read, and all who come
    at the same moment would find the same room.
    """

    def __init__(self, web: Web, events: AsyncIterator[ServerSentEvent]) -> None:
        super().__init__(events, ping=_PING, send_timeout=_SEND, headers={"Cache-Control": "no-store"})
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the stream, as long as it lasts."""
        if self._web.ended or self._web.streams >= _FOLLOWERS:
            full = PlainTextResponse("Too many are looking.\n", 503, {"Retry-After": "30"})
            await full(scope, receive, send)
            return
        self._web.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._web.streams -= 1


async def _explain_css(_: Request) -> Response:
    """The pictures' own style sheet; ours puts the colours of the theme over it."""
    return Response(svg.CSS, media_type="text/css")
