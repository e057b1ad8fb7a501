"""Whole batches in virtual time: the roles' own code on the bus in memory, while things go wrong by a seed.

clock.py       an event loop on which no time passes but the one that somebody waits for
process.py     one process: its clock, its random numbers, its death; line.py: its way to the bus
machines.py    the machines: which can do no run, and whether they find it themselves
server.py      the server: its lives, its clock, what it loses
faults.py      what may go wrong, and which call it strikes: drawn from a seed, or from a list
bending.py     steps under a false identity
lab.py         the endpoint's own books, and its tools; endpoint.py: its model; judging.py: one that judges
acting.py      the solver, the tools and the scorer; setting.py: the suites that have them
roles.py       planner, worker and scorer as they are, with that endpoint
play.py        one schedule
findings.py    what is asked of it when it is over
schedule.py    a schedule from a number, or from a file; shrinking.py: the shortest that shows the same
mutants.py     fences with a check taken out, hand_backs.py: and other rules for what is handed back; for tests
many.py        very many schedules
command.py     the command
"""
