"""Which server a URL means, and whether it can carry a batch."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bus.connection import Endpoint, ServerFacts, Target, check_fit, parse_url
from bus.errors import InputError, ServerUnfit, ServerUnreachable
from bus.rights import ARCHIVING, COMMANDS, PRUNING
from bus.server import stop
from bus.target import Tls
from bus.types import Plane
from bus.wire import Wire
from tests.servers import Kind, Missing, RealServer, binary, free_port, pid_of, running, wait_for

WORD = "secret"
ODD = "a/?#@z"

# --- URLs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://db.example", Target(host="db.example")),
        ("redis://db.example:7000/3", Target(host="db.example", port=7000, db=3)),
        ("redis://db.example?db=3", Target(host="db.example", db=3)),
        ("redis://[::1]:7000/0", Target(host="::1", port=7000)),
        ("redis://:a%2F%3F%23%40z@db", Target(host="db", password=ODD)),
        ("redis://ann:secret@db", Target(host="db", username="ann", password=WORD)),
        ("unix:///run/a%20b.sock", Target(path="/run/a b.sock")),
        ("unix://ann:secret@/run/s?db=2", Target(path="/run/s", username="ann", password=WORD, db=2)),
        ("unix:///not%FF", Target(path=os.fsdecode(b"/not\xff"))),
        ("rediss://db", Target(host="db", tls=Tls())),
        ("rediss://db?ssl_cert_reqs=none", Target(host="db", tls=Tls(verify=False))),
        (
            "rediss://db/1?ssl_ca_certs=/a%20b.pem&ssl_check_hostname=false",
            Target(host="db", db=1, tls=Tls(ca_certs="/a b.pem", check_hostname=False)),
        ),
    ],
)
def test_a_url_says_where_and_how(url: str, target: Target) -> None:
    """And a target's own URL, which other processes get, means the same target."""
    assert parse_url(url) == target
    assert parse_url(target.url) == target


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "an empty URL"),
        ("localhost:6379", "redis://HOST:PORT/DB"),
        ("http://localhost", "redis://HOST:PORT/DB"),
        ("redis://", "names no host"),
        ("redis://db:port", "port"),
        ("redis://db:70000", "port"),
        ("redis://db/first", "database is not a number"),
        ("redis://db/-1", "database is not a number"),
        ("redis://[::1", "host cannot be read"),
        ("unix://run/socket", "absolute path"),
        ("unix://", "absolute path"),
        ("redis://db?dbb=1", "unknown option 'dbb' (did you mean db?)"),
        ("rediss://db?ssl_ca_cert=x", "did you mean ssl_ca_certs?"),
        ("rediss://db?ssl_cert_reqs=maybe", "required or none"),
        ("rediss://db?ssl_keyfile=k", "without its certificate"),
        ("redis://db?ssl_ca_certs=x", "write rediss://"),
        ("redis://:pa#ss@db", "%23"),
        ("redis://db#1", "%23"),
    ],
)
def test_a_wrong_url_is_one_clear_line(url: str, problem: str) -> None:
    """The remedy stands in the line."""
    with pytest.raises(InputError) as caught:
        parse_url(url)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@db:x",
        "http://u:secret@db",
        "u:secret@db",
        "redis://:secret#1@db",
        "redis://:secret/1@db",
        "redis://:1/secret@db",
        "redis://:1?secret@db",
        "redis://u@db?password=secret",
    ],
)
def test_an_error_about_a_url_does_not_show_its_password(url: str) -> None:
    """A wrong URL goes to terminals and logs, like any error."""
    with pytest.raises(InputError) as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_what_is_printed_of_a_target_does_not_show_its_password() -> None:
    """Neither the URL for people nor the representation for debuggers."""
    for url in ("redis://ann:secret@db:1/2", "unix://:secret@/run/s", "rediss://:secret@db"):
        target = parse_url(url)
        assert "secret" not in target.redacted + repr(target) + str(target)
        assert "***" in target.redacted and "secret" in target.url


def test_a_certificate_that_cannot_be_loaded_is_one_clear_line(tmp_path: Path) -> None:
    """A missing file, and one that holds something else."""
    file = tmp_path / "ca.pem"
    target = parse_url(f"rediss://db?ssl_ca_certs={file}")
    with pytest.raises(InputError, match=r"ca\.pem: cannot be used for TLS: no such file"):
        target.address()
    file.write_text("not a certificate")
    with pytest.raises(InputError, match=r"ca\.pem: cannot be used for TLS"):
        target.address()


# --- fit servers -----------------------------------------------------------------------------------------


