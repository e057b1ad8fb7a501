"""`evalbus serve`: who may ask and for what, what the streams say, and the page of a batch that runs, in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from bus.acl import AclRole, rule, user_name
from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.port import NextRuns
from bus.target import Target
from bus.types import Plane, RunId
from tests.batches import P1, W2, Batch
from tests.browser import browsing, needs_chromium
from tests.fleet import Stage, eventually
from tests.houses import House, open_house
from tests.servers import RealServer, running
from tests.waiting import PATIENCE, soon, until
from workers import serving as listening
from workers.listening import listen
from workers.watching.guard import Guard, Keyring, is_loopback

TOKEN = "correct-horse-battery"  # noqa: S105 - of a server that lives for a second
EVERYWHERE = "0.0.0.0"  # noqa: S104 - named, not bound, but by a server that asks for its token
Scheme = Literal["light", "dark"]
HOSTILE = RunId("</script><img src=x onerror=alert(1)>\"'&#1")


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits for what it shows, however slow the machine is."""
    monkeypatch.setattr("workers.watching.web._FIRST_LOOK", 20.0)


# --- who may ask ------------------------------------------------------------------------------------------


async def _said(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("shown")(scope, receive, send)


def asking(host: str = "127.0.0.1", token: str | None = None) -> httpx.AsyncClient:
    """A browser before the guard of a server that listens at `host`, and asks for `token`."""
    keyring = None if token is None else Keyring.of(token, 8378)
    guard = Guard(_said, host=host, keyring=keyring)
    return httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url="http://localhost:8378")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
