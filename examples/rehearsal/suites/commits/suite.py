"""Runs that ask a model and then open a ticket outside; the process that makes the call is killed on the way.

From the environment: REHEARSAL_LAB (the lab's URL), REHEARSAL_EACH (runs for each point of death).
"""

import os

from deaths import POINTS

from workers.suite import Suite

lab = os.environ["REHEARSAL_LAB"]
each = int(os.environ.get("REHEARSAL_EACH", "1"))
runs = each * (len(POINTS) + 1)

suite = Suite(
    name="rehearsal-commits",
    cases=[
        {"id": f"{point}.{number}", "input": f"A seat for guest {number}.\nLAB-ANSWER: {number}A", "target": "booked"}
        for number in range(1, each + 1)
        for point in (*POINTS, "calm")
    ],
    model={
        "base_url": f"{lab}/v1",
        "name": "lab-1",
        "billing_url": f"{lab}/billing/{{request_id}}",
        "retry_budget": 1000,
    },
    tools={
        # A call that was sent may be silent for three seconds; then it is taken back.
        "book": {
            "http": f"{lab}/tickets",
            "effects": "outside",
            "inverse": "cancel",
            "timeout": "2s",
            "bound": "3s",
            "slots": 32,
        },
        "cancel": {
            "http": f"{lab}/tickets/undo",
            "effects": "outside",
            "timeout": "2s",
            "bound": "3s",
            "slots": 32,
        },
    },
    solver={"python": "agent.py:solve"},
    scorer={"kind": "exact"},
    lease="2s",
    bound=runs,
    concurrency=runs,
    max_deliveries=100,
    timeout="5m",
    quorum=1,
)
