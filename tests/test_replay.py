"""Replay: the models take every recorded decision again, and whoever edits a history is found at the line he edited.

Somebody who edits one line breaks the chain there. Somebody who makes the chain anew is found by the models where a
decision, a head, a signature or the snapshot no longer follows. What even they cannot see, a refusal that is left out,
shows in the head, if that was written down elsewhere; the tests say so too.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import tracemalloc
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from rich.console import Console
from typer.testing import CliRunner

from bus.chain import EMPTY_HEAD
from bus.envelopes import SCHEMA
from bus.errors import EvalbusError, InputError
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.models.model import Answer, reject
from bus.redis_bus import RedisBus
from bus.replay.player import Player
from bus.replay.replayed import Replay, Replayed
from bus.replay.rules import RULES
from bus.replay.telling import DiffersError, Told
from bus.target import Target
from bus.types import Plane
from bus.wire import Wire
from tests.batches import Batch, FixedDoor
from tests.histories import edited, exported, found, parsed, rechained, whole_history
from tests.limits import FIRST_BUDGET
from tests.model_stage import BATCH, SHORT, ModelStage, Moment, OnServer, suite_of
from tests.rescoring import NEW, rescored
from tests.sessions import CALLS_AND_TOOLS, LIFE, STEPS, Session, plain_spec, whole_spec
from tests.soak import times
from tests.stage import ONE_CASE
from tests.twins import ClockedTokens, CountedTokens, MemorySide, ServerSide, Twins
from workers.cli import app
from workers.explaining.reading import read_file
from workers.histories.history_files import reading, writing
from workers.histories.pruning import make_plan
from workers.histories.replaying import derive_batch, replay_batch, replay_file, show
from workers.lab import Lab
from workers.results.prevented import Watch
from workers.results.status import show_one

GOLDEN = Path(__file__).parent / "histories_of_releases"
HEADS = {"schema-1.jsonl.zst": "f66e48e1db818683d947dc526ac99800e6ade8e7f96f5d19261410271c4af452"}
"""Each history of a release, and the head that it was written with. What stands here is never changed."""
SESSIONS = times(8)
FUZZED = times(400)


def replayed(lines: Sequence[bytes], clock: Callable[[Told], int] | None = None) -> Replayed:
    """What these lines come to."""
    replay = Replay("h.jsonl", clock=clock)
    for line in lines:
        replay.feed(line)
    return replay.finish()


def difference(lines: Sequence[bytes]) -> DiffersError:
    """What is found in them."""
    with pytest.raises(DiffersError) as caught:
        replayed(lines)
    return caught.value


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, all fences declared, nothing admitted."""
    one = await Batch.open(server.address(), limits=FIRST_BUDGET)
    yield one
    await one.aclose()


@pytest.fixture
async def lines(batch: Batch) -> list[bytes]:
    """A history with every fence, whole and closed."""
    return await whole_history(batch)


def golden(name: str = "schema-1.jsonl.zst") -> list[bytes]:
    """A history that was written by the release that brought its schema."""
    with reading(GOLDEN / name) as file:
        return file.readlines()


# --- what holds -------------------------------------------------------------------------------------------


async def test_a_history_of_all_fences_is_derived_again_to_its_snapshot(batch: Batch, lines: list[bytes]) -> None:
    """Every decision, the counters and the snapshot."""
    told = replayed(lines)
    counters = await batch.bus.counters(batch.name)
    fences = {parsed(line)["fence"] for line in lines[1:-1]} - {"run"}
    assert fences == told.decisions.keys() - {"run"}
    assert len(fences) == 12
    assert sum(told.decisions.values()) == told.entries == len(lines) - 2
    assert (told.snapshot_id, told.head) == (counters.snapshot_id, parsed(lines[-1])["head"])
    assert (told.bins, told.holes) == ({"pass": 2, "fail": 0}, {"c2#1": "solver_error"})
    assert (told.spent, told.durable, told.reserved) == (counters.spent, counters.durable, counters.reserved)
    assert told.refusals == counters.refusals
    assert set(told.refusals) >= {"stale_gen", "not_owner"}


async def test_a_batch_on_the_server_is_replayed_where_it_stands(batch: Batch) -> None:
    """Open or closed: what the server counts is what its history adds up to."""
    await batch.admit()
    await batch.sealed()
    assert (await replay_batch(batch.bus, batch.name, None)).status == "drained"