async def test_nothing_but_get_and_head_is_answered(method: str) -> None:
    """Whatever is asked for, and whoever asks."""
    async with asking() as client:
        answer = await client.request(method, "/")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert (await client.head("/")).status_code == 200


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("localhost:8378", 200),
        ("127.0.0.1", 200),
        ("127.9.9.9:1", 200),
        ("[::1]:8378", 200),
        ("localhost:9000", 200),  # the far end of a tunnel
        ("evil.example:8378", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
async def test_on_the_loopback_a_name_that_was_rebound_is_refused(name: str, code: int) -> None:
    """A page on the internet whose name points at 127.0.0.1 is of the same origin as what answers there."""
    async with asking() as client:
        assert (await client.get("/", headers={"host": name})).status_code == code


async def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address() -> None:
    """Addresses end up in logs and on screens; the cookie is not for scripts, not for other sites, not the token."""
    async with asking(EVERYWHERE, TOKEN) as client:
        assert (await client.get("/batch/b")).status_code == 401
        first = await client.get(f"/batch/a%23b?x=1&token={TOKEN}&y=%26")
        assert (first.status_code, first.headers["location"]) == (303, "/batch/a%23b?x=1&y=%26")
        cookie = first.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        assert TOKEN not in cookie
        assert (await client.get("/batch/b")).text == "shown"


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%2F/evil.example"])
async def test_a_token_leads_nowhere_else(path: str) -> None:
    """An address that begins with two slashes is another host to a browser."""
    async with asking(EVERYWHERE, TOKEN) as client:
        answer = await client.get(httpx.URL("http://localhost:8378", raw_path=f"{path}?token={TOKEN}".encode()))
        assert re.match(r"/[^/\\]|/$|/\\\\", answer.headers["location"]), answer.headers["location"]
        assert not answer.headers["location"].startswith(("//", "/\\"))


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"cookie": f"evalbus_8378={Keyring.of(TOKEN, 8378).cookie_value}"}, 200),
        ({"cookie": f"evalbus_8378={TOKEN}"}, 401),
        ({"cookie": f"evalbus_9999={Keyring.of(TOKEN, 8378).cookie_value}"}, 401),
        ({"cookie": "evalbus_8378=\u00e9"}, 401),
        ({"cookie": ';;;=\\"evalbus_8378'}, 401),
        ({}, 401),
    ],
)
async def test_a_token_is_shown_in_a_header_or_by_its_cookie(headers: Mapping[str, str], code: int) -> None:
    """Nonsense is a wrong token, and no error of the server's."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with asking(EVERYWHERE, TOKEN) as client:
        answer = await client.get("/", headers=raw)
    assert answer.status_code == code
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_wrong_token_in_the_address_gets_no_cookie() -> None:
    """Nor one that is the beginning of the right one."""
    async with asking(EVERYWHERE, TOKEN) as client:
        for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "\u00e9"):
            answer = await client.get("/", params={"token": wrong})
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    """It is compared on every request, as often as somebody likes."""
    with pytest.raises(InputError, match="a token of 5 characters can be guessed"):
        Keyring.of("12345", 1)


def test_only_the_loopback_is_loopback() -> None:
    """Everything else asks for a token."""
    names = ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", EVERYWHERE, "::", "192.168.0.1", "example", ""]
    assert [is_loopback(name) for name in names] == [True] * 5 + [False] * 5


# --- a server that listens --------------------------------------------------------------------------------


async def test_a_page_reads_without_scripts(server: Target, tmp_path: Path) -> None:
    """All that is shown is in the page; without scripts it comes anew every few seconds."""
    async with open_house(server, tmp_path) as house:
        await house.batch.claimed()
        page = (await house.client.get("/batch/b")).text
        assert '<span class="figure">0</span> of 3 runs have ended' in page
        assert '<a href="/batch/b/run/c0%231">c0#1</a>' in page
        assert '<noscript><meta http-equiv="refresh"' in page
        assert '<a href="/batch/b">b</a>' in (await house.client.get("/")).text


async def test_no_page_of_an_open_batch_says_a_pass_rate(server: Target, tmp_path: Path) -> None:
    """Two of three have passed: neither that share nor its bins are anywhere."""
    async with open_house(server, tmp_path) as house:
        await house.batch.scored()
        await house.batch.scored()
        for path in ("/", "/batch/b"):
            text = (await house.client.get(path)).text
            assert "1.0000" not in text
            assert "100" not in re.sub(r"<[^>]*>", "", text)
            assert "pass</li>" not in text
        assert "Progress, not a pass rate" in (await house.client.get("/batch/b")).text


async def test_a_closed_batch_shows_its_number_and_leads_to_its_report(server: Target, tmp_path: Path) -> None:
    """The number, with its denominator and snapshot; the report is one file with a policy of its own."""
    async with open_house(server, tmp_path, runs=2) as house:
        await house.batch.scored()
        open_still = await house.client.get("/batch/b/report")
        assert (open_still.status_code, "is open" in open_still.text) == (404, True)
        await house.batch.bus.hole((await house.batch.claimed()).ref, "solver_error", "it raised")
        snapshot = await house.batch.closed()
        page = (await house.client.get("/batch/b")).text
        assert '<span class="figure">1.0000</span> pass rate' in page
        assert "1 of 1 scored runs passed" in page
        assert snapshot.snapshot_id in page
        assert 'href="/batch/b/report"' in page
        report = await house.client.get("/batch/b/report")
        assert report.status_code == 200
        assert snapshot.snapshot_id in report.text
        policy = report.headers["content-security-policy"]
        assert "'sha256-" in policy
        assert "unsafe" not in policy
        made = {path.name for path in tmp_path.rglob("*.*")}
        assert made == {"report.html"}  # what it was made from is gone
        assert (await house.client.get("/batch/b/report")).text == report.text


async def test_a_run_is_explained_in_words_and_as_a_picture(server: Target, tmp_path: Path) -> None:
    """As `why` and `explain` have it; the form leads there."""
    async with open_house(server, tmp_path) as house:
        held = await house.batch.claimed()
        await house.batch.claimed(W2, await house.batch.taken(held.entry, W2))
        await house.batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
        found = await house.client.get("/batch/b/run", params={"run": " c0#1 "})
        assert (found.status_code, found.headers["location"]) == (303, "/batch/b/run/c0%231")
        page = (await house.client.get("/batch/b/run/c0%231")).text
        assert "worker w1, generation 1: fell silent, and was preempted" in page
        assert '<svg xmlns="http://www.w3.org/2000/svg" class="ev"' in page
        assert (await house.client.get("/batch/b/run/c0")).text == page  # a case with one trial is its run
        assert "<style" not in page  # the policy would not let it style anything


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/batch/nope", "no batch &#39;nope&#39; on this server"),
        ("/batch/nope/events", "no batch &#39;nope&#39; on this server"),
        ("/batch/a%20b", "cannot name a batch"),
        ("/batch/b/run/c0%232", "did you mean c0#1, c1#1, c2#1?"),
        ("/batch/b/run/%3Cimg%20src=x%3E", "no run &#39;&lt;img src=x&gt;&#39;"),
        ("/nowhere", "There is no such page."),
        ("/static/../web.py", "There is no such page."),
        ("/static/%2e%2e/web.py", "There is no such page."),
    ],
)
async def test_what_is_not_there_is_one_line_with_the_nearest_names(
    server: Target, tmp_path: Path, path: str, says: str
) -> None:
    """As on the command line."""
    async with open_house(server, tmp_path) as house:
        answer = await house.client.get(path)
        if path.endswith("/c0%232"):
            says = "did you mean" if "did you mean" in answer.text else "it begins with"
        assert answer.status_code == 404
        assert says in answer.text


async def test_what_others_wrote_is_text(server: Target, tmp_path: Path) -> None:
    """The name of a run closes a script and opens an image: it is shown as it is, on every page and in the stream."""
    async with open_house(server, tmp_path, runs=0, name="other") as house:
        hostile = await Batch.open(server.address(), runs=1)
        await hostile.bus.admit(hostile.name, NextRuns(0, [HOSTILE], [], P1, "candidate", "judge"))
        held = await hostile.claimed()
        await hostile.claimed(W2, await hostile.taken(held.entry, W2))
        await hostile.bus.append(held.ref, EMPTY_HEAD, 1, ["<b>late</b>"])
        stream = house.news("/batch/b/events")
        streamed = (await soon(anext(stream)))["data"]["html"]
        await stream.aclose()
        for path in ("/batch/b", f"/batch/b/run/{quote(HOSTILE, safe='')}"):
            answer = await house.client.get(path)
            assert answer.status_code == 200
            assert "<img" not in answer.text
            assert "&lt;img src=x onerror=alert(1)&gt;" in answer.text
        assert "<img" not in "".join(streamed.values())
        await hostile.aclose()


async def test_a_stream_sends_what_has_changed_and_to_who_comes_back_only_what_is_newer(
    server: Target, tmp_path: Path
) -> None:
    """The first event has all parts; a later one those that differ. After a restart the old number means nothing."""
    async with open_house(server, tmp_path) as house:
        stream = house.news("/batch/b/events")
        first = await soon(anext(stream))
        assert set(first["data"]["html"]) >= {"standing", "crowd", "missing", "refused", "latest"}
        await house.batch.bus.hole((await house.batch.claimed()).ref, "solver_error", "it raised")
        async for event in stream:
            if "solver_error" in event["data"]["html"].get("missing", ""):
                break
        assert "latest" not in event["data"]["html"]
        back = house.news("/batch/b/events", event["id"])
        assert number(await soon(anext(back))) > number(event)
        another = house.news("/batch/b/events", f"0000-{number(event) + 1_000}")
        assert "standing" in (await soon(anext(another)))["data"]["html"]
        for each in (stream, back, another):
            await each.aclose()


def number(event: Mapping[str, Any]) -> int:
    """Which moment an event is of."""
    return int(str(event["id"]).rpartition("-")[2])


async def test_no_more_follow_than_there_is_room_for_also_when_all_come_at_once(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds room before any has begun to read; who is sent away is told when to come back, and then let in."""
    monkeypatch.setattr("workers.watching.web._FOLLOWERS", 3)
    async with open_house(server, tmp_path) as house, contextlib.AsyncExitStack() as following:

        async def follow() -> httpx.Response:
            return await following.enter_async_context(house.client.stream("GET", "/batch/b/events"))

        answers = await soon(asyncio.gather(*(follow() for _ in range(12))))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [503] * 9
        assert {answer.headers.get("retry-after") for answer in answers} == {None, "30"}
        await following.aclose()
        await until(lambda: house.web.streams == 0, "everybody to have left")
        assert (await follow()).status_code == 200


