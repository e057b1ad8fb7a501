"""The lines that are about one run: of a batch on a server, or of a file that `evalbus export` wrote.

A file is read as evidence: its chain is computed again, so that nobody explains a history that was edited. Memory grows
with the run, not with the history.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.export import Far
from bus.export_format import Line
from bus.held_loops import held_loops
from bus.history import read_history
from bus.nearest import several_nearest
from bus.partitions import put_back, root_of
from bus.port import RunState
from bus.replay.lines import Footer, Header, Lines
from bus.replay.rules import Rules
from bus.types import BatchId, RunId
from workers.brief import brief
from workers.explaining.entries import Picker
from workers.explaining.steps import story_of
from workers.explaining.story import Story
from workers.histories.exporting import told_lines
from workers.histories.history_files import LONGEST_LINE, files_of, name_of, reading
from workers.processes.held_loops import rows_with_held_loops, said_of
from workers.results.fetching import existing
from workers.results.whole import runs_of

__all__ = ["Told", "read_file", "read_server", "run_named"]

_NAMED = 3
_SHOWN = 60  # characters of a name that is none: enough to recognise it


@dataclass(frozen=True, slots=True)
class Told:
    """A story, and what the run's row says of its end: an export has no such words."""

    story: Story
    """As the history tells it that the run is in: of a partition, by that one's name."""
    batch: str
    """As its user knows it."""
    detail: str = ""


@dataclass(slots=True)
class _Found:
    """The lines so far, and the names of the runs that were admitted or named holes."""

    picker: Picker
    lines: list[Line] = field(default_factory=list)
    runs: dict[str, None] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        if (line.fence, line.op) in (("judge", "mint"), ("histogram", "abandon")):
            run = line.args.get("run", line.envelope.get("run"))
            if isinstance(run, str):
                self.runs[run] = None
        if self.picker.takes(line):
            self.lines.append(line)


async def read_server(bus: ServerBus, batch: BatchId, run: str, archive: Path | None = None) -> Told:
    """Raises InputError for an unknown batch or run, with the nearest names. It finds the run's partition.

    `archive`: where the history was archived while the batch ran; what is there is read from there.
    """
    whole = await existing(bus, batch)
    known = await runs_of(bus, whole)
    run = run_named(batch, run, known)
    info = known[run]
    name, found = info.spec.batch, _Found(Picker(run))
    at = await bus.of(name)
    if archive is None:
        async for entry in read_history(at.link, at.keys(name)):
            for number, part in enumerate(entry.parts, start=1):
                line_id = f"{entry.id}/{number}" if entry.joint else entry.id
                found.add(
                    Line(line_id, part.fence, part.op, part.verb, part.reason, entry.envelope, part.args, part.answer)
                )
    else:
        async for raw in told_lines(at, info, Far(), archive):
            said = json.loads(raw)
            del said["chain"]
            found.add(Line(**said))
    rows = await rows_with_held_loops(bus, name, [RunId(run)])
    detail = rows[0].detail if rows else ""
    if rows and rows[0].state is RunState.RUNNING and (held := (await held_loops(at, name)).get(RunId(run))):
        detail = said_of(held)
    return Told(story_of(name, run, found.lines), batch, detail)


def read_file(file: str | Path, run: str) -> Told:
    """Of an export; `-` is standard input. It finds the run's partition.

    Raises InputError for what is no export, a truncated one, one of another release or an unknown run; ViolationError
    for an edited one.
    """
    read = [_read(one, run) for one in files_of(str(file))]
    known = put_back([list(both[run].runs) for _, both in read])
    batch = read[0][0].batch if len(read) == 1 else root_of(BatchId(read[0][0].batch))
    name = run_named(batch, run, known)
    header, both = next(one for one in read if name in one[1][run].runs)
    return Told(story_of(header.batch, name, both[name].lines), batch)


def _read(file: str, run: str) -> tuple[Header, dict[str, _Found]]:
    named = name_of(file)
    lines, rules = Lines(named), Rules(named)
    both = {name: _Found(Picker(name)) for name in (run, f"{run}#1")}  # which of them it is, the end will tell
    with reading(file) as content:
        header = lines.first(content.readline(LONGEST_LINE))
        while raw := content.readline(LONGEST_LINE):
            told = lines.next(raw)
            if isinstance(told, Footer):
                continue
            rules.check(told)
            line = Line(told.id, told.fence, told.op, told.verb, told.reason, told.envelope, told.args, told.answer)
            for found in both.values():
                found.add(line)
        lines.end()
    return header, both


def run_named(batch: str, run: str, known: Collection[str]) -> RunId:
    """The run of that name; a case with a single trial is its run. Raises InputError, with the nearest names."""
    if run in known:
        return RunId(run)
    if (only := f"{run}#1") in known and f"{run}#2" not in known:  # trials are counted from 1
        return RunId(only)
    raise _no_such_run(batch, run, known)


def _no_such_run(batch: str, run: str, known: Iterable[str]) -> InputError:
    """What is said of a run that a batch does not have, with the nearest that it has."""
    names = list(known)
    # A case without its trial is the likeliest slip: a short name for several runs. It may be misspelt, too.
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.rpartition("#")[0], []).append(name)
    near = sorted(cases.get(run, ())) or several_nearest(run, names, _NAMED)
    near = (near or [name for case in several_nearest(run, cases, _NAMED) for name in cases[case]])[:_NAMED]
    shown = ", ".join(brief(name, _SHOWN) for name in near or names[:_NAMED])
    said = f"did you mean {shown}?" if near else f"it begins with {shown}" if names else "it has none yet"
    return InputError(f"no run {brief(run, _SHOWN)!r} in batch {brief(batch, _SHOWN)!r}; {said}")