async def test_a_batch_that_drains_is_open_in_every_command(batch: Batch, tmp_path: Path) -> None:
    """Whether all its runs were admitted is a word of the protocol: no list has it, and so nobody would find it."""
    await batch.admit()
    await batch.sealed()
    watch = Watch(["job-id"], tmp_path / "p.json", why=False)
    derived, screen = await derive_batch(batch.bus, batch.name, None, watch.see), Console(file=io.StringIO())
    show(derived.found, screen)
    watch.report(derived, screen)
    await show_one(batch.bus, batch.name, screen)
    assert isinstance(screen.file, io.StringIO)
    said = screen.file.getvalue()
    assert said.startswith("batch b (live): open\n"), said
    assert "drained" not in said
    assert json.loads((tmp_path / "p.json").read_text())["state"] == "open"
    with pytest.raises(InputError, match="batch 'b' is open: only one that has ended"):
        await make_plan(batch.bus, [batch.name], [])


async def test_a_counter_that_no_decision_accounts_for_is_found(batch: Batch, lines: list[bytes]) -> None:
    """Somebody who can write to the server raises a bin: the history does not say so."""
    await replay_batch(batch.bus, batch.name, parsed(lines[-1])["head"])
    await batch.wire.call("HINCRBY", batch.keys.batch_row, "spent", -1)
    with pytest.raises(DiffersError, match="the batch's spent: recorded 29, derived 30"):
        await replay_batch(batch.bus, batch.name, None)


async def test_a_restart_of_the_server_raises_the_generations_and_voids_what_was_granted(batch: Batch) -> None:
    """The floor is recorded; the generations above it are derived, also of a run that had none before."""
    await batch.admit()
    held = await batch.claimed()
    await batch.wire.call("HSET", batch.keys.batch_row, "server", "an earlier life")
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["x"])).reason == "stale_gen"
    floor = int(await batch.batch_field("floor"))
    again, other = await batch.claimed(entry=held.entry), await batch.claimed()
    assert (again.ref.gen, other.ref.gen) == (floor + 1, floor + 1) > (held.ref.gen, 0)
    assert replayed(await exported(batch)).decisions["completion"] == 3


class Clocked(ServerSide):
    """Remembers since which entry the batch's own clock stood where."""

    clocks: list[tuple[tuple[int, int], int]]

    async def set_clock(self, ms: int) -> None:
        """As told, and noted."""
        last = await self._wire.call("XREVRANGE", self._keys.history, "+", "-", "COUNT", 1)
        self.clocks.append((_place(last[0][0].decode()), ms))
        await super().set_clock(ms)

    def at(self, told: Told) -> int:
        """The batch's time at an entry."""
        after = bisect_left([place for place, _ in self.clocks], _place(told.entry))
        return self.clocks[after - 1][1] if after else 0


def _place(entry: str) -> tuple[int, int]:
    ms, n = entry.split("-")
    return int(ms), int(n)


