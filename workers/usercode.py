"""The suite's own Python: how it is found, imported, and called.

It is code that nobody here has read, in the worker's own process: it may fail on import, call `sys.exit`,
raise what is no `Exception`, or never return. Whatever it raises becomes one line; a plain function runs in a
thread of its own that a stopping process does not wait for.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

from workers.redaction import redacted

__all__ = [
    "OWN_CANCELLATION", "UserCodeError", "at_once", "call", "call_apart", "call_guarded", "describe", "load_file",
    "load_function", "place_in_suite",
]  # fmt: skip

Function = Callable[..., object]

OWN_CANCELLATION: Final = "it was cancelled by its own code"
"""What is said of code that ends in a cancellation which nobody of us asked for."""


class UserCodeError(Exception):
    """The suite's code cannot be used. `problem` is one clause; `line` is where in its file, when known.

    `place` is where in the suite a call of it failed: `agent.py:8`, or nothing.
    """

    def __init__(self, problem: str, line: int | None = None, place: str = "") -> None:
        """See the class."""
        super().__init__(problem)
        self.problem, self.line, self.place = problem, line, place

    @property
    def placed(self) -> str:
        """The problem, and where it is."""
        return f"{self.problem} ({self.place})" if self.place else self.problem


def describe(error: BaseException, limit: int = 300) -> str:
    """An exception in one line of at most `limit` characters: `ValueError: no such tool`.

    Of a group, such as a `TaskGroup` raises, the first: the group itself says only how many there are.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    try:
        said = redacted(str(error))  # before it is cut: half a secret is not recognised
    except Exception:  # a __str__ that fails is the suite's, too
        said = ""
    name = type(error).__name__
    line = " ".join(f"{name}: {said}".split()) if said.strip() else name
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def load_function(spec: str, root: Path) -> Function:
    """The function that `file.py:name` (inside `root`) or `package.module:name` names.

    Raises `UserCodeError`.
    """
    place, _, name = spec.rpartition(":")
    if place.endswith(".py"):
        module = load_file(root / place, root)
    else:
        _make_importable(root)
        try:
            module = importlib.import_module(place)
        except BaseException as error:
            if _told_to_stop(error):
                raise
            raise UserCodeError(f"module {place} does not import: {describe(error)}") from error
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            near = [each for each in vars(module) if callable(vars(module)[each]) and not each.startswith("_")]
            raise UserCodeError(f"{place} has no function {name!r} (it has {', '.join(near[:8]) or 'none'})")
    if not callable(found):
        raise UserCodeError(f"{name!r} in {place} is not a function but of the type {type(found).__name__}")
    return found


def load_file(path: Path, root: Path) -> ModuleType:
    """Run a Python file as a module under a name of its own, the suite's directory importable.

    Loaded once for each path and content. Raises `UserCodeError` with the line in that file, if it is there.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserCodeError(f"{path.name} cannot be read: {error.strerror}") from None
    _make_importable(root)
    key = hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:16]
    name = f"evalbus_suite_{key}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102 - the suite's code is what we run
    except BaseException as error:
        del sys.modules[name]
        if _told_to_stop(error):
            raise
        line = _line_in(error, path)
        raise UserCodeError(f"{path.name} does not import: {describe(error)}", line) from error
    return module


def _told_to_stop(error: BaseException) -> bool:
    """It is a Ctrl-C, which only the main thread is told of, and nothing that the suite's code raised."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def _line_in(error: BaseException, path: Path) -> int | None:
    """The last line of that file on the way to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


def _place_of(error: BaseException) -> str:
    """The innermost line of the suite's own on the way to the error: what its author looks for first."""
    if isinstance(error, BaseExceptionGroup) and (inner := _place_of(error.exceptions[0])):
        return inner
    return place_in_suite(traceback.walk_tb(error.__traceback__))


