"""`evalbus bench`: what a run costs beside its own work, what the machine would allow, and what others take.

A figure that was taken alone says how fast a machine was that day. So each of ours is taken in turn with what it is to
be compared with, each on a server of its own that starts empty (append-only file, synced every second), and it is the
quotients that are held against the bars (`bars`). A batch counts only when its history is complete.

    kinds       the suites that are run: no-op runs, runs with a model call, runs with a fan-out
    driving     one batch of a suite by a fleet, and what it took: time, processors, commands, memory
    bare        the same messages without scripts and fences; the same bytes without any meaning
    calls       script calls of one process, against the bare hiredis packer and reader
    latency     from admission to lease, from seal to verdict, at half the rate that was reached
    killing     from a worker's death to its run's next lease
    flat        what a run costs as batches grow, and as their number does
    peers       job queues that others use, if they are installed
    result      the figures as a file, as a table; `plot`: as a picture
"""
