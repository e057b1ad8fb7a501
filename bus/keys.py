"""The only place where keys are written.

The plane is the first thing in each key, and so in each server ACL; the part in braces puts all keys of a shard into
one hash slot, so that a script may touch several of them on a Cluster. A single server has the shard 0 only; a Cluster
has `SHARDS`, and each batch is in one of them.

    evb:{live.0}:batches                      HASH    batch → status or tombstone: what there is on this shard, and was
    evb:{live.0}:bell                         STREAM  the batch that was declared last: wakes roles that serve nothing
    evb:{live.0}:rests                        HASH    consumers that take nothing now, and why: for whoever looks
    evb:{live.0}:mark                         STRING  written to when it matters that the server has synced
    evb:{live.0}:endpoint:<endpoint>          HASH    its token buckets and its pause, of all batches and workers
    evb:{live.0}:b:<batch>:batch              HASH    declaration, status, counters
    evb:{live.0}:b:<batch>:run:<run>          HASH    one run: the scalars of all fences
    evb:{live.0}:b:<batch>:transcript:<run>~<conversation> LIST   one event an item; see bus.events
    evb:{live.0}:b:<batch>:desk:<name>        HASH    a bounded desk: places, leases not released yet
    evb:{live.0}:b:<batch>:plane              HASH    admissions of both planes, shadow places taken
    evb:{live.0}:b:<batch>:undo:live|shadow   STREAM  inverses to be run on that plane
    evb:{live.0}:b:<batch>:leases             HASH    lease id → run, for every lease ever granted
    evb:{live.0}:b:<batch>:requests           HASH    request id → run, for every request ever opened
    evb:{live.0}:b:<batch>:slots              HASH    slot → the call that has it
    evb:{live.0}:b:<batch>:bundle             HASH    which bytes are the suite's bundle, and who signed them
    evb:{live.0}:b:<batch>:loops              HASH    run → who held its worker's event loop, and where: a remark
    evb:{live.0}:b:<batch>:index              LIST    run ids in order of admission
    evb:{live.0}:b:<batch>:review             SET     runs whose score waits for a person or a rebind
    evb:{live.0}:b:<batch>:runs|tools|scores|results STREAM what the groups worker (two), scorer and planner read
    evb:{live.0}:b:<batch>:history            STREAM  every decision
    evb:{live.0}:b:<batch>:dead               STREAM  dead letters
    evb:{live.0}:b:<batch>:blob:<digest>      STRING  content-addressed bytes
"""

from __future__ import annotations

import binascii
import hashlib
import re
from dataclasses import dataclass, field

from bus.types import BatchId, Digest, Plane, RunId

__all__ = [
    "RUNS_DESK",
    "SHARDS",
    "BatchKeys",
    "any_shard",
    "batch_of",
    "bell",
    "endpoint",
    "every_batch",
    "mark",
    "registry",
    "rests",
    "shard_of",
    "slot_of",
]

RUNS_DESK = "runs"
"""The desk at which a run holds a place from its admission to its end."""

SHARDS = 16
"""Of a Cluster: enough to spread batches over any number of primaries that one would have; more would only be asked."""

_SLOTS = 16384
"""Of every Cluster, as its protocol has it."""


def shard_of(batch: BatchId) -> int:
    """Where a new batch goes on a Cluster: by its name, so that two who declare it at once meet."""
    return int.from_bytes(hashlib.sha256(batch.encode()).digest()[:4]) % SHARDS


def slot_of(plane: Plane, shard: int) -> int:
    """The hash slot of all keys of a shard: that of what stands in the braces."""
    return binascii.crc_hqx(f"{plane}.{shard}".encode(), 0) % _SLOTS


def any_shard(plane: Plane) -> str:
    """What every key of a plane begins with, `*` for the shard: a pattern, for server users."""
    return f"evb:{{{plane}.*}}:"


def registry(plane: Plane, shard: int = 0) -> str:
    """The hash that names the shard's batches."""
    return f"evb:{{{plane}.{shard}}}:batches"


