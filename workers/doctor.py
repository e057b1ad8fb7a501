"""`evalbus doctor`: is this server fit to carry a batch, and which users should it have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bus.acl import AclRole, rule
from bus.connection import Endpoint, check_fit
from bus.errors import ReplyError, ServerUnfit
from bus.home import home_directory
from bus.rights import PRUNING
from bus.sentinel import located
from bus.target import Target
from bus.topology import Primary, Topology
from bus.types import Plane
from workers.checkup.batches import find_left, find_resting, judge_left, judge_resting
from workers.checkup.findings import Finding, Level, exit_code
from workers.checkup.machine import judge_machine
from workers.checkup.server import judge_server
from workers.checkup.vitals import take_vitals
from workers.files import check_writable, write_whole

__all__ = ["examine", "print_acl"]

_MARKS = {Level.OK: " ", Level.UNKNOWN: "?", Level.WARNING: "!", Level.PROBLEM: "✗"}
_WIDTH = 18  # of the questions


def print_acl(plane: Plane | None, console: Console) -> None:
    """The rules, a line a user, as the server's command line takes them; `PASSWORD` is a place to fill in."""
    for each in Plane if plane is None else (plane,):
        for role in AclRole:
            console.print(f"ACL SETUSER {rule(role, each)}", soft_wrap=True, markup=False)


def examine(url: str | None, home: Path | None, plane: Plane, json_file: Path | None, console: Console) -> int:
    """Look at a server and at this machine, and say what there is to say. Returns the exit code: 0, 1 or 4.

    Raises ServerUnreachable when nobody answers, InputError for a wrong URL.
    """
    place = home_directory(home)
    if json_file is not None:
        check_writable(json_file)
    by_server = asyncio.run(_look(url, place, plane))
    code = exit_code(finding for findings in by_server.values() for finding in findings)
    for title, findings in by_server.items():
        console.print(title, markup=False, soft_wrap=True)
        for finding in findings:
            line = f"{_MARKS[finding.level]} {finding.question.ljust(_WIDTH)} {finding.answer}"
            console.print(line.rstrip(), markup=False, soft_wrap=True)
            if finding.remedy:
                console.print(f"  {'':{_WIDTH}} → {finding.remedy}", markup=False, soft_wrap=True)
    console.print({0: "fit", 1: "fit, with warnings", 4: "not fit"}[code], markup=False)
    if json_file is not None:
        found = {title: [finding.as_json() for finding in findings] for title, findings in by_server.items()}
        write_whole(json_file, json.dumps({"exit_code": code, "found": found}, indent=1) + "\n")
    return code


async def _look(url: str | None, home: Path, plane: Plane) -> dict[str, Sequence[Finding]]:
    """Findings by what they are of: each server, the plane, this machine."""
    endpoint = await asyncio.to_thread(Endpoint.from_options, url, home)
    try:
        here = {"this machine": judge_machine(home)}
        fitness = await _fitness(endpoint.target, plane)
        try:
            primaries = await _primaries(endpoint.target, plane)
            servers = {one.target.redacted: judge_server(await take_vitals(one.target)) for one in primaries}
            left = judge_left(await find_left(primaries, plane)) + judge_resting(await find_resting(primaries, plane))
        except (ReplyError, ServerUnfit) as error:
            if fitness.level is not Level.PROBLEM:
                fitness = Finding(fitness.question, Level.PROBLEM, str(error))
            return {f"plane {plane}": [fitness], **here}
        return {**servers, f"plane {plane}": [fitness, *left], **here}
    finally:
        await endpoint.aclose()


async def _primaries(target: Target, plane: Plane) -> Sequence[Primary]:
    if target.cluster is not None:
        return await Topology(target).primaries(plane)
    return [Primary(await located(target), (0,))]


async def _fitness(target: Target, plane: Plane) -> Finding:
    """Whether the roles would start: what they themselves ask before they do, but for eviction, which has its line."""
    ask = "rights"
    try:
        await check_fit(target, plane=plane, may_evict=True)
    except ServerUnfit as error:
        return Finding(
            ask, Level.PROBLEM, str(error), "evalbus doctor --acl prints users with the rights that each role needs"
        )
    try:
        await check_fit(target, plane=plane, commands=PRUNING, may_evict=True)
    except ServerUnfit:
        return Finding(ask, Level.OK, "all that planner, worker and scorer need; not those to prune")
    return Finding(ask, Level.OK, "all that the roles need, and to prune")
