"""Faults of the network before the server, and of the endpoint behind it."""

from __future__ import annotations

from workers.chaos.plan import Strike
from workers.chaos.scene import Scene

__all__ = ["cut", "delay", "duplicate_request", "endpoint", "half_open"]

_TWICE = 20  # requests that are delivered twice
_MISBEHAVES = 2  # requests of an interface


async def cut(scene: Scene, strike: Strike) -> None:
    """All connections at once; what was in flight has an unknown outcome."""
    proxy = scene.stage.proxy
    if proxy is not None and proxy.cut():
        scene.struck(strike)


async def half_open(scene: Scene, strike: Strike) -> None:
    """Nothing passes half of the connections any more, and nobody says so: each client finds out by itself."""
    proxy = scene.stage.proxy
    if proxy is not None and proxy.silence():
        scene.struck(strike)


async def delay(scene: Scene, strike: Strike) -> None:
    """Everything is late for a while."""
    proxy = scene.stage.proxy
    if proxy is None:
        return
    scene.struck(strike)
    proxy.late = strike.between(0.02, 0.3)
    try:
        await scene.pause(strike.between(0.3, 1.0) * scene.lease)
    finally:
        proxy.late = 0.0


async def duplicate_request(scene: Scene, strike: Strike) -> None:
    """The next scripts arrive twice."""
    proxy = scene.stage.proxy
    if proxy is not None:
        scene.struck(strike)
        proxy.to_repeat += _TWICE


async def endpoint(scene: Scene, strike: Strike) -> None:
    """The next requests of one of the lab's interfaces meet a mischief."""
    api, mischief = strike.mischief
    scene.stage.lodging.lab.misbehave(api, mischief, _MISBEHAVES)
    scene.struck(strike)