async def test_every_kind_of_server_is_fit(any_server: Target, any_real_server: RealServer) -> None:
    """And is described as it is."""
    facts = await check_fit(any_server)
    with any_real_server.client() as client:
        info = client.info()
    assert facts.run_id == info["run_id"] and facts.role == "master"
    version = info.get("valkey_version", info["redis_version"])
    assert facts.title == f"{'Valkey' if 'valkey_version' in info else 'Redis'} {version}"
    assert (facts.aof, facts.fsync, facts.maxmemory_policy) == (True, "everysec", "noeviction")
    assert facts.maxmemory == 0 and facts.warnings == ()


async def test_the_examination_leaves_no_trace(any_server: Target, any_real_server: RealServer) -> None:
    """It may be done on a server that carries something else."""
    await check_fit(any_server)
    with any_real_server.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("settings", "warning"), [({"appendonly": "no"}, "append-only"), ({"appendfsync": "no"}, "appendfsync")]
)
async def test_a_server_that_may_lose_data_is_fit_with_a_warning(settings: Mapping[str, str], warning: str) -> None:
    """It is the user's choice, but an informed one."""
    with running(settings=settings) as server:
        (line,) = (await check_fit(server.target)).warnings
        assert warning in line


async def test_a_user_who_may_not_read_the_configuration_is_served(any_real_server: RealServer) -> None:
    """Hosted servers deny or rename CONFIG; the eviction policy is in INFO as well."""
    with user(any_real_server, "+@all", "-config") as target:
        facts = await check_fit(target)
    assert facts.fsync is None and facts.maxmemory_policy == "noeviction"


async def test_a_server_that_is_loading_is_waited_for() -> None:
    """After a restart with much data; the answer is that of the loaded server."""
    with running(settings={"rdbcompression": "no"}) as first:
        with first.client() as client:
            for number in range(400):
                client.set(f"key{number}", "x" * 1024)
            client.execute_command("BGREWRITEAOF")
            wait_for(lambda: first.directory.glob("*/*.2.base.rdb"), "the rewritten file")
            wait_for(lambda: not client.info("persistence")["aof_rewrite_in_progress"], "the end of rewriting")
        first.process.kill()
        first.process.wait()
        # a millisecond for each key, and a look at the clients after each: slow, but nothing to wait for long
        slow = {"key-load-delay": "1000", "loading-process-events-interval-bytes": "1024"}
        with running(settings=slow, directory=first.directory) as second:
            wire = await Wire.open(second.target.address())
            assert b"loading:1" in await wire.call("INFO"), "else this is not the case that is meant"
            wire.close()
            facts = await check_fit(second.target)
            with second.client() as client:
                assert client.dbsize() == 400 and client.info()["run_id"] == facts.run_id


# --- unfit servers ---------------------------------------------------------------------------------------


async def refusal(target: Target) -> str:
    """The one line with which a server is refused."""
    with pytest.raises(ServerUnfit) as caught:
        await check_fit(target)
    line = str(caught.value)
    assert "\n" not in line and line.startswith(target.redacted + ": ") and line.endswith(")")
    return line


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_drop_keys_is_refused(policy: str) -> None:
    """An evicted generation starts again at 1: a zombie's number would be valid again."""
    with running(settings={"maxmemory": "100mb", "maxmemory-policy": policy}) as server:
        line = await refusal(server.target)
        assert policy in line and "CONFIG SET maxmemory-policy noeviction" in line
        with user(server, "+@all", "-config") as target:
            assert policy in await refusal(target)


async def test_a_replica_is_refused_and_its_primary_named(server: Target) -> None:
    """It would refuse every write, or be overwritten."""
    with running(settings={"replicaof": "127.0.0.1 1"}) as replica:
        assert "replica of 127.0.0.1:1" in await refusal(replica.target)


async def test_a_server_whose_memory_is_full_is_refused(any_real_server: RealServer) -> None:
    """A script would be refused in the middle of a run."""
    with any_real_server.client() as client:
        client.config_set("maxmemory", "1")
        try:
            assert "memory is full" in await refusal(any_real_server.target)
        finally:
            client.config_set("maxmemory", "0")


async def test_a_server_that_waits_for_replicas_is_refused() -> None:
    """`min-replicas-to-write` without replicas refuses writes, which no setting that is read would have told."""
    with running(settings={"min-replicas-to-write": "1"}) as server:
        assert "too few replicas" in await refusal(server.target)


async def test_one_server_of_a_cluster_is_refused_with_the_url_that_is_meant() -> None:
    """It answers for its own slots only."""
    with running(settings={"cluster-enabled": "yes", "cluster-port": str(free_port())}, tcp=True) as server:
        assert "it is one of a cluster (write redis+cluster://HOST:PORT)" in await refusal(server.target)


