"""The figures as tables, in Markdown: what the terminal shows, and what goes into the docs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workers.benching.bars import bars_of
from workers.benching.distance import FAR_MS
from workers.benching.result import Report, Throughput
from workers.benching.spread import Spread, quantile, ratios
from workers.benching.startup import CASES

__all__ = ["markdown"]


def markdown(report: Report) -> str:
    """Every table of what was measured."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    where = report.machine
    yield (
        f"Measured on {where['cores']} cores ({where['processor']}), Python {where['python']}, {where['server']}; "
        f"medians of {report.rounds} rounds (least to most)."
    )
    if report.throughput:
        yield from _table(
            ["run", "workers", "runs/s", "of the bare loop", "of the physical limit", "sent a run", "server commands",
             "server memory"],
            [_throughput(one) for one in report.throughput],
        )  # fmt: skip
        yield from _table(
            ["processor time a run, ms", "workers", "all", "server", "planner", "workers'", "scorer", "endpoint"],
            [_processors(one) for one in report.throughput],
        )
    if report.peers:
        yield from _table(
            ["no-op jobs", "jobs/s", "ours is", "server commands", "server memory", "processor time, ms"],
            _peers(report),
        )
    yield from _single(report)
    yield from _table(
        ["runs in hand, one worker", "runs/s beside the server", f"at {FAR_MS:g} ms", "share", "round trips in hand"],
        [
            [f"{one.depth:,}", _spread(Spread.of(one.near)), _spread(Spread.of(one.far)),
             f"{ratios(one.far, one.near).median:.0%}", _digits(one.round_trips)]
            for one in report.distance
        ],
    )  # fmt: skip
    yield from _flat(report)
    yield from _table(
        ["figure", "measured", "bar", ""],
        [
            [one.figure, f"{_digits(one.measured)} {one.unit}".strip(), f"{one.sense} {_digits(one.bar)}", one.words]
            for one in bars_of(report)
        ],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield ""
        for row in (head, ["---"] * len(head), *rows):
            yield f"| {' | '.join(row)} |"


def _throughput(one: Throughput) -> list[str]:
    return [
        one.kind.value,
        str(one.workers),
        _spread(one.rate),
        "" if one.of_bare is None else f"{one.of_bare.median:.0%}",
        f"{one.of_physical.median:.0%}",
        _digits(one.sent_per_run),
        _digits(one.spread(lambda each: each.ours.commands_per_run).median),
        f"{_digits(one.spread(lambda each: each.ours.bytes_per_run).median / 1000)} kB",
    ]


def _processors(one: Throughput) -> list[str]:
    names = ("all", "server", "planner", "worker", "scorer", "endpoint")
    figures = [_digits(one.cpu[name].median) if name in one.cpu else "" for name in names]
    return [one.kind.value, str(one.workers), *figures]


def _peers(report: Report) -> list[list[str]]:
    noop = next((one for one in report.throughput if one.kind == "noop" and one.workers == report.workers), None)
    rows = []
    for name, rates in report.peers.items():
        if rates.rate is None:
            rows.append(
                [f"{name} ({rates.version})", f"not measured: {rates.unable and rates.unable.error}", *[""] * 4]
            )
            continue
        times = "" if noop is None else f"{ratios(noop.rate.values, rates.rate.values).median:.2g} times as fast"
        commands = Spread.of(one.server.commands / one.jobs for one in rates.rounds)
        memory = Spread.of(one.server.memory / one.jobs for one in rates.rounds)
        cpu = Spread.of(one.cpu_ms_per_job for one in rates.rounds)
        rows.append(
            [f"{name} ({rates.version})", _spread(rates.rate), times, _digits(commands.median),
             f"{_digits(memory.median)} B", _digits(cpu.median)]
        )  # fmt: skip
    return rows


def _single(report: Report) -> Iterator[str]:
    rows: list[list[str]] = []
    if report.calls is not None:
        share = ratios(report.calls.ours, report.calls.bare)
        rows.append(["script calls of one process", f"{_spread(Spread.of(report.calls.ours))} calls/s"])
        rows.append(["the same over bare hiredis", f"{_spread(Spread.of(report.calls.bare))} calls/s"])
        rows.append(["share", f"{share.median:.0%}"])
    if (start := report.startup) is not None:
        times, cpu = ratios(start.ours, start.bare), Spread.of(start.cpu_s)
        rows.append([f"evalbus run of {CASES} cases", f"{_seconds(start.ours)} s"])
        rows.append([f"{start.processes} interpreters that do nothing", f"{_seconds(start.bare)} s"])
        rows.append(["ours is", f"{times.median:.3g} times that; {cpu.median:.2f} s of processors"])
    if report.latency is not None:
        for name, values in (
            ("admission to lease", report.latency.admission_to_lease),
            ("seal to verdict", report.latency.seal_to_verdict),
        ):
            half, most = quantile(values, 0.5), quantile(values, 0.99)
            load = f"{report.latency.share:.0%} of the highest rate"
            rows.append([f"{name}, at {load}", f"{half:.0f} ms, 99th percentile {most:.0f} ms"])
    if (recovery := report.recovery) is not None:
        half, most = quantile(recovery.leases, 0.5), quantile(recovery.leases, 0.99)
        rows.append(
            [f"kill -9 to the next lease, lease {recovery.lease_s:g} s, {len(recovery.leases)} kills",
             f"{half:.2f} lease times, 99th percentile {most:.2f}"]
        )  # fmt: skip
    yield from _table(["", ""], rows)


def _flat(report: Report) -> Iterator[str]:
    if report.flat is None:
        return
    for title, points in (("runs of one batch", report.flat.batches), ("batches so far", report.flat.many)):
        yield from _table(
            [title, "ms a run", "commands", "processor time, ms", "of it the server", "server memory, B", "worker, MB"],
            [
                [
                    f"{point.size:,}",
                    _digits(point.spread(lambda cost: 1000 * cost.seconds / cost.runs).median),
                    _digits(point.spread(lambda cost: cost.commands_per_run).median),
                    _digits(point.spread(lambda cost: cost.cpu_ms_per_run["all"]).median),
                    _digits(point.spread(lambda cost: cost.cpu_ms_per_run["server"]).median),
                    _digits(point.spread(lambda cost: cost.bytes_per_run).median),
                    _digits(point.costs[-1].memory["worker"] / 1e6),
                ]
                for point in points
            ],
        )


def _seconds(values: Sequence[float]) -> str:
    spread = Spread.of(values)
    return f"{spread.median:.2f} ({spread.least:.2f} to {spread.most:.2f})"


def _spread(spread: Spread) -> str:
    return f"{spread.median:,.0f} ({spread.least:,.0f} to {spread.most:,.0f})"


def _digits(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004
