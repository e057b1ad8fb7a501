"""A story in plain words: why this verdict, after how many attempts, who was refused, what was spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from workers.explaining.reasons import why_hole, why_refused
from workers.explaining.story import Attempt, Facts, Hold, Story, plain
from workers.explaining.telling import many, short

__all__ = ["explained"]

_MANY = 12  # refusals that are named one by one


def explained(story: Story, detail: str = "") -> list[str]:
    """Paragraphs of a line each. `detail`: what the run's row says of its end, where there is one."""
    facts = story.facts
    lines = [f"Run {plain(story.run)} of batch {plain(story.batch)}", *_verdict(facts)]
    if detail:
        lines.append(f"It says of itself: {plain(detail, 400)}")
    lines += [*_holds("attempt", facts.holds), *_holds("scoring", facts.scorings)]
    if facts.turns:
        lines.append(f"Its conversation was given up and begun anew {_times(facts.turns)}.")
    lines += [*_spent(facts), *_effects(facts), *_refused(story)]
    if facts.closed:
        # By its name: it may be a partition, whose verdicts are fewer than its batch's.
        named = f"Batch {plain(story.batch)} was {facts.closed}."
        lines.append(named if facts.closed.startswith("closed") else facts.closed)
    elif facts.ended:
        lines.append("The batch is open: this run's part of it is final, its pass rate is not.")
    return lines


def _verdict(facts: Facts) -> Iterator[str]:
    score, hole, seal = facts.score, facts.hole, facts.seal
    if score is not None:
        yield (
            f"Verdict: {score.bin} (value {score.value}), signed by {score.lane.title}, as judge {score.judge} "
            f"under binding epoch {score.judge_epoch}, on answers of candidate {score.candidate}."
        )
        if len(facts.scorings) > 1:
            yield (
                f"It counts because epoch {score.lane.gen} was the newest of {len(facts.scorings)} scorings "
                "when it was signed, and it was the first signed."
            )
    elif hole is not None:
        yield f"No verdict: the run is a hole, {hole.why} ({why_hole(hole.why)})."
        yield f"What ended it: {hole.ended_by}. Entry {hole.entry} of the history proves it."
    elif seal is not None:
        yield "No verdict yet: the answer is sealed, and waits to be scored."
    elif facts.holds and not facts.holds[-1].end:
        yield f"No verdict yet: {facts.holds[-1].lane.title} holds the run."
    else:
        yield "No verdict yet: the run waits for a worker." if facts.admitted else "No verdict: it was never admitted."
    if seal is not None:
        by = seal.lane.title if seal.lane is not None else "another batch, from which it was taken over"
        events = f" over {many(seal.events, 'event')}" if seal.events else ""
        tree = f", with workspace tree {short(seal.tree)}" if seal.tree else ""
        yield f"Judged is what was sealed by {by}{events}: head {short(seal.head)}{tree}."
    if facts.judge and score is None:
        yield f"Bound to judge {facts.judge} and candidate {facts.candidate}, epoch {facts.judge_epoch}."


def _holds(noun: str, holds: Sequence[Hold]) -> Iterator[str]:
    if not holds:
        return
    yield f"{many(len(holds), noun).capitalize()}:"
    for hold in holds:
        lasted = f" after {(hold.ended_ms - hold.began_ms) / 1000:,.3f} s" if hold.end else ""
        yield f"  {hold.lane.title}: {hold.end or 'still has it'}{lasted}"


def _spent(facts: Facts) -> Iterator[str]:
    for judge, noun in ((False, "model"), (True, "judge's model")):
        attempts = [attempt for attempt in facts.attempts.values() if attempt.judge is judge]
        if not attempts:
            continue
        billed, durable = (sum(getattr(one, name) for one in attempts) for name in ("billed", "durable"))
        orphan = sum(one.billed for one in attempts if one.state not in ("answered", "open"))
        text = f"Spent at the {noun}: {many(billed, 'token')} in {many(len(attempts), 'request')}"
        if orphan:
            text += f", {orphan:,} of them for answers that do not count"
        open_ones = _still_open(attempts)
        yield f"{text}; {durable:,} arrived and were recorded{open_ones}."


def _still_open(attempts: Sequence[Attempt]) -> str:
    count = sum(one.state in ("open", "refused", "given up") for one in attempts)
    return f"; {many(count, 'request')} not settled" if count else ""


def _effects(facts: Facts) -> Iterator[str]:
    if not facts.effects:
        return
    states = Counter(effect.state for effect in facts.effects.values())
    told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in states.items())
    yield f"{many(len(facts.effects), 'tool call').capitalize()}: {told}."


def _refused(story: Story) -> Iterator[str]:
    refusals = story.refusals
    if not refusals:
        yield "Nobody was refused."
        return
    yield f"{many(len(refusals), 'refusal').capitalize()}:"
    for step in refusals[:_MANY]:
        by = f" ({step.by})" if step.by else ""
        yield f"  {step.source.title} {step.text}: {step.reason}{by}, {why_refused(step.reason)}. Entry {step.entry}."
    rest = Counter(step.reason for step in refusals[_MANY:])
    if rest:
        yield "  and " + ", ".join(f"{count} more {reason}" for reason, count in rest.items())


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
