"""`evalbus show FILE`: the same of an exported history, as far as it holds it; no server is needed.

Verdicts, values and transcripts stand in the history, and with them the answers. Inputs and targets are the suite's, of
which a file names no place: `--suite DIR`. What a solver or scorer said of its end is in no history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.partitions import put_back, root_of
from bus.replay.lines import Footer, Header, Lines
from bus.replay.rules import Rules
from bus.replay.telling import Told
from bus.types import BatchId, Digest, RunId
from workers.explaining.reading import run_named
from workers.histories.history_files import LONGEST_LINE, files_of, name_of, reading
from workers.prefix import event_of
from workers.results.beside import Side
from workers.results.showing import AT_SOURCE, Cases, Shown, cases_of, check_only, in_full, tell, unpacked

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_file", "side_of_file"]

_ELSEWHERE = "(in an artifact store)"


@dataclass(slots=True)
class _Found:
    """What the lines have told so far; a transcript under its conversation's name, `case#1~0`."""

    runs: dict[str, None] = field(default_factory=dict)
    events: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    """Run to its last conversation; of a sealed one, the one that was sealed."""
    sealed: set[str] = field(default_factory=set)
    verdicts: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)

    def add(self, told: Told) -> None:
        args = told.args
        named = str(args.get("run", ""))
        match (told.fence, told.op):
            case ("judge", "mint") | ("histogram", "abandon") if told.verb == "commit":
                self.runs[named] = None
                if told.fence == "histogram":
                    self.verdicts[named] = str(args.get("why"))
            case ("histogram", "score") if told.verb == "commit":
                self.verdicts[named], self.values[named] = str(args.get("bin")), str(args.get("value"))
            case ("transcript", "append" | "seal") if told.verb == "commit":
                run = named.rpartition("~")[0]
                self.last[run] = named
                if told.op == "seal":
                    self.sealed.add(run)
                else:
                    self.events.setdefault(named, []).append(event_of(str(args.get("payload"))))

    def shown(self, run: str, cases: Cases) -> Shown:
        events = self.events.get(self.last.get(run, ""), [])
        answer = None
        if run in self.sealed and events and events[-1].get("kind") == "answer":
            answer = events[-1].get("text", _ELSEWHERE)
        elif run in self.values and run not in self.sealed:  # there is no score of what nobody sealed
            answer = AT_SOURCE
        verdict = self.verdicts.get(run, "sealed" if run in self.sealed else "open")
        return unpacked(Shown(RunId(run), verdict, answer, self.values.get(run, ""), "", cases.of(RunId(run)), events))


@dataclass(frozen=True, slots=True)
class _History:
    """One file: a batch's, or a partition's."""

    header: Header
    found: _Found


def show_file(
    file: str, run: str | None, only: Sequence[str], suite: Path | None, output: Path | None, console: Console
) -> None:
    """Of a file that `evalbus export` wrote, `-` for standard input: its table, or one run with its transcript.

    Raises InputError for what is no export, or not all of one, and for an unknown run; ViolationError for an edited
    one.
    """
    read = [_read(one) for one in files_of(file)]
    header = read[0].header
    batch = header.batch if len(read) == 1 else root_of(BatchId(header.batch))
    cases = _cases(header, suite)
    known = {each: one.found for one in read for each in one.found.runs}
    if run is not None:
        name = run_named(batch, run, known)
        shown = [known[name].shown(name, cases)]
        for line in in_full(batch, shown[0]):
            console.print(line, soft_wrap=True, markup=False)
    else:
        shown = _all(read, cases)
        check_only(only, {*header.policy["bins"], *(one.verdict for one in shown)})
        wanted = [one for one in shown if not only or one.verdict in only]
        tell(wanted, batch, only, output, console, (one.verdict for one in shown))
    if remark := cases.remark_on(shown):
        console.print(remark, soft_wrap=True, markup=False)


def side_of_file(file: str, suite: Path | None) -> Side:
    """As one of two that are shown beside each other. Raises as `show_file`."""
    read = [_read(one) for one in files_of(file)]
    found = {one.run: replace(one, events=()) for one in _all(read, _cases(read[0].header, suite))}

    async def shown(runs: Collection[RunId]) -> Mapping[RunId, Shown]:
        return {run: found[run] for run in runs}

    return Side({run: one.verdict for run, one in found.items()}, shown)


def _cases(header: Header, suite: Path | None) -> Cases:
    if suite is None:
        return Cases({}, "inputs and targets are in the suite, which a file has no place of: --suite DIR")
    return cases_of(suite, Digest(header.suite["digest"]))


def _all(read: Sequence[_History], cases: Cases) -> list[Shown]:
    """In the order of the suite, as if they had not been dealt out."""
    known = {each: one.found for one in read for each in one.found.runs}
    return [known[each].shown(each, cases) for each in put_back([list(one.found.runs) for one in read])]


def _read(file: str) -> _History:
    named = name_of(file)
    lines, rules, found = Lines(named), Rules(named), _Found()
    with reading(file) as content:
        header = lines.first(content.readline(LONGEST_LINE))
        while raw := content.readline(LONGEST_LINE):
            told = lines.next(raw)
            if not isinstance(told, Footer):
                rules.check(told)
                found.add(told)
        lines.end()
    return _History(header, found)
