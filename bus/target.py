"""Where a server is, and how to be let in; written as a URL again (`bus.server_url` reads them)."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from bus.errors import InputError
from bus.wire import Address

__all__ = ["PORT", "Cluster", "Sentinel", "Target", "Tls"]

PORT = 6379
"""Where a URL names none."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server proves who it is, and we to it. The default: by a certificate that this system trusts."""

    ca_certs: str | None = None
    ca_path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises InputError, naming the file, when a certificate or key cannot be loaded."""
        context = ssl.create_default_context()
        context.check_hostname = self.verify and self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        if self.ca_certs or self.ca_path:
            with _loading(self.ca_certs or self.ca_path):
                context.load_verify_locations(self.ca_certs, self.ca_path)
        if self.certfile:
            with _loading(self.certfile):
                context.load_cert_chain(self.certfile, self.keyfile)
        return context


@dataclass(frozen=True, slots=True)
class Sentinel:
    """Who knows where the primary is: the Sentinels that watch it, the name that they know it by, and their login."""

    name: str
    hosts: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers of one cluster: some of them are enough, the others are asked of these."""

    hosts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is, and how to be let in. One of `host`, `path`, `sentinel` and `cluster` is set.

    `tls` goes not with `path`. Where `sentinel` is set, `bus.sentinel` finds out where the server is now; where
    `cluster` is, `bus.topology` which of its servers has what.
    """

    host: str | None = None
    port: int = PORT
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: Tls | None = None
    sentinel: Sentinel | None = None
    cluster: Cluster | None = None

    @property
    def url(self) -> str:
        """The URL, password included: for another process of ours, through its environment only."""
        return self._url(self.password, self.sentinel.password if self.sentinel else None)

    @property
    def redacted(self) -> str:
        """The URL as it may be shown."""
        watcher = self.sentinel.password if self.sentinel else None
        return self._url(None if self.password is None else "***", None if watcher is None else "***")

    def address(self) -> Address:
        """What `Wire.open` takes. Raises InputError when a file of the TLS options cannot be loaded."""
        return Address(
            host=self.host,
            port=self.port,
            path=self.path,
            username=self.username,
            password=self.password,
            db=self.db,
            tls=self.tls.context() if self.tls else None,
        )

    def _url(self, password: str | None, watcher: str | None) -> str:
        login = quote(self.username or "", safe="")
        if password is not None:
            login += ":" + quote(password, safe="*")
        login += "@" if login else ""
        if self.sentinel is not None:
            hosts = _hosts(self.sentinel.hosts)
            users = {"sentinel_username": self.sentinel.username, "sentinel_password": watcher}
            options: dict[str, str] = {name: value for name, value in users.items() if value is not None}
            asked = _asked(options | self._with_tls())
            return f"sentinel://{login}{hosts}/{quote(self.sentinel.name, safe='')}/{self.db}{asked}"
        if self.cluster is not None:
            return f"redis+cluster://{login}{_hosts(self.cluster.hosts)}{_asked(self._with_tls())}"
        if self.path is not None:
            return f"unix://{login}{quote(os.fsencode(self.path))}" + (f"?db={self.db}" if self.db else "")
        base = f"{'rediss' if self.tls else 'redis'}://{login}{_bracketed(self.host or '')}:{self.port}/{self.db}"
        return base + _asked(_tls_options(self.tls) if self.tls else {})

    def _with_tls(self) -> dict[str, str]:
        """The options that say so, where the scheme does not."""
        return {"tls": "true", **_tls_options(self.tls)} if self.tls else {}


def _hosts(hosts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"{_bracketed(host)}:{port}" for host, port in hosts)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _asked(options: Mapping[str, str]) -> str:
    """The query of a URL; stars stay as they are."""
    return f"?{urlencode(options, safe='*')}" if options else ""


def _tls_options(tls: Tls) -> Mapping[str, str]:
    files = {
        "ssl_ca_certs": tls.ca_certs,
        "ssl_ca_path": tls.ca_path,
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
        "ssl_cert_reqs": None if tls.verify else "none",
        "ssl_check_hostname": None if tls.check_hostname else "false",
    }
    return {name: value for name, value in files.items() if value is not None}


@contextlib.contextmanager
def _loading(file: str | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # an SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise InputError(f"cannot be used for TLS: {reason.lower()}", file=file) from error
