"""What the fences of a batch prevented: its recorded arrivals, counted again as a naive harness would count them.

A history holds what was presented, also what was refused. So it can be asked what would have become of the very same
arrivals where nobody had compared leases, generations or bindings. What would have been done otherwise afterwards no
history knows; therefore each claim is about arrivals that are there, and names them.

    values.py       what is claimed, and how it is proved
    arrivals.py     the lines of an entry as somebody's message
    policy.py       what a policy is, and how the batch really went
    board.py        verdicts as a policy would have kept them        seals.py   sealed answers likewise
    policies.py     the policies by name
"""

from __future__ import annotations

from bus.policies.policies import ALL, NAMES, Policies
from bus.policies.values import Claim, Prevented, Proof, RatePoint, together

__all__ = ["ALL", "NAMES", "Claim", "Policies", "Prevented", "Proof", "RatePoint", "together"]
