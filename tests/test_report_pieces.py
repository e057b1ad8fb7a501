"""The parts that the report is made of, without a browser: figures as paths and as words, and pieces one by one."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.reports import details, facts
from workers.reporting.facts import Facts, RunDetail
from workers.reporting.page import CHUNK, write_page
from workers.reporting.web import bars, shapes, words

# --- size -------------------------------------------------------------------------------------------------


def test_a_page_is_written_piece_by_piece() -> None:
    """Never more than one piece's runs are in memory; a page that collected them first would ask for all at once."""
    asked, ahead = 0, []

    class Out(io.BytesIO):
        def write(self, data: Any) -> int:  # noqa: ANN401 - as the base class has it
            if bytes(data).startswith(b"H4sI"):
                ahead.append(asked)
            return super().write(data)

    def told(whole: Facts) -> Iterator[RunDetail]:
        nonlocal asked
        for detail in details(whole):
            asked += 1
            yield detail

    whole, out = facts(4 * CHUNK + 7), Out()
    write_page(whole, told(whole), out)
    assert ahead == [CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK, 4 * CHUNK + 7]
    pieces = re.findall(rb'id="chunk-\d+">([^<]+)<', out.getvalue())
    runs = [run for piece in pieces for run, *_ in json.loads(gzip.decompress(base64.b64decode(piece)))]
    assert runs == [run.run for run in whole.runs]


def test_two_reports_of_one_history_are_the_same_bytes() -> None:
    """No clock, no random name: who keeps them can compare them."""
    pages = []
    for _ in range(2):
        out = io.BytesIO()
        write_page(facts(60), details(facts(60)), out)
        pages.append(out.getvalue())
    assert pages[0] == pages[1]


# --- shapes and words -------------------------------------------------------------------------------------


def test_a_bar_that_is_not_zero_can_be_seen_beside_a_thousand() -> None:
    """And one that is zero is none."""
    path = shapes.bars([0, 1, 1_000, 0])
    assert path.count("M") == 2
    assert re.findall(r"M(\d+) 100V(\d+)h1", path) == [("1", "94"), ("2", "0")]
    assert shapes.bars([0, 0]) == shapes.area([]) == shapes.line([]) == ""


def test_a_level_holds_until_the_next_point() -> None:
    """A dashboard's number does not move between two verdicts."""
    assert shapes.line([(0, 1), (0.5, 0.25)]) == "M0 0H50V75H100"
    assert shapes.area([2, 1]) == "M0 100V0h1V50h1V100z"


def test_tokens_stand_beside_the_budget_or_alone() -> None:
    """What is spent above it makes the whole larger; nothing is drawn beyond its place."""
    whole = facts(10)
    for tokens in (whole.tokens, replace(whole.tokens, budget=100), replace(whole.tokens, budget=None, reserved=50)):
        last = bars.token_bars(tokens)[-1]
        assert last.start + last.part == pytest.approx(1)
    assert bars.token_bars(replace(whole.tokens, spent=0, durable=0, orphan=0, budget=None)) == ()


def test_somebodys_text_stays_readable_and_nothing_else() -> None:
    """Words of any script stay; what would turn, hide or end them is marked."""
    assert words.visible("naïve\t日本語\n👩\u200d🚀") == "naïve\t日本語\n👩\u200d🚀"
    assert words.visible("a\u202eb\x1bc\ud800\u2028") == "a\ufffdb\ufffdc\ufffd\ufffd"
