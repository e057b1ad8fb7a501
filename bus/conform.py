"""`evalbus conform`: every vector through a live server's scripts and through the reference model.

Two programs that share no code must both meet every expectation.

    vectors = collect(paths)                                   reads all files: a wrong one starts nothing
    summary = await conform_on_server(vectors, endpoint, runtime, print)

A file that is named must be a vector of a protocol that this release has. A directory is a collection, and may be ahead
of the release: vectors of protocols that are not built yet are counted by name and passed over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bus.contract import CONTRACT, PROTOCOLS
from bus.errors import InputError, ViolationError
from bus.link import Door
from bus.port import Runtime
from bus.server_player import ServerPlayer
from bus.vectors import ModelPlayer, Player, Vector, load_vector, play

__all__ = ["Collection", "Conformance", "Side", "Verdict", "collect", "conform", "conform_on_server"]


@dataclass(frozen=True, slots=True)
class Collection:
    """Vectors to play, in order; and per protocol that is not built yet, how many were passed over."""

    vectors: tuple[Vector, ...]
    not_built: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Side:
    """What one of the two made of a vector. `difference` is the first one, in full, or None."""

    name: str
    steps: int
    difference: str | None

    def __str__(self) -> str:
        """`server 7 steps`, or `server differs`."""
        return f"{self.name} {self.steps} steps" if self.difference is None else f"{self.name} differs"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one vector."""

    vector: Vector
    server: Side
    model: Side

    @property
    def passed(self) -> bool:
        """True when both met every expectation."""
        return self.server.difference is None and self.model.difference is None

    def __str__(self) -> str:
        """A line; below it, for each side that differs, another with the first difference in full."""
        name = " ".join(f"{self.vector.protocol}/{self.vector.name}".split())
        lines = [f"{'ok  ' if self.passed else 'DIFF'} {name:<44} {self.server}, {self.model}"]
        lines += [f"     {side.name}: {side.difference}" for side in (self.server, self.model) if side.difference]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Conformance:
    """What came of all."""

    passed: int
    differed: int
    not_built: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """True when nothing differed."""
        return self.differed == 0

    def __str__(self) -> str:
        """The last line: what was played, what was not."""
        played = self.passed + self.differed
        words = [f"{played} vector{'' if played == 1 else 's'} played on both sides", f"{self.differed} differ"]
        skipped = sum(self.not_built.values())
        if skipped:
            words.append(f"{skipped} passed over, of protocols not built yet: {', '.join(self.not_built)}")
        return "; ".join(words)


def collect(paths: Iterable[Path]) -> Collection:
    """Read the files, and every `*.json` below the directories, in the order given and sorted within.

    Raises InputError for a path that is not there, a directory without vectors, and a file that is no valid vector.
    """
    vectors: list[Vector] = []
    not_built: Counter[str] = Counter()
    for path in paths:
        if not path.is_dir():
            vectors.append(load_vector(path))
            continue
        files = sorted(file for file in path.rglob("*.json") if file.is_file())
        if not files:
            raise InputError("no vector below this directory", file=path, remedy="vectors are *.json files")
        for file in files:
            try:
                vectors.append(load_vector(file))
            except InputError:
                protocol = _protocol_of(file)
                if protocol in CONTRACT or protocol not in PROTOCOLS:
                    raise
                not_built[protocol] += 1
    return Collection(tuple(vectors), dict(sorted(not_built.items(), key=lambda item: PROTOCOLS.index(item[0]))))


async def conform_on_server(
    vectors: Collection, door: Door, runtime: Runtime, say: Callable[[str], None]
) -> Conformance:
    """Play vectors through the server behind `door`, and through the models; the last text said is the summary.

    Raises ServerError when the server cannot be used.
    """
    player = ServerPlayer(door, runtime)
    try:
        summary = await conform(vectors, player, say)
    finally:
        await player.aclose()
    say(str(summary))
    return summary


async def conform(vectors: Collection, server: Player, say: Callable[[str], None]) -> Conformance:
    """Play vectors through `server`, the player that stands for the server, and through the models.

    `say` gets the text of each vector as it is done. A difference raises nothing: it is counted, and told there.
    """
    passed = 0
    for vector in vectors.vectors:
        verdict = Verdict(vector, await _side("server", vector, server), await _side("model", vector, ModelPlayer()))
        passed += verdict.passed
        say(str(verdict))
    return Conformance(passed, len(vectors.vectors) - passed, vectors.not_built)


def _protocol_of(file: Path) -> str:
    """The protocol that a file names, as far as it can be read."""
    try:
        top = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    protocol = top.get("protocol") if isinstance(top, dict) else None
    return protocol if isinstance(protocol, str) else ""


async def _side(name: str, vector: Vector, player: Player) -> Side:
    try:
        report = await play(vector, player)
    except ViolationError as violation:  # the scripts answered something that they do not admit to
        return Side(name, 0, str(violation))
    return Side(name, report.played, None if report.difference is None else str(report.difference))
