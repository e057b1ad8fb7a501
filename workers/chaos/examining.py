"""What came of a batch, read from its export and from nothing else of evalbus: checked, replayed, compared."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.checker import Books, Check, Checked, Checker
from bus.errors import InputError, ViolationError
from bus.replay.replayed import Replay
from bus.replay.telling import DiffersError
from workers.chaos.batch import Ended
from workers.chaos.deaths import Recovery, recoveries
from workers.chaos.faults import FAULTS_THAT_LOSE, Fault
from workers.chaos.stage import Stage
from workers.histories.exporting import exported_lines
from workers.lab import Lab
from workers.results.fetching import info_of

__all__ = ["Examined", "Opened", "examine", "replayed", "restarted"]

_QUIET = 90.0  # seconds in which the lab has to have answered all that it was asked
_SHOWN = 20
_HONEST = frozenset({"stuck"})


@dataclass(frozen=True, slots=True)
class Opened:
    """The lab's books when a batch began."""

    billed: int

    @classmethod
    def of(cls, lab: Lab) -> Opened:
        """As they stand."""
        return cls(lab.counts.model.billed)


@dataclass(frozen=True, slots=True)
class Examined:
    """What is known of one batch."""

    ended: Ended
    history: Path
    checked: Checked
    checks: tuple[Check, ...]
    """The checker's, and those below."""
    recoveries: Sequence[Recovery]
    compared: bool
    """The endpoint's books were."""
    timed: bool = True
    """The entries' times mean something."""

    @property
    def broken(self) -> tuple[Check, ...]:
        """The properties that do not hold."""
        return tuple(check for check in self.checks if check.violations)


async def examine(stage: Stage, ended: Ended, opened: Opened, undisturbed: Checked | None) -> Examined:
    """`undisturbed`: what the suite came to when nothing failed."""
    lodging = stage.lodging
    await _quiet(lodging.lab)
    history = stage.directory / f"{ended.name}.jsonl"
    info = await info_of(stage.bus, ended.name)
    with history.open("wb") as out:
        async for line in exported_lines(stage.bus, ended.name, info):
            out.write(line)
    loses = any(fault in FAULTS_THAT_LOSE for fault in ended.faults)
    if stage.servers is not None:  # what stands by for a primary may take its place on a slow machine unasked
        loses = loses or await asyncio.to_thread(restarted, history)
    books = None if loses or not lodging.uses_lab else _books(stage, opened)
    timed = not ended.faults.get(Fault.SERVER_CLOCK)
    checked = await asyncio.to_thread(_check, history, books, timed)
    checks = [*checked.checks, _ends(ended, checked), await asyncio.to_thread(replayed, history, timed=timed)]
    if undisturbed is not None:
        checks.append(await asyncio.to_thread(_same, history, checked, undisturbed))
    recovered = recoveries(ended.deaths, checked) if timed else ()
    return Examined(ended, history, checked, tuple(checks), recovered, books is not None, timed)


async def _quiet(lab: Lab) -> None:
    """Effects that come late have come."""
    deadline = time.monotonic() + _QUIET
    while any(counts.open for counts in lab.counts.requests.values()) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def _books(stage: Stage, opened: Opened) -> Books:
    lodging, counts = stage.lodging, stage.lodging.lab.counts
    keys = {name.partition("/")[2]: did for name, did in counts.by_key.items()}
    return Books(
        tokens=counts.model.billed - opened.billed if lodging.uses_model else None,
        effects={key: did.commits for key, did in keys.items()} if lodging.tools else None,
        undone={key: did.undone for key, did in keys.items()} if lodging.tools else None,
        tools=lodging.tools,
    )


def _check(history: Path, books: Books | None, timed: bool) -> Checked:
    checker = Checker(str(history), timed=timed)
    with history.open("rb") as lines:
        for line in lines:
            checker.feed(line)
    return checker.finish(books)


def _check_of(name: str, says: str, of: str, examined: int, broken: Mapping[str, str]) -> Check:
    first = next(iter(broken.items()), None)
    found = f"broken by {len(broken)} of {examined} {of}; first {first[0]}: {first[1]}" if first else ""
    found = found or (f"holds for all {examined} {of}" if examined else f"nothing to examine: no {of}")
    return Check(f"{name}: {says}", examined, len(broken), tuple(broken)[:_SHOWN], found, first[1] if first else "")


def _ends(ended: Ended, checked: Checked) -> Check:
    broken = {str(ended.name): ended.stuck} if ended.stuck else {}
    if not ended.stuck and checked.state == "open":
        broken = {str(ended.name): "its history has no end"}
    says = "a batch ends within its bound once faults have stopped"
    return _check_of("chaos.P1", says, "batches", 1, broken)


def _same(history: Path, checked: Checked, undisturbed: Checked) -> Check:
    """What passed is what passes when nothing fails.

    But for a run whose effect nobody can know of any more, because the process that undid it died with the undo on its
    way: that one has no verdict, and says so.
    """
    runs = sorted({*checked.scored, *undisturbed.scored})
    unknown = _holes(history, _HONEST) if checked.holes.keys() & _HONEST else set()
    broken = {
        run: f"it is {checked.scored.get(run, 'no score')}, and undisturbed {undisturbed.scored.get(run, 'no score')}"
        for run in runs
        if checked.scored.get(run) != undisturbed.scored.get(run) and run not in unknown
    }
    return _check_of("chaos.P2", "each run ends as it does undisturbed", "runs", len(runs) - len(unknown), broken)


def _holes(history: Path, reasons: frozenset[str]) -> set[str]:
    """The runs that the history ends so."""
    found = set()
    with history.open("rb") as lines:
        for raw in lines:
            line = json.loads(raw)
            if (line.get("fence"), line.get("op"), line.get("verb")) == ("histogram", "abandon", "commit"):
                found |= {str(line["args"]["run"])} if line["args"]["why"] in reasons else set()
    return found


def restarted(history: Path) -> bool:
    """Whether the batch met another life of its server, or another server."""
    with history.open("rb") as lines:
        return any(b'"op":"restarted"' in line and json.loads(line).get("fence") == "run" for line in lines)


def replayed(history: Path, *, timed: bool) -> Check:
    """Each decision is the one that the reference models take.

    The models are told the time by the entries' ids, which do not go back. So where the server's clock did, nothing is
    derived: some decisions depend on it.
    """
    says = "each decision is derived again by replay"
    replay = Replay(str(history))
    if not timed:
        return _check_of("chaos.P3", says, "decisions", 0, {})
    broken: dict[str, str] = {}
    try:
        with history.open("rb") as lines:
            for line in lines:
                replay.feed(line)
        replay.finish()
    except DiffersError as error:
        broken = {f"line {error.line}": error.problem}
    except (ViolationError, InputError) as error:
        broken = {f"line {replay.entries + 1}": str(error)}
    return _check_of("chaos.P3", says, "decisions", replay.entries, broken)
