"""The contract of the fences as one table: operations, arguments, outcomes, answer fields, state.

Whatever plays, sends or checks an operation reads it here: the loader of vectors, the typed operations, the
tests that compare scripts and models. The reference models declare their arguments by themselves, so that a
slip in this table cannot hide in both; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from bus.types import Verb

__all__ = ["CONTRACT", "PROTOCOLS", "Arg", "FenceContract", "Kind", "OpContract", "Outcome"]

PROTOCOLS = (
    "plane",
    "outbox",
    "indoubt",
    "completion",
    "histogram",
    "judge",
    "transcript",
    "sandbox",
    "workspace",
    "ledger",
    "admission",
    "join",
)
"""All twelve by number, from 1; those in `CONTRACT` are built."""


class Kind(StrEnum):
    """What a value must be. Nothing is converted: `True`, `1.0` and `"1"` are no whole numbers."""

    STR = "str"
    """Text, not empty."""
    INT = "int"
    """A whole number from 0 to 2^53-1."""
    INT1 = "int1"
    """A whole number from 1 to 2^53-1."""
    BOOL = "bool"
    OBJ = "obj"
    """A JSON object."""
    STRS = "strs"
    """A list of at least one text, none empty."""
    CHOICE = "choice"
    """One of the texts in `Arg.choices`."""
    DRAWN = "drawn"
    """A random id that the client draws for one command and sends again with it. Vectors never name it."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of an operation, or one field of a configuration."""

    name: str
    kind: Kind
    optional: bool = False
    """It may be absent or null."""
    choices: tuple[str, ...] = ()
    otherwise: str = "schema"
    """The reason of the refusal when it is missing or malformed."""

    def __str__(self) -> str:
        """As it is declared: `seq int1`, `intent str?`."""
        kind = "|".join(self.choices) or self.kind.value
        own_reason = "" if self.otherwise == "schema" else f" else {self.otherwise}"
        return f"{self.name} {kind}{'?' if self.optional else ''}{own_reason}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verb, with its reason where it has one."""

    verb: Verb
    reason: str | None = None

    def __str__(self) -> str:
        """`in_doubt dangling`."""
        return f"{self.verb.value} {self.reason}" if self.reason else self.verb.value


@dataclass(frozen=True, slots=True)
class OpContract:
    """One operation."""

    name: str
    args: tuple[Arg, ...]
    outcomes: tuple[Outcome, ...]
    """In the order of the checks; refusals of the schema come before all of them and are not listed."""
    answers: tuple[str, ...]
    """The fields that an answer may carry beside verb and reason."""


@dataclass(frozen=True, slots=True)
class FenceContract:
    """One protocol."""

    number: int
    name: str
    config: tuple[Arg, ...]
    ops: Mapping[str, OpContract]
    final: tuple[str, ...]
    """The fields of the state dump, `refusals` among them."""


def _fence(name: str, *ops: OpContract, config: str, final: str) -> FenceContract:
    number = PROTOCOLS.index(name) + 1
    by_name = MappingProxyType({op.name: op for op in ops})
    return FenceContract(number, name, _args(config), by_name, (*final.split(), "refusals"))


def _op(name: str, args: str, outcomes: str, answers: str = "") -> OpContract:
    return OpContract(name, _args(args), _outcomes(outcomes), tuple(answers.split()))


def _args(text: str) -> tuple[Arg, ...]:
    return tuple(_arg(part) for part in text.split(", ") if part)


def _arg(text: str) -> Arg:
    name, _, rest = text.partition(" ")
    kind, _, otherwise = rest.partition(" else ")
    choices = tuple(kind.split("|")) if "|" in kind else ()
    plain = Kind.CHOICE if choices else Kind(kind.removesuffix("?"))
    return Arg(name, plain, kind.endswith("?"), choices, otherwise or "schema")


def _outcomes(text: str) -> tuple[Outcome, ...]:
    """`stale_gen, duplicate, in_doubt dangling, commit`: a bare reason means `reject`."""
    return tuple(_outcome(part) for part in text.split(", "))


def _outcome(text: str) -> Outcome:
    verb, _, reason = text.partition(" ")
    if reason or verb in ("commit", "duplicate"):
        return Outcome(Verb(verb), reason or None)
    return Outcome(Verb.REJECT, verb)


