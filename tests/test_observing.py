"""What watches a fleet: metrics and traces. They see what happened, and change none of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.port import BatchInfo, Bus, Entry
from bus.rests import Resting
from bus.types import BatchId, Plane, RunId
from tests.fleet import Command, Stage, case, eventually
from tests.model_stage import ASKS_ONCE, BATCH, SHORT, A, InMemory, ModelStage, Moment, suite_of
from tests.stage import ONE_CASE
from tests.waiting import soon, until
from workers.lab import Lab
from workers.observing.observed import STEPS, Observer, Step, observed
from workers.observing.polling import poll_batches
from workers.observing.prometheus import Metrics, Place, serve_metrics
from workers.observing.tracing import Tracing, providers, trace_id_of, wanted
from workers.processes import logs


class Watched(InMemory):
    """A world in this process, each of its buses watched."""

    def __init__(self, *observers: Observer) -> None:
        super().__init__()
        self.observers = observers

    def bus(self) -> Bus:
        bus = cast("ServerBus", super().bus())
        bus.rests = NobodyRests()  # type: ignore[misc, assignment] # told beside the steps: on a server alone
        return cast("Bus", observed(bus, self.observers))


class NobodyRests:
    """In the place of `bus.rests.Rests`."""

    async def all(self) -> list[Resting]:
        return []


class Noted:
    """Remembers what it was told."""

    def __init__(self, fails: bool = False) -> None:
        self.steps: list[Step] = []
        self.how: list[str] = []
        self.fails = fails

    def step(self, step: Step) -> None:
        self.steps.append(step)
        if self.fails:
            raise RuntimeError("an observer that is broken")

    def entries(self, how: str, entries: Sequence[Entry]) -> None:
        self.how += [how] * len(entries)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """An endpoint that behaves."""
    with Lab(seed=1) as one:
        yield one


@pytest.fixture
async def staged(tmp_path: Path) -> AsyncIterator[Any]:
    """Makes stages that are watched."""
    made: list[ModelStage] = []

    def make(*observers: Observer) -> ModelStage:
        made.append(ModelStage(Watched(*observers), tmp_path))
        return made[-1]

    yield make
    for stage in made:
        await stage.aclose()


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All that a scrape would show, by name and labels; role and plane left out."""
    from prometheus_client import generate_latest  # noqa: PLC0415

    found = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for one in family.samples:
            labels = frozenset((k, v) for k, v in one.labels.items() if k not in ("role", "plane"))
            found[one.name, labels] = one.value
    return found


async def all_ended(stage: ModelStage) -> None:
    """Wait until all roles but the dead have ended with their batch: by then each knows how its last step went."""
    await soon(asyncio.gather(*(one.task for one in stage.processes if not one.bus.halted.is_set())))


def page(port: int) -> str:
    """What a scrape gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        return str(reply.read().decode())


def steps_of(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Steps by name and verb."""
    counted: dict[tuple[str, str], float] = {}
    for (name, labels), value in samples(metrics).items():
        if name == "evalbus_steps_total":
            fields = dict(labels)
            key = (fields["step"], fields["verb"])
            counted[key] = counted.get(key, 0) + value
    return counted


# --- watching -----------------------------------------------------------------------------------------------


async def test_every_step_is_seen_and_none_is_changed(staged: Any, lab: Lab) -> None:  # noqa: ANN401
    """A batch under observers comes to what it comes to without; what they saw is what the history counts."""
    noted, metrics = Noted(), Metrics("worker", Plane.LIVE)
    stage = staged(noted, metrics)
    await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE)
    counters = await stage.run_to_the_end()
    await all_ended(stage)
    assert counters.bins == {"pass": 2, "fail": 0} or sum(counters.bins.values()) == counters.intended
    names = [step.name for step in noted.steps]
    for name in ("create", "admit", "claim", "open_call", "bind_call", "seal", "score_claim", "score", "close"):
        assert name in names, name
    assert {step.run for step in noted.steps if step.name == "seal"} == set(await stage.bus.run_ids(BATCH))
    counted = steps_of(metrics)
    assert counted["seal", "commit"] == counted["score", "commit"] == counters.scored == counters.intended
    assert "read" in noted.how


async def test_an_observer_that_fails_is_left_out(staged: Any, lab: Lab) -> None:  # noqa: ANN401
    """It is told nothing any more, the others are, and no run is lost over it."""
    broken, noted = Noted(fails=True), Noted()
    stage = staged(broken, noted)
    await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE)
    counters = await stage.run_to_the_end()
    assert counters.scored == counters.intended
    assert len(noted.steps) > len(broken.steps) > 0


def test_nobody_asked_nobody_watches() -> None:
    """Without observers it is the bus itself: nothing is wrapped, and nothing costs."""
    bus = cast("ServerBus", InMemory().bus())
    assert observed(bus, []) is bus


