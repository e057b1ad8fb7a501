"""What a role does, for those who watch a fleet: Prometheus metrics, OpenTelemetry traces and metrics.

    observed    a bus that tells observers of each step that is taken through it, and is otherwise the bus
    prometheus  counters, times and what batches have come to, for `--metrics PORT`
    polling     what a planner asks of open batches from time to time, for the same
    tracing     a trace a run over all machines, with the names of the GenAI conventions; behind an extra
    starting    which of them a role has, by its options and its environment

All of it looks at the bus from outside. Nothing waits for an observer, and one that fails is left out and logged once.
"""
