"""For each fence the messages that make its race; the explorer brings them in every order.

Each set has two holders, a duplicate, a message that comes late, a crash and a timeout at least. A crash silences
what its sender has not sent yet; what is not silenced is under way and may come at any time, also after the crash
and after a successor has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bus.models.transcript import EMPTY, chain
from bus.vector_file import CLOCK
from tests.explore import CRASH, Event, Kept

__all__ = ["SCENARIOS", "Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fence, how it is configured, what happens, and answers that some order must bring out."""

    name: str
    fence: str
    config: Mapping[str, object]
    events: tuple[Event, ...]
    meets: frozenset[str]

    def __str__(self) -> str:
        """Its name: pytest shows it."""
        return self.name


Args = Callable[[Kept], Mapping[str, object]]


def _always(**args: object) -> Args:
    return lambda _kept: args


def _crash(name: str) -> Event:
    return Event(name, CRASH, _always())


# --- transcript: a preempted holder, its successor, an impostor, and another run's holder --------------------

PLAN = chain(EMPTY, "plan")


def _holder(kept: Kept, who: str, run: str = "n3") -> dict[str, object]:
    return {"run": run, "lease_id": f"lease of {who}", "gen": kept[f"{who}.lease"]["gen"]}


def _successor_goes_on(kept: Kept) -> dict[str, object]:
    """It continues from what its lease told it, and resolves an intention that dangles there by its name."""
    told = kept["b.lease"]
    length, unresolved = told["length"], told["unresolved"]
    assert isinstance(length, int)
    assert isinstance(unresolved, list)
    args = {**_holder(kept, "b"), "parent": told["head"], "seq": length + 1, "payload": "went on"}
    return {**args, "intent": "call-7"} if length + 1 in unresolved else args


HANDOVER = Scenario(
    "transcript, a run changes hands",
    "transcript",
    {},
    (
        Event("a.lease", "lease", _always(run="n3", lease_id="lease of a")),
        Event(
            "a.plan",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.lease",),
            silenced_by=("a.crash",),
        ),
        Event(
            "a.plan again",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.plan",),
        ),
        Event(
            "a.intend",
            "intend",
            lambda k: _holder(k, "a") | {"parent": PLAN, "seq": 2, "digest": "call-7"},
            after=("a.plan",),
            silenced_by=("a.crash",),
        ),
        Event(
            "a.called",
            "append",
            lambda k: _holder(k, "a") | {"parent": PLAN, "seq": 2, "payload": "called", "intent": "call-7"},
            after=("a.intend",),
            silenced_by=("a.crash",),
        ),
        _crash("a.crash"),
        Event("timeout", "fence", lambda k: {"run": "n3", "gen": k["a.lease"]["gen"]}, after=("a.lease",)),
        Event("b.lease", "lease", _always(run="n3", lease_id="lease of b")),
        Event(
            "b.intend",
            "intend",
            lambda k: _holder(k, "b") | {"parent": PLAN, "seq": 2, "digest": "call-7"},
            after=("b.lease",),
        ),
        Event("b.goes on", "append", _successor_goes_on, after=("b.lease",)),
        Event(
            "b.seal",
            "seal",
            lambda k: _holder(k, "b") | {"head": k["b.goes on"]["head"]},
            after=("b.goes on",),
        ),
        Event(
            "twin of b",
            "append",
            lambda k: _holder(k, "b") | {"lease_id": "twin", "parent": EMPTY, "seq": 1, "payload": "twin"},
            after=("b.lease",),
        ),
        Event(
            "b forges",
            "append",
            lambda k: _holder(k, "b") | {"parent": chain(EMPTY, "?"), "seq": 2, "payload": "forged"},
            after=("b.lease",),
        ),
    ),
    meets=frozenset(
        {
            "append duplicate",
            "append reject forged_prefix",
            "append reject lease_mismatch",
            "append reject stale_gen",
            "fence reject stale_gen",
            "intend in_doubt dangling",
            "intend reject stale_gen",
            "lease reject sealed",
            "seal commit",
        }
    ),
)

