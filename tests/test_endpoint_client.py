"""The connections to endpoints: proxies, certificates, what goes along with a request, what a cut one had brought."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from bus.errors import InputError
from tests.asking import DONE, WHOLE, ask, chunk, endpoint_at
from tests.sse_server import Exchange, SseServer, events, serving
from tests.waiting import soon
from workers.endpoints import CutError, EndpointSpec, UnusableError, make_endpoint, open_client
from workers.endpoints import client as client_module


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def answered(to: Exchange) -> None:
    """The whole answer."""
    await to.stream(WHOLE)


# --- what was there when a connection broke ---------------------------------------------------------------------


async def test_what_came_before_a_cut_is_delivered_also_to_a_caller_who_was_busy() -> None:
    """It was paid for. A reader that only tells the connection's end would bill it to nobody."""
    is_busy, is_cut = asyncio.Event(), asyncio.Event()

    async def answer(to: Exchange) -> None:
        await to.head()
        await to.say(events(chunk("a")))
        await is_busy.wait()
        await to.say(events(chunk("b")), events(chunk("c")))
        to.cut()
        is_cut.set()

    async with (
        serving(answer) as server,
        endpoint_at(server) as endpoint,
        endpoint.stream(endpoint.request("Hello"), "request-1") as stream,
    ):
        pieces = aiter(stream)
        assert (await soon(anext(pieces))).text == "a"
        is_busy.set()
        await soon(is_cut.wait())
        while stream._body.exception() is None:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        assert [(await soon(anext(pieces))).text for _ in range(2)] == ["b", "c"]
        with pytest.raises(CutError) as caught:
            await soon(anext(pieces))
        assert caught.value.pieces == 3


async def test_a_request_on_a_connection_that_was_dropped_is_not_sent_again_by_itself() -> None:
    """Its outcome is unknown: whether there is another one is for the books to say."""

    async def answer(to: Exchange) -> None:
        if len(server.seen) == 1:
            await to.stream(WHOLE)
        else:
            to.cut()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        assert (await soon(ask(endpoint))).reply is not None
        assert isinstance((await soon(ask(endpoint))).error, CutError)
        assert server.connections == 1
        assert len(server.seen) == 2


async def test_a_long_body_leaves_whole_and_with_its_length() -> None:
    """A long conversation is some megabytes; many servers take no body without a length."""
    text = "é" * 1_500_000
    async with serving(answered) as server, endpoint_at(server) as endpoint:
        prepared = endpoint.request([{"role": "user", "content": text}])
        async with endpoint.stream(prepared, "request-1") as stream:
            assert [piece.text async for piece in stream]
        [seen] = server.seen
        assert seen.digest == prepared.prompt_hash
        assert int(seen.headers["content-length"]) == len(prepared.body) > 3_000_000


# --- proxies ----------------------------------------------------------------------------------------------------


async def asked_at(base: str) -> tuple[SseServer, object]:
    """What a proxy sees of a request to `base`, and the error that it ended in."""
    async with serving(answered) as proxy, open_client() as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HTTP_PROXY", proxy.url.removeprefix("http://").removesuffix("/v1"))
            got = await soon(ask(make_endpoint(EndpointSpec("chat", base, "m"), client)))
    return proxy, got.error


async def test_the_environments_proxy_is_asked() -> None:
    """Many networks have no other way out. It may be written without its scheme."""
    proxy, error = await asked_at("http://models.invalid/v1")
    assert error is None
    assert proxy.seen[0].line == "POST http://models.invalid/v1/chat/completions HTTP/1.1"


@pytest.mark.parametrize("name", ["models.invalid", ".invalid", "*"])
async def test_a_host_that_needs_no_proxy_is_asked_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model on this machine, or in this network."""
    monkeypatch.setenv("NO_PROXY", f"localhost,{name}")
    proxy, error = await asked_at("http://models.invalid/v1")
    assert isinstance(error, UnusableError)
    assert error.unreachable
    assert not proxy.seen


async def test_a_proxy_of_another_kind_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not passed by: its user would not know."""
    monkeypatch.setenv("ALL_PROXY", "socks5://user:canary@127.0.0.1:1080")
    async with open_client() as client:
        endpoint = make_endpoint(EndpointSpec("chat", "http://models.invalid/v1", "m"), client)
        with pytest.raises(InputError, match="a proxy of the kind socks5") as caught:
            await soon(ask(endpoint))
    assert "canary" not in str(caught.value)


async def test_a_proxy_that_is_not_there_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an endpoint that is not there: nothing was sent."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with open_client() as client:
        got = await soon(ask(make_endpoint(EndpointSpec("chat", "http://models.invalid/v1", "m"), client)))
    assert isinstance(got.error, UnusableError)
    assert got.error.may_pass
    assert got.error.free


async def test_no_password_of_a_netrc_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request carries what it is given and nothing else."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with serving(answered) as server, endpoint_at(server, key="") as endpoint:
        assert (await soon(ask(endpoint))).reply is not None
        assert "authorization" not in server.seen[0].headers


async def test_no_cookie_comes_back() -> None:
    """One of a load balancer's would tie all calls to one machine, and one of a server's tell it who asked before."""

    async def answer(to: Exchange) -> None:
        await to.head(set_cookie="session=1; Path=/")
        await to.say(events(chunk("a"), chunk(finish="stop"), DONE))
        await to.end()

    async with serving(answer) as server, endpoint_at(server) as endpoint:
        for _ in range(2):
            await soon(ask(endpoint))
        assert all("cookie" not in seen.headers for seen in server.seen)


# --- certificates -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    file, key = directory / "cert.pem", directory / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    try:
        command = ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(file)]
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate")
    return file, key


async def test_a_certificate_is_checked_and_trusted_where_the_environment_says_so(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key would go to whoever answers. `SSL_CERT_FILE` names a network's own authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with serving(answered, context) as server:
        for trusted in (False, True):
            if trusted:
                monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            client_module._trust.cache_clear()
            async with endpoint_at(server) as endpoint:
                got = await soon(ask(endpoint))
            if trusted:
                assert got.reply is not None
            else:
                assert isinstance(got.error, UnusableError)
                assert not server.seen
    client_module._trust.cache_clear()
