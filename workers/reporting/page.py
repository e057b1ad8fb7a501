"""The report as one HTML file: it fetches nothing, and it reads without its script too.

What opens when a run is looked at is most of the file. It is packed in pieces of some runs each, which the browser
unpacks when one of them is opened; they are written one after the other, so that no two are in memory.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import shlex
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from workers.reporting.facts import Facts, RunDetail
from workers.reporting.web import assets, bars, prevented, result, runs, sections, words

__all__ = ["CHUNK", "write_page"]

CHUNK: Final = 50
"""Runs in one packed piece: opening one unpacks so many, and neighbours share their words."""


def write_page(facts: Facts, details: Iterable[RunDetail], out: BinaryIO) -> None:
    """Write the page to `out`, in UTF-8. `details`: one for each of `facts.runs`, in their order."""
    from markupsafe import Markup  # noqa: PLC0415 - as in `assets`

    outcome = facts.outcome
    first_bin = next(iter(outcome.bins), "")
    data = runs.as_data(facts.runs, first_bin, outcome.bins) | {"chunk": CHUNK, "batch": outcome.batch}
    page = assets.environment().get_template("page.html.j2")
    pieces = page.generate(
        facts=facts,
        outcome=outcome,
        result=result.result(facts),
        bars=bars.outcomes(facts),
        timeline=sections.timeline(facts),
        tokens=bars.token_bars(facts.tokens),
        refusals=sections.refusals(facts),
        policies=prevented.policies(facts),
        most_proofs=prevented.MOST_PROOFS,
        holes=list(itertools.islice(outcome.hole_runs.items(), sections.MOST_HOLES)),
        check=_check(facts),
        notable=sections.ranked(facts.runs),
        columns=runs.COLUMNS,
        rows=[(run, runs.cells(run), runs.look(run, first_bin)) for run in facts.runs[: runs.PAGE]],
        link=runs.link,
        policy=Markup(assets.policy()),  # noqa: S704 - our own, and quotes stand in it
        style=Markup(assets.style().text),  # noqa: S704 - likewise
        script=Markup(assets.script().text),  # noqa: S704 - likewise
        data=Markup(runs.embedded(data)),  # noqa: S704 - `embedded` leaves nothing that HTML could read
        chunks=map(Markup, _packed(details)),
    )
    for piece in pieces:
        # Half of a surrogate pair in somebody's text is no reason to have no report.
        out.write(piece.encode("utf-8", "replace"))


def _check(facts: Facts) -> str:
    """The command that derives all of it again. An open batch's head moves on."""
    if facts.source == f"batch {facts.outcome.batch}":
        named = shlex.quote(facts.outcome.batch)
    else:
        named = "FILE" if facts.source == "standard input" else shlex.quote(facts.source)
    heads = [chain.head for chain in facts.chains] or [facts.head]
    return f"evalbus replay {named}" + "".join(f" --head {head}" for head in heads if facts.outcome.status.ended)


def _packed(details: Iterable[RunDetail]) -> Iterator[str]:
    """The details in pieces of `CHUNK` runs: JSON, compressed, in base64."""
    waiting = iter(details)
    while piece := list(itertools.islice(waiting, CHUNK)):
        told = [
            [
                detail.run,
                detail.words,
                words.visible(detail.picture),  # strict XML: a control character would be its end
                [[event.seq, event.gen, event.kind, event.text] for event in detail.events],
            ]
            for detail in piece
        ]
        # No time in it: two reports of one history are the same bytes.
        yield base64.b64encode(gzip.compress(json.dumps(told, separators=(",", ":")).encode(), 6, mtime=0)).decode()
