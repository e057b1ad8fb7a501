"""Limits that a batch declares to meet every fence: whoever declares none of them meets five of the twelve."""

SILENCE = 5_000  # ms: heartbeat_ms

ALL = {
    "compute_retries": 3,
    "model_retries": 1,
    "heartbeat_ms": SILENCE,
    "model_slots": 4,
    "judge_slots": 4,
    "budget": 10_000,
    "budget_epoch": 1,
    "ack_bound_ms": 60_000,
    "inverses": '{"book":"cancel"}',
}
"""Limits that put every fence in the path."""

FIRST_BUDGET = ALL | {"budget_epoch": 0}
"""The same of a budget that is a batch's first: its epoch is the 0 that fan-outs of the tests are opened under."""