@pytest.mark.parametrize("kind", ["plain", "whole"])
async def test_whatever_was_asked_of_a_batch_its_history_is_derived_again(server: Target, kind: str) -> None:
    """Seeded sessions: messages that come twice, too late, from the wrong consumer; deaths, undos, full desks.

    Time is the batch's own there: it is set by the session, and told to the replay.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    weights = {**(LIFE if kind == "plain" else {**LIFE, **CALLS_AND_TOOLS}), "expire": 0}  # it is not recorded
    clock, wire = ClockedTokens(), await Wire.open(server.address())
    world, examined = MemoryWorld(clock), Counter[str]()
    for seed in range(SESSIONS):
        plane = Plane.SHADOW if kind == "whole" and seed % 3 == 2 else Plane.LIVE
        rng = random.Random(seed)
        spec = plain_spec(seed, rng) if kind == "plain" else whole_spec(seed, rng, plane)
        await wire.call("FLUSHALL")
        bus = RedisBus(FixedDoor(server.address()), CountedTokens(), plane=plane)
        side = Clocked(bus, wire, spec)
        side.clocks = []
        twins = Twins(side, MemorySide(world, MemoryBus(world, CountedTokens(), plane=plane), spec, clock))
        await Session(twins, spec, rng, Counter()).play(STEPS[kind], weights, led=kind == "whole")
        batch = Batch(bus, wire, spec, bus.keys(spec.batch))
        told = replayed(await exported(batch), side.at)
        counters = await bus.counters(spec.batch)
        assert (told.spent, told.durable, told.reserved) == (counters.spent, counters.durable, counters.reserved)
        assert (told.effects_open, told.stuck) == (counters.effects_open, counters.stuck)
        assert (told.bins, told.refusals) == (counters.bins, counters.refusals)
        examined += Counter(told.decisions)
        await bus.aclose()
    wire.close()
    structlog.reset_defaults()
    assert len(examined) == (7 if kind == "plain" else 13)


GOES_ANOTHER_WAY = """\
async def solve(case, run):
    first = (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
    await run.model.complete(f"LAB-ANSWER: {run.gen}")
    return first
"""


async def test_a_batch_of_the_real_roles_is_replayed_when_its_holder_died_at_its_seal(
    server: Target, tmp_path: Path
) -> None:
    """On the server's own clock: the next holder asks another question, gives the conversation up and starts over."""
    stage = ModelStage(OnServer(server), tmp_path)
    with Lab(seed=1) as lab:
        files = {"agent_DOT_py": GOES_ANOTHER_WAY, "cases_DOT_jsonl": ONE_CASE}
        await stage.declare(suite_of(lab, lease=SHORT), **files)
        stage.planner()
        await stage.worker(Moment("before", "seal")).halted()
        stage.worker()
        stage.scorer()
        await stage.closed()
        assert isinstance(stage.bus, RedisBus)
        told = await replay_batch(stage.bus, BATCH, None)
    await stage.aclose()
    assert (told.status, told.bins["pass"]) == ("closed", 1)
    assert told.decisions["indoubt"] == 1  # the turn


async def test_a_batch_that_scored_anothers_sealed_runs_is_replayed(server: Target, tmp_path: Path) -> None:
    """It has no transcript of its own: a head, a tree and a hole came with each run."""
    second = await rescored(OnServer(server), tmp_path)
    assert isinstance(second.bus, RedisBus)
    told = [await replay_batch(second.bus, name, None) for name in (BATCH, NEW)]
    await second.aclose()
    assert [(one.bins, len(one.holes)) for one in told] == [({"pass": 1, "fail": 1}, 1), ({"pass": 2, "fail": 0}, 1)]
    assert "transcript" not in told[1].decisions


# --- one line is edited -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tampering:
    """What somebody does to one line of a file, and where it must be found."""

    does: Callable[[list[bytes], int], list[bytes]]
    """The file, and which line; the lines that are left."""
    shows: int
    """How many lines behind it the first one stands that gives it away."""
    first: str
    """What is said where it is done to the first line, which says that this is a history."""
    last: str = ""
    """What is said where it is done to the closing line, if not that a line is not true."""


def _edited(lines: list[bytes], at: int) -> list[bytes]:
    line = bytearray(lines[at])
    line[random.Random(at).randrange(len(line) - 1)] ^= 1
    return [*lines[:at], bytes(line), *lines[at + 1 :]]


NO_HISTORY = "is no history of a batch"
ELSEWHERE = "nothing is done, or what another kind does too"
TAMPERINGS = {
    "edited": Tampering(_edited, 0, "first line|is no history|is of version"),
    "dropped": Tampering(lambda lines, at: [*lines[:at], *lines[at + 1 :]], 0, NO_HISTORY, ELSEWHERE),
    "duplicated": Tampering(lambda lines, at: [*lines[: at + 1], *lines[at:]], 1, "carries no chain"),
    "swapped with the next": Tampering(
        lambda lines, at: [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]], 0, NO_HISTORY, ELSEWHERE
    ),
    "cut off before": Tampering(lambda lines, at: lines[:at], -1, NO_HISTORY, "is truncated"),
    "cut off within": Tampering(lambda lines, at: [*lines[:at], lines[at][:-20]], 0, "is truncated", "is truncated"),
    "cut off at its last byte": Tampering(
        lambda lines, at: [*lines[:at], lines[at][:-1]], 0, "is truncated", "is truncated"
    ),
}


