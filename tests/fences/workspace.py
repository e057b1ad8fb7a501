"""What the tests know of fence 9, workspace: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.workspace import Cleared, Tested, Workspace
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick

# --- the race: a worker sleeps over its tree, the planner rewrites the step, both verdicts come


def _tree(gen: int, tree_hash: str) -> Args:
    return always(step="s1", gen=gen, tree_hash=tree_hash)


def _verdict(gen: int, tree_hash: str, verdict: str, schema: str = "v1") -> Args:
    return always(step="s1", gen=gen, tree_hash=tree_hash, verdict=verdict, schema=schema)


SCENARIOS = (
    Scenario(
        "workspace",
        "workspace",
        {"schemas": ["v1"]},
        (
            Event("record", "record", _tree(1, "tree-1")),
            Event("record again", "record", _tree(1, "tree-1"), after=("record",)),
            Event("record of another tree", "record", _tree(1, "tree-x"), after=("record",)),
            Event("a.verdict", "attach", _verdict(1, "tree-1", "pass"), after=("record",), silenced_by=("a.crash",)),
            Event("a.verdict again", "attach", _verdict(1, "tree-1", "pass"), after=("a.verdict",)),
            crash("a.crash"),
            Event("a.verdict on a drifted tree", "attach", _verdict(1, "tree-1 and a build", "pass")),
            Event("a.verdict of no known form", "attach", _verdict(1, "tree-1", "pass", "v9")),
            Event("timeout: supersede", "supersede", _tree(1, "tree-2")),
            Event("timeout again", "supersede", _tree(1, "tree-2"), after=("timeout: supersede",)),
            Event("b.verdict", "attach", _verdict(2, "tree-2", "fail"), after=("timeout: supersede",)),
            Event("b.second opinion", "attach", _verdict(2, "tree-2", "pass"), after=("timeout: supersede",)),
            Event("next tree", "record", _tree(3, "tree-3"), after=("record",)),
            Event("c.verdict", "attach", _verdict(3, "tree-3", "pass"), after=("next tree",)),
        ),
        meets=frozenset(
            {
                "attach commit",
                "attach duplicate",
                "attach reject already_attached",
                "attach reject schema",
                "attach reject stale_gen",
                "attach reject tree_hash",
                "record commit",
                "record duplicate",
                "record reject stale_gen",
                "supersede commit",
                "supersede reject stale_gen",
            }
        ),
    ),
)


# --- the properties


def _a_verdict_names_its_tree(step: Step) -> bool:
    before, after = as_a(Workspace, step.before), as_a(Workspace, step.after)
    for name, tested in after.steps.items():
        was = before.steps.get(name)
        if tested.verdict is None or (was and was.verdict is not None):
            continue
        told = tuple(step.call.args.get(part) for part in ("step", "gen", "tree_hash", "verdict"))
        if not committed(step, "attach") or was is None or told != (name, was.gen, was.tree_hash, tested.verdict):
            return False
    return True


def _a_verdict_stays_with_its_tree(step: Step) -> bool:
    before, after = as_a(Workspace, step.before), as_a(Workspace, step.after)
    return all(
        after.steps[name] == was or after.steps[name].gen != was.gen
        for name, was in before.steps.items()
        if was.verdict is not None
    )


def _a_tree_is_replaced_under_a_larger_gen(step: Step) -> bool:
    before, after = as_a(Workspace, step.before), as_a(Workspace, step.after)
    for name, was in before.steps.items():
        now = after.steps[name]
        if now.gen < was.gen or (now.gen == was.gen and now.tree_hash != was.tree_hash):
            return False
    replaced = sum(before.steps.get(name, Tested(0, "")).gen != now.gen for name, now in after.steps.items())
    return replaced == committed(step, "record", "supersede")


def _what_is_taken_off_is_kept(step: Step) -> bool:
    before, after = as_a(Workspace, step.before), as_a(Workspace, step.after)
    off = [
        Cleared(name, was.gen, was.tree_hash, was.verdict)
        for name, was in before.steps.items()
        if was.verdict is not None and after.steps[name].gen != was.gen
    ]
    return after.cleared == [*before.cleared, *off]


def _every_step_can_have_its_verdict(model: Model) -> bool:
    """A verdict that is lacking, or that nobody trusts, can be had: of the tree that is there, or of the next one."""
    at = as_a(Workspace, model)
    schema = min(at.schemas)
    for step, tested in sorted(at.steps.items()):
        if tested.verdict is None and not _attached(at, step, schema):
            return False
        superseded = at.decide("supersede", {"step": step, "gen": at.steps[step].gen, "tree_hash": "fresh"})
        if superseded.verb is not Verb.COMMIT or not _attached(at, step, schema):
            return False
    return True


def _attached(at: Workspace, step: str, schema: str) -> bool:
    now = at.steps[step]
    named = {"step": step, "gen": now.gen, "tree_hash": now.tree_hash, "verdict": "judged", "schema": schema}
    return at.decide("attach", named).verb is Verb.COMMIT


PROPERTIES = (
    Property("W1 a verdict names the tree that it tested", _a_verdict_names_its_tree),
    Property("W2 a verdict stays while its tree does", _a_verdict_stays_with_its_tree),
    Property("W3 a tree is replaced under a larger gen only", _a_tree_is_replaced_under_a_larger_gen),
    Property("W4 what is taken off is kept", _what_is_taken_off_is_kept),
    Property("L1 every step can have its verdict", live=_every_step_can_have_its_verdict),
)


BREAKS: Mapping[str, str] = {
    "job_id_only": "W1 a verdict names the tree that it tested",
    "gen_only": "W1 a verdict names the tree that it tested",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """One known form of a verdict, or two; the second is not plain ASCII, and is quoted in the batch's row."""
    return {"schemas": rng.choice([["v1"], ["v1", 'é"2']])}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Workspace, model)
    step = rng.choice(["s1", "s2"])
    now = model.steps.get(step) or Tested(0, "tree-0")
    fresh = f"tree-{rng.randrange(4)}"
    dispatched = {"step": step, "gen": now.gen, "tree_hash": now.tree_hash}
    schema = rng.choice([*sorted(model.schemas), *sorted(model.schemas), "v9"])
    op = pick(rng, record=3, attach=5, supersede=2)
    args: dict[str, dict[str, object]] = {
        "record": {"step": step, "gen": now.gen + rng.randint(1, 2), "tree_hash": fresh},
        "attach": {**dispatched, "verdict": rng.choice(["pass", "fail"]), "schema": schema},
        "supersede": {**dispatched, "tree_hash": fresh},
    }
    return Call(op, args[op])
