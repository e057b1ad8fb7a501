"""The lab's tickets and tools, and the lab as a process: what was done, told apart from what was answered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from bus.errors import InputError
from tests.waiting import PATIENCE, until
from workers.lab import Lab
from workers.lab.exchange import Exchange
from workers.lab.mischief import Api, Kind
from workers.lab.plan import read_rates

KEY = "live:case#1:case#1~0.1.0"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """A lab without any mischief of its own."""
    async with Lab() as running:
        yield running


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(base_url=lab.url, timeout=60) as opened:
        yield opened


async def make(
    client: httpx.AsyncClient, key: str = KEY, plane: str = "live", mischief: str | None = None,
    patience: float = 60.0, **body: object,
) -> httpx.Response:  # fmt: skip
    """Ask for a ticket, and wait so many seconds for the answer once it is asked for."""
    headers = {"idempotency-key": key, "evalbus-plane": plane} | ({"lab-mischief": mischief} if mischief else {})
    timeout = httpx.Timeout(60.0, read=patience)
    return await client.post("/tickets", json=body or {"title": "t"}, headers=headers, timeout=timeout)


async def undo(client: httpx.AsyncClient, key: str = KEY, plane: str = "live") -> httpx.Response:
    """Undo one."""
    headers = {"idempotency-key": f"{key}~undo", "evalbus-plane": plane, "evalbus-undoes": key}
    return await client.post("/tickets/undo", headers=headers)


async def test_a_key_makes_one_ticket_and_is_echoed(lab: Lab, client: httpx.AsyncClient) -> None:
    """Again: the first ticket, also for another body, which is counted: a key must not change its meaning."""
    first, again, other = await make(client), await make(client), await make(client, title="another")
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 200)
    assert first.json() == again.json() == other.json()
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"] == KEY
    counts = lab.counts.tickets
    assert (counts.commits, counts.repeats, counts.other_body) == (1, 2, 1)
    assert lab.counts.by_key[f"live/{KEY}"].requests == 3
    assert len(lab.tickets()) == 1


async def test_a_key_of_any_text_is_echoed_byte_by_byte(lab: Lab, client: httpx.AsyncClient) -> None:
    """Case ids are text, and so are the keys made of them."""
    key = "live:fälle#1~0.1.0"
    headers = [(b"idempotency-key", key.encode()), (b"evalbus-plane", b"live")]
    response = await client.post("/tickets", json={}, headers=headers)
    assert (b"idempotency-key", key.encode()) in response.headers.raw
    assert lab.tickets()[0].key == key
    assert (await client.get(f"/tickets/{key.replace('#', '%23')}")).json()["state"] == "open"


async def test_an_undone_key_is_refused_for_ever_also_when_the_original_comes_late(
    lab: Lab, client: httpx.AsyncClient
) -> None:
    """The undo overtakes the original: the original must never land."""
    assert (await undo(client)).status_code == 200
    assert (await make(client)).status_code == 410
    assert (await undo(client)).status_code == 200
    other = "live:other"
    await make(client, other)
    undone = await undo(client, other)
    assert undone.headers["idempotency-key"] == f"{other}~undo"
    assert (await make(client, other)).status_code == 410
    counts = lab.counts.tickets
    assert (counts.commits, counts.undone, counts.tombstones, counts.undo_repeats, counts.gone) == (1, 1, 1, 1, 2)
    assert [ticket.undone for ticket in lab.tickets()] == [True]
    assert (await client.get("/tickets/live:other")).json()["state"] == "undone"
    field = {"idempotency-key": "u", "evalbus-plane": "live"}
    assert (await client.post("/tickets/undo", json={"undoes": other}, headers=field)).status_code == 200


def slow_commits_wait_for(monkeypatch: pytest.MonkeyPatch, what: Callable[[Exchange], Awaitable[object]]) -> None:
    """They arrive when that has come and not after their time: which of two is first is not the machine's choice."""
    real = Exchange.pause

    async def pause(self: Exchange, seconds: float, *, for_client: bool = True) -> bool:
        if for_client:
            return await real(self, seconds)
        await what(self)
        return not self.stopping.is_set()

    monkeypatch.setattr(Exchange, "pause", pause)


