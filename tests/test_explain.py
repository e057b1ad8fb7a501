"""One run explained from the history: who said what to whom, why it has its verdict, and who was refused.

The histories are made on a real server with the steps that the roles use. What is told must be what happened: who held
the run is compared with its row, and the name of each command with the one that the server recorded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bus.errors import InputError, ViolationError
from bus.export_format import Line
from bus.history import read_history
from bus.port import Chunk, Group, RunState
from bus.port import Held as Alive
from bus.target import Target
from bus.types import BatchId
from lua import __file__ as lua_init
from tests.batches import S1, W1, W2, Batch, one_over_another, opened
from tests.explained import arrows, eventful, exported, only, told
from tests.limits import ALL
from tests.model_calls import asked
from tests.tool_calls import BOUND_MS, INVERSES, Tools
from workers.cli import app
from workers.explaining.entries import entry_of
from workers.explaining.reading import read_file, read_server, run_named
from workers.explaining.reasons import REFUSALS
from workers.explaining.story import Look
from workers.explaining.why import explained


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, admitted, all fences declared."""
    async with opened(server.address(), limits=ALL, reclaim_ms=1_000) as one:
        await one.admit()
        yield one


async def words(batch: Batch, run: str) -> str:
    """What `why` says."""
    found = await read_server(batch.bus, batch.name, run)
    return "\n".join(explained(found.story, found.detail))


# --- the steps --------------------------------------------------------------------------------------------


async def test_a_run_is_told_from_its_admission_to_its_verdict(batch: Batch) -> None:
    """Two scorers: the first fell silent, and its verdict came late."""
    await eventful(batch)
    story = await told(batch, "c1#1")
    assert arrows(story) == [
        "P>B admits the run",
        "W1>B claims: generation 1",
        "W1>B seals 1 event",
        "S1>B claims it for scoring: epoch 1",
        "S1>J asks question 1, attempt " + only(story, "asks").text.rpartition(" ")[2],
        "J>S1 answers question 1",
        "B>S1 preempted: it was silent, its lease is void",
        "B>S2 the same message again",
        "S2>B claims it for scoring: epoch 2",
        "S1>B says pass",
        "S2>B says pass",
        "B>P result: pass",
        "S2>B says pass",
    ]
    late, signed, _, again = story.steps[9:]
    assert [step.look for step in (late, signed, again)] == [Look.REFUSED, Look.GRANTED, Look.REPEATED]
    assert (late.reason, late.by) == ("stale_lease", "run.score")


async def test_preemption_undo_and_every_late_one_has_an_arrow(batch: Batch) -> None:
    """A late answer and a late event, a conversation that was given up, effects undone, and the end as poison."""
    await eventful(batch)
    story = await told(batch, "c0#1")
    told_of = arrows(story)
    assert [arrow for arrow in told_of if "preempted" in arrow or "same message" in arrow] == [
        "B>W1 preempted: it was silent, its lease is void",
        "B>W2 the same message again",
        "B>W3 preempted: it was silent, its lease is void",
        "B>W4 the same message again",
        "B>W4 preempted: it was silent, its lease is void",
    ]
    assert "W1>T announces 2 calls: book (2)" in told_of
    assert told_of.count("B>T undo book 0.2.0") == 1
    assert "W2>B gives conversation 0 up: conversation 1 begins" in told_of
    assert [(step.text, step.reason) for step in story.refusals] == [
        ("brings the answer to question 3", "stale_lease"),
        ("appends 1 event", "stale_gen"),
        ("claims", "ended"),
    ]
    assert story.refusals[0].notes == ("30 tokens charged all the same",)
    assert only(story, "gives conversation 0 up: ").look is Look.GRANTED
    assert told_of[-3:-1] == ["W4>B claims", "B>P result: a hole"]


async def test_who_holds_the_run_is_whom_its_row_names(batch: Batch) -> None:
    """At every moment: the story of an unfinished run ends where the run stands."""
    assert not (await told(batch, "c0#1")).facts.holds
    held = await batch.claimed()
    for consumer in (W2, W1):
        held = await batch.claimed(consumer, await batch.taken(held.entry, consumer))
        (row,) = await batch.bus.rows(batch.name, [held.ref.run])
        last = (await told(batch, "c0#1")).facts.holds[-1]
        assert (row.state, row.consumer, row.gen) == (RunState.RUNNING, last.lane.name, last.lane.gen)
        assert last.end == ""
    await batch.bus.give_back(held.ref)
    assert (await told(batch, "c0#1")).facts.holds[-1].end == "handed it back"


