"""A fan-out of three with duplicates: one request that the network delivers twice, one outcome that comes late.

It spends once: three effects, one join, one event. Also when its holder dies with all done and nothing joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from findings import Findings
from place import SUITES, Place

from workers.lab import Lab
from workers.lab.counts import KeyCounts

CALLS = 3


def judge(runs: int, keys: Mapping[str, KeyCounts], joined: Mapping[str, int], late: Sequence[str]) -> list[str]:
    """What is violated. `joined`: joins that were committed, by run. `late`: what was said to each late outcome."""
    found = Findings("")
    found.must(len(keys) == CALLS * runs, f"{len(keys)} keys at the lab, for {runs} runs of {CALLS} calls")
    for key, did in keys.items():
        found.must(did.commits == 1 and did.undone == 0, f"{key} was done {did.commits} times, undone {did.undone}")
    found.must(len(joined) == runs, f"{len(joined)} of {runs} fan-outs are joined")
    for run, times in joined.items():
        found.must(times == 1, f"the fan-out of {run} was joined {times} times")
    for verb in late:
        found.must(verb == "duplicate", f"an outcome that came a second time was answered {verb}")
    return found.violated


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: runs, of which each fourth dies before it joins."""
    runs = size or 12
    found = Findings("fanout: three calls at once, with late duplicates, spend once")
    with Place.opened() as place, Lab(seed=seed) as lab:
        ended = place.start(SUITES / "fanout", "fanout", REHEARSAL_LAB=lab.url, REHEARSAL_RUNS=str(runs)).end()
        result, books, counts, history = (
            place.result("fanout"), place.books("fanout"), lab.counts, place.history("fanout")
        )  # fmt: skip
        late = [file.read_text() for file in sorted((place.root / "late").glob("*"))]
        died = len(list((place.root / "deaths").glob("*")))
    joined = Counter(
        line["envelope"]["run"]
        for line in history
        if (line.get("fence"), line.get("op"), line.get("verb")) == ("join", "commit", "commit")
    )
    found.count("runs", f"{runs}, {result['state']} after {ended.seconds:.0f} s")
    found.count("holders killed before the join", died)
    found.count("tickets at the lab", f"{counts.tickets.commits} made, by {len(counts.by_key)} keys")
    found.count("requests that came twice", counts.tickets.repeats)
    found.count("outcomes that came late", f"{len(late)}, answered {' · '.join(sorted(set(late)))}")
    found.count("joins", sum(joined.values()))
    found.count("tokens", f"{counts.model.billed:,} billed, {books.counters.spent:,} spent")
    found.violated += judge(runs, counts.by_key, joined, late)
    found.must(result["bins"].get("pass") == runs, f"not all runs saw three bookings: {result['bins']}")
    found.must(books.counters.spent == counts.model.billed, "spent is not what was billed")
    found.must(counts.tickets.repeats >= runs, f"{counts.tickets.repeats} requests came twice: nothing was rehearsed")
    found.must(len(late) > 0 and died == runs // 4, f"{len(late)} late outcomes, {died} deaths: nothing was rehearsed")
    return found
