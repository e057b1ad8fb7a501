"""One batch's history, put to the models of the twelve fences.

Each recorded decision is asked of the model again, with what it was given and at the time at which it was recorded.
Nothing is taken from the record but what comes from outside: random ids, what callers present, the clock. Generations
are derived: the server mints one above the last, or above the floor that its restart raised.

A step that is refused leaves one decision in the history. What it was granted before that was taken back on the server,
and was never told to the models; where the refusal is about it, it is put in place for that one question.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bus.contract import CONTRACT
from bus.models import Answer, Model, Verb
from bus.models.admission import Admission
from bus.models.completion import Completion
from bus.models.histogram import Status
from bus.models.indoubt import Ref
from bus.models.join import Join
from bus.models.join import State as Joined
from bus.models.judge import Judge
from bus.models.model import MAX_INT, reject
from bus.models.outbox import UNDO, Outbox, State, undone_by
from bus.models.plane import Plane
from bus.models.sandbox import Sandbox, Step
from bus.models.transcript import EMPTY, Run
from bus.models.workspace import Workspace
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.replay.large import LargeHistogram, LargeInDoubt, LargeLedger, LargeTranscript
from bus.replay.silence import Disks, set_desk_clock, set_outbox_clock, set_pair_clock
from bus.replay.telling import Told

__all__ = ["Player"]

_RUNS_DESK = "runs"
_PIPELINE = "run"  # the name under which the steps themselves refuse, which no fence does
_NOT_PRESENTED = "-"
_MOST = 100  # events of one step


class Player:
    """See the module's text. The models are public: what they hold at the end is the derived state."""

    def __init__(self, policy: Mapping[str, Any], clock: Callable[[Told], int] | None = None) -> None:
        """`policy`: the export's own, checked. `clock`: the batch's time, where it is not the entries'."""
        limits: Mapping[str, Any] = policy["limits"]
        self._clock = clock or _recorded_at
        self._intended = policy["intended"]
        self._floor = 0
        self.transcript = LargeTranscript()
        self.histogram = LargeHistogram(
            quorum=policy["quorum"], bins=policy["bins"], max_in_flight=policy["max_in_flight"]
        )
        self.judge = Judge(policy=policy["judge_policy"], replay_budget=policy["replay_budget"])
        counts_tokens = "compute_retries" in limits or "judge_slots" in limits
        self.ledger = LargeLedger(budget=limits.get("budget", MAX_INT if counts_tokens else 0))
        self.outbox = Outbox(
            ack_bound_ms=limits.get("ack_bound_ms", MAX_INT), inverses=json.loads(limits.get("inverses", "{}"))
        )
        self.indoubt = LargeInDoubt()
        self.join = Join(budget=limits.get("budget", MAX_INT), budget_epoch=limits.get("budget_epoch", 0))
        self.disks = Disks(limits.get("heartbeat_ms", 1))
        self.completion = Completion(
            compute_retries=limits.get("compute_retries", 0), model_retries=limits.get("model_retries", 0)
        )
        self.desks = _desks(policy)
        self._desk_of: dict[str, str] = {}
        self._run_of_intent: dict[str, str] = {}
        self._minted: dict[str, int] = {}
        """Run → its last generation in fence 7, whatever the conversation."""
        self._plain: dict[str, Model] = {
            "judge": self.judge,
            "ledger": self.ledger,
            "workspace": Workspace(schemas=json.loads(limits.get("schemas", '["bin/1"]'))),
            "plane": Plane(capacity=limits.get("capacity", policy["bound"])),
        }
        self._special: dict[str, Callable[[Told], Answer | None]] = {
            "admission": self._admission,
            "completion": self._completion,
            "histogram": self._histogram,
            "indoubt": self._indoubt,
            "join": self._join,
            "outbox": self._outbox,
            "sandbox": self._sandbox,
            "transcript": self._transcript,
        }
        for model in (
            self.transcript, self.histogram, self.outbox, self.indoubt, self.join, self.completion,
            *self.desks.values(), *self._plain.values(),
        ):  # fmt: skip
            model.any_text = True  # what is recorded as text a script has taken for text
        self.decisions: Counter[str] = Counter()
        """By fence."""
        self.refusals: Counter[str] = Counter()
        """By reason, those of the steps themselves included."""

    def knows(self, told: Told) -> bool:
        """Whether this release has the operation."""
        return told.fence == _PIPELINE or (told.fence in CONTRACT and told.op in CONTRACT[told.fence].ops)

    def decide(self, told: Told) -> Answer | None:
        """What the model of the line's fence says; None where there is none to ask. The line is one that it `knows`."""
        self.decisions[told.fence] += 1
        if told.verb in ("reject", "replay"):
            self.refusals[told.reason or ""] += 1
        if told.fence == _PIPELINE:
            self._note_step(told)
            return None
        if (model := self._plain.get(told.fence)) is not None:
            answer = model.decide(told.op, told.args)
            if (told.fence, told.op, answer.verb) == ("judge", "mint", Verb.COMMIT):
                self.histogram.name(told.args["run"])
            return answer
        return self._special[told.fence](told)

    # --- the steps themselves ------------------------------------------------------------------------------

    def _note_step(self, told: Told) -> None:
        """A restart of the server: what was granted before may have been lost, so none of it counts any more."""
        floor = told.answer.get("floor")
        if (told.op, told.verb) != ("restarted", "commit") or not isinstance(floor, int):
            return
        self._floor = max(self._floor, floor)
        for run in self.transcript.runs.values():
            if run.live is not None and run.gen <= floor:
                run.live = None
        for held in self.completion.runs.values():
            if held.live is not None and held.gen <= floor:
                held.live = None

    # --- fences with a part of their own in the history ----------------------------------------------------

    def _admission(self, told: Told) -> Answer:
        """There is a desk for runs, one for each endpoint: that of the call, or the one that granted the place."""
        lease = str(told.args.get("lease"))
        named = str(told.envelope.get("desk", _RUNS_DESK))
        name = named if told.op == "acquire" else self._desk_of.get(lease, named)
        desk = self.desks.get(name, self.desks[_RUNS_DESK])
        known, run = desk.leases.get(lease), told.envelope.get("run")
        if "desk_lease" in told.envelope and known is not None and not known.step.startswith(f"{run}~"):
            # Another run's, and given back: in this one's row there never was such a place.
            return reject("not_live" if told.op == "expire" else "unknown_lease")
        set_desk_clock(desk, told, self._clock(told))
        answer = desk.decide(told.op, told.args)
        if lease in desk.leases:
            self._desk_of[lease] = name
        return answer

    def _completion(self, told: Told) -> Answer:
        run = self.completion.runs.get(str(told.args.get("run")))
        if told.op == "lease" and run is not None:
            run.gen = max(run.gen, self._floor)
        elif told.op == "lease" and self._floor:
            return self._first_lease(told)
        return self.completion.decide(told.op, told.args)

    def _first_lease(self, told: Told) -> Answer:
        """Of a run that was never leased, after a restart: its first generation is above the floor, too."""
        answer = self.completion.decide(told.op, told.args)
        run = self.completion.runs.get(str(told.args.get("run")))
        if run is None or run.live is None:
            return answer
        run.gen += self._floor
        run.live = type(run.live)(run.live.lease_id, run.gen)
        return Answer(answer.verb, answer.reason, {"gen": run.gen})

    def _histogram(self, told: Told) -> Answer | None:
        run = told.args.get("run")
        is_known = len(self.histogram.intended) >= self._intended or run in self.histogram.intended
        if told.op == "abandon" and told.verb == "commit" and isinstance(run, str) and not is_known:
            self.histogram.name(run)  # one that was never admitted, and ends as a hole
        if told.op == "drain" and len(self.histogram.intended) < self._intended:
            return Answer(Verb.IN_DOUBT, "not_drained")
        if told.op == "close" and self._counted_wrong(told):
            return Answer(Verb.IN_DOUBT, "in_flight")
        return self.histogram.decide(told.op, told.args)

    def _counted_wrong(self, told: Told) -> bool:
        """Who closes says how many scores his snapshot has; fewer or more, and it is not of the whole set."""
        whole = len(self.histogram.rows) + len(self.histogram.holes) == self._intended
        reaches = self.histogram.status is Status.DRAINED and len(self.histogram.rows) >= self.histogram.quorum
        return whole and reaches and told.envelope.get("accepted") != len(self.histogram.rows)

    def _indoubt(self, told: Told) -> Answer:
        args = told.args
        named = Ref(str(args.get("run")), str(args.get("key")), int(args.get("epoch", 0)))
        set_pair_clock(self.indoubt, told, self._clock(told), self.indoubt.pairs.get(named))
        return self.indoubt.decide(told.op, args)

    def _join(self, told: Told) -> Answer:
        window = self.join.cases.get(str(told.args.get("case")))
        if told.reason != "duplicate_attempt" or window is None or window.state is not Joined.OPEN:
            return self.join.decide(told.op, told.args)
        before = dict(window.joined)  # the step named a call twice: what came before the second was taken back
        all_came = told.answer.get("state") == Joined.JOINED.value
        window.joined |= dict.fromkeys(window.expected if all_came else [str(told.args.get("attempt"))], 0)
        window.state = Joined.JOINED if all_came else Joined.OPEN
        answer = self.join.decide(told.op, told.args)
        window.joined, window.state = before, Joined.OPEN
        return answer

    def _outbox(self, told: Told) -> Answer:
        set_outbox_clock(self.outbox, told, self._clock(told))
        named, run = str(told.args.get("intent_id")), told.envelope.get("run")
        at, args = self.outbox.intents.get(named), told.args
        if at is not None and self._run_of_intent.get(undone_by(named) or named, run) != run:
            return reject("unknown_intent")  # another run's: there is none of that name in this one's row
        if told.op == "put" and at is None and isinstance(run, str):
            self._run_of_intent[named] = run
        if isinstance(args.get("args"), str):
            args = {**args, "args": json.loads(args["args"])}
        if told.reason == "executor_reused" and at is not None and at.state is State.EXECUTING:
            at.state = State.QUEUED  # it was taken from another executor in the same step
            answer = self.outbox.decide(told.op, args)
            at.state = State.EXECUTING
            return answer
        return self.outbox.decide(told.op, args)

    def _sandbox(self, told: Told) -> Answer:
        run = told.args.get("workspace", told.envelope.get("run"))

        def ask(model: Sandbox) -> Answer:
            model.any_text = True
            step = told.args.get("step")
            planned = isinstance(step, str) and step in model.steps
            if told.op != "write" or not told.refused or planned or not isinstance(step, str):
                return model.decide(told.op, told.args)
            model.steps[step] = Step(escapes=False)  # it was planned in the same step
            answer = model.decide(told.op, told.args)
            del model.steps[step]
            return answer

        return self.disks.decide(str(run), told, self._clock(told), ask)

    def _transcript(self, told: Told) -> Answer:
        args = told.args
        chain = str(args.get("run"))
        if told.op == "lease":
            return self._lease(told, chain)
        if told.op == "append" and told.refused and args.get("payload") is None:
            args = {**args, "payload": _NOT_PRESENTED}  # of very many events the last were not kept
        at = self.transcript.runs.get(chain)
        if not told.refused or at is None:
            return self.transcript.decide(told.op, args)
        with _granted_before(at, told):
            return self.transcript.decide(told.op, args)

    def _lease(self, told: Told, chain: str) -> Answer:
        """The generation is the run's: a new conversation begins under that of its holder, a claim under the next."""
        run = chain.rpartition("~")[0] or chain
        last = self._minted.get(run, 0)
        at = self.transcript.runs.get(chain)
        turned = at is None and last > 0
        base = last - 1 if turned else max(last, self._floor)
        if at is not None:
            at.gen = base
            answer = self.transcript.decide(told.op, told.args)
        else:
            self.transcript.runs[chain] = Run(gen=base)
            answer = self.transcript.decide(told.op, told.args)
            if self.transcript.runs[chain].live is None:
                del self.transcript.runs[chain]
        if (known := self.transcript.runs.get(chain)) is not None and known.live is not None:
            self._minted[run] = max(last, known.live.gen)
        return answer

    # --- what they lead to ---------------------------------------------------------------------------------

    @property
    def effects_open(self) -> int:
        """Intents and undos that have not ended."""
        ends = (State.COMMITTED, State.FAILED, State.COMPENSATED, State.STUCK)
        return sum(one.state not in ends for one in self.outbox.intents.values())

    @property
    def stuck(self) -> int:
        """Intents whose effect nobody knows and nobody can undo."""
        intents = self.outbox.intents.items()
        return sum(one.state is State.STUCK for name, one in intents if not name.endswith(UNDO))

    def head(self, run: str) -> str:
        """The head of a run's latest conversation; of none, the empty one."""
        number = 0
        while f"{run}~{number + 1}" in self.transcript.runs:
            number += 1
        at = self.transcript.runs.get(f"{run}~{number}")
        return EMPTY if at is None else at.head


