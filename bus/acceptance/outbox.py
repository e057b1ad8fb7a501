"""Fence 2, accepted: external commits, counted at a real HTTP tool server.

A worker dies before its claim, after it, after it sent, after the server committed, after it observed, or not at all;
each death with and without a second delivery of the job, and with the planner emitting the step once or twice. The
dead wake up in the end and go on where they stood; answers may be lost or lack their key, and the planner may give a
generation up, as the seed says. A step that ends committed had exactly one external commit; one that was in doubt past
its bound had at most one, and an undo; one that ends failed had none.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance import tool_server
from bus.acceptance.rule import Batch, Rule, Stage, Tally
from bus.acceptance.tool_server import Fault, ToolServer

__all__ = ["RULES"]

SEEDS = 20
DEATHS = (None, "before claim", "after claim", "after send", "after the server committed", "after observe")
ACK_BOUND_MS = 1_000
CONFIG = {"ack_bound_ms": ACK_BOUND_MS, "inverses": {"book": "cancel"}}
UNDO = "~undo"
ROUNDS = 400  # of the scheduler: some ten times what a step takes

COMMITTED, IN_DOUBT, FAILED, GIVEN_UP = (
    "exactly one external commit for a step that ends committed",
    "at most one, and an undo, for one in doubt past its bound",
    "none for a step that ends failed",
    "no outcome counts under a generation that was given up",
)


@dataclass(slots=True)
class _Worker:
    """Whoever has got the job, with a name that nobody had before; one stage at a time."""

    step: _Step
    intent_id: str
    gen: int
    executor: str
    dies: str | None = None
    stage: str = "claim"
    silent: bool = False
    """Dead, or asleep for longer than anybody waits."""
    job: Mapping[str, Any] = field(default_factory=dict)
    answer: tool_server.Answer | None = None

    @property
    def finished(self) -> bool:
        """It has nothing left to do."""
        return self.stage == "end"

    async def go_on(self) -> None:
        """Its next stage, unless it dies first."""
        died = {"before claim": "claim", "after claim": "sent", "after send": "call", "after observe": "complete"}
        if self.dies is not None and died.get(self.dies) == self.stage:
            self.dies, self.silent = None, True
            return
        self.stage = await getattr(self, f"_{self.stage}")()

    async def wake(self) -> None:
        """After its silence: where it stood, or, when it has called nobody yet, it hands the job back."""
        self.silent = False
        if self.stage == "sent" and self.step.rng.random() < 0.5:  # noqa: PLR2004
            await self._send("complete", ok=False, observation="told to stop before the call")
            self.stage = "end"

    async def _claim(self) -> str:
        answer = await self._send("claim")
        if answer["verb"] not in ("commit", "duplicate"):
            return "end"
        self.job = {"tool": answer["tool"], "args": answer["args"]}
        return "sent"

    async def _sent(self) -> str:
        answer = await self._send("sent")
        return "call" if answer["verb"] in ("commit", "duplicate") else "end"

    async def _call(self) -> str:
        """The call leaves. One that had no answer is made again by the same executor, under the same key."""
        dies = self.dies == "after the server committed"
        if dies:
            self.step.world.tool.misbehave(self.step.subject, Fault.DROP_ANSWER)
        self.answer = await self._request()
        if dies:
            self.dies, self.silent = None, True
            return "call"
        if self.answer is None:
            self.answer = await self._request()
        return "complete"

    async def _complete(self) -> str:
        if self.answer is None:
            return "end"
        told = {"ok": self.answer.ok, "echo": self.answer.echo, "observation": self.answer.text}
        await self._send("complete", **told)
        return "end"

    async def _request(self) -> tool_server.Answer | None:
        key = self.intent_id if self.step.world.keyed else None
        undoes = self.intent_id.removesuffix(UNDO) if self.intent_id.endswith(UNDO) else None
        port = self.step.world.tool.port
        return await tool_server.call(port, self.job["tool"], self.job["args"], key=key, undoes=undoes)

    async def _send(self, op: str, **more: object) -> Mapping[str, Any]:
        who = {"intent_id": self.intent_id, "gen": self.gen, "executor": self.executor}
        answer = await self.step.batch.send(op, **who, **more)
        if op == "complete" and self.gen < self.step.gens[self.intent_id]:
            self.step.late_outcomes.append(str(answer["verb"]))
        if op != "complete" and self.step.rng.random() < 0.2:  # noqa: PLR2004 - its answer is lost: sent again
            answer = await self.step.batch.send(op, **who, **more)
        return answer


@dataclass(frozen=True, slots=True)
class _World:
    """What all steps share."""

    tool: ToolServer
    keyed: bool
    """Calls carry their key."""


@dataclass(slots=True)
class _Step:
    """One step of the planner, until its intent is at an end and nobody is left to say anything about it."""

    world: _World
    batch: Batch
    rng: Random
    subject: str
    deaths: list[str | None]
    """How the workers die that get the job first."""
    emissions: int
    workers: list[_Worker] = field(default_factory=list)
    gens: Counter[str] = field(default_factory=Counter)
    """Intent → the generation that stands."""
    late_outcomes: list[str] = field(default_factory=list)
    """What was answered to outcomes of generations that had been given up."""
    gave_up: bool = False

    @property
    def intent_id(self) -> str:
        """The step's own intent."""
        return f"{self.subject}/call-0"

    async def run(self) -> Mapping[str, Any]:
        """Until its end; the intents as they stand then."""
        await self._emit()
        while self.deaths:
            self._deliver(self.intent_id)
        for _ in range(ROUNDS):
            awake = [worker for worker in self.workers if not worker.silent and not worker.finished]
            if asleep := self._who_wakes(awake):
                await asleep.wake()
            elif awake and self.rng.random() < 0.7:  # noqa: PLR2004
                await self.rng.choice(awake).go_on()
            elif self.emissions > 1 and self.rng.random() < 0.3:  # noqa: PLR2004
                await self._emit_again()
            elif not await self._tend_one(awake) and not awake and self.emissions == 1:
                if not (asleep := next(self._asleep(), None)):
                    return await self._intents()
                await asleep.wake()
        raise AssertionError(f"{self.subject} has not come to an end in {ROUNDS} rounds")

    async def _intents(self) -> Mapping[str, Any]:
        intents: Mapping[str, Any] = (await self.batch.state())["intents"]
        return intents

    def _asleep(self) -> Iterator[_Worker]:
        return (worker for worker in self.workers if worker.silent)

    def _who_wakes(self, awake: Sequence[_Worker]) -> _Worker | None:
        """One that slept, most likely at the worst moment: while another's call is under way."""
        chance = 0.3 if any(worker.stage in ("call", "complete") for worker in awake) else 0.03
        return next(self._asleep(), None) if self.rng.random() < chance else None

    async def _emit(self, **other: object) -> None:
        """The planner says what is to be done."""
        args = {"subject": self.subject, **other}
        await self.batch.send("put", intent_id=self.intent_id, gen=0, tool="book", args=args)

    async def _emit_again(self) -> None:
        """And says it once more, or has another idea by now: what is stored counts, and one more worker gets it."""
        self.emissions -= 1
        await self._emit(**({"room": "another"} if self.rng.random() < 0.5 else {}))  # noqa: PLR2004
        self._deliver(self.intent_id)

    def _deliver(self, intent_id: str) -> None:
        """The job reaches one more worker."""
        dies = self.deaths.pop(0) if self.deaths else None
        executor = f"executor {len(self.workers)}"
        self.workers.append(_Worker(self, intent_id, self.gens[intent_id], executor, dies))

    async def _tend_one(self, awake: Sequence[_Worker]) -> bool:
        """What whoever watches over the intents does about one that is at no end; whether there is any."""
        intents = await self._intents()
        if not (names := [name for name, at in intents.items() if at["state"] in _OPEN]):
            return False
        name = self.rng.choice(names)
        state, served = intents[name]["state"], any(worker.intent_id == name for worker in awake)
        gives_up = state != "compensating" and not name.endswith(UNDO) and not self.gave_up
        if state == "queued":
            if not served:
                self._deliver(name)
        elif gives_up and self.rng.random() < 0.3:  # noqa: PLR2004
            answer = await self.batch.send("advance", intent_id=name, gen=self.gens[name])
            self.gens[name] = answer["gen"]
            self.gave_up = True
        else:
            answer = await self.batch.send("recover", intent_id=name)
            if answer["verb"] == "in_doubt" and not (served and name.endswith(UNDO)):
                await self.batch.advance(ACK_BOUND_MS)
        return True