async def test_the_name_of_each_command_is_the_one_that_the_server_recorded(batch: Batch) -> None:
    """The export does not carry it. Only an end is named alike before and after the seal."""
    await eventful(batch)
    names = set()
    async for entry in read_history(batch.bus.link, batch.keys):
        lines = tuple(
            Line(f"{entry.id}/{n}", p.fence, p.op, p.verb, p.reason, entry.envelope, p.args, p.answer)
            for n, p in enumerate(entry.parts, start=1)
        )
        assert f"run.{entry_of(entry.id, lines).command}" == entry.command
        names.add(entry.command)
    assert len(names) >= 18


async def test_messages_that_come_twice_and_stale_owners_are_told_apart(batch: Batch) -> None:
    """A second message of a run, an entry that is somebody else's, a late copy of a claim that was granted."""
    held = await batch.claimed()
    await batch.bus.claim(await batch.forged(held.ref.run, W2), batch.lease(), W2)
    await batch.taken(held.entry, W2)
    await batch.bus.claim(held.entry, batch.lease(), W1)
    await batch.claimed(W2, held.entry)
    await batch.bus.claim(held.entry, held.ref.lease_id, W1)
    story = await told(batch, "c0#1")
    assert [step.reason for step in story.refusals] == ["duplicate_entry", "not_owner", "lease_reused"]
    assert [story.keys[step.source] for step in story.refusals] == ["W?", "W1", "W1"]


# --- in words ---------------------------------------------------------------------------------------------


async def test_why_names_the_verdict_its_judge_its_epoch_and_the_head_that_was_judged(batch: Batch) -> None:
    """And that the other scorer was refused, and what the judge's model cost."""
    await eventful(batch)
    (row,) = await batch.bus.rows(batch.name, [batch.runs[1]])
    text = await words(batch, "c1#1")
    assert "Verdict: pass (value 1), signed by scorer s2, epoch 2, as judge judge under binding epoch 1" in text
    assert f"sealed by worker w1, generation 1 over 1 event: head {row.head[:10]}" in text
    assert "scorer s1, epoch 1: fell silent, and was preempted" in text
    assert "scorer s1, epoch 1 says pass: stale_lease (run.score)" in text
    assert "Spent at the judge's model: 30 tokens in 1 request;" in text


async def test_why_says_what_ended_a_hole_and_what_was_spent_for_nothing(batch: Batch) -> None:
    """Also what the solver's error was, which only the run's row knows."""
    await eventful(batch)
    text = await words(batch, "c0#1")
    assert "No verdict: the run is a hole, poison" in text
    assert "delivered as often as the batch allows" in text
    assert "60 tokens in 2 requests, 30 of them for answers that do not count" in text
    assert "2 tool calls: 2 undone." in text
    assert "3 refusals:" in text
    text = await words(batch, "c2#1")
    assert "a hole, solver_error (the solver raised an error)" in text
    assert "What ended it: worker w1, generation 1 ended it." in text
    assert "boom: no such file" in text
    assert "Nobody was refused." in text


async def test_an_operators_end_of_a_sealed_run_is_told_as_the_operators(batch: Batch) -> None:
    """No lease is named: nobody but an operator ends a run so."""
    held = await batch.sealed()
    await batch.end(held.ref.run)
    text = await words(batch, "c0#1")
    assert "What ended it: an operator ended it." in text
    assert "Judged is what was sealed by worker w1, generation 1" in text


async def test_a_verdict_of_another_judge_ends_the_run_and_the_judge_is_named(batch: Batch) -> None:
    """The suite's policy here: reject."""
    await batch.sealed()
    scoring = await batch.scoring(S1)
    wrong = replace(scoring.judgement, judge="impostor")
    assert (await batch.bus.score(scoring.ref, wrong)).reason == "judge_mismatch"
    story = await told(batch, "c0#1")
    assert story.facts.hole is not None
    assert story.facts.hole.why == "judge_mismatch"
    assert "impostor" in story.facts.hole.ended_by


async def test_a_parked_verdict_and_the_rebind_that_ends_the_waiting_are_steps(server: Target) -> None:
    """Under review nothing ends by itself; the verdict that counts is the one under the new binding."""
    async with opened(server.address(), runs=1, judge_policy="review") as batch:
        await batch.admit()
        await batch.sealed()
        parked = await batch.scoring()
        await batch.bus.score(parked.ref, replace(parked.judgement, judge="another"))
        assert (await told(batch, "c0#1")).steps[-1].look is Look.DOUBT
        assert "scorer s1, epoch 1: its verdict does not count until somebody" in await words(batch, "c0#1")
        await batch.bus.rebind(batch.name, parked.ref.run, 1, "candidate", "another")
        scoring = await batch.scoring()
        await batch.bus.score(scoring.ref, scoring.judgement)
        story = await told(batch, "c0#1")
        assert only(story, "binds it to judge another").notes == ("epoch 2", "to be scored anew")
        assert "as judge another under binding epoch 2" in await words(batch, "c0#1")


