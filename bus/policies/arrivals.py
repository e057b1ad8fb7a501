"""What arrived at the bus, granted or refused: the lines of a history put together as somebody's messages.

A policy does not ask what a fence decided, but what was presented: a verdict, a sealed answer, a tool's outcome. So the
lines of one entry are read as one arrival, with what became of it beside it. Which command an entry was follows from
the fields of its envelope: no two commands here take the same, but for those that are told apart below.

What could not be read, and what was meant for the server as it was before its restart, has no content that a policy
could have taken: its sender was told so and sent it again. Such arrivals are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bus.replay.telling import Told

__all__ = [
    "Arrival",
    "Asked",
    "Charged",
    "Closed",
    "Ended",
    "Fate",
    "Held",
    "Outcome",
    "Redelivered",
    "Reply",
    "Sealing",
    "Sent",
    "Verdict",
    "Written",
    "arrivals",
    "in_order",
]

_UNREAD = ("schema", "server_changed")
_LOST_ITS_RUN = ("lease_mismatch", "run_mismatch", "sealed", "stale_gen", "stale_lease")
_GRANTED = ("commit", "duplicate")
_KEPT = 16  # bytes of a hash that tell two texts of one run apart


class Fate(StrEnum):
    """What became of an arrival."""

    TAKEN = "accepted"
    REPEATED = "answered as sent again"
    """Its sender had been granted the same step before. What it presented this time was not looked at."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Arrival:
    """Somebody presented something about a run."""

    id: str
    """Of the line that decided about it, as an export has it."""
    ms: int
    """The server's time, Unix time in milliseconds."""
    run: str
    fate: Fate
    fence: str
    """That decided; `run` where the step itself did."""
    reason: str
    """Of a refusal; empty otherwise."""

    @property
    def told(self) -> str:
        """What became of it, in a clause: `refused as stale_lease`."""
        return f"{self.fate} as {self.reason}" if self.fate is Fate.REFUSED and self.reason else str(self.fate)

    @property
    def place(self) -> tuple[int, ...]:
        """Where it stands in the history: its id `<ms>-<n>/<part>` in numbers."""
        return tuple(int(number) for number in self.id.replace("/", "-").split("-"))


@dataclass(frozen=True, slots=True)
class Verdict(Arrival):
    """A scorer's word on a run."""

    bin: str


@dataclass(frozen=True, slots=True)
class Sealing(Arrival):
    """A solver's answer, with the head of the transcript that it ends. `answer` stands for its text; empty if unknown:
    what a step refused before it came to the transcript is not in an export.
    """

    gen: int
    head: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class Reply(Arrival):
    """A model's answer to one step, by its digest."""

    step: str
    attempt: int
    digest: str


@dataclass(frozen=True, slots=True)
class Written(Arrival):
    """Events for a transcript that were refused because their writer had lost the run."""

    gen: int


@dataclass(frozen=True, slots=True)
class Held(Arrival):
    """A worker was given the run."""

    gen: int
    consumer: str


@dataclass(frozen=True, slots=True)
class Ended(Arrival):
    """Somebody ends a run without a score. `own`: by a step of its own, not as what followed from a refusal."""

    why: str
    own: bool


@dataclass(frozen=True, slots=True)
class Closed(Arrival):
    """The batch closed, or ended below its quorum. The run is empty."""


@dataclass(frozen=True, slots=True)
class Asked(Arrival):
    """A request for a model is announced. `estimate`: tokens that are reserved for it, if it is granted."""

    step: str
    attempt: int
    estimate: int


@dataclass(frozen=True, slots=True)
class Charged(Arrival):
    """An attempt's bill. `billed`: tokens so far; None when it says nothing of them.

    `by`: `chunk` for tokens that arrived, `reconcile` for what was charged when it was settled, which may be a guess;
    `done`, `cut` or `abandon` for how it ended.
    """

    step: str
    attempt: int
    billed: int | None
    by: str


@dataclass(frozen=True, slots=True)
class Sent(Arrival):
    """A tool's call leaves."""

    intent: str
    executor: str


@dataclass(frozen=True, slots=True)
class Redelivered(Arrival):
    """The message of a call that had left, and of which nobody had said what became of it, came to another executor."""

    intent: str


@dataclass(frozen=True, slots=True)
class Outcome(Arrival):
    """An executor says what the tool said."""

    intent: str
    executor: str
    ok: bool


def in_order(*those: Arrival) -> tuple[str, ...]:
    """Their ids, the earliest first."""
    return tuple(one.id for one in sorted(those, key=lambda one: one.place))


def arrivals(lines: Sequence[Told]) -> Iterator[Arrival]:
    """What the lines of one entry were; nothing for what no policy looks at. At least one line."""
    envelope = lines[0].envelope
    if any(line.fence == "ledger" for line in lines):
        yield from _charges(lines)
    decided = _decided(lines)
    if decided.reason in _UNREAD:
        return
    if "score_digest" in envelope:
        yield from _verdict(lines, decided)
    elif "payload_ok" in envelope:
        yield from _reply(decided)
    elif "request_id" in envelope:
        yield from _asked(decided)
    elif "intent_id" in envelope:
        yield from _effect(lines, decided)
    elif "seq" in envelope or "abandoned" in envelope:
        yield from _written(lines, decided)
    elif "entry" in envelope:
        yield from _claimed(lines)
    elif decided.op == "close" and (decided.verb == "commit" or decided.reason == "below_quorum"):
        yield Closed(*_about(decided))
    yield from _ends(lines, decided)


