"""Runs whose endpoint, tools and own code all tell the keys that they were given. REHEARSAL_ECHO is the endpoint."""

import os

from workers.suite import Suite

echo = os.environ["REHEARSAL_ECHO"]
KINDS = (
    "answer", "long", "call", "named", "cut", "page", "refused", "broken", "forbidden",
    "reads", "acts", "breaks", "wrong-echo", "runs",
    "prints", "notes", "answers", "raises", "logs",
)  # fmt: skip

suite = Suite(
    name="rehearsal-canary",
    cases=[{"id": kind, "input": kind} for kind in KINDS],
    model={"base_url": f"{echo}/v1", "name": "echo", "key_env": "CANARY_MODEL_KEY", "retries": 1, "retry_budget": 4},
    tools={
        "read": {
            "http": f"{echo}/reads",
            "effects": "none",
            "remote": True,
            "headers_env": {"X-Key": "CANARY_FILE_KEY"},
        },
        "act": {
            "http": f"{echo}/acts",
            "effects": "outside",
            "inverse": "undo",
            "headers_env": {"X-Key": "CANARY_TOOL_KEY"},
            "timeout": "1s",
            "bound": "2s",
        },
        "undo": {
            "http": f"{echo}/undo",
            "effects": "outside",
            "headers_env": {"X-Key": "CANARY_TOOL_KEY"},
            "timeout": "1s",
            "bound": "2s",
        },
        "run": {
            "command": ["{python}", "-c", "import os; print(os.environ['CANARY_TOOL_KEY'])"],
            "env": ["CANARY_TOOL_KEY"],
            "effects": "workspace",
        },
    },
    solver={"python": "agent.py:solve"},
    scorer={"kind": "python", "python": "agent.py:score"},
    concurrency=4,
    timeout="60s",
    quorum=1,
)