async def test_what_is_no_request_is_refused_and_writes_nothing_on_the_screen(
    server: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line each would be for whoever reaches the port to fill the terminal with."""
    async with open_house(server, tmp_path) as house:
        host, _, port = house.url.removeprefix("http://").partition(":")
        for said in (b"\x16\x03\x01\x02\x00nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            assert (await soon(reader.readline())).startswith(b"HTTP/1.1 400 ")
            writer.close()
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        assert (await house.client.get("/", headers=upgrade)).status_code == 200
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_a_request_that_never_becomes_whole_is_given_up(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that drips in, and the second one of a connection; nobody can hold all the places by saying nothing."""
    async with open_house(server, tmp_path) as house:
        host, _, port = house.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await soon(reader.readuntil(b"\r\n\r\n"))).startswith(b"HTTP/1.1 404 ")
        monkeypatch.setattr(listening, "_WHOLE", 0.5)
        ended = asyncio.ensure_future(reader.read())
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while not ended.done():
                    writer.write(b"G")
                    await writer.drain()
                    await asyncio.sleep(0.02)
        await asyncio.wait([ended], timeout=PATIENCE)
        assert ended.done()
        writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await soon(reader.read()) == b"", "nothing was said"
        writer.close()


async def test_nobody_is_asked_when_nobody_looks(server: Target, tmp_path: Path) -> None:
    """One poller for two browsers, and none when both have left."""
    async with open_house(server, tmp_path) as house:
        first, second = house.news("/batch/b/events"), house.news("/batch/b/events")
        await soon(anext(first))
        await soon(anext(second))
        (feed,) = house.web.feeds.values()
        assert (feed.lookers, feed.polling) == (2, True)
        await first.aclose()
        await second.aclose()
        await eventually_idle(feed)


