"""What a server says about itself: the reply of INFO, read; and a blocking way to get it.

The blocking way is for those who look after an embedded server from a thread, or before there is an event
loop. Everybody else goes through `bus.wire`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import hiredis

__all__ = ["Info", "ask", "parse_info"]

Info = Mapping[str, str]
"""The fields of all sections; a name occurs in one section only."""


def parse_info(reply: bytes) -> Info:
    """`name:value` lines to a mapping; titles of sections and empty lines are skipped."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines() if line[:1] != "#")
    return {name: value for name, colon, value in lines if colon}


def ask(path: Path, command: str, *, timeout: float) -> bytes | None:
    """Send one command of plain words to a unix socket: its reply, or None for an error or a hang-up.

    `timeout` is in seconds and for each step. Raises OSError when nobody answers.
    """
    reader = hiredis.Reader()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(os.fsencode(path))
        connection.sendall(command.encode() + b"\r\n")  # the inline form: what a person would type
        while (reply := reader.gets()) is False:
            if not (received := connection.recv(65536)):
                return None
            reader.feed(received)
    return reply if isinstance(reply, bytes) else None
