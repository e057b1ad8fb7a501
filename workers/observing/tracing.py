"""OpenTelemetry: a trace for each run, over all machines that had a hand in it; and the GenAI metrics of model calls.

    attempt        a worker's lease of a run, from the claim to its seal, hole, hand-back or loss
      chat MODEL   one request to a model, from its announcement to its end          (GenAI conventions)
      execute_tool NAME   one call of a tool with effects, from its licence to what it said   (GenAI conventions)
    score          a scorer's lease, from the claim to the verdict

Spans are made of steps of the bus, so none says more than the history does: a request that was refused has no span, one
whose worker died has an attempt that never ends, and so is not exported. A run's trace id is made of plane, batch and
run: attempts on different machines are in one trace, and anybody can compute it (`trace_id_of`).

Source of the names: OpenTelemetry semantic conventions for generative AI (gen_ai.*), spans and client metrics.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from bus.errors import InputError
from bus.port import Entry
from bus.port_calls import ModelCall, ModelReply
from bus.types import BatchId, Plane, RunId
from workers.observing.observed import Step

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Tracing", "providers", "trace_id_of", "wanted"]

_OPENED: Final = {"open_call": "bind_call", "open_judge": "bind_judge"}
_ENDS_ATTEMPT: Final = ("seal", "give_back", "hole")
_ENDS_SCORE: Final = ("score", "score_give_back", "score_hole")
_MOST: Final = 10_000
"""Spans that are open at once. What begins beyond that is not traced: its end was never seen, or never comes."""


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard variables say where traces or metrics go."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    return any(environ.get(name) for name in named)


def trace_id_of(plane: Plane, batch: BatchId, run: RunId) -> int:
    """The id of a run's trace, 128 bits: the first half of SHA-256 over plane, batch and run, parted by zeros."""
    return int.from_bytes(hashlib.sha256(f"{plane}\0{batch}\0{run}".encode()).digest()[:16])


