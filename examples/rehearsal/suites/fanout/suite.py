"""Runs that book three tickets at once. REHEARSAL_LAB is the lab's URL, REHEARSAL_RUNS a number."""

import os

from duplicates import NAMES

from workers.suite import Suite

lab = os.environ["REHEARSAL_LAB"]

suite = Suite(
    name="rehearsal-fanout",
    cases=[{"id": name, "input": "Three seats.", "target": "3"} for name in NAMES],
    model={"base_url": f"{lab}/v1", "name": "lab-1", "billing_url": f"{lab}/billing/{{request_id}}"},
    tools={
        "book": {"http": f"{lab}/tickets", "effects": "outside", "inverse": "cancel", "timeout": "10s", "slots": 16},
        "cancel": {"http": f"{lab}/tickets/undo", "effects": "outside", "timeout": "10s"},
    },
    solver={"python": "agent.py:solve"},
    scorer={"kind": "exact"},
    concurrency=len(NAMES),
    lease="3s",
    max_deliveries=20,
    timeout="5m",
    quorum=1,
)
