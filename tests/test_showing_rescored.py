"""`evalbus show` of a batch that scores another one's runs anew, when that one is not there any more."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from bus.snapshot import Snapshot
from bus.target import Target
from tests.batches import P1, Batch
from tests.test_partitions_shown import console, text_of
from workers.histories.exporting import export_batch
from workers.results.showing import show_run
from workers.results.showing_files import show_file

GONE = "answer     (in the batch that was scored anew, which is not here)"


async def test_an_answer_that_was_sealed_in_a_batch_that_has_gone_is_not_told_as_none(
    server: Target, tmp_path: Path
) -> None:
    """There is a verdict on it: "none was sealed" would say that the scorer judged nothing."""
    async with contextlib.AsyncExitStack() as stack:
        first = await Batch.open(server.address(), runs=1, name="first")
        stack.push_async_callback(first.aclose)
        await first.admit()
        await first.scored()
        rows = await first.bus.rows(first.name, first.runs)
        assert (await first.bus.close(first.name, Snapshot.from_rows(rows, first.spec).snapshot_id, 1)).applied
        second = await Batch.open(server.address(), runs=1, name="second", source="first")
        stack.push_async_callback(second.aclose)
        adopted = await second.bus.adopt(second.name, first.name, 0, first.runs, [], P1, "candidate", "strict")
        assert adopted.applied
        scoring = await second.scoring()
        assert (await second.bus.score(scoring.ref, scoring.judgement)).applied
        screen = console()
        await show_run(second.bus, "second", "c0", None, screen)
        assert GONE not in text_of(screen)
        for key in await first.bus.link.command("KEYS", "*first*"):  # as `prune` would, and more
            await first.bus.link.command("DEL", key)
        screen = console()
        await show_run(second.bus, "second", "c0", None, screen)
        assert GONE in text_of(screen)
        await export_batch(second.bus, second.name, tmp_path / "second.jsonl")
        screen = console()
        await asyncio.to_thread(show_file, str(tmp_path / "second.jsonl"), "c0", (), None, None, screen)
        assert GONE in text_of(screen)