class Tracing:
    """An observer that makes spans."""

    def __init__(self, plane: Plane, tracers: TracerProvider, meters: MeterProvider) -> None:
        """The providers say where things go; `providers` makes them by the environment."""
        self._plane = plane
        self._tracer = tracers.get_tracer("evalbus")
        meter = meters.get_meter("evalbus")
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="Tokens of a model call, by type."
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="From announcing a model call to its end."
        )
        self._attempts: dict[tuple[BatchId, RunId, str], Span] = {}
        self._calls: dict[str, tuple[Span, float]] = {}
        self._tools: dict[tuple[RunId, str, str], Span] = {}
        self._names: dict[tuple[RunId, str], str] = {}

    def entries(self, how: str, entries: Sequence[Entry]) -> None:
        """As `Observer` has it; streams are not traced."""

    def step(self, step: Step) -> None:
        """As `Observer` has it."""
        if step.failed or len(step.decisions) != 1:
            return
        match step.name:
            case "claim" | "score_claim":
                self._claimed(step)
            case "open_call" | "open_judge":
                self._opened(step)
            case "bind_call" | "bind_judge" | "drop_call":
                self._ended_call(step)
            case "tool_claim":
                self._took(step)
            case "tool_sent":
                self._sent(step)
            case "tool_complete":
                self._ended_tool(step)
            case name if name in (*_ENDS_ATTEMPT, *_ENDS_SCORE):
                self._ended(step)

    # --- attempts and scores -----------------------------------------------------------------------------

    def _claimed(self, step: Step) -> None:
        decision = step.decisions[0]
        if not decision.applied or step.batch is None or step.run is None or len(self._attempts) >= _MOST:
            return
        kind = "score" if step.name == "score_claim" else "attempt"
        said = {"gen": decision.answer.get("gen"), "epoch": decision.answer.get("epoch")}
        attributes = self._of_run(step.batch, step.run) | {f"evalbus.{k}": v for k, v in said.items() if v is not None}
        attributes["evalbus.consumer"] = str(step.arguments.get("consumer", ""))
        attributes["evalbus.deliveries"] = getattr(step.arguments.get("entry"), "deliveries", 1)
        span = self._begin(f"{kind} {step.run}", step.batch, step.run, attributes)
        self._attempts[step.batch, step.run, str(step.arguments.get("lease_id"))] = span

    def _ended(self, step: Step) -> None:
        ref, decision = step.arguments.get("ref"), step.decisions[0]
        span = self._attempts.pop((ref.batch, ref.run, str(ref.lease_id)), None) if ref is not None else None
        if span is None:
            return
        span.set_attribute("evalbus.end", step.name if decision.applied else "refused")
        if not decision.applied:
            self._fail(span, str(decision))
        elif step.name in ("hole", "score_hole"):
            self._fail(span, str(step.arguments.get("why", "")))
        elif step.name == "score":
            span.set_attribute("evalbus.bin", str(getattr(step.arguments.get("judgement"), "bin", "")))
        span.end()

    # --- model calls -------------------------------------------------------------------------------------

    def _opened(self, step: Step) -> None:
        call, ref = step.arguments["call"], step.arguments["ref"]
        if not step.decisions[0].applied or len(self._calls) >= _MOST:
            return
        attributes = self._of_run(ref.batch, ref.run) | {
            "gen_ai.operation.name": "chat",
            "evalbus.step": call.step,
            "evalbus.request_id": call.request_id,
            "evalbus.token_estimate": call.estimate,
        }
        parent = self._attempts.get((ref.batch, ref.run, str(ref.lease_id)))
        span = self._begin("chat", ref.batch, ref.run, attributes, parent, client=True)
        self._calls[call.request_id] = (span, time.perf_counter())

    def _ended_call(self, step: Step) -> None:
        call, decision = step.arguments["call"], step.decisions[0]
        assert isinstance(call, ModelCall)
        if step.name != "drop_call" and not decision.applied and decision.verb.value == "in_doubt":
            return  # the same call is bound again, once its chunks are there
        found = self._calls.pop(call.request_id, None)
        if found is None:
            return
        span, began = found
        labels: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        reply = step.arguments.get("reply")
        if isinstance(reply, ModelReply):
            labels |= self._replied(span, reply)
        if step.name == "drop_call" or not decision.applied:
            labels["error.type"] = "dropped" if step.name == "drop_call" else decision.reason or "refused"
            span.set_attribute("error.type", labels["error.type"])
            self._fail(span, labels["error.type"])
        self._duration.record(time.perf_counter() - began, labels)
        span.end()

    def _replied(self, span: Span, reply: ModelReply) -> dict[str, Any]:
        """What the answer's event says, as attributes; returns those that metrics have, too."""
        try:
            event = json.loads(reply.payload)
            said, usage = event["reply"], event["usage"]
        except (ValueError, KeyError, TypeError):
            return {}
        model = str(said.get("model", ""))
        span.update_name(f"chat {model}".rstrip())
        span.set_attributes(
            {
                "gen_ai.response.model": model,
                "gen_ai.response.id": str(said.get("id", "")),
                "gen_ai.response.finish_reasons": [str(said.get("finish_reason", ""))],
                "gen_ai.usage.input_tokens": int(usage.get("input", 0)),
                "gen_ai.usage.output_tokens": int(usage.get("output", 0)),
            }
        )
        labels = {"gen_ai.response.model": model}
        for kind in ("input", "output"):
            told = {**labels, "gen_ai.operation.name": "chat", "gen_ai.token.type": kind}
            self._usage.record(int(usage.get(kind, 0)), told)
        return labels

    # --- tools -------------------------------------------------------------------------------------------

    def _took(self, step: Step) -> None:
        answer = step.decisions[0].answer
        if step.decisions[0].applied and step.run is not None and len(self._names) < _MOST:
            self._names[step.run, str(answer.get("intent"))] = str(answer.get("tool", ""))

    def _sent(self, step: Step) -> None:
        batch, run, intent = step.batch, step.run, str(step.arguments["intent"])
        if not step.decisions[0].applied or batch is None or run is None or len(self._tools) >= _MOST:
            return
        name = self._names.get((run, intent), "")
        attributes = self._of_run(batch, run) | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": intent,
            "evalbus.executor": str(step.arguments.get("executor", "")),
        }
        span = self._begin(f"execute_tool {name}".rstrip(), batch, run, attributes)
        self._tools[run, intent, str(step.arguments.get("executor"))] = span

    def _ended_tool(self, step: Step) -> None:
        run, intent = step.run, str(step.arguments["intent"])
        if run is None:
            return
        self._names.pop((run, intent), None)
        span = self._tools.pop((run, intent, str(step.arguments.get("executor"))), None)
        if span is None:
            return
        outcome = step.arguments.get("outcome")
        if not step.decisions[0].applied:
            self._fail(span, str(step.decisions[0]))
        elif outcome is not None and not outcome.ok:
            self._fail(span, "the tool failed")
        span.end()

    # --- spans -------------------------------------------------------------------------------------------

    def _of_run(self, batch: BatchId, run: RunId) -> dict[str, Any]:
        return {"evalbus.plane": str(self._plane), "evalbus.batch": str(batch), "evalbus.run": str(run)}

    def _begin(
        self,
        name: str,
        batch: BatchId,
        run: RunId,
        attributes: Mapping[str, Any],
        parent: Span | None = None,
        *,
        client: bool = False,
    ) -> Span:
        from opentelemetry import trace  # noqa: PLC0415 - an extra

        if parent is None:
            whole = trace_id_of(self._plane, batch, run)
            above = trace.SpanContext(whole, whole >> 64 or 1, True, trace.TraceFlags(trace.TraceFlags.SAMPLED))
            parent = trace.NonRecordingSpan(above)
        kind = trace.SpanKind.CLIENT if client else trace.SpanKind.INTERNAL
        context = trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context, kind, dict(attributes))

    @staticmethod
    def _fail(span: Span, why: str) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - an extra

        span.set_status(Status(StatusCode.ERROR, why))


def providers(role: str, consumer: str) -> tuple[TracerProvider, MeterProvider]:
    """Exporters over HTTP, by the standard variables `OTEL_EXPORTER_OTLP_…`. Raises InputError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider as Meters  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider as Tracers  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        raise InputError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed",
            remedy="pip install 'evalbus[otel]', or unset it",
        ) from None
    about = Resource.create({"service.name": f"evalbus-{role}", "service.instance.id": consumer})
    tracers = Tracers(resource=about)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracers, Meters([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=about)