def test_every_step_of_a_bus_is_one_that_is_watched() -> None:
    """A step that is added to the bus and not watched would be missing from the metrics without a word."""
    from typing import get_type_hints  # noqa: PLC0415

    from bus.types import Decision  # noqa: PLC0415

    found = set()
    for name in dir(Bus):
        method = getattr(Bus, name)
        if callable(method) and not name.startswith("_"):
            told = get_type_hints(method).get("return")
            if told is Decision or told == list[Decision]:
                found.add(name)
    assert found == STEPS


# --- metrics ------------------------------------------------------------------------------------------------


async def test_a_planner_tells_how_far_a_batch_is(staged: Any, lab: Lab) -> None:  # noqa: ANN401
    """Progress while it is open, the end once more, and no pass rate anywhere."""
    metrics = Metrics("planner", Plane.LIVE)
    stage = staged()
    await stage.declare(suite_of(lab, "budget = 5000"), agent_DOT_py=ASKS_ONCE)
    task = asyncio.create_task(poll_batches(stage.bus, metrics, None, every=0.01))
    try:
        batch = ("batch", BATCH)
        await until(lambda: ("evalbus_batch_intended_runs", frozenset([batch])) in samples(metrics), "the batch")
        counters = await stage.run_to_the_end()
        done = ("evalbus_batch_runs", frozenset([batch, ("state", "scored")]))
        await until(lambda: samples(metrics)[done] == counters.intended, "its end")
        shown = samples(metrics)
    finally:
        task.cancel()
    assert shown["evalbus_batch_tokens", frozenset([batch, ("kind", "spent")])] == counters.spent > 0
    assert shown["evalbus_batch_token_budget", frozenset([batch])] == 5000
    assert shown["evalbus_batch_waiting_entries", frozenset([batch, ("group", "worker")])] == 0
    assert not [name for name, _ in shown if "rate" in name or "pass" in name]
    metrics.forget(BATCH)
    assert not [name for name, labels in samples(metrics) if batch in labels]


class Pruning:
    """A bus that has a second batch when it is looked at first; from then on that was pruned."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self.looks, self.asked = bus, 0, 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """The bus's own."""
        return getattr(self._bus, name)

    async def batches(self) -> list[BatchId]:
        self.looks += 1
        return [BatchId("a"), BATCH] if self.looks == 1 else [BATCH]

    async def info(self, batch: BatchId) -> BatchInfo | None:
        if batch == BATCH:
            return await self._bus.info(batch)
        self.asked += 1
        if self.looks == 1:
            return None
        raise InputError("it was pruned")


async def test_a_batch_that_is_pruned_at_once_does_not_keep_a_planner_from_telling_of_the_others(
    staged: Any,  # noqa: ANN401
    lab: Lab,
) -> None:
    """It was asked about at each look, for ever, and nothing behind it was told any more."""
    metrics, stage = Metrics("planner", Plane.LIVE), staged()
    await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE)
    bus = Pruning(stage.bus)
    task = asyncio.create_task(poll_batches(cast("ServerBus", bus), metrics, None, every=0.001))
    try:
        await until(lambda: bus.looks > 4, "it to look again and again")
    finally:
        task.cancel()
    assert bus.asked <= 2
    assert ("evalbus_batch_intended_runs", frozenset([("batch", BATCH)])) in samples(metrics)


def test_metrics_are_served_on_this_machine_unless_told_otherwise() -> None:
    """And a port that is taken is one line."""
    assert Place.read("0") == Place("127.0.0.1", 0)
    assert Place.read("[::]:9464") == Place("::", 9464)
    metrics = Metrics("worker", Plane.SHADOW)
    metrics.step(Step("seal", BATCH, A, {}, [], 0.004))
    port = serve_metrics(metrics, Place.read("0"))
    text = page(port)
    assert 'evalbus_step_seconds_bucket{le="0.005",plane="shadow",role="worker",step="seal"} 1.0' in text
    assert "process_cpu_seconds_total" in text or not Path("/proc/self/stat").exists()
    with pytest.raises(InputError, match="give another port"):
        serve_metrics(Metrics("worker", Plane.LIVE), Place("127.0.0.1", port))


@pytest.mark.parametrize("written", ["", "x", "70000", "host:", "9464:x", "-1"])
def test_what_is_no_port_is_told(written: str) -> None:
    """With how to write it."""
    with pytest.raises(InputError, match=re.escape("write 9464, or 0.0.0.0:9464")):
        Place.read(written)


@pytest.mark.process
async def test_each_role_serves_its_metrics(tmp_path: Path) -> None:
    """As a process: what it did is on its page."""
    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case("a"), case("b", gate="go")], concurrency=2)
        roles = {
            name: stage.start(name, "--suite", suite, "--metrics", "0") for name in ("planner", "worker", "scorer")
        }
        run = stage.start("run", suite, "--batch", "b", "--workers", 0, "--scorers", 0)
        # `run` has a planner of its own, which may be the quicker everywhere: then this one looks, no more. It does so
        # for as long as the batch is open.
        for name, step, verb in (
            ("planner", "[a-z_]+", "[a-z_]+"),
            ("worker", "seal", "commit"),
            ("scorer", "score", "commit"),
        ):
            counted = re.compile(rf'evalbus_steps_total{{[^}}]*step="{step}",verb="{verb}"}} \d')

            async def is_told(role: Command = roles[name], counted: re.Pattern[str] = counted) -> bool:
                port = _port_of(role)
                return port is not None and counted.search(await asyncio.to_thread(page, port)) is not None

            await eventually(is_told, f"a step of the {name} on its page")
        stage.open_gate("go")
        done = await run.end()
        assert done.code == 0, done.err
        for role in roles.values():
            role.process.terminate()
            await role.end()


