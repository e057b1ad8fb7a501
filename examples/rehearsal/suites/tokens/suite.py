"""Runs that ask the lab's model one question each, and spend tokens; what is said is of no interest.

From the environment: REHEARSAL_LAB (the lab's URL), REHEARSAL_RUNS, REHEARSAL_BUDGET (tokens; none when it is not set).
"""

import os

from workers.suite import Suite

lab = os.environ["REHEARSAL_LAB"]
budget = os.environ.get("REHEARSAL_BUDGET")

suite = Suite(
    name="rehearsal-tokens",
    cases=[{"id": f"q{number}", "input": f"Question {number}?"} for number in range(int(os.environ["REHEARSAL_RUNS"]))],
    model={
        "base_url": f"{lab}/v1",
        "name": "lab-1",
        "max_tokens": 60,  # what a call reserves is then a bound, and no expectation
        "slots": 16,
        "retries": 20,
        "retry_budget": 1_000_000,
        "idle": "2s",
        "billing_url": f"{lab}/billing/{{request_id}}",
    },
    solver={"python": "agent.py:solve"},
    scorer={"kind": "python", "python": "agent.py:score"},
    concurrency=8,
    lease="3s",
    max_deliveries=50,
    timeout="5m",
    quorum=1,
    **({"budget": int(budget)} if budget else {}),
)
