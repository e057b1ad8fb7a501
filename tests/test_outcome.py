"""What a batch came to: the JSON that scripts read, the screen that people read, and that they agree."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from bus.errors import ViolationError
from bus.port import BatchInfo, BatchSpec, BatchStatus, Counters, RunRow, RunState
from bus.snapshot import Snapshot
from bus.types import BatchId, Digest, Plane, RunId
from workers.gating.gate import GateWord
from workers.results.outcome import Outcome, Tokens, model_of, render

SPEC = BatchSpec(
    batch=BatchId("repair"),
    suite="repair",
    suite_digest=Digest("0" * 64),
    suite_path="/suite",
    intended=5,
    quorum=3,
    bins=("pass", "fail"),
    bound=8,
    max_in_flight=8,
    max_deliveries=5,
    lease_ms=10_000,
    gate={"min_pass_rate": 0.6, "max_holes": 0},
)


def row(run: str, bin_: str = "", *, hole: str = "", detail: str = "") -> RunRow:
    """A run that has ended, in a bin or as a hole."""
    return RunRow(
        run=RunId(run),
        state=RunState.HOLE if hole else RunState.SCORED,
        gen=1,
        attempts=1,
        score_attempts=1,
        entry="1-0",
        head="h",
        length=1,
        epoch=1,
        digest=f"art-{run}",
        bin=bin_,
        value="1",
        hole=hole,
        consumer="w1",
        detail=detail,
    )


ROWS = (
    row("d#1", "fail"),
    row("a#1", "pass"),
    row("c#1", "pass"),
    row("b#1", "pass"),
    row("e#1", hole="poison"),
)


def counters(status: BatchStatus, *, snapshot_id: str | None = None, scored: int = 4) -> Counters:
    """The batch's own counters, as its hash has them."""
    return Counters(
        status=status,
        intended=5,
        quorum=3,
        cursor=5,
        running=0,
        sealed=0,
        scoring=0,
        scored=scored,
        holes=1,
        in_flight=0,
        bins={"pass": 3, "fail": scored - 3},
        hole_reasons={"poison": 1, "solver_error": 0},
        refusals={"stale_lease": 2, "not_owner": 1},
        review=0,
        snapshot_id=snapshot_id,
        spent=1200,
        durable=1000,
    )


def closed(
    rows: tuple[RunRow, ...] = ROWS, gate: Mapping[str, float | int | str] | None = None, quorum: int = 3
) -> Outcome:
    """The outcome of the batch of these rows, closed."""
    spec = replace(SPEC, intended=len(rows), quorum=quorum, gate=SPEC.gate if gate is None else gate)
    snapshot = Snapshot.from_rows(rows, spec)
    status = BatchStatus.CLOSED if snapshot.accepted >= quorum else BatchStatus.INCONCLUSIVE
    name = snapshot.snapshot_id if status is BatchStatus.CLOSED else None
    details = {row.run: row.detail for row in rows if row.detail}
    return Outcome.of(BatchInfo(spec, status, Plane.LIVE, "i1"), counters(status, snapshot_id=name), snapshot, details)


def still_open(status: BatchStatus = BatchStatus.OPEN) -> Outcome:
    """The same batch while it runs: all that has ended so far has passed."""
    return Outcome.of(BatchInfo(SPEC, status, Plane.LIVE, "i1"), counters(status, scored=3), None)


def screen(outcome: Outcome, *, terminal: bool = False, width: int = 200) -> str:
    """What `render` prints."""
    out = io.StringIO()
    colours: Literal["standard", "auto"] = "standard" if terminal else "auto"
    render(outcome, Console(file=out, force_terminal=terminal, width=width, color_system=colours))
    return out.getvalue()


