"""What `evalbus run` says beside its counts, each thing once, while the batch runs.

news.py          asks the others in turn, each no more often than its answer is worth
endpoints.py     nobody is there at an endpoint, and it is asked again
holes.py         the first hole of each reason
held_loops.py    a solver holds its worker's event loop
rests.py         a machine takes nothing for a while
"""
