"""What the commands share: the screen, a connection to the server, and errors as one line with an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from bus.errors import BatchMissing, EvalbusError, InputError, ReplyError
from bus.types import Plane

if TYPE_CHECKING:
    from rich.console import Console

    from bus.cluster import ServerBus
    from bus.connection import Endpoint

__all__ = ["console", "finish", "guard", "quiet_logs", "seconds", "with_bus", "with_endpoint"]

T = TypeVar("T")


def console() -> Console:
    """Standard output, as the commands write to it."""
    from workers.results.screen import Screen  # noqa: PLC0415 - a tenth of a second that `--help` need not pay

    return Screen()


def quiet_logs() -> None:
    """Log errors only: what a command says of itself is its output."""
    from workers.processes import logs  # noqa: PLC0415

    guard(lambda: logs.configure("error"))


def with_endpoint(
    use: Callable[[Endpoint], Coroutine[Any, Any, T]],
    url: str | None,
    home: Path | None,
    *,
    only_look: bool = False,
    single: bool = False,
) -> T:
    """`only_look`: the user need not have the right to more than reading. `single`: a cluster is refused."""
    import asyncio  # noqa: PLC0415

    from bus.connection import Endpoint, check_fit  # noqa: PLC0415
    from bus.home import home_directory  # noqa: PLC0415
    from bus.rights import COMMANDS  # noqa: PLC0415
    from bus.unfit import with_remedy  # noqa: PLC0415

    async def go() -> T:
        endpoint = await asyncio.to_thread(Endpoint.from_options, url, home_directory(home))
        try:
            if single:
                await endpoint.ensure()
            await check_fit(endpoint.target, commands=() if only_look else COMMANDS)
            return await use(endpoint)
        except ReplyError as error:  # who may only look is asked for no rights before, and another plane is not his
            raise with_remedy(endpoint.target, error) from None
        finally:
            await endpoint.aclose()

    return finish(go())


def with_bus(use: Callable[[ServerBus], Coroutine[Any, Any, T]], url: str | None, home: Path | None, plane: Plane) -> T:
    """Look at a plane of a server: the user need not have the right to more than reading."""
    from bus.cluster import open_bus  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    async def go(endpoint: Endpoint) -> T:
        bus = open_bus(endpoint, SystemRuntime(), plane=plane, patience=5.0)
        try:
            return await use(bus)
        finally:
            await bus.aclose()

    return with_endpoint(go, url, home, only_look=True)


def finish(job: Coroutine[Any, Any, T]) -> T:
    """Run to the end, under `guard`."""
    import asyncio  # noqa: PLC0415 - a tenth of what `--help` takes, which runs no job

    return guard(lambda: asyncio.run(job))


def guard(action: Callable[[], T]) -> T:
    """Run; turn what a user may see into one line and an exit code."""
    from workers.processes.interrupt import Interrupted  # noqa: PLC0415

    try:
        return action()
    except Interrupted as stop:
        print(f"evalbus: {stop}", file=sys.stderr)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        print("evalbus: interrupted", file=sys.stderr)
        raise typer.Exit(130) from None
    except EvalbusError as error:
        print(f"evalbus: {_in_words(error)}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:  # the reader of our output has left
        sys.stderr.close()
        raise typer.Exit(0) from None


def _in_words(error: EvalbusError) -> str:
    if isinstance(error, BatchMissing):
        from workers.gating.named_file import what_is_in  # noqa: PLC0415 - only who errs needs it

        return what_is_in(error.named) or str(error)
    return str(error)


def seconds(option: str, written: str | None) -> float:
    """A duration that an option gives, in seconds; none is 0. Raises InputError."""
    from workers.quantities import duration  # noqa: PLC0415

    try:
        return 0.0 if written is None else duration(written)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
