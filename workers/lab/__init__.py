"""A lab endpoint: a model and a side-effecting tool that misbehave on request and by seed, and count the truth.

What a client of a network may meet, it should meet first where it can be repeated. The lab speaks OpenAI's and
Anthropic's streams and keeps tickets under idempotency keys; it cuts, stalls, repeats and lies when told to, or
by seed; and it counts what it really did, which is what a ledger must agree with. See `docs/lab.md`.

    mischief, plan              the kinds of misbehaviour · which request meets which
    words, asking, wires        answers in tokens · what is asked · bytes of three protocols
    exchange, service           one request, down to its connection · what the interfaces share
    model_api, ticket_api, tool_api, tickets, counts, app, server, command
"""

from __future__ import annotations

from workers.lab.counts import Bill, Counts
from workers.lab.server import Lab

__all__ = ["Bill", "Counts", "Lab"]
