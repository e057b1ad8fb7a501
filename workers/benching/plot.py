"""The figures as one picture, PNG or SVG by the file's ending. matplotlib comes with the dependency group `bench`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bus.errors import InputError
from workers.benching.driving import Cost
from workers.benching.flat import Held, Point
from workers.benching.result import Report
from workers.benching.spread import Spread
from workers.files import check_writable, writing_whole

__all__ = ["check_plot", "draw"]

_ENDINGS = (".png", ".svg")
_OURS, _OTHERS = "#1b6ca8", "#9aa5b1"


def check_plot(file: Path) -> None:
    """Raises InputError, before anything is measured, when no picture could be written there."""
    if file.suffix not in _ENDINGS:
        raise InputError("is neither .png nor .svg", file=file)
    check_writable(file)
    _pyplot()


def draw(report: Report, file: Path) -> None:
    """Rates with their spread, and what a run costs as batches grow: of these, what was measured."""
    pyplot = _pyplot()
    panels: list[Callable[[Any], None]] = []
    if report.throughput:
        panels.append(lambda axes: _rates(axes, report))
    if (flat := report.flat) is not None:
        panels.append(lambda axes: _curve(axes, flat.batches, "runs of one batch", log=True))
        panels.append(lambda axes: _curve(axes, flat.many, "batches that the server has had", log=False))
        panels.append(lambda axes: _memory(axes, flat.memory))
    figure, places = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 4.5), squeeze=False)
    for panel, axes in zip(panels, places[0], strict=True):
        panel(axes)
    figure.tight_layout()
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix[1:], dpi=150)
    pyplot.close(figure)
    with writing_whole(file) as out:
        out.write(drawn.getvalue())


def _rates(axes: Any, report: Report) -> None:  # noqa: ANN401 - matplotlib is not there when types are checked
    rows: list[tuple[str, Spread, str]] = []
    for one in report.throughput:
        rows.append((f"{one.kind}, {one.workers} workers", one.rate, _OURS))
        if one.bare is not None:
            rows.append((f"bare loop, {one.workers} processes", one.bare, _OTHERS))
    rows += [(name, rates.rate, _OTHERS) for name, rates in report.peers.items() if rates.rate is not None]
    names = [name for name, _, _ in rows]
    medians = [spread.median for _, spread, _ in rows]
    below = [spread.median - spread.least for _, spread, _ in rows]
    above = [spread.most - spread.median for _, spread, _ in rows]
    axes.barh(names, medians, xerr=[below, above], color=[colour for _, _, colour in rows], capsize=3)
    axes.invert_yaxis()
    axes.set_xlabel(f"runs or jobs a second: median of {report.rounds}, least and most")


def _curve(axes: Any, points: tuple[Point, ...], label: str, *, log: bool) -> None:  # noqa: ANN401 - likewise
    sizes = [point.size for point in points]
    figures: dict[str, Callable[[Cost], float]] = {
        "time": lambda cost: cost.seconds / cost.runs,
        "commands": lambda cost: cost.commands_per_run,
        "processor time": lambda cost: cost.cpu_ms_per_run["all"],
        "server memory": lambda cost: cost.bytes_per_run,
    }
    for name, of in figures.items():
        values = [point.spread(of).median for point in points]
        axes.plot(sizes, [value / values[0] for value in values], marker="o", label=name)
    axes.axhline(1.1, color="grey", linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    if log:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        axes.minorticks_off()
    axes.set_xlabel(label)
    axes.set_ylabel("a run's cost : at the first point")
    axes.legend()


def _memory(axes: Any, held: tuple[Held, ...]) -> None:  # noqa: ANN401 - likewise
    axes.plot([one.runs for one in held], [one.resident / 1e6 for one in held], color=_OURS)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("runs of the largest batch that were scored")
    axes.set_ylabel("memory of the largest worker process, MB")


def _pyplot() -> Any:  # noqa: ANN401 - likewise
    try:
        import matplotlib  # noqa: PLC0415 - half a second, and not installed with evalbus
        from matplotlib import pyplot  # noqa: PLC0415
    except ImportError:
        raise InputError("--plot needs matplotlib", remedy="pip install --group bench, or make bench") from None
    matplotlib.use("Agg")
    return pyplot
