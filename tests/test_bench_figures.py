"""The bench's figures against known values: spreads, counts of the server, of MONITOR, of processes; its bars."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import httpx
import pytest

from bus.connection import Endpoint
from bus.errors import InputError
from bus.target import Target
from bus.wire import Wire
from tests.waiting import PATIENCE
from workers.benching.bare import Traffic, bare_loop, physical_limit
from workers.benching.bars import Bar, bars_of
from workers.benching.calls import CallRates
from workers.benching.command import Part, parts, worker_counts
from workers.benching.counting import Sent, monitored
from workers.benching.driving import Cost
from workers.benching.endpoint import CHUNKS, ModelProcess
from workers.benching.flat import sizes_up_to
from workers.benching.killing import Recovery
from workers.benching.kinds import Kind
from workers.benching.measuring import ServerCounts, cpu_seconds, resident_memory, server_counts
from workers.benching.peers import JobRate, Unable
from workers.benching.plot import check_plot
from workers.benching.result import PeerRates, Report, Round, Throughput
from workers.benching.spread import Spread, quantile, ratios
from workers.benching.startup import StartTimes
from workers.benching.tables import markdown


def counts(commands: int = 0, memory: int = 0) -> ServerCounts:
    """Of a server."""
    return ServerCounts(commands, 4, 3, 2_000, 1_000, 0.1, memory, 500)


def cost(runs_per_s: float, commands: int = 3_000, memory: int = 250_000) -> Cost:
    """Of a hundred runs."""
    cpu = {"server": 0.05, "planner": 0.01, "worker": 0.1, "scorer": 0.04}
    resident = {"planner": 50_000_000, "worker": 60_000_000, "scorer": 50_000_000}
    return Cost(100, 100 / runs_per_s, counts(commands, memory), cpu, resident)


def report() -> Report:
    """Of two rounds of no-op runs beside two queues, one of which did not run."""
    found = Report(runs=100, workers=2, rounds=2)
    rounds = (Round(cost(1_000), 4_000.0, 2_000.0), Round(cost(3_000), 6_000.0, 4_000.0))
    found.throughput.append(Throughput(Kind.NOOP, 2, 9.0, rounds))
    taskiq = PeerRates("taskiq 1", [JobRate(100, 0.5, counts(300), 0.1), JobRate(100, 0.2, counts(300), 0.1)])
    found.peers = {"taskiq": taskiq, "docket": PeerRates("pydocket 1", [], Unable("it did not start"))}
    found.recovery = Recovery((1.0, 1.2, 1.6), 5.0)
    found.startup = StartTimes(7, (2.0, 4.0), (0.05, 0.1), (2.5, 2.5))
    found.calls = CallRates((700.0, 800.0), (1_000.0, 1_000.0), (12.0, 13.0))
    return found


def test_a_spread_is_the_median_the_extremes_and_every_round() -> None:
    """The order of the rounds is kept: somebody may want to see a trend."""
    spread = Spread.of([3.0, 1.0, 10.0, 2.0])
    assert (spread.median, spread.least, spread.most) == (2.5, 1.0, 10.0)
    assert spread.as_json() == {"median": 2.5, "min": 1.0, "max": 10.0, "rounds": [3.0, 1.0, 10.0, 2.0]}
    with pytest.raises(ValueError, match="no measurement"):
        Spread.of([])


def test_a_quotient_is_taken_round_by_round() -> None:
    """The quotient of medians would compare one minute with another."""
    assert ratios([10.0, 100.0], [5.0, 200.0]).values == (2.0, 0.5)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        ratios([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [(range(1, 101), 0.99, 99), (range(1, 101), 0.5, 50), ([7], 0.99, 7), ([3, 1, 2], 1.0, 3), ([1, 2], 0.5, 1)],
)
def test_a_quantile_is_a_value_that_occurred(values: list[float], share: float, expected: float) -> None:
    """Nearest rank: of twenty kills the 99th percentile is the worst."""
    assert quantile(list(values), share) == expected


def test_a_quantile_of_nothing_is_none() -> None:
    """Nor is there one of more than all."""
    for values, share in (([], 0.5), ([1.0], 0.0), ([1.0], 1.1)):
        with pytest.raises(ValueError, match="quantile"):
            quantile(values, share)


async def test_commands_inside_scripts_are_counted_and_those_of_the_look_are_not(server: Target) -> None:
    """Two looks with nothing between them differ by no command."""
    wire = await Wire.open(server.address())
    try:
        before = await server_counts(wire)
        assert (await server_counts(wire) - before).commands == 0
        await wire.calls([("SET", f"k{number}", "v" * 100) for number in range(10)])
        await wire.call("EVAL", "redis.call('GET', 'k1') return redis.call('GET', 'k2')", 0)
        added = await server_counts(wire) - before
        async with asyncio.timeout(PATIENCE):  # a server puts its writing off while it syncs what came before
            while (await server_counts(wire) - before).log_bytes <= 1_000:
                await asyncio.sleep(0.05)
    finally:
        wire.close()
    assert (added.commands, added.scripts) == (13, 1)
    assert added.bytes_in > 1_000


def test_a_line_of_a_script_is_no_command_of_a_client() -> None:
    """Nor are those of whoever measures; a value that looks like the mark is a value."""
    sent = Sent()
    for line in (
        b'+1700000000.1 [0 unix:/tmp/s] "EVALSHA" "abc" "0"\r\n',
        b'+1700000000.2 [0 lua] "HSET" "k" "f" "v"\r\n',
        b'+1700000000.3 [0 unix:/tmp/s] "INFO" "everything"\r\n',
        b'+1700000000.4 [0 127.0.0.1:5000] "SET" "k" "[0 lua] \\"HSET"\r\n',
        b"+OK\r\n",
    ):
        sent.feed(line)
    assert (sent.by_clients, sent.inside) == (2, 1)


async def test_what_clients_send_is_counted_while_somebody_watches(server: Target) -> None:
    """Five commands and a script of three: six were sent."""
    wire = await Wire.open(server.address())
    try:
        async with monitored(server) as sent:
            await wire.calls([("SET", "k", number) for number in range(5)])
            await wire.call("EVAL", "for i = 1, 3 do redis.call('INCR', 'k') end", 0)
        await wire.call("SET", "k", 0)
    finally:
        wire.close()
    assert (sent.by_clients, sent.inside) == (6, 3)


def test_a_processes_time_and_memory_are_its_own() -> None:
    """Its time grows with its work; one that is gone has none."""
    before = cpu_seconds(os.getpid())
    if before is None:
        pytest.skip("this system has no /proc")
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    after = cpu_seconds(os.getpid())
    assert after is not None
    assert after - before >= 0.08
    resident = resident_memory(os.getpid())
    assert resident is not None
    assert 5_000_000 < resident < 5_000_000_000
    assert cpu_seconds(2**30) is None
    assert resident_memory(2**30) is None


def test_a_cost_is_of_one_run() -> None:
    """A hundred runs in a tenth of a second."""
    one = cost(1_000)
    assert one.runs_per_s == pytest.approx(1_000)
    assert one.commands_per_run == 30
    assert one.bytes_per_run == 2_500
    assert one.cpu_ms_per_run["worker"] == pytest.approx(1.0)
    assert one.cpu_ms_per_run["all"] == pytest.approx(2.0)


def test_bars_are_compared_and_equal_is_enough() -> None:
    """Only those whose figures were measured: the queue that did not run has none."""
    found = {bar.figure: bar for bar in bars_of(report())}
    assert found["no-op runs : bare loop"].measured == pytest.approx(0.625)
    assert found["no-op runs : bare loop"].reached
    assert found["server commands a no-op run"].reached
    assert found["server memory a no-op run"].reached
    assert found["no-op runs : taskiq"].measured == pytest.approx((5 + 6) / 2)
    assert not found["kill -9 to the next lease, 99th percentile"].reached
    assert found["script calls : bare hiredis"].measured == pytest.approx(0.75)
    assert found["evalbus run of ten cases, start to end"].measured == pytest.approx(3.0)
    assert found["evalbus run of ten cases, start to end"].reached
    assert not any("docket" in figure for figure in found)
    assert Bar("x", 1.1, "at most", 1.1).reached
    assert not Bar("x", 1.0, "at least", 1.1).reached


def test_the_json_begins_with_the_no_op_figures() -> None:
    """Medians over the rounds; a queue that did not run is there with its error."""
    told = json.loads(json.dumps(report().as_json()))
    assert told["runs_per_s"] == 2_000
    assert told["bare_loop_per_s"] == 3_000
    assert told["share_of_bare_loop"] == 0.625
    assert told["commands_per_run"] == 30
    assert told["bytes_per_run"] == 2_500
    noop = told["kinds"]["noop"]["2"]
    assert noop["runs_per_s"]["rounds"] == [1_000, 3_000]
    assert noop["cpu_ms_per_run"]["all"]["median"] == 2.0
    assert told["kinds"]["startup"]["times_the_interpreters"]["rounds"] == [40, 40]
    assert told["kinds"]["peers"]["docket"] == {"version": "pydocket 1", "error": "it did not start"}
    assert told["kinds"]["peers"]["taskiq"]["jobs_per_s"]["rounds"] == [200, 500]


def test_without_no_op_runs_their_figures_are_null() -> None:
    """The names are there all the same: who reads the file need not guess."""
    told = Report(runs=100, workers=1, rounds=1).as_json()
    assert told["runs_per_s"] is None
    assert told["kinds"] == {}


def test_the_tables_have_a_row_for_each_figure_and_name_what_did_not_run() -> None:
    """Every row has as many cells as its head."""
    text = markdown(report())
    assert "| noop | 2 | 2,000 (1,000 to 3,000) |" in text
    assert "not measured: it did not start" in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) >= 4
    for table in tables:
        assert len({row.count("|") for row in table}) == 1


def test_sizes_are_tenfolds_up_to_the_largest() -> None:
    """And never one alone."""
    assert sizes_up_to(100_000) == [1_000, 10_000, 100_000]
    assert sizes_up_to(30_000) == [1_000, 10_000, 30_000]
    assert sizes_up_to(1_000) == [100, 1_000]
    assert sizes_up_to(300) == [30, 300]


def test_peers_are_measured_beside_no_op_runs() -> None:
    """Without them there is nothing to compare with."""
    assert parts("peers") == {Part.PEERS, Part.NOOP}
    assert parts("model, calls") == {Part.MODEL, Part.CALLS}
    assert worker_counts("2,1,2") == (1, 2)


@pytest.mark.parametrize("wrong", ["", "noop,", "all", "Noop"])
def test_a_kind_that_is_none_is_one_line(wrong: str) -> None:
    """It names those that there are."""
    with pytest.raises(InputError, match="fanout"):
        parts(wrong)


@pytest.mark.parametrize("wrong", ["", "0", "1,x", "-1", "65", "1.5", "²"])
def test_a_number_of_workers_that_is_none_is_one_line(wrong: str) -> None:
    """Before anything is started."""
    with pytest.raises(InputError, match="--workers"):
        worker_counts(wrong)


def test_a_picture_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """By its ending."""
    with pytest.raises(InputError, match=r"\.png"):
        check_plot(tmp_path / "bench.gif")


@pytest.mark.process
async def test_the_endpoint_answers_with_its_chunks_again_and_again() -> None:
    """Two requests on one connection, and many side by side."""
    model = await ModelProcess.start()
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            for _ in range(2):
                response = await client.post(f"{model.url}/chat/completions", json={"model": "bench", "messages": []})
                events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
                assert events[-1] == "[DONE]"
                told = [json.loads(event) for event in events[:-1]]
                assert sum("content" in choice["delta"] for one in told for choice in one["choices"]) == CHUNKS
                assert told[-1]["usage"]["completion_tokens"] == CHUNKS
    finally:
        await model.stop()


@pytest.mark.process
async def test_the_bare_loop_passes_every_message_through_three_streams(server: Target) -> None:
    """Each is added, read and acknowledged thrice, and nothing is left behind."""
    wire = await Wire.open(server.address())
    try:
        await wire.call("CONFIG", "RESETSTAT")
        assert await bare_loop(Endpoint(server), 301, 2) > 0
        stats = (await wire.call("INFO", "commandstats")).decode()
        assert await wire.call("DBSIZE") == 0
    finally:
        wire.close()
    for command in ("xadd", "xack"):
        assert f"cmdstat_{command}:calls={3 * 301}," in stats


@pytest.mark.process
async def test_the_physical_loop_carries_as_many_bytes_as_the_original(server: Target) -> None:
    """Ten commands a run, 3,000 bytes there and 2,000 back: within a twentieth."""
    wire = await Wire.open(server.address())
    try:
        before = await server_counts(wire)
        assert await physical_limit(Endpoint(server), 100, 2, Traffic(10, 3_000, 2_000)) > 0
        added = await server_counts(wire) - before
    finally:
        wire.close()
    assert added.commands == pytest.approx(1_000, rel=0.05)
    assert added.bytes_in == pytest.approx(300_000, rel=0.05)
    assert added.bytes_out == pytest.approx(200_000, rel=0.1)  # the looks' own answers are in it
