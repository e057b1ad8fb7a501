"""The short form of a history's entries: what a script leaves out of them, and how it is put back.

Most of an entry as it was presented is said by all entries of its kind: the names of fields, the batch's own name,
plane and server; and the same few texts, over and over: a head, a run, a place. In the short form an entry is one list,
msgpack, in the stream's field `s`:

    command  schema  life  envelope…  part…

`command` is a number of `COMMANDS`; the envelope's values follow in the order that stands there. A part that was
granted is its number in `PARTS`, its arguments' values and its answer's, or 64 more than that number and the answer's
alone where it has no arguments; any other part stands as a list of its own, with names. A number below 0 is none: -1
says that the value is absent, -2 that it is the first text that this entry has said, -3 the second, and so on. The
first of them are said by every entry (`_said_by_all`). `life` tells which life of the server the envelope names; 0 for
none. Their ids stand in the batch's row: `life:1`, `life:2`, and `lives`, how many.

The writer is a function that `bus/shorthand_lua.py` makes of these tables, in `lua/include/shorthand.lua`. The long
form is written whenever this one has no place for something: what was refused, with all that was presented; a field
that no table names.

A number means what it means for good: histories that hold it are on servers. A command or a part that comes to have
other fields gets a new line with a new number, and its former line stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bus.chain import EMPTY_HEAD
from bus.texts import unpacked

__all__ = ["BARE", "COMMANDS", "FIELD", "PARTS", "Said", "Shape", "Spelt", "read", "spell"]

FIELD = b"s"
"""The stream's field that an entry in the short form has, and no other."""

_ABSENT = -1
BARE = 64
"""Added to the number of a part that has no arguments."""


class Shape(NamedTuple):
    """The fields of a command's envelope, behind those that all have; or of a part, of which `args` come first."""

    number: int
    name: str
    args: tuple[str, ...]
    answers: tuple[str, ...] = ()


def _shapes(text: str) -> tuple[Shape, ...]:
    found = []
    for line in text.strip().splitlines():
        said, _, answers = line.partition("->")
        number, name, *args = said.split()
        found.append(Shape(int(number), name, tuple(args), tuple(answers.split())))
    return tuple(found)


COMMANDS = _shapes("""
1  run.admit         command_id consumer cursor runs entries candidate judge expected
2  run.claim         run lease_id entry consumer
3  run.append        run lease_id gen conversation epoch parent seq events receipts
4  run.seal          run lease_id gen conversation parent seq head tree_hash artifact
5  run.score_claim   run lease_id entry consumer
6  run.score         run lease_id gen head tree_hash observed_candidate observed_judge judge_epoch score_digest bin value detail
7  run.open_call     run lease_id gen conversation parent seq intent step request_id attempt desk desk_lease prompt_hash estimate
8  run.flush         run step attempt chunks
9  run.bind_call     run lease_id gen conversation parent seq intent head step request_id attempt desk desk_lease desk_gen prompt_hash payload_ok digest last_seq chunks estimated
10 run.put_tools     run lease_id gen conversation step parent seq digest window intents window_cost
11 run.join          run lease_id gen conversation step parent seq digest window intents epoch head receipts
12 run.tool_claim    run intent_id entry executor consumer
13 run.tool_sent     run intent_id gen executor slot
14 run.tool_complete run intent_id gen executor ok echo digest
15 run.write         run lease_id gen conversation epoch step path digest receipt
16 run.open_judge    run lease_id gen step request_id attempt desk desk_lease prompt_hash estimate
17 run.bind_judge    run lease_id gen step request_id attempt desk desk_lease desk_gen payload_ok digest last_seq chunks estimated
""")  # fmt: skip  # noqa: E501 - a command is a line
"""A run comes first: what is said by all entries has its name in it."""