@pytest.mark.parametrize("how", TAMPERINGS)
async def test_whatever_is_done_to_any_line_is_found_where_it_was_done(how: str) -> None:
    """The first line, every entry, the closing line: each is edited, dropped, duplicated, moved and cut off.

    What was cut off is wrong input (exit 2): it is not the history but its copy that is bad.
    """
    lines, tampering = golden(), TAMPERINGS[how]
    last = len(lines) - 1
    for at in range(len(lines)):
        bad = tampering.does(lines, at)
        expected = tampering.first if at == 0 else tampering.last if at == last else ""
        if expected == ELSEWHERE:
            assert bad in (lines, lines[:-1])
            continue
        with pytest.raises(EvalbusError, match=expected or None) as caught:
            replayed(bad)
        error = caught.value
        assert isinstance(error, DiffersError | InputError)
        if isinstance(error, InputError):
            assert "cut off" in how or at in (0, last)
        if NO_HISTORY not in str(error):
            assert error.line == at + 1 + tampering.shows, (at, str(error))


async def test_the_first_and_the_closing_line_are_spelt_in_one_way_only() -> None:
    """They are outside the chain: what they say is derived, and how they say it has to be compared."""
    lines = golden()
    for at in (0, len(lines) - 1):
        said = parsed(lines[at])
        for spelling in (
            json.dumps(said),
            json.dumps(said | {"more": 1}, separators=(",", ":")),
            json.dumps(dict(reversed(said.items())), separators=(",", ":")),
            lines[at].decode().replace("b", "\\u0062", 1).strip(),
            lines[at].decode().replace("{", '{"head":"",' if at else '{"plane":"",', 1).strip(),
        ):
            wrong = difference([*lines[:at], spelling.encode() + b"\n", *lines[at + 1 :]])
            assert wrong.line == at + 1


async def test_the_first_line_must_say_what_was_declared(lines: list[bytes]) -> None:
    """It is outside the chain, and the batch's declaration is in it."""
    for name, value in {"quorum": 2, "bins": ["fail", "pass"], "gate": {"max_holes": 9}, "limits": {}}.items():
        wrong = difference(edited(lines, 0, lambda said, name=name, value=value: said["policy"].update({name: value})))  # type: ignore[misc]
        assert (wrong.line, f"the first line's {name}" in wrong.problem) == (1, True)
    assert "plane" in difference(edited(lines, 0, lambda said: said.update(plane="shadow"))).problem
    assert "suite" in difference(edited(lines, 0, lambda said: said["suite"].update(name="x"))).problem


async def test_the_closing_line_must_say_what_follows(lines: list[bytes]) -> None:
    """The snapshot is what the decisions lead to, byte for byte."""
    end = len(lines) - 1
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "entries": lambda said: said.update(entries=1),
        "head": lambda said: said.update(head="0" * 64),
        "snapshot's bins": lambda said: said["snapshot"]["bins"].update(fail=1),
        "snapshot's rows": lambda said: said["snapshot"]["rows"].pop(),
        "snapshot's holes": lambda said: said["snapshot"].update(holes=[]),
        "snapshot's id": lambda said: said["snapshot"].update(snapshot_id="0" * 64),
        "snapshot: recorded none": lambda said: said.update(snapshot=None),
    }
    for problem, edit in edits.items():
        wrong = difference(edited(lines, end, edit))
        assert (wrong.line, problem in wrong.problem) == (len(lines), True), wrong
    assert difference([*lines, lines[3]]).line == len(lines) + 1


# --- the chain is made anew -------------------------------------------------------------------------------


def forged(lines: Sequence[bytes], index: int, edit: Callable[[dict[str, Any]], object]) -> list[bytes]:
    """One line edited, and the chain after it."""
    return rechained(edited(lines, index, edit))