async def eventually_idle(feed: Any) -> None:  # noqa: ANN401 - a feed of parts
    """The server notices that a browser has left."""

    async def idle() -> bool:
        return feed.lookers == 0 and not feed.polling

    await eventually(idle, "the poller to stop")


async def test_streams_end_when_the_server_stops(server: Target, tmp_path: Path) -> None:
    """A browser that follows never leaves by itself; Ctrl-C must not wait for it."""
    async with open_house(server, tmp_path) as house:
        stream = house.news("/events")
        await soon(anext(stream))
        house.stopping.set()
        async with asyncio.timeout(PATIENCE):
            async for _ in stream:
                pass  # to its end: one that was cut off would raise


async def test_the_data_server_may_go_away_and_come_back(tmp_path: Path) -> None:
    """The stream says so, a new page says so and waits, and both recover by themselves."""
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(running())
        async with open_house(real.target, tmp_path, patience=0.2) as house:
            stream = house.news("/batch/b/events")
            await soon(anext(stream))
            real.process.kill()
            real.process.wait()
            assert (await soon(event_named(stream, "trouble")))["data"]
            page = await house.client.get("/batch/b")
            assert page.status_code == 200
            assert '<p class="trouble" id="trouble" role="alert">' in page.text
            assert (await house.client.get("/batch/b/run/c0%231")).status_code == 503
            stack.enter_context(running(directory=real.directory))
            assert await soon(event_named(stream, "parts"))
            await stream.aclose()


