"""A short history in words: when, who, what, of which run, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.chaos.excerpts import line_of
from workers.explaining.entries import Entry, entries

__all__ = ["told"]


@dataclass(frozen=True, slots=True)
class _Row:
    """One entry; each field is a column."""

    since: str
    """Seconds from the first entry, by the server's clock."""
    who: str
    what: str
    run: str
    gen: str
    decision: str


def told(history: Sequence[bytes]) -> list[str]:
    """`history`: an export's lines. A line for each entry, in columns."""
    rows = list(_rows(history))
    columns = [[row.since, row.who, row.what, row.run, row.gen, row.decision] for row in rows]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in columns]


def _rows(history: Sequence[bytes]) -> Iterator[_Row]:
    holders: dict[str, str] = {}  # what is done under a lease, or a call's, does not say by whom: who claimed it does
    began: int | None = None
    for entry in entries(map(line_of, history[1:-1])):
        began = entry.ms if began is None else began
        lease, who = entry.text("lease_id") or entry.text("executor"), entry.text("consumer")
        if lease and who:
            holders[lease] = who
        yield _Row(
            f"{(entry.ms - began) / 1000:+.3f} s", who or holders.get(lease, "-"), entry.command,
            entry.text("run") or "-", f"gen {_gen(entry) or '-'}", _decision(entry),
        )  # fmt: skip


def _gen(entry: Entry) -> int:
    """The generation that it presents; of a claim, the one that it was given."""
    given = [line.answer.get("gen") for line in entry.parts("transcript.lease")]
    given += [line.args.get("epoch") for line in entry.parts("histogram.fence")]
    return entry.number("gen") or next((one for one in given if isinstance(one, int)), 0)


def _decision(entry: Entry) -> str:
    refusal = entry.refusal
    if refusal is not None:
        return f"{refusal.verb} {refusal.reason or ''} by {refusal.fence}.{refusal.op}".replace("  ", " ")
    return "duplicate" if entry.repeated else "commit"