def _port_of(command: Command) -> int | None:
    """The port that the role has logged; None while it has not."""
    for line in command.err.read_text().splitlines(keepends=True):
        if '"metrics.served"' in line and line.endswith("\n"):
            return int(json.loads(line)["port"])
    return None


@pytest.mark.parametrize(
    ("form", "told"),
    [("json", '"event": "role.started"'), ("console", "role.started")],
)
def test_logs_are_for_machines_or_for_people(tmp_path: Path, form: str, told: str) -> None:
    """Either way each line says whose it is."""
    code = (
        "from workers.processes import logs; import structlog; logs.configure(role='worker', consumer='w1'); "
        "structlog.get_logger('x').info('role.started')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "EVALBUS_LOG_FORMAT": form}, capture_output=True, text=True,
        check=True, cwd=tmp_path,
    )  # fmt: skip
    (line,) = done.stderr.splitlines()
    assert told in line
    assert "w1" in line
    assert (line[0] == "{") == (form == "json")


def test_a_form_of_logs_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a level is."""
    monkeypatch.setenv("EVALBUS_LOG_FORMAT", "xml")
    with pytest.raises(InputError, match="one of json, console"):
        logs.configure()


def test_the_id_of_a_trace_is_what_the_page_says(tmp_path: Path) -> None:
    """By the command that stands there."""
    command = "printf '%s\\0%s\\0%s' live nightly 'case-7#1' | sha256sum | cut -c 1-32"
    shown = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip()
    assert int(shown, 16) == trace_id_of(Plane.LIVE, BatchId("nightly"), RunId("case-7#1"))
    assert command in (Path(__file__).parent.parent / "docs" / "monitoring.md").read_text()


# --- traces -------------------------------------------------------------------------------------------------


class Traced:
    """Spans and metrics, kept."""

    def __init__(self) -> None:
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.observer = Tracing(Plane.LIVE, tracers, MeterProvider([self.reader]))

    def named(self, beginning: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name.startswith(beginning)]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return [point for metric in found for point in metric.data.data_points]


def about(span: ReadableSpan) -> Mapping[str, Any]:
    """Its attributes."""
    assert span.attributes is not None
    return span.attributes


async def test_a_run_is_one_trace_over_all_machines(staged: Any, lab: Lab) -> None:  # noqa: ANN401
    """Two workers that had it, the scorer, the model's calls: the trace that anyone can compute from the run's name."""
    traced = Traced()
    stage = staged(traced.observer)
    await stage.declare(suite_of(lab, lease=SHORT), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("before", "bind_call"))
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    await all_ended(stage)
    assert counters.bins["pass"] == 1
    spans = traced.spans.get_finished_spans()
    assert {span.context.trace_id for span in spans} == {trace_id_of(Plane.LIVE, BATCH, RunId("a#1"))}
    (attempt,), (score,), calls = traced.named("attempt"), traced.named("score"), traced.named("chat")
    assert about(attempt)["evalbus.gen"] == 2
    assert about(attempt)["evalbus.end"] == "seal"
    assert about(score)["evalbus.bin"] == "pass"
    (call,) = [one for one in calls if "gen_ai.response.model" in about(one)]
    assert call.parent is not None
    assert call.parent.span_id == attempt.context.span_id
    assert call.name == "chat lab-1"
    assert about(call)["gen_ai.operation.name"] == "chat"
    assert about(call)["gen_ai.usage.input_tokens"] == 2
    tokens = {
        dict(point.attributes)["gen_ai.token.type"]: point.sum for point in traced.points("gen_ai.client.token.usage")
    }
    assert tokens["input"] == 2
    assert traced.points("gen_ai.client.operation.duration")


async def test_what_went_wrong_is_an_error_of_its_span(staged: Any, lab: Lab) -> None:  # noqa: ANN401
    """A solver that raises: the attempt ends as a hole, with its name."""
    traced = Traced()
    stage = staged(traced.observer)
    code = "async def solve(case, run):\n    raise ValueError('no')\n"
    await stage.declare(suite_of(lab), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    await all_ended(stage)
    (attempt,) = traced.named("attempt")
    assert not attempt.status.is_ok
    assert attempt.status.description == "solver_error"


def test_the_standard_variables_turn_it_on() -> None:
    """And the one that turns everything off does."""
    assert not wanted({})
    assert wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
    assert not wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"})


def test_without_the_extra_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InputError, match=re.escape("pip install 'evalbus[otel]'")):
        providers("worker", "w")