SHARED_WORKER = Scenario(
    "transcript, a worker between two runs",
    "transcript",
    {},
    (
        Event("a.lease", "lease", _always(run="n3", lease_id="lease of a")),
        Event(
            "a.plan",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.lease",),
            silenced_by=("a.crash",),
        ),
        _crash("a.crash"),
        Event("timeout", "fence", lambda k: {"run": "n3", "gen": k["a.lease"]["gen"]}, after=("a.lease",)),
        Event("a.resume", "resume", lambda k: _holder(k, "a"), after=("a.lease",), silenced_by=("a.crash",)),
        Event("a.lease late again", "lease", _always(run="n3", lease_id="lease of a"), after=("a.lease",)),
        Event("a.lease on n4", "lease", _always(run="n4", lease_id="lease of a")),
        Event("c.lease", "lease", _always(run="n4", lease_id="lease of c")),
        Event(
            "a's event under c's gen",
            "append",
            lambda k: _holder(k, "c", "n4") | {"lease_id": "lease of a", "parent": EMPTY, "seq": 1, "payload": "of n3"},
            after=("c.lease", "a.lease"),
        ),
        Event(
            "c's lease on n3",
            "append",
            lambda k: _holder(k, "c") | {"parent": PLAN, "seq": 2, "payload": "of n3"},
            after=("c.lease",),
        ),
        Event(
            "c.plan",
            "append",
            lambda k: _holder(k, "c", "n4") | {"parent": EMPTY, "seq": 1, "payload": "plan of n4"},
            after=("c.lease",),
        ),
    ),
    meets=frozenset(
        {
            "append commit",
            "append reject run_mismatch",
            "append reject stale_gen",
            "fence commit",
            "lease duplicate",
            "lease reject lease_reused",
            "resume commit",
            "resume reject stale",
        }
    ),
)

# --- histogram: a scorer that was given up, its restart, a dirty artifact, an early and a late close ---------


def _score(run: str, epoch: int, digest: str, bin_: str = "pass") -> Args:
    return _always(run=run, epoch=epoch, digest=digest, bin=bin_, value="1")


HISTOGRAM = Scenario(
    "histogram",
    "histogram",
    {"intended": ["n1", "n2"], "quorum": 1, "bins": ["pass", "fail"], "max_in_flight": 1},
    (
        Event("a.fence", "fence", _always(run="n1", epoch=1, digest="art")),
        Event("a.score", "score", _score("n1", 1, "art"), after=("a.fence",), silenced_by=("a.crash",)),
        Event("a.score again", "score", _score("n1", 1, "art"), after=("a.score",)),
        _crash("a.crash"),
        Event("b.fence", "fence", _always(run="n1", epoch=2, digest="art"), after=("a.fence",)),
        Event("b.score", "score", _score("n1", 2, "art", "fail"), after=("b.fence",)),
        Event("b.score of other bytes", "score", _score("n1", 2, "dirty"), after=("b.fence",)),
        Event("c.fence", "fence", _always(run="n2", epoch=1, digest="art of n2")),
        Event("c.score", "score", _score("n2", 1, "art of n2"), after=("c.fence",)),
        Event("timeout of n2", "abandon", _always(run="n2", epoch=0, why="never started")),
        Event("drain", "drain", _always()),
        Event("close", "close", _always()),
        Event("close again", "close", _always(), after=("close",)),
        Event("gate", "pass_rate", _always()),
    ),
    meets=frozenset(
        {
            "abandon commit",
            "close commit",
            "close duplicate",
            "close in_doubt in_flight",
            "close in_doubt not_drained",
            "fence reject backpressure",
            "fence reject after_close",
            "pass_rate commit",
            "pass_rate reject open_histogram",
            "score duplicate",
            "score reject after_close",
            "score reject digest_mismatch",
            "score reject stale_epoch",
        }
    ),
)

# --- judge: the pool swaps the critic, an operator binds anew, the old token comes late ----------------------


def _sign(candidate: str, judge: str, epoch: int, digest: str) -> Args:
    return _always(run="n3", observed_candidate=candidate, observed_judge=judge, epoch=epoch, score_digest=digest)


