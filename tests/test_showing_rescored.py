"""`evalbus show` of a batch that scores another one's runs anew, when that one is not there any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bus.target import Target
from tests.batches import one_over_another
from tests.screens import console, text_of
from workers.histories.exporting import export_batch
from workers.results.showing import show_run
from workers.results.showing_files import show_file

GONE = "answer     (in the batch that was scored anew, which is not here)"


async def test_an_answer_that_was_sealed_in_a_batch_that_has_gone_is_not_told_as_none(
    server: Target, tmp_path: Path
) -> None:
    """There is a verdict on it: "none was sealed" would say that the scorer judged nothing."""
    async with one_over_another(server.address()) as (first, second):
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