def test_the_json_of_a_closed_batch_is_the_promised_object() -> None:
    """Every key and every value: scripts are written against them."""
    outcome = closed()
    assert outcome.as_json() == {
        "batch": "repair",
        "plane": "live",
        "state": "closed",
        "snapshot_id": Snapshot.from_rows(ROWS, SPEC).snapshot_id,
        "intended": 5,
        "quorum": 3,
        "accepted": 4,
        "bins": {"pass": 3, "fail": 1},
        "pass_rate": 0.75,
        "interval": [pytest.approx(0.30064, abs=1e-5), pytest.approx(0.95441, abs=1e-5)],
        "bounds": [0.6, 0.8],
        "holes": {"poison": 1},
        "rejects": {"not_owner": 1, "stale_lease": 2},
        "tokens": {"spent": 1200, "durable": 1000, "orphan": 200, "budget": None},
        "runs": {"a#1": "pass", "b#1": "pass", "c#1": "pass", "d#1": "fail"},
        "gate": {"passed": False, "rule": "pass_rate >= 0.6 and holes <= 0"},
    }
    assert outcome.gate.why == ("holes are 1, above 0",)


def test_two_readers_write_the_same_bytes() -> None:
    """Rows and counters may come in any order from the server: the file may not depend on it."""
    one, other = closed().as_json(), closed(tuple(reversed(ROWS))).as_json()
    assert json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize("status", [BatchStatus.OPEN, BatchStatus.DRAINED])
def test_an_open_batch_has_counts_and_no_rate(status: BatchStatus) -> None:
    """Three of three have passed so far, and nobody is told 100%."""
    found = still_open(status).as_json()
    assert found["state"] == "open"
    assert (found["pass_rate"], found["interval"], found["bounds"], found["snapshot_id"]) == (None,) * 4
    assert (found["accepted"], found["bins"], found["runs"]) == (3, {"pass": 3, "fail": 0}, {})
    assert found["gate"] == {"passed": None, "rule": "pass_rate >= 0.6 and holes <= 0"}


def test_below_the_quorum_there_are_verdicts_but_no_rate_and_no_name() -> None:
    """What was scored is shown, and no number is made of it: the exit code is that of "inconclusive"."""
    rows = (
        row("a#1", "pass"),
        row("b#1", "pass"),
        row("c#1", hole="poison"),
        row("d#1", hole="solver_error"),
    )
    outcome = closed(rows, gate={})
    found = outcome.as_json()
    assert (found["state"], found["snapshot_id"], found["pass_rate"]) == ("inconclusive", None, None)
    assert found["runs"] == {"a#1": "pass", "b#1": "pass"}
    assert outcome.gate.exit_code == 3


def test_a_closed_batch_without_a_gate_says_so() -> None:
    """`null` twice: neither passed nor failed, and no rule."""
    outcome = closed(gate={})
    assert outcome.as_json()["gate"] == {"passed": None, "rule": None}
    assert (outcome.gate.word, outcome.gate.exit_code) == (GateWord.NOT_SET, 0)


def test_rows_that_do_not_give_the_closed_snapshot_are_a_violation() -> None:
    """A row was edited after the close (a hand on the server, a bad restore): no number may be shown."""
    edited = tuple(replace(each, bin="pass") for each in ROWS)
    info = BatchInfo(SPEC, BatchStatus.CLOSED, Plane.LIVE, "i1")
    told = counters(BatchStatus.CLOSED, snapshot_id=Snapshot.from_rows(ROWS, SPEC).snapshot_id)
    with pytest.raises(ViolationError, match=r"batch repair closed as .* but its rows give"):
        Outcome.of(info, told, Snapshot.from_rows(edited, SPEC))


def test_only_an_ended_batch_has_a_snapshot() -> None:
    """The caller read the rows too early, or not at all: its mistake, told at once."""
    snapshot = Snapshot.from_rows(ROWS, SPEC)
    for status, given in ((BatchStatus.OPEN, snapshot), (BatchStatus.CLOSED, None)):
        with pytest.raises(ValueError, match="only an ended batch has a snapshot"):
            Outcome.of(BatchInfo(SPEC, status, Plane.LIVE, "i1"), counters(status), given)


