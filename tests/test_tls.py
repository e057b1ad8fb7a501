"""TLS and server users end to end: a batch through processes, each with its certificate and its own user, and no more.

The server listens on TLS alone and asks its clients for certificates; the users are those of `evalbus doctor --acl`.
Whatever is not as it should be is refused in one line, exit 4, before anything is spent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme

from bus.acl import AclRole, rule, user_name
from bus.keys import BatchKeys
from bus.server_url import parse_url
from bus.types import BatchId, Digest, Plane
from bus.wire import Wire
from tests.fleet import Done, Stage, case, eventually
from tests.servers import Kind, Missing, RealServer, binary, free_port, running
from tests.waiting import PATIENCE

WORD = "open-sesame-0123"
BATCH = BatchKeys(Plane.LIVE, BatchId("b"))
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
OPTIONAL = {"config|get"}
"""What is asked for where it is granted, for the sake of a warning; a managed server forbids it to everybody."""

pytestmark = pytest.mark.process


@dataclass(frozen=True, slots=True)
class Authority:
    """One who signs, and where its files are."""

    ca: trustme.CA
    directory: Path

    @property
    def file(self) -> Path:
        """Its own certificate."""
        path = self.directory / "ca.pem"
        self.ca.cert_pem.write_to_path(str(path))
        return path

    def signed(self, name: str, *, expired: bool = False) -> tuple[Path, Path]:
        """A certificate for `localhost` and its key; one that has expired, if asked for."""
        until = {"not_before": LONG_AGO, "not_after": LONG_AGO + timedelta(days=30)} if expired else {}
        made = self.ca.issue_cert("localhost", **until)  # type: ignore[arg-type]
        files = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        made.cert_chain_pems[0].write_to_path(str(files[0]))
        made.private_key_pem.write_to_path(str(files[1]))
        return files


@dataclass(frozen=True, slots=True)
class Secured:
    """A server with TLS, and one who may connect to it."""

    server: RealServer
    port: int
    ca: Path
    client: tuple[Path, Path]

    def url(self, role: AclRole, *, plane: Plane = Plane.LIVE, scheme: str = "rediss", **options: object) -> str:
        """For a role's user; an option that is None is left out."""
        usual = {"ssl_ca_certs": self.ca, "ssl_certfile": self.client[0], "ssl_keyfile": self.client[1]}
        asked = {name: str(value) for name, value in (usual | options).items() if value is not None}
        query = f"?{urlencode(asked)}" if scheme == "rediss" else ""
        return f"{scheme}://{user_name(role, plane)}:{WORD}@localhost:{self.port}/0{query}"


