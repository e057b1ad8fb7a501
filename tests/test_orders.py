"""Orders of each fence's race, drawn at random from all of them, on a live server.

`test_invariants` visits every order on the model. Here at least 500 of them a fence are sent to the scripts, message by
message: each answer must be the model's, and at the end the whole state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from bus.connection import Endpoint
from bus.models import MODELS, build
from bus.redis_bus import RedisBus
from bus.server_player import ServerPlayer
from bus.target import Target
from tests.both import Both
from tests.explore import random_order
from tests.fences import FENCES
from tests.fences.fence import Scenario
from tests.soak import times
from workers.runtime import SystemRuntime

ORDERS = times(500)
AT_ONCE = 8  # orders under way together, each in a batch of its own


@pytest.mark.parametrize("fence", sorted(MODELS))
async def test_the_server_decides_sampled_orders_of_the_race_as_the_model_does(server: Target, fence: str) -> None:
    """Two holders, a duplicate, a late message, a crash, a timeout, as they may come on a real server."""
    endpoint, runtime = Endpoint(server), SystemRuntime()
    bus = RedisBus(endpoint, runtime)
    scenarios: list[Scenario] = list(FENCES[fence].SCENARIOS)
    waiting: Iterator[int] = iter(range(ORDERS))
    seen: set[str] = set()

    async def play_some() -> None:
        for seed in waiting:
            scenario = scenarios[seed % len(scenarios)]
            steps = random_order(scenario.events, build(fence, scenario.config), random.Random(seed))
            player = ServerPlayer(endpoint, runtime, bus=bus)
            await player.begin(fence, scenario.config)
            pair = Both(fence, build(fence, scenario.config), player, bus.link)
            for step in steps:
                await pair.send(step.call)
            await pair.compare()
            await player.end()
            seen.add(" ".join(str(step.call) for step in steps))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(play_some())
    finally:
        await bus.aclose()
    assert len(seen) > ORDERS / 2, "a sample must not be the same few orders again and again"
