"""`evalbus prune`: ended batches leave the server, and their proof stays, as an archive that was checked.

    archive    export, check, and only then a name: `workers.histories.archiving`
    retire     one step on the server: the batch is still what was archived, and a tombstone takes its place
    clear      whatever keys it had are deleted, in pieces

| killed behind | leaves | the next `prune` |
| --- | --- | --- |
| export | a file that has no archive's name | removes it, and begins anew |
| archive | the archive, and the batch | archives it again, over the first |
| retire | keys that nobody finds, under a tombstone that says `pruning` | deletes them, whatever it was called for |
| clear | nothing | nothing |

What was recorded between archive and retire (a late bill, a refusal) is in no archive: `retire` sees that, and it is
archived again.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bus.archived import ArchivedError, standing_of
from bus.cluster import ServerBus, open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ViolationError
from bus.partitions import is_part_of, root_of
from bus.port import BatchInfo, BatchStatus, Runtime
from bus.redis_bus import RedisBus
from bus.retiring import clear, retire
from bus.rights import COMMANDS, PRUNING
from bus.tombstones import Tombstone
from bus.types import BatchId, Digest, Plane
from workers.histories.archiving import archive, directory_of_its_own
from workers.histories.keeping import Ended, Rule, kept, parse_rule
from workers.histories.segments import SegmentFiles
from workers.naming import batch_name
from workers.results.fetching import info_of
from workers.results.whole import Whole, whole_of, wholes

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Plan", "PruneOptions", "make_plan", "prune", "prune_on", "show"]

_TRIES = 10  # archives of one batch; something is recorded in an ended one hardly ever, and each time there is more
_AT_ONCE = 500  # rows in one read


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """What the command line was given: batches by name, or rules for all that have ended."""

    names: tuple[BatchId, ...]
    rules: tuple[Rule, ...]
    dry_run: bool

    @classmethod
    def of(cls, names: Sequence[str], keep: Sequence[str], *, dry_run: bool) -> PruneOptions:
        """Raises InputError, also for neither and for both: what is meant must be said."""
        if names and keep:
            raise InputError("batches are named, and rules given for all the others", remedy="one or the other")
        if not names and not keep:
            raise InputError(
                "which batches? none is named, and no rule says which are kept",
                remedy="evalbus prune BATCH …, or --keep 30d, or --keep last=0 for none",
            )
        return cls(tuple(batch_name(name) for name in names), tuple(parse_rule(rule) for rule in keep), dry_run)


async def prune_on(
    endpoint: Endpoint, runtime: Runtime, plane: Plane, options: PruneOptions, directory: Path, console: Console
) -> None:
    """The command, on a plane of a server. Raises InputError, ServerUnfit, ViolationError."""
    if not options.dry_run:
        await check_fit(endpoint.target, plane=plane, commands=(*COMMANDS, *PRUNING))
    bus = open_bus(endpoint, runtime, plane=plane)
    try:
        plan = await make_plan(bus, options.names, options.rules)
        if options.dry_run:
            show(bus, plan, directory, console)
        else:
            await prune(bus, plan, directory, console)
    finally:
        await bus.aclose()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: batches to archive and remove, and those of which an earlier prune has left something."""

    batches: tuple[BatchInfo, ...]
    left: dict[BatchId, Tombstone]
    kept: tuple[BatchId, ...]
    """Ended ones that a rule keeps, or an open batch that scores them anew."""
    outlived_by: Mapping[BatchId, BatchId]
    """Of those that go: one that has scored its runs anew, and stays. What it shows as answers was sealed here."""


async def prune(bus: ServerBus, plan: Plan, directory: Path, console: Console) -> None:
    """Do it, and say for each batch where it went. Raises InputError, ViolationError."""
    with directory_of_its_own(directory / bus.plane.value):
        await _prune_all(bus, plan, directory, console)


async def _prune_all(bus: ServerBus, plan: Plan, directory: Path, console: Console) -> None:
    retired = dict(plan.left)
    try:
        for info in plan.batches:
            name = info.spec.batch
            at = await bus.of(name)
            outside = 0 if info.imported else await _stored_outside(at, name)
            segments = await _segments(at, info, directory)
            tombstone = await _prune_one(at, info, _place(directory, bus, name), segments)
            if tombstone is None:
                _say(console, f"{name}: kept, an open batch has begun to score its runs anew")
                continue
            retired[name] = tombstone
            if segments is not None:
                SegmentFiles.of(segments, info).remove()  # all that was in them is in the one file
            _say(console, f"{name}: {tombstone.entries:,} entries in {tombstone.file}")
            _say(console, f"  {tombstone.proof}")
            _warn(console, plan, info, tombstone.file)
            if outside:
                _say(console, f"  sealed workspaces in the artifact store, which stay there: {outside:,}")
    except (InputError, ViolationError):
        await _clear(bus, retired)  # those that were done before this one could not be
        raise
    removed = await _clear(bus, retired)
    asked = {_known_as(info) for info in plan.batches}
    stayed = {_known_as(info) for info in plan.batches if info.spec.batch not in retired}
    _say(console, f"{len(asked - stayed)} pruned, {len(plan.kept) + len(stayed)} kept, {removed:,} keys deleted")