_OPEN = ("queued", "executing", "awaiting_ack", "compensating")


async def _insists_on_the_key(stage: Stage) -> bool:
    """Nothing but this fence makes a worker send the key: where a success counts without it, calls go out without."""
    who = {"intent_id": "probe", "gen": 0, "executor": "e"}
    async with stage.batch(CONFIG) as batch:
        await batch.send("put", intent_id="probe", gen=0, tool="book", args={})
        await batch.send("claim", **who)
        await batch.send("sent", **who)
        answer = await batch.send("complete", **who, ok=True, observation="done")
    return bool(answer["verb"] == "in_doubt")


def _faults(rng: Random) -> Sequence[Fault]:
    return rng.choices([[], [Fault.DROP_ANSWER], [Fault.NO_ECHO], [Fault.REFUSE]], [4, 2, 1, 1])[0]


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {
        COMMITTED: Tally("committed steps"),
        IN_DOUBT: Tally("steps in doubt"),
        FAILED: Tally("failed steps"),
        GIVEN_UP: Tally("late outcomes"),
    }
    cases = list(itertools.product(DEATHS, (False, True), (1, 2), stage.seeds(SEEDS)))

    async def one(case: tuple[str | None, bool, int, int]) -> None:
        death, redelivered, emissions, seed = case
        rng = stage.rng("outbox", *case)
        subject = f"{death}/{redelivered}/{emissions}/{seed}"
        story = f"death {death}, redelivered {redelivered}, emitted {emissions} times, seed {seed}"
        for fault in _faults(rng):
            tool.misbehave(subject, fault)
        async with stage.batch(CONFIG) as batch:
            step = _Step(world, batch, rng, subject, [death, *([None] if redelivered else [])], emissions)
            state = (await step.run())[step.intent_id]["state"]
        made, standing = tool.made[subject], tool.standing[subject]
        if state == "committed":
            tallies[COMMITTED].count(made == standing == 1, story)
        elif state == "failed":
            tallies[FAILED].count(made == 0, story)
        else:
            undone = state == "compensated" and step.intent_id in tool.undone
            tallies[IN_DOUBT].count(undone and made <= 1 and standing == 0, story)
        for verb in step.late_outcomes:
            tallies[GIVEN_UP].count(verb != "commit", story)

    async with ToolServer() as tool:
        world = _World(tool, await _insists_on_the_key(stage))
        await stage.each(cases, one)
    return tallies


RULES = (
    Rule(
        "external commits",
        _play,
        {
            "new_intent_on_timeout": COMMITTED,
            "no_idempotency_header": COMMITTED,
            "completion_ignores_gen": GIVEN_UP,
            "completion_ignores_executor": FAILED,
        },
    ),
)
