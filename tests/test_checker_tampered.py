"""Every property of the checker, and a history that it must refuse by that name.

A checker that cannot fail is none. So a true history is edited once for each property, in the way that breaks it: a
line is changed, dropped or said twice, or one is added that no script would have written. Entries are then counted and
chained anew, as somebody would do who knows the format: what is found is found by its meaning.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import hashlib
import json
import re
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from bus.checker import Books, Checked, Checker
from bus.types import Plane
from tests.batches import Batch
from tests.histories import parsed, rechained, whole_history
from tests.limits import ALL
from tests.servers import RealServer
from tests.sources import ROOT
from workers.tools.keys import wire_key

Line = dict[str, Any]
BOOK, FAILED, UNDONE = "c0#1~0.3.0", "c0#1~0.3.1", "c1#1~0.1.0"
"""The intents of the history: one that committed, one whose tool refused, one that was undone."""


@dataclass(slots=True)
class History:
    """A history that can be edited."""

    header: Line
    lines: list[Line]
    footer: Line
    effects: dict[str, int] = field(default_factory=dict)
    """The endpoint's books, by intent."""
    undone: dict[str, int] = field(default_factory=dict)
    tokens: int = 30

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> History:
        """What an export says, with the books of an endpoint that agrees."""
        header, *middle, footer = [parsed(line) for line in lines]
        return cls(header, middle, footer, {BOOK: 1, UNDONE: 1}, {UNDONE: 1})

    def index(self, name: str, nth: int = 0, verb: str = "commit") -> int:
        """Where the n-th such decision stands; `name`: `outbox.put`."""
        fits = [
            at for at, one in enumerate(self.lines) if f"{one['fence']}.{one['op']}" == name and one["verb"] == verb
        ]
        return fits[nth]

    def line(self, name: str, nth: int = 0) -> Line:
        """That decision."""
        return self.lines[self.index(name, nth)]

    def step(self, name: str, nth: int = 0) -> list[Line]:
        """All parts of its entry."""
        entry = self.line(name, nth)["id"].partition("/")[0]
        return [one for one in self.lines if one["id"].partition("/")[0] == entry]

    def add(self, parts: Sequence[Line], behind: int) -> None:
        """Another entry, behind the one that the line at this index is of."""
        entry = self.lines[behind]["id"].partition("/")[0]
        while behind + 1 < len(self.lines) and self.lines[behind + 1]["id"].startswith(f"{entry}/"):
            behind += 1
        ms = entry.partition("-")[0]
        made = [copy.deepcopy(one) | {"id": f"{ms}-added{len(self.lines)}/1"} for one in parts]
        self.lines[behind + 1 : behind + 1] = made

    def export(self) -> list[bytes]:
        """The file, its entries counted and chained anew."""
        entries: list[str] = []
        lines = []
        part = 0
        for one in self.lines:
            entry = one["id"].partition("/")[0]
            part = part + 1 if entries[-1:] == [entry] else 1
            if part == 1:
                entries.append(entry)
            numbered = one | {"id": f"{entry.partition('-')[0]}-{len(entries)}/{part}"}
            lines.append(json.dumps(numbered, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        spelt = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in (self.header, self.footer)]
        return rechained([spelt[0], *lines, spelt[1]])

    def books(self) -> Books:
        """What the endpoint counted, by its own keys."""
        incarnation = self.line("run.create")["envelope"]["incarnation"]

        def keyed(counts: dict[str, int]) -> dict[str, int]:
            return {wire_key(Plane.LIVE, incarnation, intent): times for intent, times in counts.items()}

        return Books(tokens=self.tokens, effects=keyed(self.effects), undone=keyed(self.undone))

    def checked(self) -> Checked:
        """What the checker finds."""
        checker = Checker("h.jsonl")
        for line in self.export():
            checker.feed(line)
        return checker.finish(self.books())


@pytest.fixture(scope="module")
def true(valkey: RealServer) -> list[bytes]:
    """A history with every fence, whole and closed."""

    async def play() -> list[bytes]:
        batch = await Batch.open(valkey.target.address(), limits=ALL | {"budget_epoch": 0})
        lines = await whole_history(batch)
        await batch.aclose()
        return lines

    with valkey.client() as client:
        client.flushall()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    lines = asyncio.run(play())
    structlog.reset_defaults()
    return lines


# --- edits ------------------------------------------------------------------------------------------------

Edit = Callable[[History], object]


def args(name: str, nth: int = 0, **changed: object) -> Edit:
    """A decision was asked for otherwise."""
    return lambda h: h.line(name, nth)["args"].update(changed)


def answer(name: str, nth: int = 0, **changed: object) -> Edit:
    """A decision was answered otherwise."""
    return lambda h: h.line(name, nth)["answer"].update(changed)


def envelope(name: str, nth: int = 0, **changed: object) -> Edit:
    """A step came in another envelope."""
    return lambda h: [one["envelope"].update(changed) for one in h.step(name, nth)]


def policy(**changed: object) -> Edit:
    """The batch was declared otherwise."""
    return lambda h: h.header["policy"].update(changed)


def limits(**changed: object) -> Edit:
    """Likewise, one of its limits."""
    return lambda h: h.header["policy"]["limits"].update(changed)


def drop(name: str, nth: int = 0) -> Edit:
    """A decision is left out."""
    return lambda h: h.lines.pop(h.index(name, nth))


def again(name: str, nth: int = 0, behind: str = "", **changed: object) -> Edit:
    """A decision was taken once more: at once, or behind another one."""

    def edit(h: History) -> None:
        twin = copy.deepcopy(h.line(name, nth))
        twin["args"].update(changed)
        h.add([twin], h.index(behind or name, nth if not behind else 0))

    return edit


def step_again(name: str, nth: int = 0, *, behind: str) -> Edit:
    """A whole step was taken once more."""
    return lambda h: h.add(h.step(name, nth), h.index(behind))


def said(name: str, verb: str, reason: str | None = None, *, behind: str, nth: int = 0, **more: Any) -> Edit:  # noqa: ANN401
    """A decision that nobody took; what it is not given is that of the one it stands behind."""

    def edit(h: History) -> None:
        index = h.index(behind, nth)
        fence, _, op = name.partition(".")
        made = copy.deepcopy(h.lines[index]) | {"fence": fence, "op": op, "verb": verb, "reason": reason}
        made["args"] |= more.get("args", {})
        made["answer"] = more.get("answer", {})
        h.add([made], index)

    return edit


def before(name: str, verb: str, reason: str, nth: int = 0, **changed: object) -> Edit:
    """A decision was refused, just before it was granted."""

    def edit(h: History) -> None:
        index = h.index(name, nth)
        made = copy.deepcopy(h.lines[index]) | {"verb": verb, "reason": reason}
        made["args"].update(changed)
        first = h.lines.index(h.step(name, nth)[0])
        h.add([made], first - 1)

    return edit


def shown(**changed: object) -> Edit:
    """The snapshot is another."""
    return lambda h: h.footer["snapshot"].update(changed)


def both(*edits: Edit) -> Edit:
    """One after the other."""
    return lambda h: [edit(h) for edit in edits]


OTHER = "0" * 64
CLOSE = "histogram.close"

EDITS: dict[str, Edit] = {
    "history.P1": lambda h: h.line("plane.write")["args"].clear(),
    "history.P4": envelope("plane.write", plane="shadow"),
    "history.P5": policy(quorum=2),
    # 1 plane
    "plane.P1": args("plane.write", key="shadow:c0#1:result"),
    "plane.P2": again("plane.write"),
    "plane.P3": args("plane.write", key="live:c9#1:result"),
    "plane.P4": both(limits(capacity=1), *(args("plane.admit", n, plane="shadow") for n in range(2))),
    "plane.P5": again("plane.undo"),
    "plane.P6": before("plane.write", "reject", "plane_key"),
    "plane.P7": again("plane.admit"),
    "plane.P8": again("plane.release"),
    "plane.P9": drop("plane.release"),
    # 2 outbox
    "outbox.P1": again("outbox.put"),
    "outbox.P2": answer("outbox.claim", tool="transfer"),
    "outbox.P3": args("outbox.claim", gen=9),
    "outbox.P4": again("outbox.claim"),
    "outbox.P5": args("outbox.sent", executor="x"),
    "outbox.P6": again("outbox.sent"),
    "outbox.P7": args("outbox.complete", executor="x"),
    "outbox.P8": again("outbox.complete"),
    "outbox.P9": args("outbox.complete", echo="another"),
    "outbox.P10": said("outbox.recover", "commit", behind="outbox.sent"),
    "outbox.P11": answer("outbox.revoke", undo_id="another"),
    "outbox.P12": said("outbox.recover", "compensate", behind="outbox.sent", answer={"undo_id": f"{BOOK}~undo"}),
    "outbox.P13": drop("outbox.complete", -1),
    # 3 in doubt
    "indoubt.P1": again("indoubt.bind"),
    "indoubt.P2": args("indoubt.bind", lease_id="x"),
    "indoubt.P3": said("indoubt.recover", "compensate", behind="indoubt.prepare"),
    "indoubt.P4": again("indoubt.prepare"),
    "indoubt.P5": again("indoubt.reserve"),
    "indoubt.P6": again("indoubt.reserve", key="another"),
    "indoubt.P7": args("indoubt.turn", epoch=0),
    "indoubt.P8": said("indoubt.recover", "compensate", behind="indoubt.bind"),
    "indoubt.P9": said("indoubt.recover", "compensate", behind="indoubt.prepare"),
    "indoubt.P10": drop("indoubt.bind"),
    # 4 completion
    "completion.P1": args("completion.bind", lease_id="L9"),
    "completion.P2": args("completion.bind", prompt_hash=OTHER),
    "completion.P3": again("completion.bind"),
    "completion.P4": again("completion.bind", behind=CLOSE),
    "completion.P5": args("completion.open", gen=9),
    "completion.P6": again("completion.open"),
    "completion.P7": answer("completion.lease", 2, gen=1),
    "completion.P8": limits(compute_retries=0),
    "completion.P9": both(limits(model_retries=0), before("completion.bind", "replay", "payload_corrupt")),
    "completion.P10": args("completion.fence", gen=9),
    "completion.P11": before("completion.bind", "reject", "stale_lease"),
    # 5 histogram
    "histogram.P1": again("histogram.score", behind=CLOSE),
    "histogram.P2": again("histogram.score"),
    "histogram.P3": args("histogram.score", epoch=2),
    "histogram.P4": again("histogram.fence"),
    "histogram.P5": again("histogram.fence", epoch=2, digest=OTHER),
    "histogram.P6": policy(max_in_flight=0),
    "histogram.P7": args("histogram.score", bin="splendid"),
    "histogram.P8": drop("histogram.drain"),
    "histogram.P9": answer(CLOSE, accepted=1),
    "histogram.P10": said(
        "histogram.pass_rate", "commit", behind="histogram.score", answer={"passed": 1, "accepted": 1, "holes": 1}
    ),
    "histogram.P11": before("histogram.score", "reject", "stale_epoch"),
    # 6 judge
    "judge.P1": args("judge.commit", observed_judge="another"),
    "judge.P2": again("judge.mint"),
    "judge.P3": again("judge.commit"),
    "judge.P4": said(
        "judge.rebind", "commit", behind="judge.commit", args={"candidate": "c", "judge": "j"}, answer={"epoch": 2}
    ),
    "judge.P5": before("judge.commit", "reject", "judge_mismatch"),
    "judge.P6": before("judge.commit", "replay", "judge_mismatch", observed_judge="another"),
    # 7 transcript
    "transcript.P1": args("transcript.append", lease_id="L2"),
    "transcript.P2": args("transcript.append", gen=9),
    "transcript.P3": args("transcript.append", payload="another"),
    "transcript.P4": before("transcript.append", "reject", "stale_gen"),
    "transcript.P5": answer("transcript.lease", 2, gen=1),
    "transcript.P6": args("transcript.lease", 1, lease_id="L1"),
    "transcript.P7": answer("transcript.lease", 2, length=5),
    "transcript.P8": again("transcript.append", behind="transcript.seal"),
    "transcript.P9": args("transcript.append", intent=OTHER),
    "transcript.P10": again("transcript.intend"),
    "transcript.P11": args("transcript.seal", head=OTHER),
    "transcript.P12": args("transcript.fence", gen=9),
    # 8 sandbox
    "sandbox.P1": args("sandbox.join", epoch=9),
    "sandbox.P2": args("sandbox.join", receipt="another"),
    "sandbox.P3": again("sandbox.join"),
    "sandbox.P4": answer("sandbox.acquire", 2, epoch=1),
    "sandbox.P5": args("sandbox.write", epoch=9),
    "sandbox.P6": answer("sandbox.write", log_index=7),
    "sandbox.P7": said("sandbox.write", "compensate", behind="sandbox.write", answer={"undo_id": "x~undo"}),
    "sandbox.P8": args("sandbox.preempt", epoch=9),
    # 9 workspace
    "workspace.P1": args("workspace.attach", tree_hash=OTHER),
    "workspace.P2": again("workspace.attach"),
    "workspace.P3": again("workspace.record"),
    # 10 ledger
    "ledger.S1": answer("ledger.chunk", billed=1),
    "ledger.S2": again("ledger.done"),
    "ledger.S3": drop("ledger.chunk"),
    "ledger.S4": args("ledger.admit", estimate=1_000_000),
    "ledger.P5": again("ledger.admit"),
    "ledger.P6": again("ledger.chunk"),
    "ledger.P7": said("ledger.reconcile", "commit", behind="ledger.done", args={"gateway_billed": 1}),
    "ledger.P8": said("ledger.cut", "commit", behind="ledger.done"),
    "ledger.P9": before("ledger.admit", "reject", "over_budget"),
    # 11 admission
    "admission.P1": policy(bound=2),
    "admission.P2": again("admission.apply"),
    "admission.P3": args("admission.apply", gen=99),
    "admission.P4": again("admission.acquire", lease="another"),
    "admission.P5": answer("admission.acquire", 1, gen=1),
    "admission.P6": again("admission.acquire"),
    "admission.P7": again("admission.release"),
    "admission.P8": said("admission.expire", "commit", behind="admission.release", answer={"gen": 99}),
    "admission.P9": both(
        said("admission.reclaim", "commit", behind="admission.acquire", args={"cancelled": False}),
        said("admission.expire", "commit", behind="admission.acquire", answer={"gen": 99}),
    ),
    "admission.P10": drop("admission.release", -1),
    "admission.P11": before("admission.acquire", "reject", "bound_full"),
    # 12 join
    "join.P1": again("join.result", behind="join.commit"),
    "join.P2": args("join.result", window=OTHER),
    "join.P3": drop("join.result"),
    "join.P4": answer("join.admit", window=OTHER),
    "join.P5": again("join.admit"),
    "join.P6": answer("join.commit", remaining=1),
    "join.P7": again("join.expire"),
    "join.P8": drop("join.expire"),
    # the fences together
    "run.P1": envelope("transcript.append", lease_id="L9"),
    "run.P2": answer("transcript.lease", 2, gen=1),
    "run.P3": envelope("transcript.lease", 1, lease_id="L1"),
    "run.P4": step_again("transcript.lease", behind="histogram.score"),
    "run.P5": answer("completion.lease", gen=7),
    "run.P6": again("judge.mint"),
    "run.P7": args("histogram.score", digest=OTHER),
    "run.P8": args("histogram.score", bin="fail"),
    "run.P9": drop("workspace.attach"),
    "run.P10": drop("admission.release", -1),
    "run.P11": step_again("transcript.append", behind="histogram.score"),
    "run.P12": said("run.restarted", "commit", behind="histogram.score", answer={"floor": 1}),
    "run.P13": drop("histogram.abandon"),
    "close.P1": step_again("transcript.append", behind=CLOSE),
    "close.P2": drop("histogram.abandon"),
    "close.P3": said("outbox.recover", "reject", "stuck", behind="outbox.complete"),
    "snapshot.P1": lambda h: h.footer["snapshot"]["rows"].append(h.footer["snapshot"]["rows"][0]),
    "snapshot.P2": shown(bins={"pass": 1, "fail": 1}),
    "snapshot.P3": shown(snapshot_id=OTHER),
    "snapshot.P4": lambda h: h.footer.update(snapshot=None),
    # the world outside
    "effects.P1": drop("plane.write"),
    "effects.P2": args("join.result", ok=False),
    "effects.P3": drop("indoubt.bind"),
    "effects.P4": lambda h: h.effects.update({BOOK: 2}),
    "effects.P5": lambda h: h.undone.clear(),
    "effects.P6": lambda h: h.effects.update({FAILED: 1}),
    "effects.P7": lambda h: h.effects.update({"c0#1~0.9.0": 1}),
    "tokens.P1": lambda h: setattr(h, "tokens", 31),
}

OF_THE_FILE = ("history.P2", "history.P3", "history.P6")
"""These are about the file itself, and so need edits without a new chain."""


def broken(checked: Checked) -> set[str]:
    """The ids of the properties that were found broken."""
    return {one.id for one in checked.broken}


def test_the_history_that_is_edited_is_true(true: list[bytes]) -> None:
    """Otherwise nothing below would show anything."""
    found = History.of(true).checked()
    assert (found.ok, found.state) == (True, "closed"), [one.says for one in found.broken]


@pytest.mark.parametrize("name", EDITS)
def test_a_history_that_breaks_a_property_is_refused_by_its_name(true: list[bytes], name: str) -> None:
    """One edit each; what else it breaks is told as well."""
    history = History.of(true)
    EDITS[name](history)
    found = history.checked()
    assert name in broken(found), broken(found)
    (check,) = [one for one in found.broken if one.id == name]
    assert check.entries
    assert check.examined >= check.violations > 0
    assert check.says.startswith(f"broken by {check.violations} of {check.examined} ")


def test_every_property_has_a_history_that_breaks_it(true: list[bytes]) -> None:
    """One that is added without its row fails here."""
    names = [one.id for one in History.of(true).checked().checks]
    assert sorted(names) == sorted([*EDITS, *OF_THE_FILE])
    assert len(names) == len(set(names))


def _fed(lines: Sequence[bytes]) -> Checked:
    checker = Checker("h.jsonl")
    for line in lines:
        checker.feed(line)
    return checker.finish()


def test_a_byte_that_was_changed_breaks_the_chain_where_it_stands(true: list[bytes]) -> None:
    """And only there: what follows is still chained to what was written."""
    index = next(at for at, line in enumerate(true) if b'"payload":"said"' in line)
    found = _fed([*true[:index], true[index].replace(b'"said"', b'"sung"'), *true[index + 1 :]])
    (chain,) = [one for one in found.broken if one.id == "history.P2"]
    assert chain.entries == (f"line {index + 1}",)


def test_entries_that_change_places_are_found_by_their_order(true: list[bytes]) -> None:
    """The chain is made anew; the ids are not."""
    for index in (12, 40, 80):
        swapped = [*true[:index], true[index + 1], true[index], *true[index + 2 :]]
        assert "history.P3" in broken(_fed(rechained(swapped)))


def test_a_last_line_that_counts_wrong_is_found(true: list[bytes]) -> None:
    """Its count, its head, or a second one behind it."""
    last = parsed(true[-1])
    for changed in ({"entries": 1}, {"head": OTHER}):
        line = json.dumps(last | changed, separators=(",", ":")).encode() + b"\n"
        assert "history.P6" in broken(_fed([*true[:-1], line]))
    assert "history.P6" in broken(_fed([*true, true[-1]]))


def test_a_forged_generation_is_found_even_with_all_that_follows_from_it(true: list[bytes]) -> None:
    """Who forges a late event so well that its chain fits is found by the lease that was not live any more."""
    history = History.of(true)
    late = history.lines[history.index("transcript.append", verb="reject")]
    late |= {"verb": "commit", "reason": None}
    made = (late["args"]["parent"] + late["args"]["payload"]).encode()
    late["args"]["seq"] = 1
    late["answer"] = {"head": hashlib.sha256(made).hexdigest()}
    found = broken(history.checked())
    assert {"transcript.P2", "run.P1"} <= found


def _of_many_chunks(true: Sequence[bytes], count: int) -> list[bytes]:
    """The history, with an answer of which so many chunks were flushed before it was bound."""
    history = History.of(true)
    first, second = (history.line("ledger.chunk", n) for n in range(2))
    flushed = []
    for n in range(1, count + 1):
        figures = {"billed": n, "durable": n, "watermark": n}
        flushed.append(first | {"args": first["args"] | {"seq": n, "tokens": 1}, "answer": figures})
    for n, (line, billed) in enumerate(((first, 10), (second, 30)), start=1):
        line["args"]["seq"] = count + n
        line["answer"] = {"billed": count + billed, "durable": count + billed, "watermark": count + n}
    history.line("ledger.done")["args"]["last_seq"] = count + 2
    at, ms = history.index("ledger.admit") + 1, first["id"].partition("-")[0]
    history.lines[at:at] = [line | {"id": f"{ms}-flushed{n}/1"} for n, line in enumerate(flushed)]
    return history.export()


def test_memory_does_not_grow_with_the_lines(true: list[bytes]) -> None:
    """Ten times the chunks of the same step, all of them counted, and no more is kept of them."""
    kept = []
    for count in (100, 1_000):
        lines = _of_many_chunks(true, count)
        checker = Checker("h.jsonl")
        tracemalloc.start()
        for line in lines:
            checker.feed(line)
        gc.collect()  # the interpreter keeps freed tuples for the next ones
        kept.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        found = checker.finish()
        assert (found.ok, found.tokens.ledger) == (True, 30 + count), [one.says for one in found.broken]
    assert kept[1] - kept[0] < 30_000  # bytes; if they were kept, 900 chunks would take some 100,000


def test_the_manual_names_every_property_as_the_checker_does(true: list[bytes]) -> None:
    """Its tables are what a reader of a report looks a name up in."""
    rows = re.findall(
        r"^\| `([a-z]+\.[PS]\d+)` \| (.+?) \| ", (ROOT / "docs/checker.md").read_text("utf-8"), re.MULTILINE
    )
    names = [one.property for one in History.of(true).checked().checks]
    assert sorted(f"{name}: {text}" for name, text in rows) == sorted(names)