def _known_as(info: BatchInfo) -> BatchId:
    return info.spec.batch if info.spec.part is None else root_of(info.spec.batch)


async def _clear(bus: ServerBus, retired: Mapping[BatchId, Tombstone]) -> int:
    """`bus.retiring.clear`, shard by shard."""
    shares: dict[int, dict[BatchId, Tombstone]] = {}
    buses: dict[int, RedisBus] = {}
    for name, tombstone in retired.items():
        at = await bus.of(name)
        buses[at.shard] = at
        shares.setdefault(at.shard, {})[name] = tombstone
    return sum([await clear(buses[shard], share) for shard, share in shares.items()])


def show(bus: ServerBus, plan: Plan, directory: Path, console: Console) -> None:
    """What `prune` would do."""
    for info in plan.batches:
        name = info.spec.batch
        _say(console, f"{name}: would be archived in {_place(directory, bus, name)}, and deleted ({info.status.shown})")
        _warn(console, plan, info, _place(directory, bus, name))
    for name in plan.left:
        _say(console, f"{name}: what an interrupted prune has left of it would be deleted")
    for name in plan.kept:
        _say(console, f"{name}: would be kept")
    if not (plan.batches or plan.left or plan.kept):
        _say(console, "no batch on this server has ended")


def _warn(console: Console, plan: Plan, info: BatchInfo, archived: Path | str) -> None:
    by = plan.outlived_by.get(info.spec.batch)
    if by is not None:
        sealed_in = root_of(BatchId(info.spec.source)) if info.spec.source else archived
        said = f"{root_of(by)} scored its runs anew, and cannot show their answers without it"
        _say(console, f"  {said}: evalbus show {shlex.quote(str(sealed_in))} RUN")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _place(directory: Path, bus: ServerBus, name: BatchId) -> Path:
    return directory / bus.plane.value / f"{name}.jsonl.zst"


# --- which batches ----------------------------------------------------------------------------------------


async def make_plan(bus: ServerBus, names: Sequence[BatchId], rules: Sequence[Rule]) -> Plan:
    """By names, or all that have ended but those that a rule keeps. Raises InputError; changes nothing.

    Of named ones each must be there, have ended, and be no open batch's source.
    """
    tombstones = await bus.tombstones()
    names = [batch for name in names for batch in await _named(bus, name, tombstones)]
    left = {name: one for name, one in tombstones.items() if not one.cleared or name in names}
    sources = await _sources(bus, await bus.batches())
    if names:
        found = [await _may_go(bus, name, sources) for name in dict.fromkeys(names) if name not in tombstones]
        return Plan(tuple(found), left, (), await _outlived(bus, found))
    batches = {one.name: one for one in await _ended_ones(bus)}
    ended = [when for one in batches.values() if (when := await _ended(bus, one)) is not None]
    in_use = {one.name for one in batches.values() if not sources.keys().isdisjoint(one.batches)}
    stay = kept(rules, ended, await _now_ms(bus, batches.values())) | in_use
    oldest_first = [one.name for one in sorted(ended, key=lambda one: (one.at_ms, one.name))]
    going = [info for name in oldest_first if name not in stay for info in batches[name].parts]
    staying = tuple(name for name in oldest_first if name in stay)
    return Plan(tuple(going), left, staying, await _outlived(bus, going))


async def _outlived(bus: ServerBus, going: Sequence[BatchInfo]) -> dict[BatchId, BatchId]:
    """See `Plan.outlived_by`."""
    names = {info.spec.batch for info in going}
    known = await bus.all_batches()
    readers = await _sources(
        bus, [one for one, at in known.items() if at is not BatchStatus.PRUNED and one not in names]
    )
    return {name: by for name, by in readers.items() if name in names}


async def _named(bus: ServerBus, name: BatchId, tombstones: Collection[BatchId]) -> list[BatchId]:
    """The batch, or all the partitions that there are under its name, those too that an interrupted prune has done."""
    gone = [one for one in tombstones if one != name and root_of(one) == name]
    if name in tombstones:
        return [name]
    if not gone:
        whole = await whole_of(bus, name)
        if whole is None:
            return [name]
        if whole.is_partitioned and not whole.has_ended and not whole.info.imported:
            raise _not_ended(name, BatchStatus.OPEN)  # also where those that are declared so far have
        return whole.batches
    alike = [one for one in await bus.all_batches() if one != name and is_part_of(one, name) and one not in gone]
    there = [await bus.info(one) for one in alike]
    return [*gone, *(info.spec.batch for info in there if info is not None and info.spec.part is not None)]


async def _ended_ones(bus: ServerBus) -> list[Whole]:
    """The batches that have ended, with all of their partitions, and those that were imported to be looked at."""
    known = await bus.all_batches()
    there = await wholes(bus, [name for name, at in known.items() if at is not BatchStatus.PRUNED])
    return [
        one
        for one in there
        if all(known[name].ended for name in one.batches) and (one.info.imported or len(one.parts) == one.of)
    ]