async def test_a_run_that_another_batch_sealed_is_told_as_taken_over(server: Target) -> None:
    """Nobody worked on it here: who sealed it stands in the other batch's history."""
    async with one_over_another(server.address()) as (first, second):
        rows = await first.bus.rows(first.name, first.runs)
        story = await told(second, "c0#1")
        assert arrows(story) == ["P>B takes the run over as batch first sealed it"]
        assert f"taken over: head {rows[0].head[:10]}" in await words(second, "c0#1")
        assert "Batch first was closed over 1 verdict" in await words(first, "c0#1")


async def test_a_heartbeat_is_told_only_when_its_lease_was_gone(batch: Batch) -> None:
    """One that kept everything alive is no decision."""
    held = await batch.claimed()
    await batch.bus.heartbeat(Group.WORKER, W1, Alive([held.ref]))
    await batch.claimed(W2, await batch.taken(held.entry, W2))
    await batch.bus.heartbeat(Group.WORKER, W1, Alive([held.ref]))
    story = await told(batch, "c0#1")
    assert [(story.keys[step.source], step.reason) for step in story.refusals] == [("W1", "stale_lease")]


async def test_a_request_that_was_given_up_has_cost_what_it_was_settled_at(batch: Batch) -> None:
    """It is told apart from what was spent for answers that count."""
    held = await batch.claimed()
    call = asked(held.ref)
    await batch.bus.open_call(held.ref, call)
    await batch.bus.drop_call(held.ref, call, [Chunk(1, 7)], cancelled=True, billed=12)
    assert only(await told(batch, "c0#1"), "gives question 1").notes == ("settled at 12 tokens",)
    assert "12 tokens in 1 request, 12 of them for answers that do not count; 7 arrived" in await words(batch, "c0#1")


@pytest.mark.parametrize("tool", ["book", "pay"])
async def test_a_call_of_which_nobody_says_anything_is_undone_or_stuck(server: Target, tool: str) -> None:
    """Nobody may repeat it before its bound is over; then it is undone if it can be, and what comes late is refused."""
    limits = {"ack_bound_ms": BOUND_MS, "inverses": INVERSES}
    async with opened(server.address(), runs=1, limits=limits) as batch:
        await batch.admit()
        tools = await Tools.open(batch)
        await tools.clock(0)
        await tools.put(1, tool)
        silent = await tools.sent()
        await tools.taken(silent)
        await tools.clock(BOUND_MS)
        await tools.taken(silent)
        await tools.complete(silent)
        story = await told(batch, "c0#1")
        name = f"{tool} 0.1.0"
        ends = {
            "book": [(f"claims {name}", "compensate"), (f"undo {name}", "")],
            "pay": [(f"claims {name}", "stuck")],
        }
        assert [(step.text, step.reason) for step in story.steps[5:]] == [
            (f"claims {name}", "awaiting_ack"),
            *ends[tool],
            (f"says that {name} succeeded", "already_final"),
        ]
        end = {"book": "1 being undone", "pay": "1 stuck"}[tool]
        assert f"1 tool call: {end}." in await words(batch, "c0#1")
        if tool == "book":
            await tools.complete(await tools.sent())
            assert "1 tool call: 1 undone." in await words(batch, "c0#1")


async def test_an_unfinished_run_has_no_verdict_yet(batch: Batch) -> None:
    """Admitted, held, sealed: each says what it waits for."""
    assert "waits for a worker" in await words(batch, "c0#1")
    held = await batch.claimed()
    assert "No verdict yet: worker w1, generation 1 holds the run." in await words(batch, "c0#1")
    await batch.seal(held)
    assert "waits to be scored" in await words(batch, "c0#1")
    assert await batch.delivered(S1, Group.SCORER)


def test_every_reason_that_a_step_may_give_has_words() -> None:
    """Compared with the headers of the scripts, which name all that they can return."""
    said: set[str] = set()
    for script in (Path(lua_init).parent / "run").glob("*.lua"):
        header = script.read_text().partition("]]")[0].partition("RETURNS")[2]
        for choice in header.split("|"):
            verb, *reasons = choice.split() or [""]
            if verb in ("reject", "replay", "in_doubt"):
                said.update(reason for reason in reasons if reason[0].isalpha())
    assert len(said) > 80
    assert said - REFUSALS.keys() == set()


# --- files, names, commands -------------------------------------------------------------------------------


async def test_an_exported_file_tells_the_same_story_as_the_server(batch: Batch, tmp_path: Path) -> None:
    """Step by step: the payloads that only the file has say nothing more here."""
    await eventful(batch)
    file = await exported(batch, tmp_path / "b.jsonl")
    for run in batch.runs:
        assert read_file(file, run).story == await told(batch, run)