def place_in_suite(stack: Iterable[tuple[FrameType, int]]) -> str:
    """The innermost line of the suite's own, of frames from the outermost in: `agent.py:8`, or nothing."""
    if _active is None:
        return ""
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in stack]
    ours = Path(__file__).parent  # a suite beside this package
    own = [(file, line) for file, line in frames if file.is_relative_to(_active) and not file.is_relative_to(ours)]
    return f"{own[-1][0].relative_to(_active)}:{own[-1][1]}" if own else ""


_active: Path | None = None


def _make_importable(root: Path) -> None:
    """Put the suite's directory first on the import path, as Python does with a script's.

    One suite at a time: when another one comes, what was imported from the first one's directory is
    forgotten, or its `utils` would be taken for the other's, under the other's digest.
    """
    global _active  # noqa: PLW0603 - sys.path and sys.modules are global, too
    if _active == root:
        return
    if _active is not None:
        if str(_active) in sys.path:
            sys.path.remove(str(_active))
        if not Path(__file__).is_relative_to(_active):  # a suite beside this package: its modules stay
            for name, module in list(sys.modules.items()):
                file = getattr(module, "__file__", None)
                if isinstance(file, str) and Path(file).is_relative_to(_active):
                    sys.modules.pop(name, None)  # another thread that loads a suite may have been faster
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    _active = root


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a thread's function came to."""

    value: object = None
    error: BaseException | None = None


_at_once: ContextVar[bool] = ContextVar("evalbus_at_once", default=False)


@contextmanager
def at_once() -> Iterator[None]:
    """Within it, plain functions are called where they are awaited: a simulated clock does not wait for a thread."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


async def call(function: Function, *arguments: object) -> object:
    """Call an async function here, a plain one in a thread, and return its result. Raises what it raises.

    A thread cannot be stopped: when this is cancelled, a plain function goes on and its result is dropped. It
    is a daemon thread, not one of the event loop's pool, which a process waits for before it ends.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        result = function(*arguments)
        return await result if isinstance(result, Awaitable) else result
    if _at_once.get():
        result = function(*arguments)
        return await result if isinstance(result, Awaitable) else result
    loop, ours = asyncio.get_running_loop(), os.getpid()
    done: asyncio.Future[_Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: _Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = _Outcome(value=context.run(function, *arguments))
        except BaseException as error:  # also sys.exit: it would end the thread without a word
            outcome = _Outcome(error=error)
        if os.getpid() != ours:  # a process that the function forked off, and that has come back out of it
            os._exit(0)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="evalbus-user-code", daemon=True).start()
    outcome = await done
    if outcome.error is not None:
        raise outcome.error
    return await outcome.value if isinstance(outcome.value, Awaitable) else outcome.value


async def call_guarded(function: Function, *arguments: object) -> object:
    """`call`, with whatever the function does wrong as a `UserCodeError`: exceptions of any kind, `sys.exit`.

    A cancellation passes if somebody asked for it: the worker is stopping, the time is up, or the lease is gone. One
    that the function brought about by itself is its failure. So is a KeyboardInterrupt: in a role a Ctrl-C is no
    exception.

    A function that cancels the task that it runs in is somebody who asks for it. `call_apart` can tell; whoever calls
    this knows otherwise whether it was he.
    """
    task = _running()
    try:
        return await call(function, *arguments)
    except asyncio.CancelledError:
        if task is not None and task.cancelling():
            raise
        raise UserCodeError(OWN_CANCELLATION) from None
    except BaseException as error:
        if isinstance(error, GeneratorExit) and (task is None or _running() is not task):
            raise  # nobody waits for us any more
        raise UserCodeError(describe(error), place=_place_of(error)) from error


async def call_apart(function: Function, *arguments: object) -> object:
    """`call_guarded` in a task of its own, so that a function which cancels its task does not cancel who called it."""
    waiting = asyncio.current_task()
    task = asyncio.create_task(call_guarded(function, *arguments), name=None if waiting is None else waiting.get_name())
    try:
        return await task
    except asyncio.CancelledError:
        if waiting is not None and waiting.cancelling():
            raise
        raise UserCodeError(OWN_CANCELLATION) from None


def _running() -> asyncio.Task[object] | None:
    """The task that takes a step now. None while a coroutine is closed that was left behind, by a loop that is over."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