async def test_who_makes_the_chain_anew_is_found_where_a_decision_no_longer_follows(lines: list[bytes]) -> None:
    """Each edit, and what shows it. Both sides are told."""
    cases: list[tuple[int, Callable[[dict[str, Any]], object], str]] = [
        (found(lines, "histogram", "score"), lambda said: said["args"].update(bin="fail"), "score_digest"),
        (found(lines, "histogram", "score"), lambda said: said["args"].update(digest="0" * 64), "digest_mismatch"),
        (found(lines, "histogram", "abandon"), lambda said: said["args"].update(epoch=1), "derived reject stale_epoch"),
        (found(lines, "transcript", "append", "reject"), lambda said: said.update(verb="commit"), "derived reject"),
        (found(lines, "transcript", "append"), lambda said: said["args"].update(payload="another"), "derived commit"),
        (found(lines, "transcript", "lease"), lambda said: said["answer"].update(gen=7), 'derived commit {"gen":1'),
        (found(lines, "ledger", "chunk"), lambda said: said["args"].update(tokens=1), 'derived commit {"billed":1'),
        (found(lines, "admission", "acquire"), lambda said: said["answer"].update(gen=9), "derived commit"),
        (found(lines, "judge", "mint"), lambda said: said["args"].update(epoch=2), "derived commit"),
        (found(lines, "outbox", "complete"), lambda said: said["args"].update(executor="x"), "not_claimed"),
        (found(lines, "histogram", "close"), lambda said: said["answer"].update(accepted=3), "derived commit"),
        (found(lines, "plane", "write"), lambda said: said["answer"].update(more=1), "derived commit"),
        (found(lines, "plane", "write"), lambda said: said.update(op="overwrite"), "no such operation"),
        (found(lines, "indoubt", "bind"), lambda said: said["args"].update(epoch="x"), "nothing can be derived"),
    ]
    for index, edit, shown in cases:
        wrong = difference(forged(lines, index, edit))
        told = parsed(lines[index])
        assert (wrong.line, told["id"] in wrong.problem, shown in wrong.problem) == (index + 1, True, True), wrong


async def test_a_forger_writes_neither_to_the_terminal_nor_pages_of_text(lines: list[bytes]) -> None:
    """What is quoted from a file that is not true is shown: a terminal obeys none of it, and it has an end."""
    index = found(lines, "plane", "write")

    def refused(op: str) -> str:
        wrong = difference(forged(lines, index, lambda said: said.update(op=op)))
        assert (wrong.line, len(str(wrong)) < 1_100, str(wrong).isprintable()) == (index + 1, True, True), wrong
        return wrong.problem

    assert "plane.\ufffd[2J\ufffd2J: this release has no such operation" in refused("\x1b[2J\x9b2J")
    assert f"plane.{'9' * 100}" in refused("9" * 5_000)


async def test_a_decision_that_is_left_out_is_missed_by_those_that_follow_from_it(lines: list[bytes]) -> None:
    """Not where it stood, which nobody can know, but at the first line that needs it."""
    for fence, op in [("transcript", "lease"), ("plane", "admit"), ("histogram", "fence"), ("outbox", "put")]:
        index = found(lines, fence, op)
        assert difference(rechained([*lines[:index], *lines[index + 1 :]])).line > index


async def test_entries_that_are_put_in_another_order_are_found_by_their_ids(lines: list[bytes]) -> None:
    """The ids grow, and the parts of one entry are counted."""
    for index in range(2, len(lines) - 2):
        swapped = [*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]
        assert difference(rechained(swapped)).line in (index + 1, index + 2)


async def test_a_history_without_its_first_entries_is_none(lines: list[bytes]) -> None:
    """It declares nothing: whatever follows could follow from anything."""
    assert "its first ones are missing" in difference(rechained([lines[0], *lines[2:]])).problem
    assert "its first ones are missing" in difference(rechained([lines[0], lines[-1]])).problem


async def test_a_refusal_that_is_left_out_shows_in_the_head_alone(
    batch: Batch, lines: list[bytes], tmp_path: Path
) -> None:
    """Nothing follows from it. So the head has to be kept where the forger cannot write."""
    index = found(lines, "transcript", "append", "reject")
    file = tmp_path / "forged.jsonl"
    file.write_bytes(b"".join(rechained([*lines[:index], *lines[index + 1 :]])))
    assert replay_file(str(file), None).refusals != replayed(lines).refusals
    with pytest.raises(DiffersError, match="another history than the one that was meant"):
        replay_file(str(file), parsed(lines[-1])["head"])


