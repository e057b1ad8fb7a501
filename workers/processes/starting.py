"""The start and the end of a role's process. Importing this module comes first there: see `workers.role`.

A fleet starts its processes over and over, on machines that vanish, and each is one and a half thousand functions and
classes that are made and never thrown away. So the collector of cycles does not look for some among them while they are
made, nor when the process ends; nor in between, each time that it looks through all that is old, for which a tenth of
what a no-op run takes in a worker went away. What is new it looks through when there is more of it than all runs in
hand have, which go without a collector: that was another fifteenth. And structlog loads rich, with all that it loads,
to colour tracebacks where it finds it; a role writes its tracebacks as JSON. Whoever wants rich in a solver still has
it.
"""

from __future__ import annotations

import atexit
import gc
import sys

__all__ = ["loaded", "quick_end"]

_NEW = 50_000  # objects; the runs in hand, some hundreds, hold about a hundred each. Python's own is 700

gc.disable()

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401 - it is here to be loaded now
    finally:
        del sys.modules["rich"]


def loaded() -> None:
    """All modules are there, and stay: the collector goes on with what is made from here on."""
    gc.freeze()
    gc.set_threshold(_NEW)
    gc.enable()


def quick_end() -> None:
    """When the process ends, what is still there by then is left to the system."""
    atexit.register(gc.freeze)