def test_spent_is_durable_and_orphan() -> None:
    """What was paid and entered nothing is named, not lost."""
    assert Tokens(spent=220, durable=200).orphan == 20
    assert Tokens() == Tokens(0, 0, None)


def test_the_screen_shows_every_number_of_the_snapshot() -> None:
    """Rate, denominator, interval, bounds, bins, holes and refusals by reason, name, and the gate's word."""
    text = screen(closed())
    for part in (
        "closed, 5 runs",
        "0.7500   3 of 4 scored runs passed",
        "0.3006 to 0.9544   Wilson, 95%",
        "0.6000 to 0.8000",
        "pass 3 · fail 1",
        "poison 1",
        "e#1   poison",
        "not_owner 1 · stale_lease 2",
        "1,200 spent   200 for nothing that counts",
        str(closed().snapshot_id),
        "failed   holes are 1, above 0",
    ):
        assert part in text
    assert "\x1b" not in text


def test_the_screen_names_the_models_that_answered_and_that_judged() -> None:
    """Two numbers side by side are those of two models, and of which. Who asks none has no such lines."""
    assert "model " not in screen(closed())
    shown = screen(replace(closed(), model="small at http://x/v1", judge="strict at http://y/v1")).splitlines()
    assert shown[1:3] == ["model      small at http://x/v1", "judge      strict at http://y/v1"]


@pytest.mark.parametrize(
    ("bound", "model"),
    [
        ("0a1b", ""),
        ("0a1b small at http://x/v1", "small at http://x/v1"),
        ('0a1b strict at http://x/v1 as {"model": "strict as {such}"}', "strict at http://x/v1"),
    ],
)
def test_a_model_is_read_out_of_what_was_bound(bound: str, model: str) -> None:
    """A candidate's, a judge's with what it says of itself, and those that are none."""
    assert model_of(bound) == model


def test_the_screen_of_an_open_batch_shows_no_rate() -> None:
    """The only digits after "pass rate" are counts of runs that have ended."""
    text = screen(still_open())
    assert "none   the batch is open: 4 of 5 runs have ended" in text
    assert "1.0" not in text
    assert "undecided" in text
    assert "interval" not in text


def test_the_screen_says_why_a_closed_batch_is_undecided() -> None:
    """There is a rate, so that is not where it is told: a baseline is not at hand, say."""
    told = screen(closed(gate={"min_pass_rate": 0.5, "no_worse_than": "base.json"}))
    assert "gate       undecided   baseline base.json is not at hand" in told


def test_a_terminal_gets_the_same_words_in_colour() -> None:
    """Colour says nothing that the words do not."""
    coloured = screen(closed(), terminal=True)
    assert "\x1b[1;31mfailed" in coloured
    plain = "".join(part.split("m", 1)[-1] for part in ("m" + coloured).split("\x1b["))
    assert plain == screen(closed())


def test_a_narrow_terminal_does_not_break_the_name_of_the_snapshot() -> None:
    """64 digits on 40 columns: it must still be possible to copy them."""
    assert str(closed().snapshot_id) in screen(closed(), width=40)


def test_a_thousand_holes_are_not_a_thousand_lines() -> None:
    """The first dozen by name, then their number; none is left out of the JSON's counts."""
    rows = (row("z#1", "pass"), *(row(f"h{n:03}#1", hole="poison") for n in range(1000)))
    outcome = closed(rows, quorum=1)
    text = screen(outcome)
    assert "and 988 more" in text
    assert text.count("\n") < 30
    assert outcome.as_json()["holes"] == {"poison": 1000}


