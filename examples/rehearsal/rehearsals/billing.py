"""Tokens, with streams that are cut by seed and workers that are killed: what was billed is what was spent.

The endpoint tells what a request cost that was given up (`billing_url`). Of one whose worker was killed nobody has
seen the end: the planner asks for its figure when it takes the dead worker's place back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from findings import Findings
from place import SUITES, Place, until

from bus.port import Counters
from workers.lab import Lab
from workers.lab.mischief import Api

MISCHIEF = "model.cut=0.2,model.drop=0.05,model.unterminated=0.05,model.503=0.01,model.blank=0.03"
KILLS = 3


@dataclass(frozen=True)
class Bill:
    """What the endpoint says of all requests together."""

    billed: int
    requests: int
    cuts: Mapping[str, int]


def judge(bill: Bill, counters: Counters) -> list[str]:
    """What is violated."""
    found = Findings("")
    found.must(counters.reserved == 0, f"{counters.reserved} tokens are still reserved, and nobody is left")
    found.must(counters.estimated == 0, f"{counters.estimated} of the tokens spent are a guess")
    found.must(counters.spent == bill.billed, f"{bill.billed:,} tokens were billed, and {counters.spent:,} were spent")
    return found.violated


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: runs."""
    runs = size or 200
    found = Findings("billing: streams are cut, workers are killed, and every token is on the books")
    chance, killed = random.Random(seed), 0  # noqa: S311 - which worker dies is no secret
    with Place.opened() as place, Lab(seed=seed, mischief=MISCHIEF, latency=0.01, tokens=12, retry_after=0.1) as lab:
        run = place.start(SUITES / "tokens", "billing", REHEARSAL_LAB=lab.url, REHEARSAL_RUNS=str(runs))
        for kill in range(KILLS):  # while answers are under way, at a fifth of the requests, two fifths, …
            wanted = (kill + 1) * runs // (KILLS + 1)
            until(lambda at=wanted: not run.goes_on or _is_under_way(lab, at), "requests to be under way")
            killed += run.goes_on and run.kill_one(chance.choice)
            time.sleep(chance.random() / 10)
        ended = run.end()
        result, books, counts = place.result("billing"), place.books("billing"), lab.counts
    requests = counts.requests[Api.MODEL]
    bill = Bill(counts.model.billed, requests.requests, requests.cuts)
    counters = books.counters
    found.count("runs", f"{result['intended']}, {result['state']} after {ended.seconds:.0f} s")
    found.count("workers killed", killed)
    found.count("requests at the lab", f"{bill.requests:,}, {counts.model.finished:,} answered to the end")
    found.count("ended early", " · ".join(f"{cause} {n}" for cause, n in sorted(bill.cuts.items())))
    found.count("tokens billed by the lab", bill.billed)
    found.count("tokens spent in the ledger", counters.spent)
    found.count("of them for nothing that counts", counters.spent - counters.durable)
    found.count("by a guess", counters.estimated)
    found.violated += judge(bill, counters)
    found.must(result["state"] == "closed", f"the batch is {result['state']}")
    found.must(result["accepted"] == runs, f"{result['accepted']} of {runs} runs are scored: {result['holes']}")
    found.must(bill.cuts.get("cut", 0) > 0, "no stream was cut: nothing was rehearsed")
    found.must(killed > 0 and bill.cuts.get("client", 0) > 0, "nobody was killed while a stream was under way")
    return found


def _is_under_way(lab: Lab, requests: int) -> bool:
    now = lab.counts.requests[Api.MODEL]
    return now.requests >= requests and now.open >= 2
