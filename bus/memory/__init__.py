"""The bus in memory: the reference models in the place of the server, composed into the same steps (`bus.port`).

bus.py         one process's bus, its runs;  planner.py, scorer.py: the steps of the other two roles
calls.py       model calls; requests.py: how one is named;  tools.py, effects.py: tools, for their holder and executor
adopt.py       sealed runs taken over, to be scored anew
steps.py       what the steps share;  command.py: one of them under way
world.py       what survives while processes come and go;  batch.py: a batch of it;  streams.py: the server's streams
restart.py     another life of the server
export.py      a batch's history, as `evalbus export` writes one
"""
