"""Which server a URL means.

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]       plain TCP
    rediss://…  ?ssl_ca_certs=FILE  &ssl_ca_path=DIR  &ssl_certfile=FILE  &ssl_keyfile=FILE
                &ssl_cert_reqs=required|none  &ssl_check_hostname=true|false          TLS
    unix://[[USER]:PASSWORD@]/PATH[?db=DB]           a socket
    sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/NAME[/DB]
                ?sentinel_username=…  &sentinel_password=…  &tls=true and the options of TLS
                                                     the primary that these Sentinels know under NAME
    redis+cluster://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]
                ?tls=true and the options of TLS     the cluster that these servers are of

Parts are percent-encoded. An option that is not known is refused: a misspelt option must not pass for the
default, least of all one that is about trust. No error and no log line shows a password; `Target.redacted` is
what is printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bus.errors import InputError
from bus.nearest import nearest
from bus.target import PORT, Cluster, Sentinel, Target, Tls

__all__ = ["parse_url"]

_SENTINEL_PORT = 26379
_SHAPE = (
    "write redis://HOST:PORT/DB, rediss://HOST:PORT/DB, unix:///PATH, sentinel://HOST:PORT,HOST:PORT/NAME "
    "or redis+cluster://HOST:PORT,HOST:PORT"
)
_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password", "tls")
_OPTIONS = {
    "redis": ("db",),
    "rediss": ("db", *_TLS_OPTIONS),
    "unix": ("db",),
    "sentinel": (*_SENTINEL_OPTIONS, *_TLS_OPTIONS),
    "redis+cluster": ("tls", *_TLS_OPTIONS),
}


def parse_url(url: str) -> Target:
    """The target that a URL means. Raises InputError, with the password left out, when it means none."""
    try:
        parts = urlsplit(url.strip())
    except ValueError as error:
        raise _wrong(url, "its host cannot be read") from error
    if parts.scheme not in _OPTIONS:
        raise _wrong(url, "it begins otherwise")
    beside = parts.query + parts.fragment + ("" if parts.scheme == "unix" else parts.path)
    if "@" in beside or parts.fragment:  # a password that was not encoded: its parts are anywhere by now
        remedy = "write %2F %3F %23 %40 for / ? # @ in a password"
        raise InputError(f"{_shown(url)}: not the URL of a server, it has a / ? # before an @", remedy=remedy)
    options = _options(url, parts)
    if parts.scheme == "sentinel":
        return _watched(url, parts, options)
    if parts.scheme == "redis+cluster":
        return _spread(url, parts, options)
    try:
        port = parts.port
    except ValueError as error:
        raise _wrong(url, "its port is not a number below 65536") from error
    username = unquote(parts.username or "") or None
    password = None if parts.password is None else unquote(parts.password)
    if parts.scheme == "unix":
        if parts.hostname or not parts.path.strip("/"):
            raise _wrong(url, "a socket needs an absolute path")
        path = unquote(parts.path, errors="surrogateescape")
        return Target(path=path, username=username, password=password, db=_db(url, options.get("db", "")))
    if not parts.hostname:
        raise _wrong(url, "it names no host")
    return Target(
        host=unquote(parts.hostname),
        port=PORT if port is None else port,
        username=username,
        password=password,
        db=_db(url, options.get("db", parts.path.strip("/"))),
        tls=_tls(url, options) if parts.scheme == "rediss" else None,
    )


def _watched(url: str, parts: SplitResult, options: Mapping[str, str]) -> Target:
    """The primary that Sentinels watch: several hosts, then a name."""
    found = _several(url, parts, _SENTINEL_PORT)
    name, _, db = parts.path.strip("/").partition("/")
    if not found.hosts:
        raise _wrong(url, "it names no Sentinel")
    if not name:
        raise _wrong(url, "it does not say under which name the Sentinels know the primary")
    return Target(
        username=found.username,
        password=found.password,
        db=_db(url, db),
        tls=_tls_beside(url, options),
        sentinel=Sentinel(
            name=unquote(name),
            hosts=found.hosts,
            username=options.get("sentinel_username"),
            password=options.get("sentinel_password"),
        ),
    )


def _spread(url: str, parts: SplitResult, options: Mapping[str, str]) -> Target:
    """A cluster: several hosts, and no database."""
    found = _several(url, parts, PORT)
    if not found.hosts:
        raise _wrong(url, "it names no server of the cluster")
    if parts.path.strip("/"):
        raise _wrong(url, "a cluster has no databases to choose from")
    return Target(
        username=found.username,
        password=found.password,
        tls=_tls_beside(url, options),
        cluster=Cluster(found.hosts),
    )


@dataclass(frozen=True, slots=True)
class _Several:
    hosts: tuple[tuple[str, int], ...]
    username: str | None
    password: str | None


def _several(url: str, parts: SplitResult, port: int) -> _Several:
    """A login, and hosts with commas between them."""
    login, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    return _Several(
        tuple(_host_and_port(url, one, port) for one in hosts.split(",") if one),
        unquote(user) or None,
        unquote(password) if colon else None,
    )


def _tls_beside(url: str, options: Mapping[str, str]) -> Tls | None:
    """Of a scheme that does not say itself whether TLS is spoken."""
    with_tls = options.get("tls", "false").lower()
    if with_tls not in ("true", "false"):
        raise InputError(f"{_shown(url)}: tls is {options['tls']!r}", remedy="write true or false")
    return _tls(url, options) if with_tls == "true" else None


def _host_and_port(url: str, text: str, otherwise: int) -> tuple[str, int]:
    try:
        one = urlsplit(f"//{text}")
        port = one.port
    except ValueError as error:
        raise _wrong(url, f"{text!r} is no host and port") from error
    if not one.hostname:
        raise _wrong(url, f"{text!r} is no host and port")
    return unquote(one.hostname), otherwise if port is None else port


def _options(url: str, parts: SplitResult) -> Mapping[str, str]:
    known = _OPTIONS[parts.scheme]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name in known:
            continue
        if name in _TLS_OPTIONS and "tls" not in known:
            raise InputError(f"{_shown(url)}: {name} is an option of TLS", remedy="write rediss:// for it")
        near = nearest(name, known)
        remedy = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
        raise InputError(f"{_shown(url)}: unknown option {name!r}", remedy=remedy)
    return options


def _db(url: str, text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise _wrong(url, "its database is not a number")
    return int(text)


def _tls(url: str, options: Mapping[str, str]) -> Tls:
    def choice(name: str, values: Mapping[str, bool]) -> bool:
        text = options.get(name, next(iter(values)))
        if text.lower() not in values:
            raise InputError(f"{_shown(url)}: {name} is {text!r}", remedy=f"write {' or '.join(values)}")
        return values[text.lower()]

    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise InputError(f"{_shown(url)}: a key without its certificate", remedy="add ssl_certfile=FILE")
    return Tls(
        ca_certs=options.get("ssl_ca_certs"),
        ca_path=options.get("ssl_ca_path"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        verify=choice("ssl_cert_reqs", {"required": True, "none": False}),
        check_hostname=choice("ssl_check_hostname", {"true": True, "false": False}),
    )


def _wrong(url: str, why: str) -> InputError:
    return InputError(f"{_shown(url)}: not the URL of a server, {why}", remedy=_SHAPE)


def _shown(url: str) -> str:
    """A URL that may be wrong anywhere, without what may be secret: all before the last @, and the query."""
    login, at, rest = url.strip().rpartition("@")
    scheme = login.partition("//")[0] if "//" in login else ""
    return ((f"{scheme}//***@" if at else "") + rest).partition("?")[0] or "an empty URL"
