"""A batch that a newer release declared, met by this one: it is left alone, and in nobody's way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from bus.errors import NewerBatch
from bus.keys import registry
from bus.target import Target
from bus.types import BatchId, Plane
from tests.batches import opened
from tests.screens import console, text_of
from workers.catalogue import Catalogue
from workers.results.fetching import fetched
from workers.results.status import show_all
from workers.watching.looking import Watcher

NEWER = BatchId("newer")


@pytest.mark.parametrize("change", [{"colours": ["red"]}, {"part": {"turn": 1}}])
async def test_what_declares_a_field_that_is_not_known_here_is_one_line_and_stops_nobody(
    server: Target, tmp_path: Path, change: dict[str, object]
) -> None:
    """Machines of a fleet are not updated in one moment. Its runs may be others than this one takes them for."""
    async with opened(server.address(), runs=1, name="b") as batch:
        row = batch.keys.batch_row
        spec = json.dumps(json.loads(await batch.batch_field("spec")) | change | {"batch": NEWER})
        await batch.wire.call(
            "HSET", row.replace(":b:batch", f":{NEWER}:batch"), "spec", spec, "status", "open", "incarnation", "i"
        )
        await batch.wire.call("HSET", registry(Plane.LIVE, 0), NEWER, "open")
        said = "batch 'newer' was declared by another release of evalbus"
        with pytest.raises(NewerBatch, match=said):
            await fetched(batch.bus, NEWER)
        screen = console()
        await show_all(batch.bus, screen)
        told, titles, shown = text_of(screen).splitlines()
        assert told.startswith(f"not shown  {said}")
        assert (titles.split()[0], shown.split()[0]) == ("batch", "b")
        assert [line.batch for line in await Watcher(batch.bus).briefs()] == ["b"]
        with structlog.testing.capture_logs() as logged:
            await Catalogue(batch.bus).open_batches()
        assert {one["batch"]: one["why"] for one in logged}[NEWER].startswith(said)
        await batch.wire.call("DEL", row.replace(":b:batch", f":{NEWER}:batch"))
        await batch.wire.call("HDEL", registry(Plane.LIVE, 0), NEWER)