async def test_no_edit_of_a_value_makes_replay_fail_in_another_way(lines: list[bytes]) -> None:
    """Values of other kinds, missing ones, huge ones, in any line: one line is said, and never a traceback."""
    rng, seen = random.Random(2), Counter[bool]()
    odd: list[object] = [None, True, -1, 2**70, 1.5, "", "x", [], [[]], {}, {"a": 1}]
    for _ in range(FUZZED):
        index = rng.randrange(1, len(lines))

        def edit(said: dict[str, Any]) -> None:
            at = said
            while True:
                name = rng.choice(sorted(at))
                if not isinstance(at[name], dict) or not at[name] or rng.random() < 0.2:
                    break
                at = at[name]
            at[name] = rng.choice(odd)

        whole = edited(lines, index, edit)
        try:
            replayed(rechained(whole) if index < len(lines) - 1 else whole)
            seen[True] += 1
        except EvalbusError as error:
            seen[False] += 1
            assert "\n" not in str(error)
    assert seen[False] > FUZZED / 4


# --- whose rules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADS)
def test_a_history_of_an_earlier_release_still_holds(name: str) -> None:
    """To the bytes that were written then: decisions, head, snapshot."""
    told = replay_file(GOLDEN / name, HEADS[name])
    assert len(told.decisions.keys() - {"run"}) == 12
    assert (told.status, told.bins, told.holes) == ("closed", {"pass": 2, "fail": 0}, {"c2#1": "solver_error"})
    assert (told.spent, told.durable, told.refusals["stale_gen"]) == (30, 30, 1)


def test_there_is_a_history_of_each_schema_that_this_release_has_rules_for() -> None:
    """A schema that is raised brings its history; one whose rules are dropped is missed here."""
    assert {path.name for path in GOLDEN.glob("*.zst")} == HEADS.keys()
    assert {f"schema-{number}.jsonl.zst" for number in RULES} == HEADS.keys()
    assert SCHEMA in RULES


def with_schema(lines: Sequence[bytes], schema: object, first: int = 1, last: int | None = None) -> list[bytes]:
    """The entries from one line to another (without it) under another schema, as its own release would write them."""
    for index in range(first, last or len(lines) - 1):
        lines = edited(lines, index, lambda said: said["envelope"].update(schema=schema))
    return rechained(lines)


def test_a_history_under_a_schema_that_is_not_known_says_which_release_it_needs(tmp_path: Path) -> None:
    """It is not called untrue: nobody here knows the rules that it followed. The first such line is named."""
    lines, file = golden(), tmp_path / "h.jsonl"
    said = "was written under schema 2; this release knows 1 (replay it with the release that wrote it)"
    file.write_bytes(b"".join(with_schema(lines, 2)))
    for read in (lambda: replay_file(file, None), lambda: read_file(file, "c0#1")):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == f"{file}:2: entry {parsed(lines[1])['id']} {said}"
    mixed = with_schema(lines, 2, first=12)
    with pytest.raises(InputError) as caught:
        replayed(mixed)
    assert str(caught.value) == f"h.jsonl:13: entry {parsed(lines[12])['id']} {said}"


def test_a_history_is_replayed_with_the_rules_of_its_schema_and_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema decides who takes the decisions again; where two are mixed nobody does."""

    class Next(Player):
        """Rules of a later release: every score is worth nothing."""

        def decide(self, told: Told) -> Answer | None:
            return reject("worthless") if told.op == "score" else super().decide(told)

    monkeypatch.setattr("bus.replay.rules.RULES", {1: Player, 2: Next})
    lines = golden()
    assert replayed(lines).status == "closed"
    wrong = difference(with_schema(lines, 2))
    assert (wrong.line, "derived reject worthless" in wrong.problem) == (found(lines, "histogram", "score") + 1, True)
    with pytest.raises(InputError, match=r"h\.jsonl:13: .* under schema 2, the entries before it under 1"):
        replayed(with_schema(lines, 2, first=12))


def test_only_what_was_refused_for_its_schema_may_carry_another() -> None:
    """Workers of two releases may meet at one batch: the stranger's commands are refused, and recorded so."""
    lines = golden()
    index = found(lines, "run", "claim", "reject")
    stranger = edited(lines, index, lambda said: said.update(reason="schema"))
    assert replayed(with_schema(stranger, 2, index, index + 1)).refusals["schema"] == 1
    assert replayed(with_schema(stranger, None, index, index + 1)).refusals["schema"] == 1
    with pytest.raises(InputError, match="this release knows 1"):
        replayed(with_schema(lines, 2, index, index + 1))
    for schema in (None, "1", True, 1.0):
        assert "does not name its schema" in difference(with_schema(lines, schema, 12, 13)).problem


# --- its size ---------------------------------------------------------------------------------------------


