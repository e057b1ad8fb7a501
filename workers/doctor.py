"""`evalbus doctor`: is this server fit to carry a batch, and which users should it have."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from bus.acl import AclRole, rule
from bus.connection import Endpoint, check_fit
from bus.fitness import ServerFacts
from bus.home import home_directory
from bus.types import Plane

__all__ = ["examine", "print_acl"]


def print_acl(plane: Plane | None, console: Console) -> None:
    """The rules, a line a user, as the server's command line takes them; `PASSWORD` is a place to fill in."""
    for each in Plane if plane is None else (plane,):
        for role in AclRole:
            console.print(f"ACL SETUSER {rule(role, each)}", soft_wrap=True, markup=False)


def examine(url: str | None, home: Path | None, plane: Plane, console: Console) -> None:
    """Look at a server and say what there is to say. Raises ServerUnreachable, ServerUnfit."""
    facts = asyncio.run(_facts(url, home, plane))
    console.print(f"{facts.title}: fit", markup=False, soft_wrap=True)
    console.print(f"  append-only file   {_persistence(facts)}", markup=False, soft_wrap=True)
    limit = f"{facts.maxmemory:,} bytes" if facts.maxmemory else "no limit"
    console.print(f"  memory             {limit}, {facts.maxmemory_policy}", markup=False, soft_wrap=True)
    for warning in facts.warnings:
        console.print(f"  warning            {warning}", markup=False, soft_wrap=True)


def _persistence(facts: ServerFacts) -> str:
    if not facts.aof:
        return "off"
    return f"on, fsync {facts.fsync or 'not known (this user may not read the configuration)'}"


async def _facts(url: str | None, home: Path | None, plane: Plane) -> ServerFacts:
    endpoint = await asyncio.to_thread(Endpoint.from_options, url, home_directory(home))
    try:
        return await check_fit(endpoint.target, plane=plane)
    finally:
        await endpoint.aclose()
