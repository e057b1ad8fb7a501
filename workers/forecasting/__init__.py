"""What a fleet would get done, before it is paid for: `evalbus simulate --fleet`.

fleet.py       a fleet that is planned, and what is to be expected of it
queues.py      by a model of its queues, in virtual time;  agenda.py: that time;  tally.py: what is counted meanwhile
capacity.py    by arithmetic, and which of its parts has no more
costs.py       what things cost on it: defaults, or measured
table.py       fleets of 10 to 1,000 workers
command.py     the command
"""