def test_a_hole_is_shown_with_what_was_said_at_its_end_in_one_short_line_and_where_the_logs_are() -> None:
    """`solver_error` alone sends everybody to the logs; a traceback of 2,000 characters would hide the other holes."""
    rows = (
        row("a#1", "pass"),
        row("b#1", hole="solver_error", detail="KeyError: '/'"),
        row("c#1", hole="solver_error", detail="ValueError: \x1b[2J" + "long\n" * 100),
        row("d#1", hole="poison"),
    )
    outcome = closed(rows, quorum=1)
    out = io.StringIO()
    render(outcome, Console(file=out, width=200), Path("/home/logs/repair"))
    lines = out.getvalue().splitlines()
    found = [line.strip() for line in lines if "#1" in line or "logs" in line]
    assert found[0] == "b#1   solver_error   KeyError: '/'"
    assert found[1].startswith("c#1   solver_error   ValueError: \N{REPLACEMENT CHARACTER}[2Jlong long")
    assert found[1].endswith("…")
    assert len(found[1].removeprefix("c#1   solver_error   ")) == 100
    assert found[2:] == [
        "d#1   poison",
        f"…   in full: evalbus show {outcome.batch} 'c#1'",
        "logs in /home/logs/repair",
    ]
    assert "KeyError" not in json.dumps(outcome.as_json()), "the keys of the JSON are a promise"


def test_what_is_left_out_of_the_holes_is_had_by_the_command_that_is_named() -> None:
    """Where nothing was cut or left out, nothing is said; and a history that was read from a file is on no server."""
    rows = [row("a#1", "pass"), *(row(f"h{n:02}#1", hole="solver_error", detail=f"no {n}") for n in range(13))]
    outcome = closed(tuple(rows), quorum=1)
    assert f"and 1 more   all of them: evalbus show {outcome.batch} --only solver_error" in screen(outcome)
    assert "evalbus show" not in screen(closed(tuple(rows[:-1]), quorum=1))
    assert "evalbus show" not in screen(replace(outcome, hole_details={}))
    like_an_option = closed((rows[0], row("-h#1", hole="poison", detail="long " * 100)), quorum=1)
    assert f"in full: evalbus show {outcome.batch} -- '-h#1'" in screen(like_an_option)


def test_holes_with_one_cause_are_one_line_and_none_of_them_is_lost_from_the_count() -> None:
    """Sixty runs that one typing error ended: the error once, the other cause beside it, and how to see them all."""
    typo = [row(f"h{n:02}#1", hole="solver_error", detail="KeyError: 'x' (agent.py:3)") for n in range(59)]
    rows = (row("a#1", "pass"), *typo, row("z#1", hole="solver_error", detail="ValueError: no (agent.py:9)"))
    outcome = closed(rows, quorum=1)
    lines = [" ".join(line.split()) for line in screen(outcome).splitlines()]
    at = lines.index("holes solver_error 60")
    assert lines[at + 1 : at + 4] == [
        "h00#1 and 58 others solver_error KeyError: 'x' (agent.py:3)",
        "z#1 solver_error ValueError: no (agent.py:9)",
        f"… all of them: evalbus show {outcome.batch} --only solver_error",
    ]


def test_on_a_narrow_terminal_an_explanation_stands_below_its_figure_and_in_a_file_beside_it() -> None:
    """Sixty columns broke `passed` in the middle; a log file is as wide as it likes."""
    out = io.StringIO()
    render(closed(), Console(file=out, width=60, force_terminal=True, color_system=None))
    wide = screen(closed(), width=60)
    aside = "had every hole failed, had every hole passed"
    assert f"\n             {aside}\n" in out.getvalue()
    assert all(len(line) <= 60 or line.startswith("snapshot") for line in out.getvalue().splitlines())
    assert f"   {aside}\n" in wide


def test_text_of_a_user_is_not_taken_for_markup() -> None:
    """A case named `[red]` is a case named `[red]`."""
    rows = (row("a#1", "pass"), row("[red]x[/]#1", hole="[bold]"))
    assert "[red]x[/]#1   [bold]" in screen(closed(rows, quorum=1))
