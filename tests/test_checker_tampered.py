"""Every property of the checker, and a history that it must refuse by that name.

A checker that cannot fail is none. So a true history is edited once for each property, in the way that breaks it
(`tests.tampered`). Entries are then counted and chained anew, as somebody would do who knows the format: what is found
is found by its meaning.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
import tracemalloc
from collections.abc import Sequence

import pytest

from bus.checker import Checked, Checker
from tests.editable import History
from tests.editable import true as true  # noqa: PLC0414 - the fixture
from tests.histories import checked, parsed, rechained
from tests.sources import ROOT
from tests.tampered import EDITS, OTHER

OF_THE_FILE = ("history.P2", "history.P3", "history.P6")
"""These are about the file itself, and so need edits without a new chain."""


def broken(found: Checked) -> set[str]:
    """The ids of the properties that were found broken."""
    return {one.id for one in found.broken}


def test_the_history_that_is_edited_is_true(true: list[bytes]) -> None:
    """Otherwise nothing below would show anything."""
    found = History.of(true).checked()
    assert (found.ok, found.state) == (True, "closed"), [one.says for one in found.broken]


@pytest.mark.parametrize("name", EDITS)
def test_a_history_that_breaks_a_property_is_refused_by_its_name(true: list[bytes], name: str) -> None:
    """One edit each; what else it breaks is told as well."""
    history = History.of(true)
    EDITS[name](history)
    found = history.checked()
    assert name in broken(found), broken(found)
    (check,) = [one for one in found.broken if one.id == name]
    assert check.entries
    assert check.examined >= check.violations > 0
    assert check.says.startswith(f"broken by {check.violations} of {check.examined} ")


def test_every_property_has_a_history_that_breaks_it(true: list[bytes]) -> None:
    """One that is added without its row fails here."""
    names = [one.id for one in History.of(true).checked().checks]
    assert sorted(names) == sorted([*EDITS, *OF_THE_FILE])
    assert len(names) == len(set(names))


def test_a_byte_that_was_changed_breaks_the_chain_where_it_stands(true: list[bytes]) -> None:
    """And only there: what follows is still chained to what was written."""
    index = next(at for at, line in enumerate(true) if b'"payload":"said"' in line)
    found = checked([*true[:index], true[index].replace(b'"said"', b'"sung"'), *true[index + 1 :]])
    (chain,) = [one for one in found.broken if one.id == "history.P2"]
    assert chain.entries == (f"line {index + 1}",)


def test_entries_that_change_places_are_found_by_their_order(true: list[bytes]) -> None:
    """The chain is made anew; the ids are not."""
    for index in (12, 40, 80):
        swapped = [*true[:index], true[index + 1], true[index], *true[index + 2 :]]
        assert "history.P3" in broken(checked(rechained(swapped)))


def test_a_last_line_that_counts_wrong_is_found(true: list[bytes]) -> None:
    """Its count, its head, or a second one behind it."""
    last = parsed(true[-1])
    for changed in ({"entries": 1}, {"head": OTHER}):
        line = json.dumps(last | changed, separators=(",", ":")).encode() + b"\n"
        assert "history.P6" in broken(checked([*true[:-1], line]))
    assert "history.P6" in broken(checked([*true, true[-1]]))


def test_a_forged_generation_is_found_even_with_all_that_follows_from_it(true: list[bytes]) -> None:
    """Who forges a late event so well that its chain fits is found by the lease that was not live any more."""
    history = History.of(true)
    late = history.lines[history.index("transcript.append", verb="reject")]
    late |= {"verb": "commit", "reason": None}
    made = (late["args"]["parent"] + late["args"]["payload"]).encode()
    late["args"]["seq"] = 1
    late["answer"] = {"head": hashlib.sha256(made).hexdigest()}
    found = broken(history.checked())
    assert {"transcript.P2", "run.P1"} <= found


def _of_many_chunks(true: Sequence[bytes], count: int) -> list[bytes]:
    """The history, with an answer of which so many chunks were flushed before it was bound."""
    history = History.of(true)
    first, second = (history.line("ledger.chunk", n) for n in range(2))
    flushed = []
    for n in range(1, count + 1):
        figures = {"billed": n, "durable": n, "watermark": n}
        flushed.append(first | {"args": first["args"] | {"seq": n, "tokens": 1}, "answer": figures})
    for n, (line, billed) in enumerate(((first, 10), (second, 30)), start=1):
        line["args"]["seq"] = count + n
        line["answer"] = {"billed": count + billed, "durable": count + billed, "watermark": count + n}
    history.line("ledger.done")["args"]["last_seq"] = count + 2
    at, ms = history.index("ledger.admit") + 1, first["id"].partition("-")[0]
    history.lines[at:at] = [line | {"id": f"{ms}-flushed{n}/1"} for n, line in enumerate(flushed)]
    return history.export()


def test_memory_does_not_grow_with_the_lines(true: list[bytes]) -> None:
    """Ten times the chunks of the same step, all of them counted, and no more is kept of them."""
    kept = []
    for count in (100, 1_000):
        lines = _of_many_chunks(true, count)
        checker = Checker("h.jsonl")
        tracemalloc.start()
        for line in lines:
            checker.feed(line)
        gc.collect()  # the interpreter keeps freed tuples for the next ones
        kept.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        found = checker.finish()
        assert (found.ok, found.tokens.ledger) == (True, 30 + count), [one.says for one in found.broken]
    assert kept[1] - kept[0] < 30_000  # bytes; if they were kept, 900 chunks would take some 100,000


def test_the_manual_names_every_property_as_the_checker_does(true: list[bytes]) -> None:
    """Its tables are what a reader of a report looks a name up in."""
    rows = re.findall(
        r"^\| `([a-z]+\.[PS]\d+)` \| (.+?) \| ", (ROOT / "docs/checker.md").read_text("utf-8"), re.MULTILINE
    )
    names = [one.property for one in History.of(true).checked().checks]
    assert sorted(f"{name}: {text}" for name, text in rows) == sorted(names)
