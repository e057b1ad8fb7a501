"""The checker: what must be true of a batch, looked for in its export alone.

Replay asks the reference models whether each decision was the one that the rules demand. A rule that is wrong would be
wrong in both. So the checker knows no rules of decision: it reads what was accepted, and asks whether that could have
been. Its predicates are written from the specification; it shares no code with the fences, the models or the roles, has
its own reader of the file, and takes only the bus's errors from the rest of the project.

    said.py       one decision, as a line tells it
    lines.py      the file: chain, order, declaration, last line
    setting.py    what the batch declared, and how a fence's properties are asked
    board.py      properties, each with its denominator
    checked.py    what a history comes to
    <fence>.py    the properties of one fence, from the operations that it applied
    runs.py       the fences together in one run: who held it, and how it ended
    closing.py    the close, and what stands in the snapshot
    effects.py    a call's fences together, and the endpoint's own books
    checker.py    lines in, and what they come to
"""

from __future__ import annotations

from bus.checker.checked import Books, Check, Checked, Effects, Leases, Preempted, Tokens
from bus.checker.checker import Checker

__all__ = ["Books", "Check", "Checked", "Checker", "Effects", "Leases", "Preempted", "Tokens"]
