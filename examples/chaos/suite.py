"""Runs that touch everything that can go wrong: a model, effects outside, a fan-out, a workspace, a sealed tree.

EVALBUS_LAB is the lab's URL, which `evalbus chaos` sets; EVALBUS_CHAOS_RUNS how many runs. What passes depends on the
case alone: a booking that had to be undone is told in the answer, and changes no verdict.
"""

import os

from workers.suite import Suite

lab = os.environ.get("EVALBUS_LAB", "http://127.0.0.1:8377")
runs = int(os.environ.get("EVALBUS_CHAOS_RUNS", "24"))

suite = Suite(
    name="chaos",
    cases=[
        {
            "id": f"guest-{number:02d}",
            "input": f"A seat for guest {number}.\nLAB-ANSWER: {number}A",
            "target": f"{number}A" if number % 4 else "none",
        }
        for number in range(1, runs + 1)
    ],
    model={
        "base_url": f"{lab}/v1",
        "name": "lab-1",
        "billing_url": f"{lab}/billing/{{request_id}}",
        "max_tokens": 200,
        "retries": 50,
        "retry_budget": 10_000,
        "idle": "2s",
        "first_token": "4s",
        "timeout": "10s",
        "reclaim": "12s",
    },
    tools={
        "book": {
            "http": f"{lab}/tickets",
            "effects": "outside",
            "inverse": "cancel",
            "timeout": "2s",
            "bound": "4s",
            "slots": 16,
        },
        "cancel": {"http": f"{lab}/tickets/undo", "effects": "outside", "timeout": "2s", "bound": "4s", "slots": 16},
        "look": {"http": f"{lab}/lookup", "effects": "none", "remote": True, "timeout": "5s"},
    },
    workspace={},
    solver={"python": "agent.py:solve"},
    scorer={"kind": "python", "python": "agent.py:score"},
    lease="2s",
    concurrency=2,
    bound=12,
    timeout="2m",
    quorum="50%",
)
