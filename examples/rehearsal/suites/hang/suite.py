"""Runs that meet an endpoint that accepts and never answers. REHEARSAL_SILENT is its URL, REHEARSAL_RUNS a number."""

import os

from workers.suite import Suite

silent = os.environ["REHEARSAL_SILENT"]
each = int(os.environ["REHEARSAL_RUNS"])

suite = Suite(
    name="rehearsal-hang",
    cases=[{"id": f"{kind}.{number}"} for number in range(each) for kind in ("asks", "reads", "acts", "catches")],
    model={
        "base_url": f"{silent}/v1",
        "name": "lab-1",
        "first_token": "500ms",
        "idle": "500ms",
        "timeout": "2s",
        "retry_budget": 3,
        "billing_url": f"{silent}/billing/{{request_id}}",
    },
    tools={
        "look": {"http": f"{silent}/lookup", "effects": "none", "timeout": "1s"},
        "book": {
            "http": f"{silent}/tickets",
            "effects": "outside",
            "inverse": "cancel",
            "timeout": "1s",
            "bound": "2s",
        },
        "cancel": {"http": f"{silent}/tickets/undo", "effects": "outside", "timeout": "1s", "bound": "2s"},
    },
    solver={"python": "agent.py:solve"},
    scorer={"kind": "python", "python": "agent.py:score"},
    concurrency=8,
    lease="2s",
    timeout="6s",
    quorum=1,
)