async def test_a_missing_or_wrong_password_is_refused() -> None:
    """And what was given is not repeated in the line."""
    with running(settings={"requirepass": WORD}) as server:
        assert "it wants a password" in await refusal(server.target)
        line = await refusal(Target(path=server.target.path, password=WORD.upper()))
        assert "wrong user or password" in line and WORD.upper() not in line
        assert (await check_fit(Target(path=server.target.path, password=WORD))).aof


async def test_a_password_where_none_is_expected_is_refused(any_server: Target) -> None:
    """Servers answer this in their own way."""
    target = Target(path=any_server.path, password=WORD)
    assert "leave the password out" in await refusal(target)


async def test_a_database_that_is_not_there_is_refused(any_server: Target) -> None:
    """Servers have 16 as a rule."""
    assert "no database 999" in await refusal(Target(path=any_server.path, db=999))


async def test_a_user_with_too_few_rights_is_refused(any_real_server: RealServer) -> None:
    """Found out before the first run, not in the middle: the missing commands are named, keys of a plane too."""
    with user(any_real_server, "+@all", "-xautoclaim", "-xgroup|create") as target:
        line = await refusal(target)
        assert "XAUTOCLAIM, XGROUP" in line and "HSET" not in line
    with user(any_real_server, "+@all", "-evalsha") as target:
        assert "too few rights" in await refusal(target) and "evalsha" in await refusal(target)
    with user(any_real_server, "+@all", keys="~evb:{live.*") as target:
        assert (await check_fit(target, plane=Plane.LIVE)).role == "master"
        with pytest.raises(ServerUnfit, match="too few rights"):
            await check_fit(target, plane=Plane.SHADOW)


def test_the_rights_that_are_asked_for_are_those_that_scripts_need() -> None:
    """A command that a script begins to use must be asked for, else its denial shows in the middle of a run.

    What removes a batch, or archives its history, needs more, and is asked of who does that.
    """
    lua = Path(__file__).parent.parent / "lua"
    pruning = {lua / "run" / "retire.lua", lua / "run" / "remove.lua"}
    archiving = {lua / "run" / "archive.lua", lua / "run" / "archive_claim.lua"}

    def named(files: Iterable[Path]) -> set[str]:
        texts = [file.read_text() for file in files]
        patterns = (r"""redis\.p?call\(\s*['"]([A-Z]+)['"]""", r"""\{\s*['"](X[A-Z]+)['"]\s*,""")
        return {word for text in texts for pattern in patterns for word in re.findall(pattern, text)}

    def asked(*lines: str) -> set[str]:
        return {line.split()[0].upper() for line in lines}

    used = named(set(lua.rglob("*.lua")) - pruning - archiving)
    assert used and used <= asked(*COMMANDS)
    assert "UNLINK" in named(pruning) <= asked(*COMMANDS, *PRUNING)
    assert "XTRIM" in named(archiving) <= asked(*COMMANDS, *ARCHIVING)


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ("redis_version:6.2.14\r\nredis_mode:standalone", "Redis 6.2.14 is too old"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.11", "Valkey 7.2.11 is too old"),
        ("redis_version:7.2.4\r\nredis_mode:sentinel", "it is a Sentinel"),
        ("uptime:1", "does not say which version"),
    ],
)
async def test_a_server_is_refused_by_what_it_says_that_it_is(info: str, problem: str) -> None:
    """Valkey calls itself a Redis 7.2.4 as well. These are scripted: none of them can be installed everywhere."""
    async with scripted(info.encode()) as target:
        assert problem in await refusal(target)


# --- unreachable servers ---------------------------------------------------------------------------------


async def silence(target: Target) -> str:
    """The one line about a server that cannot be reached."""
    with pytest.raises(ServerUnreachable) as caught:
        await check_fit(target)
    line = str(caught.value)
    assert "\n" not in line and line.startswith(target.redacted + ": ")
    return line


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """The usual reasons, each by its name."""
    assert "connection refused" in await silence(Target(host="127.0.0.1", port=free_port()))
    assert "connection refused" in await silence(Target(host="localhost", port=free_port()))
    assert "no such socket" in await silence(Target(path=str(tmp_path / "none.sock")))
    assert "name of the host is not known" in await silence(Target(host="host.invalid"))