async def event_named(stream: AsyncIterator[dict[str, Any]], name: str) -> dict[str, Any]:
    """The next event of that name."""
    async for event in stream:
        if event["event"] == name:
            return event
    raise AssertionError("the stream ended")


def test_a_port_in_use_is_one_line() -> None:
    """With what to do."""
    first = listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    with contextlib.closing(first), pytest.raises(InputError, match=rf"cannot listen on 127.0.0.1:{port}: .*in use"):
        listen("127.0.0.1", port)


# --- in a browser -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def visiting(
    browser: Browser, house: House, path: str, *, width: int = 1200, scheme: Scheme = "light"
) -> AsyncIterator[Page]:
    """A page of the house. At the end: no error was said, and nothing was asked of anybody else."""
    context = await browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    problems, strangers = [], []
    try:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE * 1_000)
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: strangers.append(asked.url) if not asked.url.startswith(house.url) else None)
        await page.goto(house.url + path)
        yield page
        assert problems == []
        assert strangers == []
    finally:
        await context.close()


@needs_chromium
async def test_the_page_of_a_running_batch_follows_it_by_itself(server: Target, tmp_path: Path) -> None:
    """Runs end, a worker is preempted and refused, the batch closes: nobody touches the page."""
    async with (
        open_house(server, tmp_path) as house,
        browsing() as browser,
        visiting(browser, house, "/batch/b") as page,
    ):
        await expect(page.locator("#link-text")).to_have_text("updating")
        await expect(page.locator("#standing")).to_contain_text("0 of 3 runs have ended")
        held = await house.batch.claimed()
        await expect(page.get_by_role("row", name="worker w1 c0#1")).to_be_visible()
        again = await house.batch.claimed(W2, await house.batch.taken(held.entry, W2))
        await house.batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
        await expect(page.locator("#latest")).to_contain_text("a newer generation holds the run")
        await house.batch.seal(again)
        scoring = await house.batch.scoring()
        await house.batch.bus.score(scoring.ref, scoring.judgement)
        await expect(page.locator("#standing")).to_contain_text("1 of 3 runs have ended")
        assert "pass rate" not in (await page.title())
        await house.batch.scored()
        await house.batch.bus.hole((await house.batch.claimed()).ref, "solver_error", "it raised")
        await expect(page.locator("#missing")).to_contain_text("solver_error")
        await house.batch.closed()
        await expect(page.locator("#standing")).to_contain_text("1.0000 pass rate")
        await expect(page).to_have_title("b: closed · evalbus")
        await page.get_by_role("link", name="Open the report").click()
        await expect(page.get_by_role("heading", level=1)).to_be_visible()


@needs_chromium
async def test_what_the_reader_was_about_survives_an_update(server: Target, tmp_path: Path) -> None:
    """The focus stays on its link, and marked text stays marked until it has been copied."""
    async with (
        open_house(server, tmp_path) as house,
        browsing() as browser,
        visiting(browser, house, "/batch/b") as page,
    ):
        first = await house.batch.claimed()
        link = page.get_by_role("link", name="c0#1")
        await link.focus()
        await house.batch.claimed()
        await expect(page.get_by_role("link", name="c1#1")).to_be_visible()
        await expect(link).to_be_focused()
        await page.evaluate("getSelection().selectAllChildren(document.querySelector('#standing .headline'))")
        await house.batch.bus.hole(first.ref, "solver_error", "it raised")
        await expect(page.locator("#missing")).to_contain_text("solver_error")
        await expect(page.locator("#standing")).to_contain_text("0 of 3 runs have ended")
        await page.evaluate("getSelection().removeAllRanges()")
        await expect(page.locator("#standing")).to_contain_text("1 of 3 runs have ended")