def secured(authority: Authority, *, expired: bool = False) -> Iterator[Secured]:
    """A server whose certificate that authority has signed."""
    program = binary(Kind.REDIS7)
    if isinstance(program, Missing):
        pytest.skip(f"{program.reason}; no other server here speaks TLS")
    certificate, key = authority.signed("expired" if expired else "server", expired=expired)
    port = free_port()
    files = {"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": authority.file}
    settings = {"tls-port": str(port), "tls-auth-clients": "yes", **{name: str(path) for name, path in files.items()}}
    with running(Kind.REDIS7, settings) as server:
        with server.client() as client:
            for plane in Plane:
                for role in AclRole:
                    client.execute_command("ACL", "SETUSER", *rule(role, plane, WORD).split())
        yield Secured(server, port, authority.file, authority.signed("client"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the server and its clients trust."""
    return Authority(trustme.CA(), tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Iterator[Secured]:
    """A server with TLS, every role's user on it."""
    yield from secured(authority)


@pytest.fixture(scope="module")
def expired(authority: Authority) -> Iterator[Secured]:
    """The same, under a certificate that was good once."""
    yield from secured(authority, expired=True)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own."""
    with Stage.opened(tmp_path) as opened:
        yield opened


async def test_a_batch_ends_over_tls_with_a_user_for_each_role(stage: Stage, tls: Secured) -> None:
    """Planner, worker and scorer, each by its own certificate and user; none of them is denied anything it needs."""
    suite = stage.suite([case("a"), case("b", target="2"), case("c")])
    run = stage.start(
        "run", suite, "--batch", "b", "--workers", 0, "--scorers", 0, "--json", "out.json",
        env={"EVALBUS_URL": tls.url(AclRole.OPERATOR)},
    )  # fmt: skip
    with tls.server.client() as client:

        async def declared() -> bool:
            return bool(client.exists(BATCH.batch_row))

        await eventually(declared, "the batch to be declared")
        roles = {
            role: stage.start(role.value, "--batch", "b", "--suite", suite, env={"EVALBUS_URL": tls.url(role)})
            for role in (AclRole.PLANNER, AclRole.WORKER, AclRole.SCORER)
        }
        assert (done := await run.end()).code == 0, done.err
        for role, one in roles.items():
            ended = await one.end()
            assert ended.code == 0 and "NOPERM" not in ended.err, (role, ended.err)
        assert {entry["object"] for entry in client.acl_log()} <= OPTIONAL
    assert json.loads((stage.root / "out.json").read_text())["bins"] == {"pass": 2, "fail": 1}
    assert WORD not in done.out + done.err + "".join(path.read_text() for path in stage.home.rglob("*.log"))


async def test_replies_of_many_records_come_whole(tls: Secured) -> None:
    """A record of TLS carries 16 kB. What is read behind the first stands behind it, not in a copy that goes away."""
    wire = await Wire.open(parse_url(tls.url(AclRole.OPERATOR)).address(), silence=PATIENCE)
    try:
        texts = [bytes((at * 7 + size) % 251 for at in range(size)) for size in (17_000, 40_000, 70_000, 300_000)]
        await wire.calls([("SET", BATCH.blob(Digest(str(n))), text) for n, text in enumerate(texts)])
        replies = await wire.calls([("GET", BATCH.blob(Digest(str(n)))) for n in range(len(texts))])
        assert [reply == text for reply, text in zip(replies, texts, strict=True)] == [True] * len(texts)
    finally:
        wire.close()


async def refused(stage: Stage, url: str, command: str = "worker") -> str:
    """The one line by which a role that was started with that URL says no, exit 4."""
    given = ("--suite", stage.suite([case("a")])) if command == "worker" else ()
    done: Done = await stage.start(command, *given, env={"EVALBUS_URL": url}).end()
    lines = [line for line in done.err.splitlines() if line]
    assert done.code == 4 and len(lines) == 1, done
    assert WORD not in done.err + done.out
    return lines[0]


async def test_another_authoritys_certificate_is_refused(stage: Stage, tls: Secured, tmp_path: Path) -> None:
    """Whoever answers there has not been signed by whom we trust; nor by whom this system does."""
    stranger = Authority(trustme.CA(), tmp_path).file
    for ca in (stranger, None):
        assert "its certificate is not trusted" in await refused(stage, tls.url(AclRole.WORKER, ssl_ca_certs=ca))


async def test_an_expired_certificate_is_refused(stage: Stage, expired: Secured) -> None:
    """The line says what is wrong with it."""
    assert "certificate has expired" in await refused(stage, expired.url(AclRole.WORKER))


async def test_a_certificate_for_another_host_is_refused(stage: Stage, tls: Secured) -> None:
    """It is for `localhost`; asked for by its number, it is somebody else."""
    url = tls.url(AclRole.WORKER).replace("@localhost:", "@127.0.0.1:")
    said = await refused(stage, url)
    assert "certificate is not valid for '127.0.0.1' (name the server as its certificate does)" in said


async def test_plain_text_against_tls_is_refused_and_says_what_to_ask(stage: Stage, tls: Secured) -> None:
    """The server hangs up, and no password was read by it."""
    assert "rediss://" in await refused(stage, tls.url(AclRole.WORKER, scheme="redis"))


async def test_a_client_without_a_certificate_is_refused(stage: Stage, tls: Secured, tmp_path: Path) -> None:
    """Nor is one that another authority has signed."""
    none = tls.url(AclRole.WORKER, ssl_certfile=None, ssl_keyfile=None)
    file, key = Authority(trustme.CA(), tmp_path).signed("stranger")
    for url in (none, tls.url(AclRole.WORKER, ssl_certfile=file, ssl_keyfile=key)):
        assert "localhost" in await refused(stage, url)


async def test_a_user_without_a_right_is_refused_before_it_takes_a_run(stage: Stage, tls: Secured) -> None:
    """Of the other plane, of a narrower rule, or with a wrong password; `status` needs no more than a reader."""
    assert "evalbus-shadow-worker" in await refused(stage, tls.url(AclRole.WORKER, plane=Plane.SHADOW))
    assert "NOPERM" in await refused(stage, tls.url(AclRole.READER))
    with tls.server.client() as client:
        client.execute_command("ACL", "SETUSER", user_name(AclRole.WORKER, Plane.LIVE), "-evalsha")
        try:
            assert "evalsha" in (await refused(stage, tls.url(AclRole.WORKER))).lower()
        finally:
            client.execute_command("ACL", "SETUSER", *rule(AclRole.WORKER, Plane.LIVE, WORD).split())
    wrong = tls.url(AclRole.WORKER).replace(WORD, "another-word")
    assert "wrong user or password" in await refused(stage, wrong)
    reader = await stage.start("status", env={"EVALBUS_URL": tls.url(AclRole.READER)}).end()
    assert reader.code == 0, reader.err
