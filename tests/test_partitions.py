"""Partitions: what is dealt out adds up again, and the sum is the batch that it would have been."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import InputError, ViolationError
from bus.partitions import is_part_of, part_name, put_back, root_of, share, split, taken_by, whole_spec
from bus.port import BatchSpec, BatchStatus
from bus.target import Target
from bus.types import BatchId
from bus.values import PartOf
from tests.fleet import Stage, case, eventually, read_export
from tests.parted import ROOT, RUNS, ended, parts_on, spec
from workers.results.fetching import fetch_outcome
from workers.results.whole import closing_of, counters_of, whole_of
from workers.suite import load_suite

# --- dealing out -----------------------------------------------------------------------------------------


@given(st.integers(0, 10**9), st.integers(1, 64))
def test_shares_add_up_and_differ_by_one_at_most(amount: int, of: int) -> None:
    """Nothing is lost in the division, and nobody is favoured."""
    shares = [share(amount, number, of) for number in range(1, of + 1)]
    assert sum(shares) == amount
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(), max_size=200), st.integers(1, 64))
def test_every_run_is_in_one_part_and_each_has_as_many_as_it_declares(runs: list[int], of: int) -> None:
    """A planner admits what its part's share of the suite is, and drains when it has as many as were declared."""
    parts = [taken_by(PartOf(number, of, len(runs), 1), runs) for number in range(1, of + 1)]
    assert [len(part) for part in parts] == [share(len(runs), number, of) for number in range(1, of + 1)]
    assert sorted(run for part in parts for run in part) == sorted(runs)
    assert taken_by(None, runs) == runs
    assert put_back(parts) == runs


def test_what_is_put_back_has_its_order_also_while_some_are_not_there_yet() -> None:
    """Partitions are admitted to each at its own pace."""
    assert put_back([["c0", "c3"], ["c1"], ["c2", "c5"]]) == ["c0", "c1", "c2", "c3", "c5"]
    assert put_back([]) == []


@given(
    st.integers(1, 64),
    st.integers(64, 500),
    st.fixed_dictionaries(
        {},
        optional={
            "budget": st.integers(64, 10**6),
            "model_slots": st.integers(64, 300),
            "judge_slots": st.integers(64, 300),
            "compute_retries": st.integers(1, 9),
            "heartbeat_ms": st.integers(1, 99_999),
        },
    ),
)
def test_the_whole_is_what_its_parts_declare_together(of: int, intended: int, limits: dict[str, int | str]) -> None:
    """Amounts are dealt out, times and tries are not; from the parts alone the whole can be told again."""
    whole = spec(intended=intended, quorum=intended // 2, bound=64 + of, max_in_flight=100, limits=limits)
    parts = split(whole, of)
    assert len(parts) == of
    assert whole_spec(parts) == whole
    assert sum(int(one.limits.get("budget", 0)) for one in parts) == int(limits.get("budget", 0))
    assert {one.limits.get("heartbeat_ms") for one in parts} == {limits.get("heartbeat_ms")}
    assert {BatchSpec.from_json(json.dumps(one.as_fields())) == one for one in parts} == {True}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"intended": 3}, r"runs is enough for 3: .*\(partitions = 3, or less\)"),
        ({"bound": 2}, "bound is enough for 2"),
        ({"max_in_flight": 1}, "max_in_flight is enough for 1"),
        ({"limits": {"budget": 3}}, "its budget is enough for 3"),
        ({"limits": {"model_slots": 3}}, r"\[model\] slots is enough for 3"),
        ({"limits": {"judge_slots": 3}}, r"\[scorer\] slots is enough for 3"),
        ({"limits": {"capacity": 7}}, r"\[shadow\] capacity is enough for 3"),
    ],
    ids=["runs", "bound", "in flight", "budget", "model", "judge", "capacity"],
)
def test_what_is_not_enough_for_all_is_named(fields: dict[str, object], problem: str) -> None:
    """A part with no share of something would wait for ever."""
    with pytest.raises(InputError, match=problem):
        split(spec(**fields), 4)
    assert split(spec(**fields), 1) == [spec(**fields)]


def test_on_the_shadow_plane_each_part_has_a_place_for_the_tool_of_its_runs() -> None:
    """If runs could take all places of a part, none of their calls would ever have one."""
    parts = split(spec(bound=7, limits={"capacity": 8}), 2)
    assert [(one.bound, one.limits["capacity"]) for one in parts] == [(3, 4), (3, 4)]