@needs_chromium
async def test_a_screen_reader_is_told_when_it_matters_and_not_at_every_update(server: Target, tmp_path: Path) -> None:
    """The first state is on the page; a change of phase is said at once; what happens between waits."""
    async with (
        open_house(server, tmp_path, runs=2) as house,
        browsing() as browser,
        visiting(browser, house, "/batch/b") as page,
    ):
        await house.batch.scored()
        await expect(page.locator("#standing")).to_contain_text("1 of 2 runs have ended")
        await expect(page.get_by_role("status")).to_have_text("")
        await house.batch.scored()
        await expect(page.get_by_role("status")).to_contain_text("closing: 2 of 2 runs have ended")


@needs_chromium
async def test_the_page_says_when_it_is_not_up_to_date_and_recovers(server: Target, tmp_path: Path) -> None:
    """A stream that is gone is not shown as a batch in which nothing happens."""
    async with open_house(server, tmp_path) as house, browsing() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{house.url}/batch/b")
        await expect(page.locator("#link-text")).to_have_text("updating")
        await context.set_offline(True)
        house.web.end()
        await expect(page.locator("#link-text")).to_have_text("connection lost, trying again", timeout=60_000)
        house.web.ended = False
        house.web.feeds.clear()
        await context.set_offline(False)
        await expect(page.locator("#link-text")).to_have_text("updating", timeout=60_000)
        await context.close()


