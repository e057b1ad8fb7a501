"""What a call costs: counted once, guessed where it must be, and marked so; and secrets that are not let out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from bus.port import Chunk
from workers import redaction
from workers.endpoints import Piece, Usage
from workers.modelling.metering import Expectation, Meter


def test_a_figure_of_the_endpoints_is_not_added_up() -> None:
    """Cumulative usage holds what came before it: 12 and then 15 are 15."""
    meter = Meter(0.0)
    for piece in (Piece("a", 1), Piece("b", 1, Usage(10, 2)), Piece("c", 1), Piece("", 0, Usage(10, 5))):
        meter.take(piece)
    meter.finish(Usage(10, 5), 1.0)
    assert meter.total == sum(chunk.tokens for chunk in meter.chunks) == 15


def test_the_last_chunk_carries_what_the_pieces_did_not_tell() -> None:
    """The prompt, and pieces of more than one token."""
    meter = Meter(0.0)
    meter.take(Piece("many words", 1))
    meter.cut(0.5)
    meter.finish(Usage(100, 7), 1.0)
    assert meter.chunks == [Chunk(1, 1, durable=False), Chunk(2, 106, durable=False)]
    assert meter.durable() == [Chunk(1, 1), Chunk(2, 106)]


def test_a_broken_stream_without_a_figure_costs_what_was_seen_and_a_guess() -> None:
    """And with one, no guess. Whatever breaks afterwards, it is billed once."""
    meter = Meter(0.0)
    meter.take(Piece("a", 1))
    for now in (1.0, 2.0):
        meter.break_off(None, 40, now)
        assert (meter.total, meter.guessed) == (41, 40)
    told = Meter(0.0)
    told.take(Piece("a", 1, Usage(30, 1)))
    told.take(Piece("b", 1))
    told.break_off(Usage(30, 1), 40, 1.0)
    assert (told.total, told.guessed) == (32, 0)


def test_a_whole_answer_whose_usage_is_an_estimate_is_a_guess_but_for_what_was_seen() -> None:
    """The prompt, and what its pieces held beyond one token each; of the endpoint's own figure nothing is."""
    meter = Meter(0.0)
    meter.take(Piece("many words", 1))
    meter.finish(Usage(30, 3, estimated=True), 1.0)
    assert (meter.total, meter.guessed) == (33, 32)
    told = Meter(0.0)
    told.take(Piece("many words", 1))
    told.finish(Usage(30, 3), 1.0)
    assert (told.total, told.guessed) == (33, 0)


def test_an_answer_of_any_length_fits_into_the_call_that_binds_it() -> None:
    """That call names each chunk once more, and takes 200."""
    meter, now = Meter(0.0), 0.0
    for _ in range(20_000):
        now += 0.1
        meter.take(Piece("x", 1))
        if meter.is_due(now):
            meter.cut(now)
    meter.finish(None, now)
    assert meter.last_seq <= 151
    assert sum(chunk.tokens for chunk in meter.chunks) == 20_000


def test_few_pieces_wait_for_more_and_not_for_long() -> None:
    """Sixteen, or half a second."""
    meter = Meter(0.0)
    for _ in range(15):
        meter.take(Piece("x", 1))
    assert not meter.is_due(0.4)
    assert meter.is_due(0.5)
    meter.take(Piece("x", 1))
    assert meter.is_due(0.4)


def test_what_a_call_is_thought_to_cost_is_a_high_quantile_of_the_last_ones() -> None:
    """One that was far dearer than all others does not count."""
    expectation = Expectation(1000)
    assert expectation.of_call(100, None) == 1000
    for total in [*range(1, 100), 100_000]:
        expectation.learn(total, None, 0)
    assert expectation.of_call(100, None) == 95


def test_with_a_limit_to_its_answer_a_call_is_set_aside_for_as_a_whole() -> None:
    """The budget must not be passed by calls that each fitted: so the longest answer counts, and a dense prompt."""
    expectation = Expectation(10)
    assert expectation.of_call(100, 500) == 550
    expectation.learn(30, 80, 100)
    assert expectation.of_call(100, 500) == 600


@pytest.fixture
def secret() -> Iterator[str]:
    """A key that this process has read."""
    redaction.hide('sk-"quoted"-secret')
    yield 'sk-"quoted"-secret'
    redaction.forget()


def test_a_secret_is_found_however_it_is_written(secret: str) -> None:
    """As it is, as JSON has it, as Python shows it; a placeholder is none."""
    redaction.hide("none")
    for text in (secret, '{"key": "sk-\\"quoted\\"-secret"}', repr(secret)):
        assert "quoted" not in redaction.redacted(text)
        assert "***" in redaction.redacted(text)
    assert redaction.redacted("none of them") == "none of them"


def test_what_the_suites_code_prints_is_searched(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the worker's log."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    redaction.guard_streams()
    print("the key:", secret)
    assert written.getvalue() == "the key: ***\n"
