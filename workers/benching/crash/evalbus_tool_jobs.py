"""evalbus, where the solver has the job done by a tool with effects outside: see `evalbus_jobs`."""

from __future__ import annotations

from functools import partial

from workers.benching.crash.adapter import main
from workers.benching.crash.evalbus_jobs import connected_to, work

if __name__ == "__main__":
    main(work, partial(connected_to, by_tool=True))
