"""The worker: claims runs, drives the solver, seals what it did.

One run, as its holder lives it:

    claim → workspace for this generation → solver → answer, tree and seal in one script → the scorer's turn

A solver that raises, or takes longer than the suite allows, ends its run as a hole, `solver_error` or `solver_timeout`:
that is a finding, and it is not retried. A worker that dies is neither: the run is claimed by another, under a new
generation, in a new workspace, up to the batch's number of deliveries; then it is a hole named `poison`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import structlog

from bus.chain import EMPTY_HEAD, next_head
from bus.port import Bus, Event, Ref, Runtime
from bus.types import ConsumerId, Digest, Gen, LeaseId
from workers.catalogue import Served
from workers.consumer import Lease
from workers.run import Run, seed_of
from workers.solving import Solver, SolverError, SolverTimeoutError, make_solver
from workers.suite import Suite
from workers.workspace import Packed, TreeError, Workspace, directory_of, pack, prepare, remove_tree

__all__ = ["Worker"]

log = structlog.get_logger("evalbus.worker")

_LONG = 50_000  # characters of an answer; what is longer travels beside the transcript, by its digest


def _json(event: Mapping[str, object]) -> str:
    text = json.dumps(event, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: spelt out, since no server takes it as it is
        text = json.dumps(event)
    return text


def _clear(folder: Path) -> None:
    try:
        remove_tree(folder)
    except OSError as error:  # litter, not a loss: the next attempt has a directory of its own
        log.warning("workspace.left_behind", folder=str(folder), why=str(error))


class Transcript:
    """A run's chain as its live holder extends it.

    The solver runs again from its start after a preemption. What the committed prefix holds already is not written
    again; an event that differs from what the prefix holds at its place says so in the chain, where the earlier
    attempt's events end and this one's begin.
    """

    def __init__(self, bus: Bus, lease: Lease, ref: Ref, prefix: list[Event]) -> None:
        """`prefix`: the events that earlier generations committed."""
        self._bus, self._lease, self._ref = bus, lease, ref
        self._prefix = [event.payload for event in prefix]
        self._answered = 0
        self._lock = asyncio.Lock()
        self.head: Digest = EMPTY_HEAD
        self.length = len(prefix)
        for payload in self._prefix:
            self.head = next_head(self.head, payload)

    async def note(self, text: str) -> None:
        """Append one event, or find it in the prefix."""
        async with self._lock:
            payload = _json({"kind": "note", "text": text})
            if self._answered < len(self._prefix) and self._prefix[self._answered] == payload:
                self._answered += 1
                return
            await self._append([*self.restart(), payload])

    def restart(self) -> list[str]:
        """The event that ends an earlier attempt whose events this one does not repeat; none when there is none."""
        if self._answered >= len(self._prefix):
            return []
        kept, self._answered = self._answered, len(self._prefix)
        return [_json({"kind": "restart", "gen": self._ref.gen, "kept": kept})]

    async def settle(self) -> None:
        """Before the answer: name an earlier attempt's events that this one never came to."""
        async with self._lock:
            if restart := self.restart():
                await self._append(restart)

    async def _append(self, payloads: list[str]) -> None:
        decision = await self._bus.append(self._ref, self.head, self.length + 1, payloads)
        if not decision.applied:
            log.warning("event.refused", run=self._ref.run, gen=self._ref.gen, why=decision.reason)
            self._lease.let_go()
            await asyncio.Event().wait()  # until the cancellation arrives: nothing more is said for this lease
        for payload in payloads:
            self.head = next_head(self.head, payload)
        self.length += len(payloads)
        self._prefix += payloads
        self._answered = len(self._prefix)


