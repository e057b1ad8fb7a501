"""Endpoints that accept and never answer: the batch ends all the same, within the suite's own limits.

Once with a lab that reads each request and stays silent, once with a socket that nobody even accepts from.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from findings import Findings
from place import SUITES, Place, until

from workers.lab import Lab

LIMIT = 60.0
"""Seconds: the suite's times, one after the other (solver 6 s, call and undo 2 s each, leases), and a slow machine."""

HOLES = {"endpoint_error", "solver_timeout", "stuck"}


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A URL where the kernel accepts connections and nobody else does."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: runs of each kind."""
    each = size or 3
    found = Findings("hang: endpoints that accept and never answer never hang a batch")
    hangs = "model.hang=1,tickets.hang=1,tools.hang=1"
    with Place.opened() as place, Lab(seed=seed, mischief=hangs) as lab, silent() as nobody:
        runs = {
            name: place.start(SUITES / "hang", name, REHEARSAL_SILENT=url, REHEARSAL_RUNS=str(each))
            for name, url in (("lab", lab.url), ("socket", nobody))
        }
        for name, run in runs.items():
            ended = run.end(LIMIT)
            result, books = place.result(name), place.books(name)
            left = books.counters.reserved, books.counters.effects_open
            holes = " · ".join(f"{why} {n}" for why, n in result["holes"].items())
            found.count(f"silent {name}", f"{result['state']} after {ended.seconds:.0f} s")
            found.count("  runs", f"{result['intended']}: {result['accepted']} scored, holes: {holes}")
            found.must(result["state"] in ("closed", "inconclusive"), f"silent {name}: the batch is {result['state']}")
            total = sum(result["holes"].values()) + result["accepted"]
            found.must(total == result["intended"], f"silent {name}: {total} of {result['intended']} runs have ended")
            found.must(set(result["holes"]) <= HOLES, f"silent {name}: holes are {result['holes']}")
            # What only reads has failed, and its solver was told so; nothing else has an answer.
            found.must(result["accepted"] == each, f"silent {name}: {result['accepted']} runs are scored, not {each}")
            found.must(left[1] == 0, f"silent {name}: {left[1]} effects are open")
        # Those who had them open are gone; the lab hears of that from the kernel.
        until(lambda: not any(one.open for one in lab.counts.requests.values()), "the lab's connections to be closed")
        counts = lab.counts
        met = sum(one.mischief.get("hang", 0) for one in counts.requests.values())
        still = sum(one.open for one in counts.requests.values())
    found.count("requests that the lab did not answer", met)
    found.count("connections left open", still)
    found.must(met > 0, "nobody asked: nothing was rehearsed")
    found.must(still == 0, f"{still} connections are still open")
    return found
