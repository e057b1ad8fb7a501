"""Processes: started, watched, ended, and nothing left of them.

fleet.py            those of one `evalbus run`
starting.py         the start and the end of a role's process;  role_options.py: what it is told;  logs.py: what it logs
nursery.py          the process that starts a worker's commands;  nursery_client.py: its other end
commands.py         one command within limits;  searching.py: a search for a pattern, likewise apart
watchdog.py         a loop that is held;  loop_teller.py: told to the server;  held_loops.py: told beside the run's hole
machine.py          what the machine does wrong;  breaker.py, rests.py: until it can work again
strays.py           processes that the suite's code left running;  leftovers.py: directories of the dead
parent_death.py     a child that ends with its parent;  interrupt.py: the user asked to stop
"""
