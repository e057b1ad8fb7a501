"""What may be asked of model calls, drawn at random: opened, flushed, bound, dropped, lost and swept, in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bus.chain import next_head
from bus.port import Group, Ref, RunState
from bus.port_calls import JUDGE_DESK, MODEL_DESK, Chunk, ModelCall, ModelReply
from bus.types import Decision, Digest, Gen, LeaseId
from tests.session_life import LifeSession
from tests.twins import Side

__all__ = ["CallSession"]


@dataclass(slots=True)
class Asked:
    """A request that was announced, and how far its answer has come."""

    ref: Ref
    call: ModelCall
    desk_gen: int
    arrived: int = 0
    """Chunks so far."""
    ended: bool = False


class CallSession(LifeSession):
    """See the module's text."""

    asked: list[Asked]
    drawn = 0

    def one(self, prefix: str) -> str:
        """A name that was not drawn before; seldom one that was."""
        if not self.drawn or not self.often(0.04):
            self.drawn += 1
        return f"{prefix}{self.drawn}"

    def call_of(self, ref: Ref, step: str, parent: Digest, seq: int, desk: str) -> ModelCall:
        """A request as it might be made now."""
        prompt = self.rng.choice(["p"] * 12 + ["q"])
        number = int(self.one("")) if self.drawn else int(self.one("0"))
        return ModelCall(
            step=step,
            request_id=self.one("r"),
            attempt=number,
            desk_lease=self.one(f"{ref.run}d"),
            prompt_hash=Digest(hashlib.sha256(f"{ref.run}{prompt}".encode()).hexdigest()),
            estimate=self.rng.choice([5, 10, 10, 40, 150]),
            parent=parent,
            seq=seq,
            desk=desk,
        )

    def still(self, desk: str) -> Asked | None:
        """A request at a desk, mostly one that has not been answered."""
        there = [one for one in self.asked if one.call.desk == desk]
        live = [one for one in there if not one.ended]
        mine = [one for one in live if self.focus is not None and one.ref == self.focus]
        if mine and self.often(0.9):
            return mine[-1]
        if not there:
            return None
        return self.rng.choice(live[-3:] if live and self.often(0.85) else there)

    def chunks(self, one: Asked, most: int) -> Sequence[Chunk]:
        """The next ones; seldom one that came before, or one behind a gap, or one that nobody could find again."""
        found = []
        for _ in range(self.rng.randint(0, most)):
            one.arrived += 1
            seq = max(1, one.arrived + (self.rng.choice([-1, 1]) if self.often(0.1) else 0))
            found.append(Chunk(seq, self.rng.choice([0, 1, 3, 8, 30]), durable=self.often(0.93)))
        return found

    # --- the holder's ----------------------------------------------------------------------------------------

    async def open_call(self) -> None:
        if not self.held:
            return
        ref = self.holder()
        parent, seq = self.prefix(ref.run)
        step = f"{ref.run}~{ref.conversation}.{seq if self.often(0.9) else 1}"
        call = self.call_of(ref, step, parent, seq, MODEL_DESK)
        if self.often(0.03):
            call = replace(call, desk=JUDGE_DESK)
        await self.opened("open_call", ref, call)

    async def opened(self, name: str, ref: Ref, call: ModelCall) -> None:
        def ask(side: Side) -> object:
            method = side.bus.open_call if name == "open_call" else side.bus.open_judge
            return method(ref, call)

        group = Group.WORKER if name == "open_call" else Group.SCORER
        decision = await self.command(name, f"{ref} {call}", ask, group)  # type: ignore[arg-type]
        if decision.applied:
            self.asked.append(Asked(ref, call, int(decision.answer["desk_gen"])))

    async def flush(self) -> None:
        one = self.still(self.rng.choice([MODEL_DESK, MODEL_DESK, JUDGE_DESK]))
        if one is not None and (chunks := self.chunks(one, 3)):
            call = replace(one.call, attempt=one.call.attempt + 100) if self.often(0.04) else one.call
            await self.command("flush", f"{call.step} {call.attempt} {chunks}", lambda side: side.bus.flush(
                one.ref, call, chunks))  # fmt: skip

    async def bind_call(self) -> None:
        one = self.still(MODEL_DESK)
        if one is None:
            return
        ref, call = one.ref, one.call
        if self.often(0.12):
            ref = self.mixed(self.holder(), self.held)
        if self.often(0.1):
            call = self.rng.choice(
                [
                    replace(call, prompt_hash=Digest("e" * 64)),
                    replace(call, request_id="another"),
                    replace(call, desk_lease=self.rng.choice(self.asked).call.desk_lease),
                    replace(call, parent=next_head(call.parent, "forged")),
                    replace(call, seq=call.seq + 1),
                ]
            )
        await self.bound("bind_call", ref, call, one)

    async def bound(self, name: str, ref: Ref, call: ModelCall, one: Asked) -> None:
        chunks = self.chunks(one, 2)
        last = one.arrived + (1 if self.often(0.06) else 0)
        text = self.rng.choice(["answer"] * 5 + ["another answer"])
        digest = Digest(hashlib.sha256(text.encode()).hexdigest())
        reply = ModelReply(text, digest, last, chunks, ok=self.often(0.82), estimated=len(chunks))
        gen = one.desk_gen + (1 if self.often(0.03) else 0)

        def ask(side: Side) -> object:
            method = side.bus.bind_call if name == "bind_call" else side.bus.bind_judge
            return method(ref, call, gen, reply)

        group = Group.WORKER if name == "bind_call" else Group.SCORER
        decision = await self.command(name, f"{ref} {call} {gen} {reply}", ask, group)  # type: ignore[arg-type]
        one.ended = one.ended or decision.applied or decision.verb == "replay"

    async def drop_call(self) -> None:
        one = self.still(self.rng.choice([MODEL_DESK, MODEL_DESK, JUDGE_DESK]))
        if one is None:
            return
        chunks = self.chunks(one, 1)
        cancelled, billed = self.often(0.6), self.rng.choice([None, None, 0, 12, 60])
        guess = self.rng.choice([0, 0, 2])
        call = one.call
        if self.often(0.06):
            call = replace(call, desk_lease=self.rng.choice(self.asked).call.desk_lease)
        elif self.often(0.04):
            call = replace(call, desk_lease="nobody's")

        def drop(side: Side) -> object:
            return side.bus.drop_call(one.ref, call, chunks, cancelled=cancelled, billed=billed, estimated=guess)

        what = f"{call.step} {call.attempt} {call.desk_lease} cancelled={cancelled} {billed} {guess} {chunks}"
        decision = await self.command("drop_call", what, drop)  # type: ignore[arg-type]
        one.ended = one.ended or decision.applied

    async def resolve(self) -> None:
        if not self.held:
            return
        ref = self.holder()
        parent, seq = self.prefix(ref.run)
        await self.command("resolve", f"{ref} at {seq}", lambda side: side.bus.resolve(ref, parent, seq, "lost"))

    # --- the scorer's ----------------------------------------------------------------------------------------

    async def open_judge(self) -> None:
        if not self.scoring:
            return
        ref, judgement = self.scorer()
        step = f"{ref.run}~j{ref.gen}.{self.rng.randint(1, 3)}"
        seq = self.row(ref.run).length or 1
        await self.opened("open_judge", ref, self.call_of(ref, step, judgement.head, seq, JUDGE_DESK))

    async def bind_judge(self) -> None:
        live = [one for one in self.asked if one.call.desk == JUDGE_DESK and not one.ended and self.is_judging(one.ref)]
        one = live[-1] if live and self.often(0.9) else self.still(JUDGE_DESK)
        if one is not None:
            ref = replace(one.ref, lease_id=LeaseId("nobody's")) if self.often(0.06) else one.ref
            ref = replace(ref, gen=Gen(ref.gen + 1)) if self.often(0.03) else ref
            await self.bound("bind_judge", ref, one.call, one)

    def is_judging(self, ref: Ref) -> bool:
        """Whether this scorer's token is the one that counts."""
        return self.is_live(ref, RunState.SCORING, self.row(ref.run).epoch)

    # --- the planner's ---------------------------------------------------------------------------------------

    async def sweep_calls(self) -> None:
        desk = self.rng.choice([MODEL_DESK, JUDGE_DESK])
        told = {one.call.desk_lease: self.rng.randrange(200) for one in self.asked if self.often(0.3)}

        def sweep(side: Side) -> object:
            return side.bus.sweep(self.batch, 50, desk, told)

        decision: Decision = await self.command("sweep", desk, sweep)  # type: ignore[arg-type]
        if decision.answer.get("freed"):
            self.seen[f"sweep freed {desk}"] += 1

    async def tick(self) -> None:
        """Time passes, on both sides alike."""
        seconds = self.rng.choice([1, 2, 4])
        self.clock_ms += 1_000 * seconds
        await self.step(f"{seconds} s pass", lambda side: side.set_clock(self.clock_ms))

    clock_ms = 1_000_000
