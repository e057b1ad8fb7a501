"""A socket that the command line asked for."""

from __future__ import annotations

import socket

from bus.errors import InputError

__all__ = ["listen"]


def listen(host: str, port: int, backlog: int = 256) -> socket.socket:
    """A listening socket; `port` 0 takes a free one. `backlog`: connections that wait to be accepted.

    Raises InputError when it can't be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"cannot listen on {host}: {error.strerror or error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        remedy = "another --port, or 0 for a free one"
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror or error}", remedy=remedy) from None
    return listener
