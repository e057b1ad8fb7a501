"""The scorer: judges sealed runs.

It judges what was sealed and nothing else: the transcript's chain is computed again and must end in the sealed head,
and the workspace must have the sealed tree's hash. A batch that scores another one anew has both from there.

What this machine cannot read, or has no room for, is not judged by it: only bytes that were read, and are not those
that were sealed, are a hole, `artifact_corrupt`. Bytes that so many machines have not found that it can't be theirs are
one, too: `artifact_missing`.

A judgement that cannot be had (the scorer raises, takes too long, cannot read its own output) is a hole,
`scorer_error`, or what a model that judges calls it (`workers.judging`): never a fail, and never a pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from bus.chain import EMPTY_HEAD, next_head
from bus.errors import MachineError, ViolationError
from bus.port import BatchSpec, Bus, Event, Judgement, Ref, Runtime
from bus.types import ConsumerId, Decision, Digest, Gen, LeaseId
from bus.values import ITS_OWN_DOING
from workers.cases import Case
from workers.catalogue import Served
from workers.closing import Closable, close_all, forget_all_but
from workers.judging.binding import other_judge
from workers.judging.judge import Bench, Judge, Judged
from workers.lease import Lease
from workers.modelling.plane import LimitsOf
from workers.processes.machine import OF_ITS_OWN, Disks, fault_of, insisted, last_word, machine_error
from workers.programs import check_present
from workers.redaction import redacted
from workers.scoring import ComparingScorer, Score, Scorer, ScorerError, Sealed, make_scorer
from workers.suite import Suite
from workers.workspace import TreeError, directory_of, discard, make_directory, remove_tree, tree_hash, unpack

__all__ = ["ScorerRole", "head_of"]

log = structlog.get_logger("evalbus.scorer")

_HAS_CODE = frozenset({"command", "python"})  # scorers whose code may want room on a disk
_AGAIN = 1.0  # seconds at most until a run is asked for again that too many others stood before
_BACKSTOP = 5.0  # seconds beyond the suite's limit, which commands and functions keep themselves


def head_of(events: Sequence[Event]) -> Digest:
    """The head that these events give."""
    head = EMPTY_HEAD
    for event in events:
        head = next_head(head, event.payload)
    return head


def _unpack(data: bytes, folder: Path) -> None:
    try:
        remove_tree(folder)
        make_directory(folder)
    except OSError as error:  # whatever it is: the directory is this machine's own
        raise machine_error(f"{folder}: {error.strerror or error}") from error
    unpack(data, folder)


class ScorerRole:
    """`workers.consumer.Handler` of the scorer group."""

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        name: ConsumerId,
        work: Path,
        limits_of: LimitsOf | None = None,
        disks: Disks | None = None,
        machine: str = "",
    ) -> None:
        """`work`: the directory under which sealed workspaces are unpacked. All else: as a worker's."""
        self._machine = machine or name
        self._bus, self._runtime, self._name, self._work = bus, runtime, name, work
        self._limits_of, self._disks = limits_of, disks
        self._scorers: dict[Digest, Scorer] = {}
        self._judges: dict[Digest, Judge] = {}

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """Import the suite's scorer, which may take its time; see that a judge is the batch's. Raises InputError."""
        if suite.scorer.kind == "model":
            if suite.judge != spec.judge:
                raise other_judge(spec.batch, spec.judge, suite.judge)
            if suite.digest not in self._judges:
                self._judges[suite.digest] = Judge(suite, self._limits_of)
        elif suite.digest not in self._scorers:
            if suite.scorer.kind == "command":
                check_present([("scorer.command", suite.scorer.command)], suite.source)
            self._scorers[suite.digest] = make_scorer(suite)

    def forget_all_but(self, suites: Collection[Digest]) -> list[Closable]:
        """See Handler."""
        return [*forget_all_but(self._scorers, suites), *forget_all_but(self._judges, suites)]

    def time_of(self, served: Served) -> float:
        """The time of one judgement, as the backstop below keeps it."""
        return served.suite.scorer.timeout + _BACKSTOP

    async def aclose(self) -> None:
        """Close the connections to endpoints, and what scorers have open."""
        await close_all(self.forget_all_but(()))

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        """Claim a sealed run and sign its score, or end it as a hole; again later when too many are being scored."""
        entry = lease.entry
        decision = await lease.claimed(self._bus.score_claim(entry, lease_id, self._name))
        if not decision.applied:
            return min(served.lease / 10, _AGAIN) if decision.reason == "backpressure" else None
        granted = decision.answer
        ref = lease.ref = Ref(entry.batch, entry.run, lease_id, Gen(granted["epoch"]))
        structlog.contextvars.bind_contextvars(batch=entry.batch, run=entry.run, epoch=ref.gen)  # of its own task
        ended = await self._judge(lease, ref, served, granted)
        if not ended.applied:
            log.warning("score.refused", decision=str(ended))
        return None

    async def _judge(self, lease: Lease, ref: Ref, served: Served, granted: Mapping[str, Any]) -> Decision:
        try:
            events = await self._events(ref, served, granted)
            answer = await self._answer(events, granted, served)
            if granted["artifact"]:
                judged = await self._in_its_tree(lease, ref, served, granted, events, answer)
            else:
                judged = await self._verdict(lease, ref, served, events, Sealed(answer))
        except (ViolationError, TreeError) as error:
            if (fault := fault_of(error, OF_ITS_OWN)) is not None:
                raise fault from error
            return await self._hole(lease, ref, "artifact_corrupt", str(error))
        except ScorerError as error:
            self._see_the_disks()
            return await self._hole(lease, ref, error.why, str(error))
        if served.suite.scorer.kind in _HAS_CODE and judged.score.bin != served.suite.bins[0]:
            self._see_the_disks()
        lease.ending = True
        return await self._bus.score(
            ref,
            Judgement(
                head=Digest(granted["head"]),
                tree_hash=granted["tree_hash"],
                candidate=served.candidate,
                judge=judged.judge,
                judge_epoch=int(granted["judge_epoch"]),
                bin=judged.score.bin,
                value=redacted(judged.score.value),
                detail=judged.remark,
            ),
        )

    def _see_the_disks(self) -> None:
        """A program that finds no room says what it says of a wrong answer, and nobody could tell them apart later."""
        if self._disks is not None:
            self._disks.check()

    async def _verdict(self, lease: Lease, ref: Ref, served: Served, events: Sequence[Event], sealed: Sealed) -> Judged:
        suite, case = served.suite, served.suite.case_of(ref.run)
        if suite.scorer.kind == "model":
            bench = Bench(self._bus, self._runtime, lease, ref, head_of(events), len(events))
            return await self._judges[suite.digest].judge(bench, case, sealed.answer)
        score = await self._score(suite, case, sealed)
        if score.kept is not None:
            data = score.kept
            kept = await insisted(self._runtime, served.lease, lambda: self._bus.put_blob(ref.batch, data))
            score = replace(score, value=json.dumps({"value": score.value, "verdict": kept}, ensure_ascii=False))
        return Judged(score, served.judge)

    async def _score(self, suite: Suite, case: Case, sealed: Sealed) -> Score:
        scorer = self._scorers[suite.digest]
        if isinstance(scorer, ComparingScorer):  # it waits for nothing, so no clock could end it
            return scorer.compared(case, sealed)
        try:
            async with asyncio.timeout(suite.scorer.timeout + _BACKSTOP):
                return await scorer.score(case, sealed)
        except TimeoutError:
            raise ScorerError(f"no verdict within {suite.scorer.timeout:g} s") from None

    async def _events(self, ref: Ref, served: Served, granted: Mapping[str, Any]) -> Sequence[Event]:
        sealed = Digest(granted["head"])
        events = await self._bus.transcript(served.origin, ref.run, sealed)
        if head_of(events) != sealed:
            raise ViolationError("the transcript does not end in the head that was sealed")
        return events

    async def _answer(self, events: Sequence[Event], granted: Mapping[str, Any], served: Served) -> str:
        answer = json.loads(events[-1].payload)
        if answer["tree"] != granted["tree_hash"]:
            raise ViolationError("the sealed answer names another tree")
        text: str | None = answer.get("text")
        if text is None:
            return (await self._read(served, Digest(answer["artifact"]))).decode("utf-8")
        return text

    async def _read(self, served: Served, digest: Digest) -> bytes:
        return await insisted(self._runtime, served.lease, lambda: self._bus.get_blob(served.origin, digest))

    async def _in_its_tree(
        self, lease: Lease, ref: Ref, served: Served, granted: Mapping[str, Any], events: Sequence[Event], answer: str
    ) -> Judged:
        """The verdict on an answer and the workspace that was sealed with it, which is unpacked meanwhile."""
        data = await self._read(served, Digest(granted["artifact"]))
        folder = directory_of(self._work, ref.batch, ref.run, ref.gen)
        try:
            await asyncio.to_thread(_unpack, data, folder)
            if await asyncio.to_thread(tree_hash, folder, served.info.spec.tree_ignore) != granted["tree_hash"]:
                raise ViolationError("the workspace is not the tree that was sealed")
            return await self._verdict(lease, ref, served, events, Sealed(answer, folder))
        finally:
            if folder.exists():
                with contextlib.suppress(OSError):  # litter, not a loss: the next epoch has a directory of its own
                    await asyncio.to_thread(discard, folder, self._work)

    async def _hole(self, lease: Lease, ref: Ref, why: str, detail: str) -> Decision:
        lease.ending = True
        return await self._bus.score_hole(ref, why, redacted(detail))

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """Hand a score back at once."""
        ref = lease.ref
        if ref is None:
            return True
        seen = fault is not None and fault.seen
        decision = await self._bus.score_give_back(ref, "" if fault is None else self._machine, seen=seen)
        log.info("score.handed_back", run=ref.run, epoch=ref.gen, decision=str(decision))
        if fault is None or decision.reason != ITS_OWN_DOING:
            return True
        await self._hole(lease, ref, *last_word(fault, "scorer_error"))
        return False