def _desks(policy: Mapping[str, Any]) -> dict[str, Admission]:
    """Where runs get a place, and calls at the two endpoints; a desk of 0 places where the batch has no such calls."""
    limits: Mapping[str, Any] = policy["limits"]
    bounds = {
        _RUNS_DESK: policy["bound"],
        MODEL_DESK: limits.get("model_slots", 0),
        JUDGE_DESK: limits.get("judge_slots", 0),
    }
    return {name: Admission(bound=bound, reclaim_ms=policy["reclaim_ms"]) for name, bound in bounds.items()}


def _recorded_at(told: Told) -> int:
    return told.ms


@contextlib.contextmanager
def _granted_before(at: Run, told: Told) -> Iterator[None]:
    """The chain with what the refused step had appended before, for as long as the block runs."""
    envelope, args = told.envelope, told.args
    first, parent = envelope.get("seq"), envelope.get("parent")
    length = at.length
    continues = first == length + 1 and parent == at.head
    added: list[str] = []
    if told.op == "seal" and continues and args.get("head") == envelope.get("head"):
        added = [str(args["head"])]
    elif told.op == "append" and continues and isinstance(seq := args.get("seq"), int):
        before = seq - 1 - length
        added = [EMPTY] * (before - 1) + [str(args.get("parent"))] if 0 < before <= _MOST else []
    at.heads += added
    at.events += [""] * len(added)
    try:
        yield
    finally:
        if added:
            del at.heads[length:], at.events[length:]