def test_a_batch_without_partitions_is_declared_as_in_older_releases() -> None:
    """Its declaration is compared by its hash when it is resumed."""
    assert spec().as_fields().keys().isdisjoint({"part", "first_of"})
    assert BatchSpec.from_json(json.dumps(spec().as_fields())) == spec()


def test_names_of_parts_lead_back_to_the_whole() -> None:
    """And nothing else that is called alike belongs to it."""
    assert part_name(ROOT, 12) == "b.p12"
    assert root_of(BatchId("b.p12")) == root_of(ROOT) == ROOT
    assert [is_part_of(BatchId(name), ROOT) for name in ("b", "b.p1", "b.p0", "b.px", "bb.p1", "b.p1.p2")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


# --- putting together ------------------------------------------------------------------------------------


async def test_the_whole_has_the_snapshot_that_one_batch_would_have(server: Target) -> None:
    """The same rows in three parts or in one: the same bytes, and so the same id."""
    whole = spec(quorum=3)
    async with parts_on(server, [*split(whole, 3), replace(whole, batch=BatchId("one"))]) as (*parts, one):
        for part in [*parts, one]:
            await ended(part, part.spec.intended)
        found, alone = [await fetch_outcome(one.bus, name) for name in (ROOT, one.name)]
        assert found.status is alone.status is BatchStatus.CLOSED
        assert found.snapshot_id == alone.snapshot_id
        assert found.as_json() == alone.as_json() | {"batch": ROOT}


async def test_a_part_below_its_quorum_is_no_reason_for_the_whole(server: Target) -> None:
    """One part has holes only and is inconclusive by itself; four of seven runs are the quorum, and are there."""
    async with parts_on(server, split(spec(quorum=4), 3)) as parts:
        for part, scored in zip(parts, (0, 2, 2), strict=True):
            await ended(part, scored)
        found = await fetch_outcome(parts[0].bus, ROOT)
        assert [(await part.bus.counters(part.name)).status.value for part in parts] == [
            "inconclusive", "closed", "closed",
        ]  # fmt: skip
        assert (found.status, found.accepted, found.hole_count) == (BatchStatus.CLOSED, 4, 3)


async def test_the_quorum_of_the_suite_is_that_of_the_whole(server: Target) -> None:
    """Each part reached its own; together they are one short."""
    async with parts_on(server, split(spec(quorum=4), 3)) as parts:
        for part in parts:
            await ended(part, 1)
        found = await fetch_outcome(parts[0].bus, ROOT)
        assert (found.status, found.snapshot_id, found.pass_rate) == (BatchStatus.INCONCLUSIVE, None, None)


async def test_the_whole_is_open_until_its_last_part_has_ended(server: Target) -> None:
    """And has no snapshot before: what happens to be finished is no result. A part that is not declared yet counts."""
    specs = split(spec(quorum=1), 3)
    async with parts_on(server, specs[:2]) as (first, second):
        await ended(first, first.spec.intended)
        await ended(second, second.spec.intended)
        found = await fetch_outcome(first.bus, ROOT)
        assert (found.status, found.intended, found.accepted, found.snapshot_id) == (BatchStatus.OPEN, 7, 5, None)
        async with parts_on(server, specs[2:]) as (third,):
            assert not (await fetch_outcome(first.bus, ROOT)).status.ended
            await ended(third, third.spec.intended)
            assert (await fetch_outcome(first.bus, ROOT)).status is BatchStatus.CLOSED


async def test_a_part_whose_rows_are_not_those_that_it_closed_over_is_a_violation(server: Target) -> None:
    """Then nothing that could be said of the whole would be true."""
    async with parts_on(server, split(spec(quorum=1), 3)) as parts:
        for part in parts:
            await ended(part, part.spec.intended)
        await parts[1].wire.call("HSET", parts[1].keys.run(RUNS[1]), "h.bin", "fail")
        whole = await whole_of(parts[0].bus, ROOT)
        assert whole is not None
        assert (await counters_of(parts[0].bus, whole)).bins == {"fail": 0, "pass": 7}
        with pytest.raises(ViolationError, match=r"batch b\.p2 closed as"):
            await closing_of(parts[0].bus, whole)


# --- the suite, and the commands -------------------------------------------------------------------------


def test_a_tool_with_fewer_slots_than_partitions_is_refused(tmp_path: Path) -> None:
    """Who has a slot is written down in each partition by itself: with one for all, two could have it at once."""
    tool = '[tools.pay]\nhttp = "http://127.0.0.1:1/"\neffects = "outside"\nslots = 2\n'
    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case(f"c{number}") for number in range(4)], partitions=3)
        file = suite / "suite.toml"
        file.write_text(file.read_text() + tool)
        assert load_suite(suite).partitions == 3
        said = stage.run("run", suite, "--batch", "b").complaint
        assert "partitions = 3, and [tools.pay] slots is enough for 2" in said