async def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process takes connections and never answers."""
    monkeypatch.setattr("bus.fitness.SILENCE", 0.2)
    with running() as server:
        server.process.send_signal(signal.SIGSTOP)
        assert "no answer" in await silence(server.target)


async def test_a_server_that_hangs_up_or_speaks_otherwise_is_unreachable() -> None:
    """A proxy without a server behind it; a web server."""
    async with scripted(None) as target:
        assert "lost" in await silence(target)
    async with scripted(b"", greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n") as target:
        assert "cannot be read" in await silence(target)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as files."""

    file: Path
    key: Path


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A self-signed certificate for localhost."""
    directory = tmp_path_factory.mktemp("tls")
    file, key = directory / "cert.pem", directory / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    try:
        command = ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(file)]
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate")
    return Certificate(file, key)


async def test_tls_is_spoken_and_the_certificate_is_checked(certificate: Certificate) -> None:
    """Trusted only if it is named and for this host, or if the check is turned off in so many words."""
    if isinstance(program := binary(Kind.REDIS7), Missing):
        pytest.skip(f"{program.reason}; no other server here speaks TLS")
    port = str(free_port())
    files = {"tls-cert-file": str(certificate.file), "tls-key-file": str(certificate.key)}
    with running(Kind.REDIS7, {"tls-port": port, "tls-auth-clients": "no", **files}):
        trusting = f"?ssl_ca_certs={certificate.file}"
        assert (await check_fit(parse_url(f"rediss://localhost:{port}{trusting}"))).product == "redis"
        assert (await check_fit(parse_url(f"rediss://localhost:{port}?ssl_cert_reqs=none"))).product == "redis"
        assert "not trusted" in await silence(parse_url(f"rediss://localhost:{port}"))
        assert "not trusted" in await silence(parse_url(f"rediss://127.0.0.1:{port}{trusting}"))


async def test_tls_and_none_are_told_apart_as_well_as_can_be(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without TLS waits for the rest of what looks like a command; one with TLS hangs up on a command."""
    async with scripted(b"", greeting=b"") as target:
        with monkeypatch.context() as impatient:
            impatient.setattr("bus.fitness.SILENCE", 0.2)
            hidden = dataclasses.replace(target, tls=Tls(verify=False))
            assert "is TLS spoken there?" in await silence(hidden)
    async with scripted(None) as target:
        assert "write rediss://" in await silence(target)


# --- endpoints -------------------------------------------------------------------------------------------


async def test_an_endpoint_without_a_url_is_the_embedded_server(tmp_path: Path) -> None:
    """Opened, found fit, started again after a crash, and let go."""
    endpoint = await asyncio.to_thread(Endpoint.from_options, None, tmp_path / "home")
    facts: ServerFacts = await check_fit(endpoint.target)
    assert facts.title.startswith("Valkey 9") and facts.aof and facts.warnings == ()
    assert not await endpoint.ensure()
    os.kill(await asyncio.to_thread(pid_of, tmp_path / "home"), signal.SIGKILL)
    assert await endpoint.ensure()
    assert (await check_fit(endpoint.target)).run_id != facts.run_id
    await endpoint.aclose()
    assert not (await asyncio.to_thread(stop, tmp_path / "home")).running


async def test_an_endpoint_with_a_url_is_left_alone(server: Target, tmp_path: Path) -> None:
    """Nothing is started, nothing is ended."""
    endpoint = Endpoint.from_options(server.url, tmp_path / "home")
    assert endpoint.target == server and endpoint.embedded is None
    assert not await endpoint.ensure()
    await endpoint.aclose()
    assert (await check_fit(server)).role == "master" and not (tmp_path / "home").exists()


# --- helpers ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def user(server: RealServer, *rules: str, keys: str = "~*") -> Iterator[Target]:
    """A target that logs in as a user with these rights, for as long as the block lasts."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "ann", "reset", "on", f">{WORD}", keys, *rules)
        try:
            yield Target(path=server.target.path, username="ann", password=WORD)
        finally:
            client.execute_command("ACL", "DELUSER", "ann")


@contextlib.asynccontextmanager
async def scripted(info: bytes | None, *, greeting: bytes = b"+OK\r\n") -> AsyncIterator[Target]:
    """A server that answers INFO with `info`, anything else with `greeting`; for None it hangs up at once."""

    served: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.add(asyncio.current_task())
        while info is not None and (line := await reader.readline()):  # *1, $4, INFO; or another command
            if line == b"INFO\r\n":
                writer.write(b"$%d\r\n%s\r\n" % (len(info), info))
            elif line.startswith(b"*") and line != b"*1\r\n":
                writer.write(greeting)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Target(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        await asyncio.gather(*filter(None, served), return_exceptions=True)