@needs_chromium
@pytest.mark.parametrize("path", ["/", "/batch/b", "/batch/b/run/c0%231"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_reads_on_a_phone_in_both_themes(
    server: Target, tmp_path: Path, path: str, scheme: Scheme
) -> None:
    """360 px: the page itself never scrolls sideways. Text stands out from its ground by 4.5 to 1."""
    async with open_house(server, tmp_path) as house, browsing() as browser:
        held = await house.batch.claimed()
        await house.batch.claimed(W2, await house.batch.taken(held.entry, W2))
        await house.batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
        async with visiting(browser, house, path, width=360, scheme=scheme) as page:
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360
            assert await page.evaluate(_FAINT) == []


_FAINT = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (at) => {
    for (; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("Canvas");
  };
  const faint = [];
  for (const at of document.querySelectorAll("body *")) {
    const own = Array.from(at.childNodes).some((one) => one.nodeType === 3 && one.data.trim());
    if (!own || at.closest("svg,.unseen,.skip,[hidden],noscript,script") || !at.getClientRects().length) continue;
    const [a, b] = [light(rgba(getComputedStyle(at).color)), light(ground(at))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${at.tagName} ${at.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return faint;
}"""


@needs_chromium
async def test_everything_is_reached_and_named_by_keyboard_and_screen_reader(server: Target, tmp_path: Path) -> None:
    """Landmarks, one first heading, tables with heads, fields with labels; the theme is chosen by key and kept."""
    async with (
        open_house(server, tmp_path) as house,
        browsing() as browser,
        visiting(browser, house, "/batch/b") as page,
    ):
        await house.batch.claimed()
        await expect(page.get_by_role("link", name="c0#1")).to_be_visible()
        for role in ("banner", "main"):
            await expect(page.get_by_role(role)).to_have_count(1)
        await expect(page.get_by_role("heading", level=1)).to_have_text("b")
        await expect(page.get_by_role("img", name="open: 0 of 3 runs have ended")).to_be_visible()
        await expect(page.get_by_role("columnheader", name="silent for")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("main")).to_be_focused()
        theme = page.get_by_role("button", name="Theme: auto")
        await theme.focus()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Theme: dark")).to_be_focused()
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 19, 22)"
        await page.reload()
        await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
        await page.get_by_label("Run, as CASE#TRIAL, or CASE if it has one trial").fill("c0")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("c0#1")


@needs_chromium
async def test_a_browser_with_a_token_is_let_in_and_stays_in(server: Target, tmp_path: Path) -> None:
    """By the form or by the address; the stream comes by the cookie alone."""
    async with open_house(server, tmp_path, token=TOKEN) as house, browsing() as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(house.url)
        await page.get_by_label("Token").fill(TOKEN)
        await page.get_by_role("button", name="Open").click()
        await expect(page.locator("#link-text")).to_have_text("updating")
        assert page.url == f"{house.url}/"
        await context.close()


# --- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def reader(valkey: RealServer) -> Iterator[Target]:
    """The server, for a user who may only read on the live plane."""
    with valkey.client() as client:
        client.flushall()
        client.execute_command("ACL", "SETUSER", *rule(AclRole.READER, Plane.LIVE, TOKEN).split())
        yield replace(valkey.target, username=user_name(AclRole.READER, Plane.LIVE), password=TOKEN)
        client.execute_command("ACL", "DELUSER", user_name(AclRole.READER, Plane.LIVE))


@pytest.mark.process
async def test_a_user_who_may_only_read_is_enough_and_ctrl_c_ends_it(
    reader: Target, valkey: RealServer, tmp_path: Path
) -> None:
    """The address is the first line; every page works; nothing is written, and the password is nowhere."""
    batch = await Batch.open(valkey.target.address(), runs=2)
    await batch.admit()
    await batch.scored()
    await batch.bus.hole((await batch.claimed()).ref, "solver_error", "it raised")
    await batch.closed()
    with Stage.opened(tmp_path / "stage") as stage:
        command = stage.start("serve", "b", "--port", 0, "--url", reader.url)

        async def listens() -> bool:
            return command.out.read_text().endswith("\n")

        await eventually(listens, "the address")
        url = command.out.read_text().strip()
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/batch/b")
        before = await dump(batch)
        async with httpx.AsyncClient(timeout=60) as client:
            base = url.removesuffix("/batch/b")
            for path in ("/", "/batch/b", "/batch/b/run/c0%231", "/batch/b/report"):
                answer = await client.get(base + path)
                assert answer.status_code == 200, (path, answer.text[-300:])
                assert TOKEN not in answer.text
            assert (await client.post(url)).status_code == 405
            async with client.stream("GET", f"{url}/events") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        break
                command.process.send_signal(signal.SIGINT)
                done = await command.end()
        assert (done.code, done.err) == (0, "")
        assert await dump(batch) == before
    await batch.aclose()


async def dump(batch: Batch) -> dict[bytes, bytes]:
    """Every key with its value, as the server stores it."""
    keys = await batch.wire.call("KEYS", "*")
    return dict(zip(keys, await batch.wire.calls([("DUMP", key) for key in keys]), strict=True))


@pytest.mark.process
async def test_beyond_the_loopback_a_token_is_made_up_and_said_once(valkey: RealServer, tmp_path: Path) -> None:
    """Whoever has the address can look, and nobody else."""
    with Stage.opened(tmp_path / "stage") as stage:
        command = stage.start("serve", "--host", EVERYWHERE, "--port", 0, "--url", valkey.target.url)

        async def listens() -> bool:
            return command.out.read_text().endswith("\n")

        await eventually(listens, "the address")
        found = re.fullmatch(r"http://[^/:]+:(\d+)/\?token=([\w-]{32})\n", command.out.read_text())
        assert found is not None
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{found[1]}", timeout=PATIENCE) as client:
            assert (await client.get("/")).status_code == 401
            assert (await client.get("/", headers={"Authorization": f"Bearer {found[2]}"})).status_code == 200
        command.process.send_signal(signal.SIGTERM)
        assert (await command.end()).code == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nope",), "no batch 'nope' on this server"),
        (("--token", "short"), "a token of 5 characters can be guessed"),
        (("--host", "203.0.113.7"), "cannot listen on 203.0.113.7"),
    ],
)
async def test_what_cannot_be_served_is_one_line(
    valkey: RealServer, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    """Exit 2, and no address."""
    with Stage.opened(tmp_path / "stage") as stage:
        done = await stage.call("serve", *arguments, "--url", valkey.target.url)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.complaint
