"""Which server is the primary now: asked of the Sentinels that watch it, before each connection.

A primary that dies is replaced by one of its replicas, and only the Sentinels know by which. They are asked in turn,
and the first that knows a primary under the name decides. Its answer may be old: so who opens the connection asks the
server itself for its role (`bus.link`), and comes back here when it is a replica.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.target import Target
from bus.wire import Wire

__all__ = ["located"]

_ANSWER = 2.0  # seconds for one Sentinel: the next one may be quicker


async def located(target: Target) -> Target:
    """Where the server of `target` is now; one that no Sentinel watches is where its URL says.

    Raises ServerUnreachable when no Sentinel answers, ServerUnfit when those that answer know no primary of that name.
    """
    watch = target.sentinel
    if watch is None:
        return target
    problems: list[str] = []
    strangers = 0
    watcher = replace(target, username=watch.username, password=watch.password, db=0)
    for host, port in watch.hosts:
        address = replace(watcher, host=host, port=port).address()
        try:
            async with asyncio.timeout(_ANSWER):
                wire = await Wire.open(address)
                try:
                    said = await wire.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", watch.name)
                finally:
                    wire.close()
        except (ReplyError, ServerUnfit, ServerUnreachable, TimeoutError) as error:
            problems.append(f"{host}:{port}: {error or 'no answer'}")
            continue
        if said is None:
            strangers += 1
            problems.append(f"{host}:{port} knows no primary named {watch.name!r}")
            continue
        found, number = said
        return replace(target, host=found.decode(), port=int(number), sentinel=None)
    where = "; ".join(problems)
    if strangers:
        raise ServerUnfit(f"{target.redacted}: {where} (look up its name in sentinel.conf: sentinel monitor NAME …)")
    raise ServerUnreachable(f"{target.redacted}: no Sentinel answers: {where}")
