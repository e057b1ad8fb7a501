"""`evalbus gate`, `plan` and `calibrate`: where a batch comes from, its figures, its rules, and who is told of them.

sources.py        a batch on a server, an exported history, a frozen snapshot: one shape for all three
snapshot_file.py  a closed batch frozen in a file, under its own name
baseline.py       the batch that another one is compared with
gate.py           the verdict: one word, and its exit code;  rules.py: what may be asked
groups.py         cases by a field of their metadata
figures.py        every figure of a batch; telling.py prints them
junit.py, github.py, visible.py   what a CI server is told, and how somebody else's text gets there unharmed
command.py, planning.py, calibrating.py   the three commands
"""