@pytest.mark.process
async def test_a_partitioned_suite_is_run_judged_exported_and_scored_anew_under_one_name(tmp_path: Path) -> None:
    """What a user does with a batch; killed in between, the same command goes on with the parts that there are."""
    with Stage.opened(tmp_path) as stage:
        cases = [case("first", gate="go"), *(case(f"c{number}", target=str(number % 2)) for number in range(4))]
        suite = stage.suite(cases, lease="1s", partitions=2)
        killed = stage.start("run", suite, "--workers", 2, "--batch", "b")
        async with stage.watch("b.p2") as watch:

            async def second_closed() -> bool:
                counters = await watch.counters()
                return counters is not None and counters.status is BatchStatus.CLOSED

            await eventually(second_closed, "the second partition to close")
            shown = await stage.call("status", "b")
            assert "partitions b.p1 open · b.p2 closed" in shown.out
            killed.process.kill()
            await killed.end()
            stage.open_gate("go")
            done = await stage.call("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--json", "b.json")
            assert done.code == 0, done
            result = json.loads((stage.root / "b.json").read_text())
            assert (result["batch"], result["state"], result["accepted"]) == ("b", "closed", 5)
            assert result["bins"] == {"pass": 3, "fail": 2}
            listed = (await stage.call("status")).out.splitlines()
            assert [line.split()[:3] for line in listed[1:]] == [["b", "closed", "5"]]
            assert (await stage.call("export", "b", "h.jsonl")).code == 0
            heads = [read_export(stage.root / f"h.p{number}.jsonl")[0]["batch"] for number in (1, 2)]
            assert heads == ["b.p1", "b.p2"]
            reported = await stage.call("report", "b", "-o", "b.html")
            assert reported.code == 0, reported
            assert reported.err == "wrote b.html: 5 runs of batch b, closed\n"
            heads = [read_export(stage.root / f"h.p{number}.jsonl")[-1]["head"] for number in (1, 2)]
            given = [word for head in heads for word in ("--head", head)]
            replayed = await stage.call("replay", "h.jsonl", *given)
            assert (replayed.code, replayed.out.count(": closed\n")) == (0, 2)
            assert replayed.out.endswith(f"runs: pass 3, fail 2, holes 0\nsnapshot {result['snapshot_id']}\n")
            imported = await stage.call("import", "h.jsonl", "--home", "elsewhere")
            assert imported.code == 0, imported
            gated = await stage.call("gate", "b", "--home", "elsewhere", "--no-worse-than", "h.jsonl")
            assert (gated.code, result["snapshot_id"] in gated.out) == (0, True), gated
            anew = await stage.call("rescore", "b", "--judge", suite, "--scorers", 1, "--json", "anew.json")
            assert anew.code == 0, anew
            again = json.loads((stage.root / "anew.json").read_text())
            assert (again["batch"], again["snapshot_id"]) == ("b.rescored-1", result["snapshot_id"])
            runs = [(await stage.call("show", name)).out.splitlines()[1:] for name in ("b", "b.rescored-1")]
            assert [line.split()[:3] for line in runs[0]] == [
                ["first#1", "pass", "1"], ["c0#1", "fail", "1"], ["c1#1", "pass", "1"], ["c2#1", "fail", "1"],
                ["c3#1", "pass", "1"],
            ]  # fmt: skip
            assert runs[1] == runs[0]
            assert (await stage.call("run", suite, "--batch", "b.p1")).complaint.startswith("'b.p1' is a partition")
            pruned = await stage.call("prune", "b")
            assert pruned.code == 0, pruned
            assert "1 pruned" in pruned.out