class Worker:
    """`workers.consumer.Handler` of the worker group."""

    def __init__(self, bus: Bus, runtime: Runtime, name: ConsumerId, work: Path) -> None:
        """`work`: the directory under which workspaces are made, one for each run and generation."""
        self._bus, self._runtime, self._name, self._work = bus, runtime, name, work
        self._solvers: dict[str, Solver] = {}

    def prepare(self, suite: Suite) -> None:
        """Import the suite's solver, which may take its time. Raises InputError."""
        if suite.digest not in self._solvers:
            self._solvers[suite.digest] = make_solver(suite)

    def time_of(self, served: Served) -> float:
        """The time of one run's solver."""
        return served.suite.timeout

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> None:
        """Claim a run and drive it to its seal or its hole."""
        entry = lease.entry
        decision = await self._bus.claim(entry, lease_id, self._name)
        if not decision.applied:
            return
        gen = Gen(decision.answer["gen"])
        ref = lease.ref = Ref(entry.batch, entry.run, lease_id, gen)
        prefix = await self._bus.transcript(entry.batch, entry.run) if decision.answer["length"] else []
        with structlog.contextvars.bound_contextvars(batch=entry.batch, run=entry.run, gen=gen):
            log.debug("lease.granted", attempts=decision.answer["attempts"])
            await self._drive(lease, ref, served, Transcript(self._bus, lease, ref, prefix))

    async def _drive(self, lease: Lease, ref: Ref, served: Served, transcript: Transcript) -> None:
        suite = served.suite
        case = suite.case_of(ref.run)
        folder = directory_of(self._work, ref.batch, ref.run, ref.gen)
        try:
            if suite.workspace is None:  # nothing to copy: not worth a thread
                workspace = prepare(suite, case, folder)
            else:
                workspace = await asyncio.to_thread(prepare, suite, case, folder)
            run = Run(
                id=ref.run,
                case=case,
                trial=suite.trial_of(ref.run),
                gen=ref.gen,
                seed=seed_of(ref.run),
                workspace=workspace,
                note=transcript.note,
            )
            try:
                async with asyncio.timeout(suite.timeout):
                    answer = await self._solvers[suite.digest].solve(case, run)
            except TimeoutError:
                await self._hole(lease, ref, "solver_timeout", f"no answer within {suite.timeout:g} s")
                return
            except SolverTimeoutError as error:
                await self._hole(lease, ref, "solver_timeout", str(error))
                return
            except SolverError as error:
                await self._hole(lease, ref, "solver_error", str(error))
                return
            await transcript.settle()
            await self._seal(lease, ref, served, transcript, answer, workspace)
        finally:
            if folder.exists():
                await asyncio.to_thread(_clear, folder)

    async def _seal(
        self,
        lease: Lease,
        ref: Ref,
        served: Served,
        transcript: Transcript,
        answer: str,
        workspace: Workspace,
    ) -> None:
        tree_hash = artifact = ""
        if served.suite.workspace is not None:
            try:
                packed: Packed = await asyncio.to_thread(pack, workspace.path, served.suite.workspace.ignore)
            except TreeError as error:
                await self._hole(lease, ref, "workspace_error", str(error))
                return
            tree_hash, artifact = packed.tree_hash, await self._bus.put_blob(ref.batch, packed.data)
        # The head that is scored commits to the tree as well: the event names it.
        event = {"kind": "answer", "text": answer, "tree": tree_hash}
        if len(answer) > _LONG:
            data = answer.encode("utf-8", "replace")
            event = {
                "kind": "answer",
                "artifact": await self._bus.put_blob(ref.batch, data),
                "tree": tree_hash,
            }
        payload = _json(event)
        lease.ending = True
        decision = await self._bus.seal(ref, transcript.head, transcript.length + 1, payload, tree_hash, artifact)
        (log.debug if decision.applied else log.warning)(
            "run.sealed" if decision.applied else "seal.refused", decision=str(decision)
        )

    async def _hole(self, lease: Lease, ref: Ref, why: str, detail: str) -> None:
        lease.ending = True
        decision = await self._bus.hole(ref, why, detail)
        log.info(
            "run.ended_as_hole" if decision.applied else "hole.refused",
            why=why,
            detail=detail,
            decision=str(decision),
        )

    async def give_back(self, lease: Lease) -> None:
        """Hand a run back at once."""
        if lease.ref is not None:
            decision = await self._bus.give_back(lease.ref)
            log.info("lease.handed_back", run=lease.ref.run, gen=lease.ref.gen, decision=str(decision))
