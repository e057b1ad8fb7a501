"""Edits that break a history: for each property of the checker the one by which it must be found.

A line is changed, dropped or said twice, or one is added that no script would have written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.editable import BOOK, FAILED, History

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
    "run.P14": said("run.yield", "reject", "its_own_doing", behind="transcript.append"),
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
