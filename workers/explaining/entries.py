"""Which lines of a history are about one run, and which command each group of them was.

The export has a line for each fence operation, not the name of the command that was made of them. The name follows from
the envelope: no two commands take the same fields, but for the few that are told apart by their parts. A claim and an
end look alike before and after the seal: which it was, only the story so far can tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bus.export_format import Line

__all__ = ["Entry", "Picker", "entries", "entry_of", "run_of_step"]

_GRANTED = ("commit", "duplicate")

# The fields that only this command has; the first that fits. What stands further down has fewer.
_BY_FIELDS: Sequence[tuple[frozenset[str], str]] = [
    (frozenset(fields.split()), command)
    for fields, command in [
        ("cursor source", "adopt"),
        ("cursor command_id", "admit"),
        ("cursor why", "abandon"),
        ("snapshot_id accepted", "close"),
        ("intent_id ok", "tool_complete"),
        ("intent_id entry consumer", "tool_claim"),
        ("intent_id entry", "tool_requeue"),
        ("intent_id executor gen", "tool_sent"),
        ("step cancelled", "drop_call"),
        ("step payload_ok conversation", "bind_call"),
        ("step payload_ok", "bind_judge"),
        ("step request_id conversation", "open_call"),
        ("step request_id", "open_judge"),
        ("step attempt chunks", "flush"),
        ("window receipts", "join"),
        ("window window_cost", "put_tools"),
        ("receipt path", "write"),
        ("events receipts", "append"),
        ("abandoned head", "turn"),
        ("score_digest bin", "score"),
        ("judge command_id epoch", "rebind"),
        ("desk leases", "sweep"),
        ("group leases", "heartbeat"),
        ("group entry why", "bury"),
        ("group entry run", "requeue"),
    ]
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: its lines in order, those of other runs left out."""

    id: str
    command: str
    """Its name without `run.`, or `<fence>.<op>` for one that is no step of the pipeline."""
    envelope: Mapping[str, Any]
    lines: tuple[Line, ...]

    @property
    def ms(self) -> int:
        """When the server recorded it, by its clock."""
        return int(self.id.partition("-")[0])

    @property
    def refusal(self) -> Line | None:
        """The part that said no, if one did; chunks of tokens are billed also when the rest is refused."""
        said_no = [line for line in self.lines if line.verb not in _GRANTED]
        others = [line for line in said_no if line.fence != "ledger" or line.op != "chunk"]
        only_chunks = all(line.op == "chunk" for line in self.lines)
        return others[0] if others else said_no[0] if said_no and only_chunks else None

    @property
    def repeated(self) -> bool:
        """It was applied before, and its first answer given again."""
        return self.refusal is None and self.lines[-1].verb == "duplicate"

    @property
    def granted(self) -> bool:
        """It was applied now."""
        return self.refusal is None and not self.repeated

    def text(self, name: str) -> str:
        """A field of the envelope as text; empty when it has none."""
        value = self.envelope.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> int:
        """A field of the envelope as a whole number; 0 when it has none."""
        return whole(self.envelope.get(name))

    def parts(self, by: str) -> list[Line]:
        """The parts of one operation, `outbox.put`."""
        return [line for line in self.lines if f"{line.fence}.{line.op}" == by]

    def part(self, by: str) -> Line | None:
        """The first of them that was granted."""
        return next((line for line in self.parts(by) if line.verb in _GRANTED), None)


def whole(value: object) -> int:
    """A whole number, or 0: what was refused may have held anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def given(line: Line, name: str) -> Any:  # noqa: ANN401 - what was presented may be anything
    """What an operation was given under a name: by its part, else by the envelope."""
    value = line.args.get(name)
    return line.envelope.get(name) if value is None else value


def run_of_step(step: str) -> str:
    """The run of a step, an intent or a conversation: `c#1` of `c#1~0.2`; of an undo too."""
    return step.removesuffix("~undo").rpartition("~")[0]


class Picker:
    """Tells the lines that are about one run from all others. Lines must come in order."""

    def __init__(self, run: str) -> None:
        """`run` is its id."""
        self._run = run
        self._places: set[str] = set()  # a sweep names the place, and not whose it was

    def takes(self, line: Line) -> bool:
        """Whether this line is about the run, or about the batch as a whole."""
        named = line.envelope.get("run")
        mine = named == self._run if isinstance(named, str) else self._is_part(line)
        lease = given(line, "lease")
        if mine and line.op == "acquire" and isinstance(lease, str):
            self._places.add(lease)
        return mine

    def _is_part(self, line: Line) -> bool:
        args = line.args
        if (line.fence, line.op) in (("histogram", "close"), ("run", "restarted")):
            return True
        if self._run in (args.get("run"), args.get("workspace"), args.get("step")) or args.get("lease") in self._places:
            return True
        for name in ("step", "case", "intent_id", "run"):
            value = args.get(name)
            if isinstance(value, str) and run_of_step(value) == self._run:
                return True
        key = args.get("key")
        return isinstance(key, str) and key.partition(":")[2] == f"{self._run}:result"


def entries(lines: Iterable[Line]) -> Iterator[Entry]:
    """The commands, in order. A line of a command that is no step of the pipeline stands alone."""
    for entry_id, group in groupby(lines, key=lambda line: line.id.partition("/")[0]):
        yield entry_of(entry_id, tuple(group))


def entry_of(entry_id: str, lines: tuple[Line, ...]) -> Entry:
    """One command of its lines; at least one."""
    first = lines[0]
    command = _name(first.envelope, lines) if "/" in first.id else f"{first.fence}.{first.op}"
    return Entry(entry_id, command, first.envelope, lines)


def _name(envelope: Mapping[str, Any], lines: Sequence[Line]) -> str:
    for line in lines:
        if line.fence == "run":
            return line.op
    names = envelope.keys()
    for fields, command in _BY_FIELDS:
        if fields <= names:
            return command
    fences = {line.fence for line in lines}
    said = {f"{line.fence}.{line.op}" for line in lines}
    if {"entry", "lease_id"} <= names:
        return "score_claim" if "histogram.fence" in said else "claim"
    if {"seq", "head"} <= names:
        resolves = any(line.op == "append" and "intent" in line.args for line in lines)
        return "resolve" if resolves else "seal"
    if {"why", "gen"} <= names:
        return "hole"
    if {"lease_id", "gen"} <= names:
        return "yield" if fences & {"transcript", "completion"} else "score_yield"
    return f"{lines[0].fence}.{lines[0].op}"