def endpoint(plane: Plane, name: str, shard: int = 0) -> str:
    """What all workers together may ask of one model endpoint."""
    return f"evb:{{{plane}.{shard}}}:endpoint:{name}"


def bell(plane: Plane, shard: int = 0) -> str:
    """What is rung when a batch is declared on this shard; see `bus.bell`."""
    return f"evb:{{{plane}.{shard}}}:bell"


def rests(plane: Plane, shard: int = 0) -> str:
    """The consumers that take nothing now; see `bus.rests`."""
    return f"evb:{{{plane}.{shard}}}:rests"


def mark(plane: Plane, shard: int = 0) -> str:
    """What is written to when all that came before is to be on disk; it holds nothing."""
    return f"evb:{{{plane}.{shard}}}:mark"


def every_batch(plane: Plane, shard: int = 0) -> str:
    """All keys of all batches: a pattern, for SCAN."""
    return f"evb:{{{plane}.{shard}}}:b:*"


def batch_of(plane: Plane, key: str, shard: int = 0) -> BatchId:
    """Whose key it is, of those that `every_batch` matches."""
    return BatchId(key.removeprefix(every_batch(plane, shard).removesuffix("*")).partition(":")[0])


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """The keys of one batch."""

    plane: Plane
    batch: BatchId
    shard: int = 0
    _start: str = field(init=False, repr=False, compare=False)
    """What all of them begin with."""

    def __post_init__(self) -> None:
        """Spelt once: each command names some."""
        object.__setattr__(self, "_start", f"evb:{{{self.plane}.{self.shard}}}:b:{self.batch}:")

    def _key(self, *parts: str) -> str:
        return self._start + ":".join(parts)

    @property
    def registry(self) -> str:
        """The shard's hash of batches."""
        return registry(self.plane, self.shard)

    @property
    def every(self) -> str:
        """All keys of the batch: a pattern, for SCAN; what the name itself holds stands for itself."""
        return re.sub(r"([*?\[\]\\^-])", r"\\\1", self._key("")) + "*"

    @property
    def batch_row(self) -> str:
        """Declaration, status and counters."""
        return self._key("batch")

    @property
    def planes(self) -> str:
        """Every admission to a plane, with its key."""
        return self._key("plane")

    def undo(self, plane: Plane) -> str:
        """The inverses to be run on one plane."""
        return self._key("undo", plane)

    @property
    def leases(self) -> str:
        """Every lease id ever granted, with its run."""
        return self._key("leases")

    @property
    def requests(self) -> str:
        """Every request id ever opened, with its run."""
        return self._key("requests")

    @property
    def slots(self) -> str:
        """Every slot that calls share, with the call that has it."""
        return self._key("slots")

    @property
    def bundle(self) -> str:
        """Which bytes are the suite's bundle, and who signed them."""
        return self._key("bundle")

    @property
    def loops(self) -> str:
        """Runs that held their worker's event loop, and where."""
        return self._key("loops")

    @property
    def index(self) -> str:
        """Run ids in order of admission."""
        return self._key("index")

    @property
    def review(self) -> str:
        """Runs whose score is parked."""
        return self._key("review")

    @property
    def history(self) -> str:
        """Every decision."""
        return self._key("history")

    @property
    def dead(self) -> str:
        """Dead letters."""
        return self._key("dead")

    def stream(self, name: str) -> str:
        """The stream `runs`, `tools`, `scores` or `results`."""
        return self._key(name)

    def run(self, run: RunId) -> str:
        """One run's hash."""
        return f"{self._start}run:{run}"

    def transcript(self, run: RunId, conversation: int | None = None) -> str:
        """The events of one conversation of a run; without one, of a chain as fence 7 itself names it."""
        chain = run if conversation is None else f"{run}~{conversation}"
        return f"{self._start}transcript:{chain}"

    def desk(self, name: str = RUNS_DESK) -> str:
        """The desk `runs`, `model` or `judge`."""
        return self._key("desk", name)

    def blob(self, digest: Digest) -> str:
        """Bytes under their own digest."""
        return self._key("blob", digest)