async def test_a_file_that_is_no_whole_export_is_refused(batch: Batch, tmp_path: Path) -> None:
    """Edited, cut off, or something else: nothing is explained from it."""
    file = await exported(batch, tmp_path / "b.jsonl")
    whole = file.read_text()
    file.write_text(whole.replace('"c0#1"', '"c9#1"', 1))
    with pytest.raises(ViolationError, match=r"b.jsonl:4: "):
        read_file(file, "c1#1")
    file.write_text("\n".join(whole.split("\n")[:4]) + "\n")
    with pytest.raises(InputError, match="truncated"):
        read_file(file, "c1#1")
    file.write_text("hello\n")
    with pytest.raises(InputError, match="no history"):
        read_file(file, "c1#1")


async def test_an_unknown_run_is_one_line_with_the_nearest_names(batch: Batch, tmp_path: Path) -> None:
    """On the server as in a file, by the command."""
    file = await exported(batch, tmp_path / "b.jsonl")
    with pytest.raises(InputError, match=r"no run 'c1#2' in batch 'b'; did you mean c1#1"):
        await read_server(batch.bus, batch.name, "c1#2")
    with pytest.raises(InputError, match=r"no batch 'nix' on this server"):
        await read_server(batch.bus, BatchId("nix"), "c1#1")
    for command in ("explain", "why"):
        result = CliRunner().invoke(app, [command, str(file), "nothing"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == "evalbus: no run 'nothing' in batch 'b'; it begins with c0#1, c1#1, c2#1\n"


async def test_a_case_with_one_trial_is_its_run_and_one_with_several_is_asked_for_which(
    batch: Batch, tmp_path: Path
) -> None:
    """`why nightly csv_line`: no quotes, no trial; with three trials none of them is meant more than the others."""
    file = await exported(batch, tmp_path / "b.jsonl")
    assert await read_server(batch.bus, batch.name, "c1") == await read_server(batch.bus, batch.name, "c1#1")
    assert read_file(file, "c1") == read_file(file, "c1#1")
    known = ["a#1", "a#2", "b#1", "b", "c#1"]
    assert [run_named("n", name, known) for name in ("a#2", "b", "c")] == ["a#2", "b", "c#1"]
    with pytest.raises(InputError, match=r"no run 'a' in batch 'n'; did you mean a#1, a#2\?"):
        run_named("n", "a", known)


async def test_both_commands_read_a_server_and_write_no_colour_into_a_pipe(batch: Batch, server: Target) -> None:
    """Exit 0; and the words are those of the story."""
    await eventful(batch)

    def invoke(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--url", server.url], env={"COLUMNS": "100"})
        assert result.exit_code == 0, result.stderr
        assert re.search(r"[\x00-\x09\x0b-\x1f\x7f]", result.stdout) is None
        return result.stdout

    shown = await asyncio.to_thread(invoke, "explain", "b", "c1#1")
    assert "✗ refused: stale_lease" in " ".join(shown.split())
    assert "Verdict: pass" in await asyncio.to_thread(invoke, "why", "b", "c1#1")
    assert (await asyncio.to_thread(invoke, "explain", "b", "c1#1", "--mermaid")).startswith("sequenceDiagram\n")


async def test_a_picture_is_written_to_a_file_of_a_known_kind_only(batch: Batch, tmp_path: Path) -> None:
    """The ending decides; another one is refused before anything is read."""
    file = await exported(batch, tmp_path / "b.jsonl")
    for name, begins in (("a.svg", "<svg "), ("a.html", "<!doctype html>"), ("a.mmd", "sequenceDiagram")):
        result = CliRunner().invoke(app, ["explain", str(file), "c0#1", "-o", str(tmp_path / name)])
        assert (result.exit_code, result.stdout) == (0, f"wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_text().startswith(begins)
    result = CliRunner().invoke(app, ["explain", str(file), "c0#1", "-o", str(tmp_path / "a.gif")])
    assert (result.exit_code, (tmp_path / "a.gif").exists()) == (2, False)


async def test_a_picture_does_not_take_the_place_of_the_history(batch: Batch, tmp_path: Path) -> None:
    """A history is told by what is in it, so it may have a picture's name; and it may be the only copy."""
    file = (await exported(batch, tmp_path / "b.jsonl")).rename(tmp_path / "b.html")
    before = file.read_bytes()
    result = CliRunner().invoke(app, ["explain", str(file), "c0#1", "-o", str(file)])
    assert (result.exit_code, file.read_bytes() == before) == (2, True), result.output
    assert "is the history that this would be made from" in result.stderr
