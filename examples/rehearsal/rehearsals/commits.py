"""External effects, with the process that makes them killed at each of five points.

A step that ends as committed has exactly one effect, which stands. One that was in doubt past its bound has at most
one, and that is undone. None ever has two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from findings import Findings
from place import SUITES, Place

from bus.port import IntentRow, IntentState
from workers.lab import Lab
from workers.lab.counts import KeyCounts

POINTS = ("before-claim", "after-claim", "in-flight", "landed", "answered")

MOST = 6
"""Calls of all points have to be in the workers' hands at once: three of them have sixteen each."""


def judge(intents: Sequence[IntentRow], keys: Mapping[str, KeyCounts]) -> list[str]:
    """What is violated: the outbox's word for each step, against what the lab did under its key."""
    violated = []
    known = {key.rpartition(":")[2]: counts for key, counts in keys.items()}
    for intent in intents:
        did = known.pop(intent.id, KeyCounts())
        said = f"{intent.id} ended as {intent.state}, and the lab has {did.commits} commits, {did.undone} undone"
        match intent.state:
            case IntentState.COMMITTED:
                holds = did.commits == 1 and did.undone == 0
            case IntentState.COMPENSATED:  # the undo may have come first: then the key is burnt, and nothing was done
                holds = did.commits <= 1 and did.undone == did.commits
            case IntentState.FAILED:
                holds = did.commits == 0
            case IntentState.STUCK:
                holds = did.commits <= 1
            case _:
                holds = False
        if not holds:
            violated.append(said)
    violated += [f"nobody knows of {key}, and the lab has it" for key in known]
    return violated


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: runs for each point."""
    each = min(size or 1, MOST)
    found = Findings("commits: a worker is killed at five points of a call that has an effect outside")
    with Place.opened() as place, Lab(seed=seed) as lab:
        run = place.start(SUITES / "commits", "commits", workers=3, REHEARSAL_LAB=lab.url, REHEARSAL_EACH=str(each))
        ended = run.end()
        result, books, counts = place.result("commits"), place.books("commits"), lab.counts
        died = Counter(mark.name.partition(".")[0] for mark in (place.root / "deaths").glob("*"))
        history = place.history("commits")
    intents = [effect for effect in books.effects if not effect.id.endswith("~undo")]
    states = Counter(intent.state.value for intent in intents)
    found.count("runs", f"{result['intended']}, {result['state']} after {ended.seconds:.0f} s")
    found.count("killed", " · ".join(f"{point} {died[point]}" for point in POINTS))
    found.count("steps as the outbox has them", " · ".join(f"{state} {n}" for state, n in sorted(states.items())))
    tickets = counts.tickets
    found.count("tickets at the lab", f"{tickets.commits} made, {tickets.undone} of them undone")
    found.count("made after their client had died", tickets.after_client_left)
    by_step = Counter(did.commits for did in counts.by_key.values())
    found.count("keys by effects", " · ".join(f"{n}: {keys}" for n, keys in sorted(by_step.items())))
    licences = Counter(
        line["args"]["intent_id"]
        for line in history
        if line.get("fence") == "outbox" and line.get("op") == "sent" and line.get("verb") == "commit"
    )
    found.count("licences in the history", sum(licences.values()))
    found.violated += judge(intents, counts.by_key)
    found.must(result["state"] == "closed", f"the batch is {result['state']}")
    found.must(len(intents) == result["intended"], f"{len(intents)} steps of {result['intended']} runs")
    found.must(max(licences.values(), default=0) <= 1, f"licensed more than once: {licences.most_common(1)}")
    for state in ("committed", "compensated"):
        found.must(states[state] > 0, f"no step has ended as {state}: nothing was rehearsed")
    for point in POINTS:
        found.must(died[point] == each, f"{died[point]} of {each} processes died at {point}")
    return found
