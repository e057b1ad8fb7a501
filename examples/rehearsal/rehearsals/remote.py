"""The repair example twice: its harness where the run is, and as a tool on whichever worker reads it.

The same programs pass, also when a worker is killed while it has a run and others' calls in hand.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from findings import Findings
from place import HERE, Place, Violated, until

KILLS = 2


def judge(plain: Mapping[str, str], remote: Mapping[str, str]) -> list[str]:
    """What is violated: the two results, run by run."""
    return [
        f"{run} is {plain.get(run, 'nothing')} at home and {remote.get(run, 'nothing')} elsewhere"
        for run in sorted(plain.keys() | remote.keys())
        if plain.get(run) != remote.get(run)
    ]


def excerpt(target: Path, seed: int, programs: int) -> None:
    """A copy of the example with some of its programs."""
    shutil.copytree(HERE.parent / "repair", target, ignore=shutil.ignore_patterns("__pycache__"))
    cases = (target / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = random.Random(seed).sample(cases, min(programs, len(cases)))  # noqa: S311 - it is to be repeated
    (target / "cases.jsonl").write_text("\n".join(chosen) + "\n", encoding="utf-8")


def rehearse(seed: int, size: int | None) -> Findings:
    """`size`: programs, of 46."""
    programs = size or 12
    found = Findings("remote: examples/repair passes the same when its tools run on other workers")
    chance, killed = random.Random(seed), 0  # noqa: S311
    with Place.opened() as place:
        suite = place.root / "repair"
        excerpt(suite, seed, programs)
        at_home = place.start(suite, "plain", workers=2).end()
        run = place.start(suite / "remote.toml", "remote", workers=3)
        for kill in range(KILLS):
            until(lambda at=kill: not run.goes_on or _under_way(place, 4 * at + 2), "calls to be under way")
            killed += run.goes_on and run.kill_one(chance.choice)
        elsewhere = run.end()
        plain, remote, history = place.result("plain"), place.result("remote"), place.history("remote")
    holders, calls = {}, Counter()
    for line in history:
        told = line.get("envelope", {})
        if (line.get("fence"), line.get("op"), line.get("verb")) == ("transcript", "lease", "commit"):
            holders[told["run"]] = told["consumer"]
        if (line.get("fence"), line.get("op"), line.get("verb")) == ("outbox", "claim", "commit"):
            calls["by others" if holders.get(told["run"]) != told["consumer"] else "by the holder"] += 1
    found.count("programs", f"{programs}, at home in {at_home.seconds:.0f} s, elsewhere in {elsewhere.seconds:.0f} s")
    found.count("passed at home", plain["bins"]["pass"])
    found.count("passed elsewhere", remote["bins"]["pass"])
    found.count("calls of the harness", " · ".join(f"{who} {n}" for who, n in sorted(calls.items())))
    found.count("workers killed", killed)
    found.violated += judge(plain["runs"], remote["runs"])
    found.must(len(plain["runs"]) == programs, f"{len(plain['runs'])} of {programs} runs are scored: {plain['holes']}")
    found.must(calls["by others"] > 0, "no call was made by another worker: nothing was rehearsed")
    found.must(killed > 0, "nobody was killed: nothing was rehearsed")
    return found


def _under_way(place: Place, calls: int) -> bool:
    """Whether so many calls have ended, and others have not."""
    try:
        effects = place.books("remote").effects
    except Violated:  # the batch is not there yet
        return False
    ended = sum(effect.state.final for effect in effects)
    return calls <= ended < len(effects)
