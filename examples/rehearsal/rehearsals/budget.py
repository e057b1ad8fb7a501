"""A budget, and two workers with many requests at once: together they never pass it.

A run that no longer fits is a hole `over_budget`, named as such.
"""

from __future__ import annotations

from findings import Findings
from place import SUITES, Place

from workers.lab import Lab
from workers.lab.mischief import Api


def judge(budget: int, billed: int, spent: int) -> list[str]:
    """What is violated."""
    found = Findings("")
    found.must(billed <= budget, f"{billed:,} tokens were billed, of a budget of {budget:,}")
    found.must(spent <= budget, f"{spent:,} tokens were spent, of a budget of {budget:,}")
    found.must(spent == billed, f"{billed:,} tokens were billed, and {spent:,} were spent")
    return found.violated


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: runs, of which the budget is enough for about half."""
    runs = size or 100
    budget = 16 * runs
    found = Findings("budget: two workers with many requests at once never pass it together")
    with Place.opened() as place, Lab(seed=seed, mischief="model.cut=0.1", latency=0.005, tokens=30) as lab:
        own = {"REHEARSAL_LAB": lab.url, "REHEARSAL_RUNS": str(runs), "REHEARSAL_BUDGET": str(budget)}
        ended = place.start(SUITES / "tokens", "budget", **own).end()
        result, books, counts = place.result("budget"), place.books("budget"), lab.counts
    most = counts.requests[Api.MODEL].most_open
    found.count("runs", f"{runs}, {result['state']} after {ended.seconds:.0f} s")
    found.count("budget", budget)
    found.count("tokens billed by the lab", counts.model.billed)
    found.count("tokens spent in the ledger", books.counters.spent)
    found.count("requests at the same time", f"up to {most}")
    found.count("scored", result["accepted"])
    found.count("holes", " · ".join(f"{why} {n}" for why, n in result["holes"].items()))
    found.violated += judge(budget, counts.model.billed, books.counters.spent)
    found.must(set(result["holes"]) == {"over_budget"}, f"holes are {result['holes']}, and not over_budget alone")
    found.must(result["accepted"] > 0, "nothing was scored")
    found.must(sum(result["holes"].values()) + result["accepted"] == runs, "runs are neither scored nor holes")
    found.must(most > 2, f"only {most} requests at the same time: nothing was rehearsed")
    return found
