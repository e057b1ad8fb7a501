"""The forecast of a fleet: what can be said of it beforehand, and what must follow from what."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bus.errors import InputError
from workers.forecasting.capacity import capacity, shard_of_run, skew
from workers.forecasting.costs import Costs, Server, Times, Worker, read_costs
from workers.forecasting.fleet import Fleet
from workers.forecasting.queues import estimate
from workers.forecasting.table import fleets

FREE = Costs(Server(*[0.0] * 11))
"""A server that takes no time."""

TEN = Fleet(10, slots=4, runs=400, calls=3, call_time=10.0, spread=0.5)


def test_one_slot_takes_as_long_as_its_calls() -> None:
    """Nothing waits for anything."""
    told = estimate(Fleet(1, slots=1, runs=10, calls=3, call_time=2.0, spread=0.0), FREE)
    assert told.seconds == pytest.approx(60.0)
    assert told.busy == pytest.approx(1.0)
    assert (told.scored, told.redeliveries, told.orphans, told.tokens) == (10, 0, 0, 45_000)


def test_twice_the_slots_take_half_the_time() -> None:
    """While nobody else is in the way."""
    one, two = (estimate(Fleet(workers, 4, 160, 2, 5.0, 0.0), FREE).seconds for workers in (1, 2))
    assert two == pytest.approx(one / 2)


def test_the_endpoints_places_bound_what_is_done_at_a_time() -> None:
    """Eight slots, two places: the others wait."""
    told = estimate(Fleet(2, 4, 80, 1, 5.0, 0.0, model_slots=2), FREE)
    assert told.seconds == pytest.approx(80 * 5.0 / 2)
    assert told.busy == pytest.approx(0.25)
    assert told.waiting > 0.6


def test_the_bound_bounds_what_is_admitted() -> None:
    """Slots without a run are idle."""
    told = estimate(Fleet(2, 4, 80, 1, 5.0, 0.0, bound=2), FREE)
    assert told.seconds == pytest.approx(80 * 5.0 / 2)
    assert told.idle == pytest.approx(0.75)


def test_a_slow_server_is_the_bottleneck() -> None:
    """Its one thread takes one command after the other."""
    slow = Costs(replace(Server(*[0.0] * 11), claim=1.0))
    told = estimate(Fleet(10, 10, 100, 1, 0.1, 0.0), slow)
    assert told.seconds >= 100.0
    assert told.server > 0.9


def test_the_same_seed_gives_the_same_figures() -> None:
    """And another one others."""
    fleet = replace(TEN, preempted=20.0)
    assert estimate(fleet, seed=3) == estimate(fleet, seed=3)
    assert estimate(fleet, seed=3) != estimate(fleet, seed=4)


def test_what_is_taken_away_is_given_to_somebody_else_about_a_lease_later() -> None:
    """And the tokens of the call that broke off are spent in vain."""
    told = estimate(replace(TEN, preempted=20.0, max_deliveries=100))
    assert told.preemptions > 5
    assert told.redeliveries > 5
    assert TEN.lease * 2 / 3 <= told.missed <= 3 * TEN.lease
    assert told.scored == TEN.runs
    assert told.tokens - told.orphans == TEN.runs * TEN.calls * TEN.tokens


def test_starting_over_costs_more_than_going_on() -> None:
    """All that was bound before is spent in vain, too."""
    fleet = replace(TEN, preempted=20.0, max_deliveries=100)
    prefix, fresh = estimate(fleet), estimate(replace(fleet, resume="fresh"))
    assert fresh.orphans > 2 * prefix.orphans
    assert fresh.tokens - fresh.orphans == TEN.runs * TEN.calls * TEN.tokens


def test_a_run_that_is_lost_too_often_is_poison() -> None:
    """Machines go as fast as their runs."""
    told = estimate(Fleet(4, 2, 40, 4, 10.0, 0.0, preempted=120.0, max_deliveries=2))
    assert told.poison > 0
    assert told.scored + told.poison == 40


def test_the_shares_of_the_slots_make_a_whole() -> None:
    """At the model, waiting, idle, gone."""
    told = estimate(replace(TEN, preempted=20.0, model_slots=20))
    assert told.busy + told.waiting + told.idle + told.gone == pytest.approx(1.0)


def test_costs_are_read_from_a_table(tmp_path: Path) -> None:
    """What it does not name is as it was."""
    file = tmp_path / "costs.toml"
    file.write_text("[server]\nclaim = 0.5\n[times]\nreplace = 5\n")
    assert read_costs(file) == Costs(replace(Server(), claim=0.5), replace(Times(), replace=5.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("claim = 1", "has no table 'claim'"),
        ("[server]\nclam = 1", "server.clam: unknown"),
        ('[server]\nclaim = "1ms"', "server.claim: is no number of seconds"),
        ("[times]\nreplace = -1", "times.replace: is no number of seconds"),
        ("[server", "is no TOML"),
    ],
)
def test_a_wrong_table_is_refused_by_its_field(tmp_path: Path, text: str, told: str) -> None:
    """In one line."""
    file = tmp_path / "costs.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        read_costs(file)


# --- the arithmetic ----------------------------------------------------------------------------------------

TOLERANCE = 0.1
"""What docs/fleets.md says: the simulation differs from the arithmetic by no more than a tenth."""

MEASURED = Costs(Server(), Times(), Worker(0.0006, 0.0008))


@pytest.mark.parametrize("shards", [1, 3, 6])
@pytest.mark.parametrize("workers", [2, 10, 100])
@pytest.mark.parametrize("kind", ["no-op", "one call of 2 s", "agent: 10 calls of 3 s"])
def test_arithmetic_and_simulation_agree(kind: str, workers: int, shards: int) -> None:
    """Whatever it is that saturates: slots, workers, the server, or the one shard that has a slot more."""
    fleet = next(fleet for name, fleet in fleets() if (name, fleet.workers, fleet.shards) == (kind, 10, shards))
    fleet = replace(fleet, workers=workers, runs=max(6 * workers * fleet.slots, 2_000))
    assert estimate(fleet, MEASURED).steady == pytest.approx(capacity(fleet, MEASURED).rate, rel=TOLERANCE)


def test_each_part_saturates_in_its_turn() -> None:
    """A worker has one processor; so has a server; a slot is held for as long as the model takes."""
    noop, agent = Fleet(1, slots=8, calls=0), Fleet(10, slots=8, calls=10, call_time=3.0)
    assert capacity(noop, MEASURED).saturates == "workers"
    assert capacity(noop, MEASURED).rate == pytest.approx(1 / 0.0006)
    assert capacity(replace(noop, workers=100), MEASURED).saturates == "server"
    assert capacity(agent, MEASURED).saturates == "slots"


def test_sixteen_slots_are_shared_as_evenly_as_they_can_be() -> None:
    """The largest share is what a batch in partitions waits for."""
    assert [skew(shards) for shards in (1, 2, 3, 4, 6, 16)] == pytest.approx([1, 1, 1.125, 1, 1.125, 1])
    for shards in (1, 3, 6):
        shares = Counter(shard_of_run(run, shards) for run in range(1_600))
        assert max(shares.values()) / (1_600 / shards) == pytest.approx(skew(shards))
        assert len(shares) == shards


def bench_file(directory: Path, **kinds: object) -> Path:
    """As `evalbus bench --json` writes it, of two milliseconds of the server a no-op run."""
    cpu = {"server": {"median": 2.0}, "worker": {"median": 0.5}}
    more = {"server": {"median": 5.0}, "worker": {"median": 1.5}}
    told = {"noop": {"1": {}, "2": {"cpu_ms_per_run": cpu}}, "model": {"2": {"cpu_ms_per_run": more}}}
    file = directory / "bench.json"
    file.write_text(json.dumps({"kinds": told | kinds}))
    return file


def test_costs_are_read_from_a_bench(tmp_path: Path) -> None:
    """A run's whole is the measured one, and so is a call's; the largest number of workers counts."""
    costs = read_costs(bench_file(tmp_path))
    assert costs.server.of_run(0) == pytest.approx(0.002)
    assert costs.server.of_run(1) == pytest.approx(0.005)
    assert costs.worker == Worker(0.0005, 0.001)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is no JSON"),
        ("[]", "is no file of evalbus bench"),
        ("{}", "is no file of evalbus bench"),
        ('{"kinds": {}}', "no processor time of the server in noop runs"),
        ('{"kinds": {"noop": {"2": {"cpu_ms_per_run": {"server": {"median": "1"}}}}}}', "is no number of ms"),
    ],
)
def test_a_file_that_is_no_bench_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """In one line, with the command that writes one."""
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        read_costs(file)


def test_a_bench_without_model_calls_says_what_is_missing(tmp_path: Path) -> None:
    """What a call costs is a difference: both kinds have to be there."""
    with pytest.raises(InputError, match=r"in model runs .*evalbus bench --kind noop,model"):
        read_costs(bench_file(tmp_path, model={}))