async def _may_go(bus: ServerBus, name: BatchId, sources: dict[BatchId, BatchId]) -> BatchInfo:
    info = await info_of(bus, name)
    if not info.status.ended and not info.imported:
        raise _not_ended(name, info.status)
    if name in sources:
        raise _in_use(name, sources[name])
    return info


def _not_ended(name: BatchId, status: BatchStatus) -> InputError:
    return InputError(
        f"batch {name!r} is {status.shown}: only one that has ended can be archived whole",
        remedy=f"let it end: evalbus status {name}",
    )


def _in_use(name: BatchId, by: str) -> InputError:
    return InputError(
        f"batch {name!r} is in use: batch {by!r} is open, and scores its runs anew", remedy=f"let {by} end first"
    )


async def _sources(bus: ServerBus, names: Iterable[BatchId]) -> dict[BatchId, BatchId]:
    """Batches whose runs one of these scores anew, or takes from one that did, each with one that does."""
    found: dict[BatchId, BatchId] = {}
    for name in names:
        at = name
        with contextlib.suppress(InputError):  # one on the way was pruned: there it ends
            while (info := await bus.info(at)) is not None and info.spec.source:
                at = BatchId(info.spec.source)
                found.setdefault(at, name)
    return found


async def _ended(bus: ServerBus, whole: Whole) -> Ended | None:
    """The batch, and when it had its last entry; None when it has been pruned since."""
    newest: list[int] = []
    for name in whole.batches:
        one = await bus.of(name)
        found = await one.link.command("XREVRANGE", one.keys(name).history, "+", "-", "COUNT", 1)
        newest += [int(entry.partition(b"-")[0]) for entry, _ in found]
    return Ended(whole.name, max(newest)) if newest else None


async def _now_ms(bus: ServerBus, ended: Iterable[Whole]) -> int:
    """By the clock of a server that has one of them; none are of any age."""
    for one in ended:
        seconds, micros = await (await bus.of(one.batches[0])).link.command("TIME")
        return int(seconds) * 1_000 + int(micros) // 1_000
    return 0


# --- one batch --------------------------------------------------------------------------------------------


async def _segments(bus: RedisBus, info: BatchInfo, directory: Path) -> Path | None:
    """Where the batch was archived while it ran: in this directory, or where its row says; None when it was not.

    Raises InputError when the segments are in neither.
    """
    standing = await standing_of(bus.link, bus.keys(info.spec.batch))
    if not standing.number:
        return None
    there = Path(standing.place.partition(":")[2])
    for one in (directory, there):
        if SegmentFiles.of(one, info).file_of(standing.number, standing.digest).is_file():
            return one
    raise ArchivedError(info.spec.batch, standing.last, standing.place)


async def _prune_one(bus: RedisBus, info: BatchInfo, place: Path, segments: Path | None) -> Tombstone | None:
    """Archive a batch and retire it; None when an open batch reads it by now."""
    try:
        return await _archive_and_retire(bus, info, place, segments)
    except (InputError, ViolationError):
        # Another prune was faster, and took the batch away while it was read here.
        if (tombstone := await bus.tombstone(info.spec.batch)) is not None:
            return tombstone
        raise


async def _archive_and_retire(bus: RedisBus, info: BatchInfo, place: Path, segments: Path | None) -> Tombstone | None:
    name = info.spec.batch
    archived = await archive(bus, info, place, segments)
    for _ in range(_TRIES):
        others = [other for other in await bus.batches() if other != name]
        decision = await retire(bus, archived, others)
        if decision.applied:
            return archived.tombstone
        match decision.reason:
            case "not_archived":  # a late bill, a late refusal
                archived = await archive(bus, info, place, segments)
            case "source_in_use":
                return None
            case "no_batch":
                raise InputError(f"batch {name!r} is gone from this server; its archive is {place}")
            case "in_flight":
                raise InputError(f"batch {name!r} has calls under way", remedy=f"evalbus status {name}")
            case "not_ended" | "others_changed":
                continue
            case _:
                raise ViolationError(f"batch {name!r} cannot be retired: {decision}")
    raise InputError(
        f"batch {name!r} is written to all the time: its archive was behind {_TRIES} times",
        remedy="stop whoever still works on it, then prune it again",
    )


async def _stored_outside(bus: RedisBus, name: BatchId) -> int:
    """How many sealed workspaces of a batch are too large for the server, and so are not in it."""
    ids, at, found = await bus.run_ids(name), bus.keys(name), 0
    for start in range(0, len(ids), _AT_ONCE):
        read = [("HGET", at.run(run), "artifact") for run in ids[start : start + _AT_ONCE]]
        sealed = {Digest(reply.decode()) for reply in await bus.link.commands(read) if reply}
        found += (await bus.link.commands([("EXISTS", at.blob(digest)) for digest in sealed])).count(0) if sealed else 0
    return found