async def test_an_undo_during_a_slow_commit_wins(
    lab: Lab, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original is under way at the gateway when its undo comes: it is refused when it arrives there."""
    is_undone = threading.Event()
    slow_commits_wait_for(monkeypatch, lambda _: asyncio.to_thread(is_undone.wait, PATIENCE))
    slow = asyncio.create_task(make(client, mischief="slow-commit"))
    await until(lambda: lab.counts.requests[Api.TICKETS].open == 1, "the original to be under way")
    await undo(client)
    is_undone.set()
    assert (await slow).status_code == 410
    assert lab.counts.tickets.commits == 0


async def test_planes_are_two_worlds(lab: Lab, client: httpx.AsyncClient) -> None:
    """A key without a prefix may be used on both, and means two tickets; one with a prefix only on its own."""
    assert (await make(client, "k", "live")).json()["id"] != (await make(client, "k", "shadow")).json()["id"]
    assert (await make(client, "live:k", "shadow")).status_code == 403
    assert (await make(client, "shadow:k", "live")).status_code == 403
    assert (await undo(client, "live:k", "shadow")).status_code == 403
    assert lab.counts.tickets.plane_mismatch == 3
    listed = (await client.get("/tickets")).json()
    assert [len(listed[plane]) for plane in ("live", "shadow")] == [1, 1]
    assert len(lab.tickets("shadow")) == 1


@pytest.mark.parametrize("missing", ["idempotency-key", "evalbus-plane", "body", "plane"])
async def test_a_request_without_its_headers_does_nothing(lab: Lab, client: httpx.AsyncClient, missing: str) -> None:
    """400, and counted."""
    headers = {"idempotency-key": KEY, "evalbus-plane": "nowhere" if missing == "plane" else "live"}
    headers.pop(missing, None)
    response = await client.post("/tickets", content=b"[" if missing == "body" else b"{}", headers=headers)
    assert response.status_code == 400
    assert (lab.counts.tickets.invalid, lab.counts.tickets.commits) == (1, 0)


async def test_a_client_that_leaves_within_its_request_has_asked_for_nothing(lab: Lab) -> None:
    """The headers are whole and the body is not: an empty body would be a ticket that nobody described."""
    _, writer = await asyncio.open_connection("127.0.0.1", lab.port)
    writer.write(
        f"POST /tickets HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: {KEY}\r\n"
        "Evalbus-Plane: live\r\nContent-Length: 9\r\n\r\n".encode()
    )
    await writer.drain()
    await until(lambda: lab.counts.requests[Api.TICKETS].open == 1, "the request to begin")
    writer.close()
    await until(lambda: lab.counts.requests[Api.TICKETS].cuts == {"client": 1}, "the client's leave")
    assert lab.tickets() == ()


# --- mischief --------------------------------------------------------------------------------------------


async def test_commit_then_cut_has_done_it_and_says_nothing(lab: Lab, client: httpx.AsyncClient) -> None:
    """The client can't know; a blind repeat finds the ticket made."""
    with pytest.raises(httpx.RemoteProtocolError):
        await make(client, mischief="commit-then-cut")
    assert lab.counts.tickets.commits == 1
    assert (await make(client)).status_code == 200


async def test_drop_has_not_done_it_and_says_nothing_either(lab: Lab, client: httpx.AsyncClient) -> None:
    """The same for the client as a commit that was cut."""
    with pytest.raises(httpx.RemoteProtocolError):
        await make(client, mischief="drop")
    assert lab.counts.tickets.commits == 0


async def test_commit_then_500_has_done_it_and_denies_it(lab: Lab, client: httpx.AsyncClient) -> None:
    """An error after the effect; a plain 500 is one before it."""
    assert (await make(client, mischief="commit-then-500")).status_code == 500
    assert (await make(client, "live:b", mischief="500")).status_code == 500
    assert [ticket.key for ticket in lab.tickets()] == [KEY]


async def test_echoes_that_are_missing_or_anothers(lab: Lab, client: httpx.AsyncClient) -> None:
    """2xx, and yet nobody can tell whose answer it is."""
    missing = await make(client, mischief="missing-echo")
    assert missing.status_code == 201
    assert "idempotency-key" not in missing.headers
    wrong = await make(client, "live:b", mischief="wrong-echo")
    assert wrong.headers["idempotency-key"] == "live:b-other"
    empty = await make(client, "live:c", mischief="empty")
    assert (empty.status_code, empty.content, empty.headers["idempotency-key"]) == (201, b"", "live:c")
    page = await make(client, "live:d", mischief="html")
    assert (page.status_code, "idempotency-key" in page.headers) == (200, False)
    assert lab.counts.tickets.commits == 3


async def test_client_left_commits_for_nobody(lab: Lab, client: httpx.AsyncClient) -> None:
    """The effect lands because the client gave up: the worst case for whoever sends again under a new key."""
    with pytest.raises(httpx.ReadTimeout):
        await make(client, mischief="client-left", patience=0.1)
    await until(lambda: lab.counts.tickets.after_client_left == 1, "the commit")
    assert lab.counts.tickets.commits == 1
    assert (await make(client, "live:b", mischief="client-left@1ms")).status_code == 201
    assert lab.counts.tickets.after_client_left == 1


async def test_slow_commit_lands_though_the_client_has_left(
    lab: Lab, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late by itself: done at once, only told late."""
    slow_commits_wait_for(monkeypatch, Exchange.gone)
    with pytest.raises(httpx.ReadTimeout):
        await make(client, mischief="slow-commit", patience=0.05)
    await until(lambda: lab.counts.tickets.after_client_left == 1, "the commit")
    late = asyncio.create_task(make(client, "live:b", mischief="late@60s"))
    await until(lambda: lab.counts.tickets.commits == 2, "what is told late to be done")
    late.cancel()
    await until(lambda: lab.counts.requests[Api.TICKETS].open == 0, "both to end")
    assert (lab.counts.tickets.commits, lab.counts.tickets.after_client_left) == (2, 1)


async def test_hang_and_a_storm_do_nothing(lab: Lab, client: httpx.AsyncClient) -> None:
    """A hang ends with its client; a storm strikes tickets only where tickets were asked for."""
    with pytest.raises(httpx.ReadTimeout):
        await make(client, mischief="hang", patience=0.05)
    assert [(await make(client, mischief=told)).status_code for told in ("429@2", None, None)] == [429, 429, 201]
    assert (await client.get("/lookup?key=a")).status_code == 200
    assert lab.counts.tickets.commits == 1


async def test_duplicate_delivery_is_caught_by_the_key_and_forgotten_keys_are_not(
    lab: Lab, client: httpx.AsyncClient
) -> None:
    """`forget` is the API without idempotency: what was sent twice was done twice, and is counted so."""
    assert (await make(client, mischief="duplicate")).json()["key"] == KEY
    assert (lab.counts.tickets.commits, lab.counts.tickets.repeats) == (1, 1)
    assert (await make(client, mischief="forget")).status_code == 201
    assert lab.counts.by_key[f"live/{KEY}"].commits == 2
    assert len(lab.tickets()) == 2


async def test_two_hundred_concurrent_requests_under_fifty_keys_make_fifty_tickets(lab: Lab) -> None:
    """Each key four times at once: exactly one is made, and all are told the same."""
    at_once = asyncio.Semaphore(20)  # a pool's own queue takes quadratic time
    async with httpx.AsyncClient(base_url=lab.url, timeout=60) as client:

        async def one(n: int) -> httpx.Response:
            async with at_once:
                return await make(client, f"live:{n // 4}")

        told = await asyncio.gather(*(one(n) for n in range(200)))
    assert len({response.json()["id"] for response in told}) == 50
    assert sorted(response.status_code for response in told) == [200] * 150 + [201] * 50
    counts = lab.counts
    assert (counts.tickets.commits, counts.tickets.repeats) == (50, 150)
    assert all((of_key.requests, of_key.commits) == (4, 1) for of_key in counts.by_key.values())


# --- tools, options, the process ------------------------------------------------------------------------


async def test_tools_only_read_and_misbehave_too(lab: Lab, client: httpx.AsyncClient) -> None:
    """The same key, the same value, asked either way."""
    got = await client.get("/lookup", params={"key": "a b"})
    posted = await client.post("/lookup", json={"key": "a b"})
    assert got.json() == posted.json()
    assert (await client.get("/lookup")).status_code == 400
    assert (await client.get("/slow?seconds=0.001")).json() == {"seconds": 0.001}
    assert (await client.get("/slow?seconds=nan")).status_code == 400
    with pytest.raises(httpx.ReadTimeout):
        await client.get("/slow?seconds=60", timeout=httpx.Timeout(60.0, read=0.05))
    assert (await client.post("/lookup", json={"key": "a", "lab_mischief": "503"})).status_code == 503
    assert (await client.get("/lookup?key=a", headers={"lab-mischief": "empty"})).content == b""
    assert (await client.get("/lookup?key=a", headers={"lab-mischief": "cut"})).status_code == 400
    assert lab.counts.requests[Api.TOOLS].mischief == {"503": 1, "empty": 1}


async def test_a_page_elsewhere_cannot_reach_a_lab_by_a_name_for_loopback(client: httpx.AsyncClient) -> None:
    """DNS rebinding: the request comes from this machine's browser, its Host is the page's."""
    assert (await client.get("/lookup?key=a", headers={"host": "evil.example"})).status_code == 421
    assert (await client.get("/lookup?key=a", headers={"host": "localhost:1"})).status_code == 200


async def test_a_key_is_asked_for_and_never_written_down(tmp_path: Path) -> None:
    """OpenAI's and Anthropic's header; the log and the counts hold neither key nor prompt."""
    log = tmp_path / "lab.jsonl"
    async with (
        Lab(api_key="canary-key", log=log) as lab,
        httpx.AsyncClient(base_url=lab.url, timeout=PATIENCE) as client,
    ):
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "canary-prompt"}]}
        for path, headers, status in (
            ("/v1/chat/completions", {}, 401),
            ("/v1/chat/completions", {"authorization": "Bearer wrong"}, 401),
            ("/v1/chat/completions", {"authorization": "Bearer canary-key"}, 200),
            ("/v1/messages", {"x-api-key": "canary-key"}, 200),
        ):
            assert (await client.post(path, json=body, headers=headers)).status_code == status
        assert (await client.get("/v1/models")).status_code == 401
        counts = (await client.get("/counts")).text
    entries = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [entry["event"] for entry in entries] == ["lab.served"] * 4 + ["lab.stopped"]
    assert entries[-1]["model"]["finished"] == 2
    assert "canary" not in log.read_text("utf-8") + counts


@pytest.mark.parametrize(
    "written",
    ["cut", "cut=2", "cut=x", "nonsense=0.1", "cut=0.6,stall=0.6", "tickets.cut=0.1", "none=0.1", "late@x=0.1",
     "cut@-1=0.1", "empty@3=0.1", "429@0=0.1", "absent.toml", {"model": {"cut": True}}, {"cut": "0.1"}],
)  # fmt: skip
def test_rates_that_cannot_be_are_refused_in_one_sentence(written: str | dict[str, object]) -> None:
    """Bad input is one line that names what would be understood."""
    with pytest.raises(InputError) as refused:
        read_rates(written)
    assert "\n" not in str(refused.value)


def test_rates_read_the_same_from_text_and_files(tmp_path: Path) -> None:
    """A kind without an interface's name goes to each that can do it."""
    (tmp_path / "m.toml").write_text('500 = 0.1\n[model]\n"cut@3" = 0.2\n[tickets]\n"late@0.5" = 0.3\n')
    (tmp_path / "m.json").write_text('{"500": 0.1, "model": {"cut@3": 0.2}, "tickets": {"late@0.5": 0.3}}')
    rates = read_rates("500=0.1, model.cut@3=0.2, tickets.late@0.5=0.3")
    assert read_rates(str(tmp_path / "m.toml")) == read_rates(str(tmp_path / "m.json")) == rates
    assert {api: [rate.mischief.kind for rate in of_api] for api, of_api in rates.items()} == {
        Api.MODEL: [Kind.BROKEN, Kind.CUT],
        Api.TICKETS: [Kind.BROKEN, Kind.LATE],
        Api.TOOLS: [Kind.BROKEN],
    }


async def test_a_lab_stops_at_once_whoever_waits_in_it(
    lab: Lab, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hung clients, slow commits and idle connections; what had not been done then is not done."""
    monkeypatch.setattr("workers.lab.server._PATIENCE", 120.0)  # none of them is waited for
    waiting = [asyncio.create_task(make(client, f"live:{told}", mischief=told)) for told in ("hang", "slow-commit@60s")]
    await until(lambda: lab.counts.requests[Api.TICKETS].open == 2, "both to be under way")
    began = time.monotonic()
    await asyncio.to_thread(lab.stop)
    assert time.monotonic() - began < PATIENCE
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, httpx.TransportError) for end in ends)
    assert lab.counts.tickets.commits == 0
    assert lab.counts.requests[Api.TICKETS].cuts == {"lab": 2}


def test_a_port_that_is_taken_is_told(lab: Lab) -> None:
    """And a second stop is nothing."""
    with pytest.raises(InputError, match="cannot listen"):
        Lab(port=lab.port).start()


@pytest.mark.process
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_url_first_and_ends_when_told(told: signal.Signals) -> None:
    """In the middle of a request that would never end; nothing but the URL is on standard output."""
    command = [sys.executable, "-m", "workers.cli", "lab", "--seed", "7", "--mischief", "tools.503=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        url = lab.stdout.readline().strip()
        assert httpx.get(f"{url}/lookup?key=a", timeout=PATIENCE).status_code == 503
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as hung:
            hung.sendall(b"GET /slow?seconds=60 HTTP/1.1\r\nHost: localhost\r\nLab-Mischief: none\r\n\r\n")
            lab.send_signal(told)
            rest, errors = lab.communicate(timeout=PATIENCE)
        assert lab.returncode == 0, errors
        assert not rest
        assert "Traceback" not in errors


@pytest.mark.process
@pytest.mark.parametrize("wrong", [["--mischief", "cut=2"], ["--api-key-env", "NO_SUCH_KEY"], ["--latency", "3"]])
def test_the_command_refuses_wrong_options_in_one_line(wrong: list[str]) -> None:
    """Exit code 2, no traceback."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_SUCH_KEY"}
    ended = subprocess.run(
        [sys.executable, "-m", "workers.cli", "lab", *wrong],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
