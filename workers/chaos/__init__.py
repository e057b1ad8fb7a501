"""Chaos: a suite runs while its processes, server, network and endpoint fail, and then everything is checked.

Nothing here is simulated: real processes are killed, a real server loses its power, real connections go silent. What
fails when is drawn from a seed. What came of it is read from the export alone, by `bus.checker`, which shares no code
with the fences, and compared with what a lab endpoint counted and with what the same suite comes to undisturbed.

    faults.py      what can fail, and what each fault is
    plan.py        which one strikes when, from the seed
    server.py      a server of our own that dies on demand
    server_set.py  one with a replica and a Sentinel; cluster_set.py: six, in a cluster; several.py: what these share
    proxy.py       the network before it
    stage.py       all that a batch takes: server, network, lab, processes; scene.py: a batch under way
    processes.py, servers.py, network.py    how each fault strikes, and how it is undone
    striking.py    faults strike, some at a time, until they stop
    deaths.py      who was killed when, and how its work came back
    batch.py       one batch, disturbed or not
    examining.py   its history: checked, replayed, compared
    report.py      what all batches came to
    shortening.py  the shortest history that shows a violation; excerpts.py: an export without some of its entries
    telling.py     a short history in words
    keeping.py     what stays of a chaos that found something
    command.py     `evalbus chaos`
"""

from __future__ import annotations