# --- one entry ----------------------------------------------------------------------------------------------


def _decided(lines: Sequence[Told]) -> Told:
    """The line that said no, else the first that granted. Chunks of tokens are billed whatever is decided."""
    others = [line for line in lines if line.fence != "ledger" or line.op != "chunk"] or lines
    refusals = (line for line in others if line.verb not in _GRANTED)
    grants = (line for line in others if line.verb == "commit")
    return next(refusals, None) or next(grants, others[0])


def _about(line: Told, run: str | None = None) -> tuple[str, int, str, Fate, str, str]:
    """The fields that all arrivals have, in their order."""
    named = _text(line.envelope, "run") if run is None else run
    fate = {"commit": Fate.TAKEN, "duplicate": Fate.REPEATED}.get(line.verb, Fate.REFUSED)
    return line.id, line.ms, named, fate, line.fence, line.reason or ""


def _verdict(lines: Sequence[Told], decided: Told) -> Iterator[Arrival]:
    granted = next((line for line in lines if (line.fence, line.op) == ("histogram", "score")), decided)
    line = granted if decided.verb in _GRANTED else decided
    yield Verdict(*_about(line), _text(line.envelope, "bin"))


def _reply(decided: Told) -> Iterator[Arrival]:
    envelope = decided.envelope
    if "conversation" in envelope:  # else a judge's, which enters no transcript
        step, attempt = _text(envelope, "step"), _number(envelope, "attempt")
        yield Reply(*_about(decided), step, attempt, _text(envelope, "digest"))
        if decided.reason in _LOST_ITS_RUN:
            yield Written(*_about(decided), _number(envelope, "gen"))


def _asked(decided: Told) -> Iterator[Arrival]:
    envelope = decided.envelope
    step, attempt, estimate = _text(envelope, "step"), _number(envelope, "attempt"), _number(envelope, "estimate")
    yield Asked(*_about(decided), step, attempt, estimate)


def _effect(lines: Sequence[Told], decided: Told) -> Iterator[Arrival]:
    envelope = decided.envelope
    intent, executor = _text(envelope, "intent_id"), _text(envelope, "executor")
    if "ok" in envelope:
        yield Outcome(*_about(decided), intent, executor, envelope["ok"] is True)
    elif "slot" in envelope and decided.verb == "commit":
        yield Sent(*_about(decided), intent, executor)
    elif "consumer" in envelope:
        for line in lines:
            # A call that had not left is recovered too; then its next executor calls for the first time.
            if (line.fence, line.op) == ("outbox", "recover") and line.verb not in _GRANTED:
                yield Redelivered(*_about(line), intent)


def _written(lines: Sequence[Told], decided: Told) -> Iterator[Arrival]:
    envelope = decided.envelope
    gen = _number(envelope, "gen")
    if decided.reason in _LOST_ITS_RUN and decided.op != "intend":
        yield Written(*_about(decided), gen)
    names = envelope.keys()
    resolves = any(line.op == "resolve" or (line.op == "append" and "intent" in line.args) for line in lines)
    if {"seq", "head", "parent"} <= names and not names & {"step", "events"} and not resolves:
        said = next((line.args.get("payload") for line in lines if line.op == "append"), None)
        answer = hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest() if isinstance(said, str) else b""
        yield Sealing(*_about(decided), gen, _text(envelope, "head"), answer[:_KEPT])


def _claimed(lines: Sequence[Told]) -> Iterator[Arrival]:
    for line in lines:
        if (line.fence, line.op, line.verb) == ("transcript", "lease", "commit"):
            yield Held(*_about(line), _number(line.answer, "gen"), _text(line.envelope, "consumer"))


def _ends(lines: Sequence[Told], decided: Told) -> Iterator[Arrival]:
    """Runs that end as holes: by a step that says so, or as what follows from a refusal; one that is refused, too."""
    ended = False
    for line in lines:
        if (line.fence, line.op, line.verb) == ("histogram", "abandon", "commit"):
            ended = True
            about = _about(line, _text(line.args, "run") or _text(line.envelope, "run"))
            why = _text(line.args, "why") or _text(line.envelope, "why")
            yield Ended(*about, why, own="score_digest" not in line.envelope)
    if not ended and {"why", "gen", "run"} <= decided.envelope.keys() and decided.verb != "duplicate":
        yield Ended(*_about(decided), _text(decided.envelope, "why"), own=True)


def _charges(lines: Sequence[Told]) -> Iterator[Arrival]:
    for line in lines:
        if line.fence != "ledger" or line.op == "admit":
            continue
        step, attempt = _text(line.args, "step"), _number(line.args, "attempt")
        run = step.rpartition("~")[0]  # a sweep's envelope names none
        billed: int | None = None
        if line.op == "chunk" and (line.verb == "commit" or line.reason == "attempt_closed"):
            billed = _number(line.answer, "billed")
        elif line.op == "reconcile" and line.verb == "commit":
            billed = _number(line.args, "gateway_billed")
        if billed is not None or (line.verb == "commit" and line.op in ("done", "cut", "abandon")):
            yield Charged(*_about(line, run), step, attempt, billed, line.op)


# --- values that may be anything ----------------------------------------------------------------------------


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _number(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
