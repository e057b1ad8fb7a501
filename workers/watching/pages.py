"""Views as HTML: whole pages, and the parts of them that change.

A part is rendered here once for all who look, whether it goes into a page or down a stream. So the browser has no
templates, a page reads without scripts, and what somebody else wrote (names of runs, reasons, answers) is escaped in
one place: by the templates, which escape everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import jinja2

from workers.explaining import svg
from workers.explaining.reading import Told
from workers.explaining.reasons import why_hole, why_refused
from workers.explaining.why import explained
from workers.watching.view import Brief, Share, View, clock, date, left, per_minute, seconds, sorted_counts

__all__ = ["Parts", "Site", "batch_parts", "batch_path", "list_parts", "run_path"]

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Parts:
    """What a live page shows at one moment: HTML by the id of its place."""

    html: Mapping[str, str]
    state: str = ""
    """When it changes, a screen reader is told at once."""
    sentence: str = ""
    """What it is told; else only now and then."""
    refresh: float = 1.0
    """Seconds until it is worth looking again."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a stacked bar, in percent."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Site:
    """Where pages are served, as their frame shows it."""

    server: str
    """The data server, without its password."""
    plane: str

    def listing(self, parts: Parts | None, trouble: str) -> str:
        """The list of batches."""
        return _render("list.html", site=self, parts=parts, trouble=trouble, stream="/events")

    def batch(self, batch: str, parts: Parts | None, trouble: str) -> str:
        """One batch."""
        path = batch_path(batch)
        stream = f"{path}/events"
        return _render("batch.html", site=self, batch=batch, path=path, parts=parts, trouble=trouble, stream=stream)

    def run(self, told: Told) -> str:
        """One run, as the history tells it."""
        title, *words = explained(told.story, told.detail)
        picture = svg.draw(told.story, styled=False)  # it escapes by itself
        return _render(
            "run.html", site=self, story=told.story, batch=told.batch, title=title, words=words, picture=picture,
            path=batch_path(told.batch),
        )  # fmt: skip

    def problem(self, title: str, said: str) -> str:
        """A page that says what is wrong, in one line."""
        return _render("problem.html", site=self, title=title, said=said)


def batch_path(batch: str) -> str:
    """Where a batch's page is."""
    return f"/batch/{quote(batch, safe='')}"


def run_path(batch: str, run: str) -> str:
    """Where a run's page is: its name may hold anything but a colon."""
    return f"{batch_path(batch)}/run/{quote(run, safe='')}"


def list_parts(briefs: Sequence[Brief]) -> Parts:
    """What the list shows."""
    running = [line for line in briefs if line.open]
    html = _render("parts/list.html", running=running, ended=[line for line in briefs if not line.open])
    said = f"{len(running)} of {len(briefs)} batches are open"
    return Parts({"batches": html}, sentence=said, state=" ".join(line.batch for line in running), title="Batches")


def batch_parts(view: View) -> Parts:
    """What the page of a batch shows."""
    names = ("standing", "notices", "crowd", "missing", "refused", "effects", "latest")
    values = {"view": view, "counts": view.counters, "outcome": view.outcome}
    return Parts(
        {name: _render(f"parts/{name}.html", **values) for name in names},
        state=view.state,
        sentence=view.sentence,
        refresh=1.0 if view.outcome is None else 5.0,
        title=_title(view),
    )


def _title(view: View) -> str:
    if view.outcome is not None:
        return f"{view.batch}: {view.state}"
    return f"{view.ended}/{view.counters.intended} {view.batch}"


def bars(counts: Sequence[Share]) -> list[Bar]:
    """The pieces of a bar; the smallest count is still seen."""
    whole = sum(share.count for share in counts) or 1
    seen = [(share.kind, max(0.4, 100 * share.count / whole)) for share in counts if share.count]
    scale, at, pieces = 100 / (sum(width for _, width in seen) or 1), 0.0, []
    for kind, width in seen:
        pieces.append(Bar(kind, round(at, 2), round(width * scale, 2)))
        at += width * scale
    return pieces


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": clock, "date": date, "left": left, "number": "{:,}".format, "per_minute": per_minute,
        "seconds": seconds,
    }  # fmt: skip
    environment.globals |= {
        "bars": bars, "batch_path": batch_path, "run_path": run_path,
        "sorted_counts": sorted_counts, "why_hole": why_hole, "why_refused": why_refused,
    }  # fmt: skip
    return environment


def _render(name: str, **values: object) -> str:
    return _templates().get_template(name).render(**values)
