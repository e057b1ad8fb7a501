"""The worker: claims runs, drives the solver, seals what it did.

One run, as its holder lives it:

    claim → its conversation as it stands → workspace for this generation → solver → answer, tree and seal in one script
    → the scorer's turn

A solver that raises, or takes longer than the suite allows, ends its run as a hole, `solver_error` or `solver_timeout`:
that is a finding, and it is not retried. A model that cannot be asked any more ends it as `over_budget`,
`retries_exhausted` or `endpoint_error`; an effect that cannot be undone as `stuck`. A worker that dies is none of them:
the run is claimed by another, under a new generation, in a new workspace, up to the batch's number of deliveries; then
it is a hole named `poison`. What its machine could not do is none of them either: see `workers.consumer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from bus.errors import MachineError
from bus.port import BatchSpec, Bus, Ref, Runtime
from bus.types import ConsumerId, Digest, Gen, LeaseId
from bus.values import ITS_OWN_DOING
from workers.cases import Case
from workers.catalogue import Served
from workers.closing import Closable, close_all, forget_all_but
from workers.conversation import Conversation
from workers.lease import Lease
from workers.modelling.attempt import Site
from workers.modelling.calls import ModelCalls
from workers.modelling.gateway import Gateway
from workers.modelling.model import Model
from workers.modelling.plane import LimitsOf, ModelPlane
from workers.modelling.table import other_model
from workers.prefix import event_json
from workers.processes.machine import Disks, fault_of, insisted, last_word
from workers.processes.watchdog import OF_RUN
from workers.programs import check_present
from workers.redaction import redacted
from workers.run import Run, seed_of
from workers.solver_time import SolverTime
from workers.solving import Solver, SolverError, SolverTimeoutError, make_solver
from workers.suite import Suite
from workers.tools.serving import ToolsOf
from workers.usercode import OWN_CANCELLATION
from workers.verdict import Again, Answered, Broken, Over, Verdict
from workers.workspace import Packed, TreeError, Workspace, directory_of, discard, make_directory, pack, prepare
from workers.writes import FencedWorkspace

__all__ = ["Worker"]

log = structlog.get_logger("evalbus.worker")

_LONG = 50_000  # characters of an answer; what is longer travels beside the transcript, by its digest
_MAY_BE_THE_DISKS = frozenset({"solver_error", "solver_timeout", "workspace_error"})
_TICK = 0.05  # seconds at least between two looks at a clock that stands
_GRACE = 5.0  # seconds for a solver that is cancelled; one that holds on is left behind, and refused from then on


def _pack(folder: Path, ignore: Sequence[str]) -> Packed:
    make_directory(folder)  # a solver may have removed its own
    return pack(folder, ignore)


def _clear(folder: Path, work: Path) -> None:
    try:
        discard(folder, work)
    except OSError as error:  # litter, not a loss: the next attempt has a directory of its own
        log.warning("workspace.left_behind", folder=str(folder), why=str(error))


class Worker:
    """`workers.consumer.Handler` of the worker group."""

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        name: ConsumerId,
        work: Path,
        limits_of: LimitsOf | None = None,
        tools_of: ToolsOf | None = None,
        disks: Disks | None = None,
        machine: str = "",
    ) -> None:
        """`work`: the directory under which workspaces are made, one for each run and generation.

        `limits_of`: what all workers together may ask of an endpoint; by default nothing bounds them. `tools_of`: what
        makes a run's `tools`. `disks`: those that a failed run may have found full; by default none is looked at.
        `machine`: what this one and those beside it are told from others by; by default it is alone on its machine.
        """
        self._bus, self._runtime, self._name, self._work = bus, runtime, name, work.absolute()  # code may go elsewhere
        self._limits_of, self._tools_of, self._disks = limits_of, tools_of, disks
        self._machine = machine or name
        self._solvers: dict[Digest, Solver] = {}
        self._planes: dict[Digest, ModelPlane] = {}
        self._gateway = Gateway()

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """Import the suite's solver, which may take its time; see that the model is the batch's. Raises InputError."""
        if suite.model is not None and suite.target is not None:
            if suite.candidate != spec.candidate:
                raise other_model(spec.batch, spec.candidate, suite.target)
            if suite.digest not in self._planes:
                self._planes[suite.digest] = ModelPlane(suite.model, suite.target, self._limits_of)
        if suite.digest not in self._solvers:
            commands = [("solver.command", suite.solver.command)]
            commands += [(f"tools.{name}.command", tool.command) for name, tool in suite.tools.items()]
            commands += [(f"mcp.{name}.command", server.command) for name, server in suite.mcp.items()]
            check_present(commands, suite.source)
            self._solvers[suite.digest] = make_solver(suite)

    def forget_all_but(self, suites: Collection[Digest]) -> list[Closable]:
        """See Handler."""
        return [*forget_all_but(self._solvers, suites), *forget_all_but(self._planes, suites)]

    def time_of(self, served: Served) -> float:
        """The time of one run's solver."""
        return served.suite.timeout

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> None:
        """Claim a run and drive it to its seal or its hole."""
        entry = lease.entry
        decision = await lease.claimed(self._bus.claim(entry, lease_id, self._name))
        if not decision.applied:
            return
        granted = decision.answer
        lease.ref = Ref(
            entry.batch,
            entry.run,
            lease_id,
            Gen(granted["gen"]),
            conversation=int(granted.get("conversation", 0)),
            epoch=int(granted.get("epoch") or 0),
        )
        structlog.contextvars.bind_contextvars(batch=entry.batch, run=entry.run, gen=granted["gen"])  # of its own task
        log.debug("lease.granted", attempts=granted["attempts"])
        time = lease.time = SolverTime(self._runtime.now)
        conversation = await Conversation.open(self._bus, self._runtime, lease, granted, time, served.suite.resume)
        await self._drive(lease, served, conversation, time)

    async def aclose(self) -> None:
        """Close the connections to endpoints, and what solvers have open."""
        await self._gateway.aclose()
        await close_all(self.forget_all_but(()))

    async def _drive(self, lease: Lease, served: Served, conversation: Conversation, time: SolverTime) -> None:
        ref = conversation.ref
        folder = directory_of(self._work, ref.batch, ref.run, ref.gen)
        try:
            while True:
                time.restart()
                try:
                    verdict = await self._attempt(served, conversation, time, folder)
                except TreeError as no_template:  # of the suite's, on every machine
                    verdict = Over("workspace_error", str(no_template))
                match verdict:
                    case Answered(text):
                        if self._disks is not None and served.suite.workspace is not None:
                            self._disks.check()  # its code may have passed over what it could not write
                        return await self._seal(lease, served, conversation, text, folder)
                    case Over(why, detail):
                        if self._disks is not None and why in _MAY_BE_THE_DISKS:
                            self._disks.check()
                        return await self._hole(lease, why, detail)
                    case Broken(error):
                        raise error
                    case Again():
                        log.info("solver.starts_over", conversation=conversation.ref.conversation)
                        conversation.start_over()
        finally:
            if served.suite.workspace is not None and folder.exists():
                await asyncio.to_thread(_clear, folder, self._work)

    async def _attempt(self, served: Served, conversation: Conversation, time: SolverTime, folder: Path) -> Verdict:
        """The solver from its start, to its answer or to what ends it; in a fresh workspace."""
        if conversation.verdict.done():
            return conversation.verdict.result()
        suite, case = served.suite, served.suite.case_of(conversation.ref.run)
        if suite.workspace is not None:
            made = await asyncio.to_thread(prepare, suite, case, folder)
            workspace = FencedWorkspace(made, conversation, suite.workspace.ignore)
            return await self._solve(served, case, conversation, time, workspace)
        scratch = prepare(suite, case, folder)  # nothing to copy: not worth a thread
        try:
            return await self._solve(served, case, conversation, time, scratch)
        finally:
            if scratch.is_known and folder.exists():
                await asyncio.to_thread(_clear, folder, self._work)

    async def _solve(
        self, served: Served, case: Case, conversation: Conversation, time: SolverTime, workspace: Workspace
    ) -> Verdict:
        suite, ref, verdict = served.suite, conversation.ref, conversation.verdict
        run = Run(
            id=ref.run,
            case=case,
            trial=suite.trial_of(ref.run),
            gen=ref.gen,
            seed=seed_of(ref.run),
            workspace=workspace,
            note=conversation.note,
        )
        calls, door = self._calls(served, conversation, time), None
        if calls is not None:
            door = self._gateway.door(Model(calls, calls.api), calls.name, verdict)
            run = replace(run, model=Model(calls, calls.api, door))
        if self._tools_of is not None and suite.tools:
            run = replace(run, tools=self._tools_of(served, conversation, workspace))

        async def solve() -> None:
            conversation.attendance.begin()
            try:
                text = await self._solvers[suite.digest].solve(case, run)
                await conversation.finish()
                found: Verdict = Answered(text)
            except SolverTimeoutError as error:
                found = Over("solver_timeout", str(error))
            except SolverError as error:
                found = Over("solver_error", str(error))
            except BaseException as error:  # nothing of the solver's: for whoever waits
                if verdict.done():
                    raise
                if not isinstance(error, asyncio.CancelledError):
                    verdict.set_exception(error)
                    return
                # Whoever of us cancels a solver has its verdict, or has given up waiting for one: it is its own doing.
                found = Over("solver_error", OWN_CANCELLATION)
            if not verdict.done():
                verdict.set_result(found)

        task = asyncio.create_task(solve(), name=f"{OF_RUN}{ref.batch} {ref.run}")
        try:
            return await self._awaited(verdict, time, suite.timeout)
        finally:
            if door is not None:
                door.shut()
            if not task.done() or conversation.attendance.is_asked:
                await asyncio.gather(_end(task), conversation.attendance.dismiss())
            else:
                conversation.attendance.end()
            if calls is not None:
                await calls.settled()

    def _calls(self, served: Served, conversation: Conversation, time: SolverTime) -> ModelCalls | None:
        plane = self._planes.get(served.suite.digest)
        if plane is None:
            return None
        return ModelCalls(Site(self._bus, self._runtime, conversation, plane, time))

    @staticmethod
    async def _awaited(verdict: asyncio.Future[Verdict], time: SolverTime, limit: float) -> Verdict:
        """The verdict; the end of the solver's time is one, too."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            left = limit - time.spent()
            if left > 0:  # it has stood meanwhile
                timer = loop.call_later(max(left, _TICK), look)
            elif not verdict.done():
                verdict.set_result(Over("solver_timeout", f"no answer within {limit:g} s"))

        timer = loop.call_later(limit, look)
        try:
            return await verdict
        finally:
            timer.cancel()

    async def _seal(self, lease: Lease, served: Served, conversation: Conversation, answer: str, folder: Path) -> None:
        ref, answer = conversation.ref, redacted(answer)
        tree_hash = artifact = ""
        if served.suite.workspace is not None:
            try:
                packed: Packed = await asyncio.to_thread(_pack, folder, served.suite.workspace.ignore)
            except TreeError as error:
                if (fault := fault_of(error)) is not None:
                    raise fault from error
                await self._hole(lease, "workspace_error", str(error))
                return
            tree_hash, artifact = packed.tree_hash, await self._store(served, ref, packed.data)
        # The head that is scored commits to the tree as well: the event names it.
        event = {"kind": "answer", "text": answer, "tree": tree_hash}
        if len(answer) > _LONG:
            data = answer.encode("utf-8", "replace")
            event = {
                "kind": "answer",
                "artifact": await self._store(served, ref, data),
                "tree": tree_hash,
            }
        payload = event_json(event)
        lease.ending = True
        decision = await self._bus.seal(ref, conversation.head, conversation.length + 1, payload, tree_hash, artifact)
        (log.debug if decision.applied else log.warning)(
            "run.sealed" if decision.applied else "seal.refused", decision=str(decision)
        )

    async def _store(self, served: Served, ref: Ref, data: bytes) -> Digest:
        return await insisted(self._runtime, served.lease, lambda: self._bus.put_blob(ref.batch, data))

    async def _hole(self, lease: Lease, why: str, detail: str) -> None:
        lease.ending = True
        assert lease.ref is not None, "it was claimed"
        detail = redacted(detail)
        decision = await self._bus.hole(lease.ref, why, detail)
        log.info(
            "run.ended_as_hole" if decision.applied else "hole.refused",
            why=why,
            detail=detail,
            decision=str(decision),
        )

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """Hand a run back at once."""
        if lease.ref is None:
            return True
        seen = fault is not None and fault.seen
        decision = await self._bus.give_back(lease.ref, "" if fault is None else self._machine, seen=seen)
        log.info("lease.handed_back", run=lease.ref.run, gen=lease.ref.gen, decision=str(decision))
        if fault is None or decision.reason != ITS_OWN_DOING:
            return True
        await self._hole(lease, *last_word(fault, "solver_error"))
        return False


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a solver and wait for it, for a while."""
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        log.warning("solver.left_behind", why="it does not end when it is cancelled")
    elif not task.cancelled():
        task.exception()  # whatever it raised on its way out is no longer asked for