CONTRACT: Mapping[str, FenceContract] = MappingProxyType(
    {
        fence.name: fence
        for fence in (
            _fence(
                "histogram",
                _op(
                    "fence",
                    "run str, epoch int, digest str",
                    "after_close, unknown_run, epoch_not_newer, already_scored, abandoned, digest_mismatch, "
                    "backpressure, commit",
                ),
                _op(
                    "score",
                    "run str, digest str, epoch int, bin str, value str",
                    "after_close, unknown_run, abandoned, stale_epoch, digest_mismatch, duplicate, "
                    "score_conflict, commit",
                ),
                _op(
                    "abandon",
                    "run str, epoch int, why str",
                    "after_close, unknown_run, duplicate, abandoned, already_scored, stale_epoch, commit",
                ),
                _op("drain", "", "duplicate, commit"),
                _op(
                    "close",
                    "",
                    "duplicate, in_doubt not_drained, in_doubt in_flight, below_quorum, commit",
                    "snapshot_id accepted",
                ),
                _op(
                    "pass_rate",
                    "",
                    "below_quorum, open_histogram, commit",
                    "passed accepted holes snapshot_id",
                ),
                config="intended strs, quorum int1, bins strs, max_in_flight int1",
                final="status accepted bins holes rows in_flight proposals snapshot_id",
            ),
            _fence(
                "judge",
                _op(
                    "mint",
                    "run str, candidate str, judge str, epoch int1",
                    "already_bound, commit",
                    "candidate judge epoch",
                ),
                _op(
                    "rebind",
                    "run str, epoch int1, candidate str, judge str",
                    "unbound, already_scored, stale_epoch, commit",
                    "epoch",
                ),
                _op(
                    "commit",
                    "run str, observed_candidate str else unbound, observed_judge str else unbound, "
                    "epoch int1, score_digest str",
                    "unbound, stale_epoch, judge_mismatch, in_doubt judge_mismatch, replay judge_mismatch, "
                    "candidate_mismatch, in_doubt candidate_mismatch, replay candidate_mismatch, duplicate, "
                    "already_scored, commit",
                    "replays",
                ),
                config="policy reject|replay|review, replay_budget int",
                final="tokens rows tombstones replays review",
            ),
            _fence(
                "transcript",
                _op(
                    "lease",
                    "run str, lease_id str",
                    "sealed, duplicate, lease_reused, commit",
                    "gen head length unresolved",
                ),
                _op("fence", "run str, gen int", "stale_gen, commit"),
                _op("resume", "run str, lease_id str, gen int", "stale, commit", "head length"),
                _op(
                    "append",
                    "run str, lease_id str, gen int, parent str, seq int1, payload str, intent str?",
                    "run_mismatch, stale_gen, lease_mismatch, sealed, duplicate, forged_prefix, seq_gap, "
                    "intent_mismatch, commit",
                    "head",
                ),
                _op(
                    "intend",
                    "run str, lease_id str, gen int, parent str, seq int1, digest str",
                    "run_mismatch, stale_gen, lease_mismatch, sealed, in_doubt dangling, duplicate, "
                    "intent_conflict, forged_prefix, seq_gap, commit",
                ),
                _op(
                    "seal",
                    "run str, lease_id str, gen int, head str",
                    "run_mismatch, stale_gen, lease_mismatch, duplicate, sealed, forged_prefix, "
                    "in_doubt unresolved_intent, commit",
                ),
                config="",
                final="transcripts dead_letters",
            ),
            _fence(
                "admission",
                _op(
                    "acquire",
                    "step str, lease drawn",
                    "duplicate, lease_reused, step_committed, step_in_flight, bound_full, commit",
                    "lease gen",
                ),
                _op("expire", "lease str", "not_live, commit", "gen"),
                _op(
                    "apply",
                    "lease str, gen int, digest str",
                    "duplicate, stale_gen, step_committed, commit",
                ),
                _op("release", "lease str", "unknown_lease, double_release, commit"),
                _op(
                    "reclaim",
                    "lease str, cancelled bool",
                    "unknown_lease, double_release, still_live, in_doubt cancel_pending, commit",
                ),
                config="bound int1, reclaim_ms int1",
                final="in_flight live committed",
            ),
        )
    }
)
"""The fences of this release, by name."""
