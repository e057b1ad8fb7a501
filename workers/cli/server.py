"""The commands for the private server of a directory."""

from __future__ import annotations

from workers.cli.common import console, guard
from workers.cli.options import HomeOption

__all__ = ["server_start", "server_status", "server_stop"]


def server_start(home: HomeOption = None) -> None:
    """Start it, and keep it up without users until `stop`.

    evalbus server start
    """
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import start_pinned  # noqa: PLC0415
    from workers.results.status import show_server  # noqa: PLC0415

    guard(lambda: show_server(start_pinned(home_directory(home)), console()))


def server_stop(home: HomeOption = None) -> None:
    """Stop it; its data stay.

    evalbus server stop --home /srv/evals
    """
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import stop  # noqa: PLC0415
    from workers.results.status import show_server  # noqa: PLC0415

    guard(lambda: show_server(stop(home_directory(home)), console()))


def server_status(home: HomeOption = None) -> None:
    """Say whether it runs, and on what data.

    evalbus server status
    """
    from bus.home import home_directory  # noqa: PLC0415
    from bus.server import status as look  # noqa: PLC0415
    from workers.results.status import show_server  # noqa: PLC0415

    guard(lambda: show_server(look(home_directory(home)), console()))
