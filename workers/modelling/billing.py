"""What an endpoint itself says that a request cost: its last word, for requests that were given up or left behind."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import structlog

from workers.endpoints import Client

__all__ = ["figure_of"]

log = structlog.get_logger("evalbus.model")

_PATIENCE: Final = 5.0  # seconds
_AGAIN: Final = 0.05
_OK: Final = 200


async def figure_of(client: Client, billing_url: str, request_id: str) -> int | None:
    """Tokens; None where the endpoint cannot be asked, does not know, or is still at it after a while."""
    import aiohttp  # noqa: PLC0415 - not every planner needs it

    told: object = None
    url = billing_url.replace("{request_id}", request_id)
    try:
        async with asyncio.timeout(_PATIENCE):
            while _is_open(told := await _told(client, url)):
                await asyncio.sleep(_AGAIN)  # it has not noticed yet that nobody listens any more
    except (aiohttp.ClientError, OSError, ValueError) as error:
        log.warning("billing.unknown", request=request_id, why=type(error).__name__)
        return None
    billed = told.get("billed") if isinstance(told, dict) else None
    return billed if isinstance(billed, int) and not isinstance(billed, bool) and billed >= 0 else None


async def _told(client: Client, url: str) -> object:
    status, body = await client.get(url)
    told: object = json.loads(body) if status == _OK else None
    return told


def _is_open(told: object) -> bool:
    return isinstance(told, dict) and told.get("open") is True