def _judge(policy: str, *meets: str) -> Scenario:
    return Scenario(
        f"judge under {policy}",
        "judge",
        {"policy": policy, "replay_budget": 1},
        (
            Event("mint", "mint", _always(run="n3", candidate="ca", judge="ja", epoch=1)),
            Event("mint again", "mint", _always(run="n3", candidate="ca", judge="ja", epoch=1), after=("mint",)),
            Event("a.sign", "commit", _sign("ca", "ja", 1, "d1"), after=("mint",), silenced_by=("a.crash",)),
            Event("a.sign again", "commit", _sign("ca", "ja", 1, "d1"), after=("a.sign",)),
            _crash("a.crash"),
            Event("swapped judge", "commit", _sign("ca", "jb", 1, "d1")),
            Event("swapped judge again", "commit", _sign("ca", "jb", 1, "d1"), after=("swapped judge",)),
            Event("other candidate", "commit", _sign("cb", "ja", 1, "d1")),
            Event("no echo", "commit", _sign("ca", "", 1, "d1")),
            Event("timeout: rebind", "rebind", _always(run="n3", epoch=1, candidate="ca", judge="jb")),
            Event("b.sign", "commit", _sign("ca", "jb", 2, "d2"), after=("timeout: rebind",)),
            Event("b.sign of another judge", "commit", _sign("ca", "jc", 2, "d2"), after=("timeout: rebind",)),
            Event("second digest", "commit", _sign("ca", "ja", 1, "d2")),
        ),
        meets=frozenset(
            {
                "commit commit",
                "commit duplicate",
                "commit reject already_scored",
                "commit reject judge_mismatch",
                "commit reject candidate_mismatch",
                "commit reject stale_epoch",
                "commit reject unbound",
                "mint reject already_bound",
                "rebind commit",
                "rebind reject already_scored",
                "rebind reject unbound",
                *meets,
            }
        ),
    )


# --- admission: the clock fires, the retry goes out, both bodies arrive --------------------------------------


def _lease(kept: Kept, who: str) -> dict[str, object]:
    return {"lease": kept[f"{who}.acquire"]["lease"]}


def _body(who: str, digest: str) -> Args:
    return lambda k: {**_lease(k, who), "gen": k[f"{who}.acquire"]["gen"], "digest": digest}


def _of(who: str, **more: object) -> Args:
    return lambda k: {**_lease(k, who), **more}


def _admission(bound: int) -> Scenario:
    return Scenario(
        f"admission, bound {bound}",
        "admission",
        {"bound": bound, "reclaim_ms": 1000},
        (
            Event("a.acquire", "acquire", _always(step="s1", lease="a" * 32)),
            Event("a.acquire again", "acquire", _always(step="s1", lease="a" * 32), after=("a.acquire",)),
            Event("a.body", "apply", _body("a", "d1"), after=("a.acquire",)),
            Event("a.body again", "apply", _body("a", "d1"), after=("a.body",)),
            Event("a.second body", "apply", _body("a", "d2"), after=("a.acquire",)),
            Event("a.release", "release", _of("a"), after=("a.body",), silenced_by=("a.crash",)),
            _crash("a.crash"),
            Event("timeout", "expire", _of("a"), after=("a.acquire",)),
            Event("b.acquire", "acquire", _always(step="s1", lease="b" * 32)),
            Event("b.body", "apply", _body("b", "d3"), after=("b.acquire",)),
            Event("b.release", "release", _of("b"), after=("b.body",)),
            Event("time passes", CLOCK, _always(advance_ms=1000)),
            Event("reclaim a", "reclaim", _of("a", cancelled=False), after=("timeout",)),
            Event("reclaim b", "reclaim", _of("b", cancelled=True), after=("b.acquire",)),
            Event("c.acquire", "acquire", _always(step="s2", lease="c" * 32)),
        ),
        meets=frozenset(
            {
                "acquire duplicate",
                "acquire reject bound_full",
                "acquire reject step_committed",
                "acquire reject step_in_flight",
                "apply duplicate",
                "apply reject stale_gen",
                "apply reject step_committed",
                "expire reject not_live",
                "reclaim commit",
                "reclaim in_doubt cancel_pending",
                "reclaim reject double_release",
                "reclaim reject still_live",
                "release reject double_release",
            }
        ),
    )


SCENARIOS = (
    HANDOVER,
    SHARED_WORKER,
    HISTOGRAM,
    _judge("reject"),
    _judge("replay", "commit replay judge_mismatch", "commit replay candidate_mismatch"),
    _judge("review", "commit in_doubt judge_mismatch", "commit in_doubt candidate_mismatch"),
    _admission(1),
    _admission(2),
)