def test_the_memory_that_a_replay_takes_does_not_grow_with_the_lines(tmp_path: Path) -> None:
    """Measured: four times the entries of the same runs, and the same peak."""
    lines, file = golden(), tmp_path / "h.jsonl.zst"
    index = found(lines, "run", "claim", "reject")
    entry = parsed(lines[index])["id"].partition("-")[0]
    peaks = []
    for more in (1_000, 4_000):
        late = [lines[index].replace(f'"id":"{entry}-'.encode(), f'"id":"{entry}-{n}'.encode()) for n in range(1, more)]
        with writing(file) as out:
            for line in rechained([*lines[: index + 1], *late, *lines[index + 1 :]]):
                out.write(line)
        del late
        tracemalloc.start()
        assert replay_file(file, None).entries == len(lines) - 2 + more - 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 300_000, peaks


# --- the command ------------------------------------------------------------------------------------------


async def test_the_command_says_what_was_derived_or_the_first_entry_that_differs(
    lines: list[bytes], tmp_path: Path
) -> None:
    """0 for a history that holds, 5 for one that does not, 2 for half of one or of a head; a line each if refused."""
    file, head = tmp_path / "h.jsonl", parsed(lines[-1])["head"]
    index = found(lines, "histogram", "abandon")
    runs: list[tuple[list[bytes], list[str], int, str]] = [
        (lines, [], 0, f"snapshot {parsed(lines[-1])['snapshot']['snapshot_id']}"),
        (lines, ["--head", head], 0, f"{len(lines) - 2} entries in one chain, head {head}"),
        (lines, ["--head", "0" * 64], 5, "another history than the one that was meant"),
        (lines, ["--head", head[:12]], 2, f"--head: '{head[:12]}' is no head of a chain"),
        (forged(lines, index, lambda said: said["args"].update(why="")), [], 5, f"h.jsonl:{index + 1}: entry "),
        (lines[:-1], [], 2, "is truncated: the file ends without its closing line"),
    ]
    for content, options, code, said in runs:
        file.write_bytes(b"".join(content))
        done = await asyncio.to_thread(CliRunner().invoke, app, ["replay", str(file), *options])
        structlog.reset_defaults()
        assert (done.exit_code, said in done.output) == (code, True), done.output
        assert code == 0 or done.stderr.count("\n") == 1


async def test_an_archive_is_written_by_export_and_read_by_every_command(
    batch: Batch, lines: list[bytes], server: Target, tmp_path: Path
) -> None:
    """Under its name it is compressed; what is in it is the same history, also after somebody renamed it."""

    async def said(*arguments: str) -> str:
        done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments])
        structlog.reset_defaults()
        assert done.exit_code == 0, done.output
        return done.stdout

    plain, packed = tmp_path / "h.jsonl", tmp_path / "h.jsonl.zst"
    for file in (plain, packed):
        await said("export", batch.name, str(file), "--url", server.url)
    assert plain.read_bytes() == b"".join(lines)
    assert packed.stat().st_size < plain.stat().st_size / 4
    renamed = tmp_path / "old"
    renamed.write_bytes(packed.read_bytes())
    for command, *rest in (("replay",), ("why", "c1#1"), ("explain", "c1#1")):
        shown = {await said(command, str(file), *rest) for file in (plain, packed, renamed)}
        assert len(shown) == 1, shown


# --- what is no export ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no history of a batch"),
        (b"\xff\xfe\x00", "is no history of a batch"),
        (b'{"id": "a", "input": "x"}\n', "is no history of a batch"),
        (b'{"format":"evalbus-history","version":2}\n', "is of version 2; this release replays version 1"),
    ],
)
def test_a_file_that_is_no_export_is_named_with_a_remedy(tmp_path: Path, content: bytes, said: str) -> None:
    """Exit 2: nothing was proved, and nothing disproved."""
    file = tmp_path / "some.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said):
        replay_file(str(file), None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(InputError, match="cannot be read: No such file"):
        replay_file(str(tmp_path / "none.jsonl"), None)


async def test_a_batch_that_is_not_there_is_told_with_the_nearest_names(batch: Batch) -> None:
    """As every command does."""
    with pytest.raises(InputError, match="no batch 'bb' on this server; did you mean b"):
        await replay_batch(batch.bus, type(batch.name)("bb"), None)