PARTS = _shapes("""
1  plane.admit          key admission plane -> admission
2  admission.acquire    lease step -> lease gen
3  judge.mint           run candidate judge epoch -> candidate judge epoch
4  transcript.lease     run lease_id -> gen head length unresolved
5  transcript.append    run lease_id parent seq head intent -> head
6  transcript.seal      run lease_id
7  plane.write          key admission plane body
8  histogram.fence      epoch digest
9  judge.commit         epoch -> replays
10 histogram.score      epoch digest
11 admission.apply      step lease gen digest
12 plane.release        admission
13 admission.release    lease step
14 completion.lease     -> gen
15 completion.open
16 completion.bind      -> model_left
17 ledger.admit
18 ledger.chunk         seq tokens durable -> durable watermark billed
19 ledger.done          -> state
20 transcript.intend    run lease_id digest
21 join.admit           case expected -> window remaining
22 join.result          case ok attempt tokens -> state
23 join.commit          case verdict -> remaining
24 outbox.put           intent_id tool args -> state gen tool args
25 outbox.claim         gen -> tool args
26 outbox.sent
27 outbox.complete      observation -> state
28 indoubt.prepare      key lease_id epoch
29 indoubt.reserve      run epoch slot lease_id key ttl_ms -> slot lease_id
30 indoubt.bind         key epoch result lease_id
""")
"""In the order in which the contract has them."""

_COMMANDS: Mapping[int, Shape] = {shape.number: shape for shape in COMMANDS}
_PARTS: Mapping[int, Shape] = {shape.number: shape for shape in PARTS}


@dataclass(frozen=True, slots=True)
class Said:
    """An entry in the short form, unpacked. `life`: which of its servers the envelope names; 0 for none."""

    words: Sequence[Any]

    @property
    def life(self) -> int:
        """As above."""
        life: int = self.words[2]
        return life


class Spelt(NamedTuple):
    """An entry as it was presented, and its parts: name, verb, reason, arguments, answer."""

    command: str
    envelope: Mapping[str, Any]
    parts: tuple[Sequence[Any], ...]


def read(packed: bytes) -> Said:
    """Unpack an entry. Raises ValueError for what is none."""
    words = unpacked(packed)
    if not isinstance(words, list) or len(words) <= 2 or words[0] not in _COMMANDS:  # noqa: PLR2004 - what all begin with
        raise ValueError("not an entry that this release knows")
    return Said(words)


def spell(said: Said, plane: str, batch: str, server: str | None) -> Spelt:
    """Put back what was left out. `server`: the id that belongs to the life. Raises ValueError for what is no entry."""
    number, schema, _, *words = said.words
    shape = _COMMANDS[number]
    hearing = _Hearing(iter(words))
    head = {"schema": schema, "plane": plane, "batch": batch} | ({} if server is None else {"server": server})
    try:
        hearing.met += _said_by_all(shape, plane, words)
        envelope = head | hearing.named(shape.args)
        parts = tuple(hearing.parts())
    except (IndexError, KeyError, StopIteration, TypeError) as error:
        raise ValueError("not an entry that this release knows") from error
    return Spelt(shape.name, envelope, parts)


def _said_by_all(shape: Shape, plane: str, words: Sequence[Any]) -> list[str]:
    """What an entry need not say: no events yet; of a run, its first conversation and its result's key."""
    if shape.args[0] != "run":
        return [EMPTY_HEAD]
    run = words[0] if isinstance(words[0], str) else EMPTY_HEAD
    return [EMPTY_HEAD, f"{run}~0", f"{plane}:{run}:result"]


class _Hearing:
    """Takes the words in order."""

    def __init__(self, words: Iterator[Any]) -> None:
        self.met: list[str] = []
        self._words = words

    def named(self, names: Sequence[str]) -> dict[str, Any]:
        """A value for each of the names, but for those that are absent."""
        found = {}
        for name in names:
            word = next(self._words)
            if type(word) is int and word < 0:
                if word == _ABSENT:
                    continue
                word = self.met[-2 - word]
            elif type(word) is str:
                self.met.append(word)
            found[name] = word
        return found

    def parts(self) -> Iterator[Sequence[Any]]:
        """Those that are left."""
        for word in self._words:
            if isinstance(word, list):
                yield word
                continue
            shape = _PARTS[word % BARE]
            args = {} if word > BARE else self.named(shape.args)
            yield (shape.name, "commit", "", args, self.named(shape.answers))
