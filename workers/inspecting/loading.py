"""An Inspect task from its file, and its samples as cases.

The task's function is called in its file's directory, as Inspect does, and nothing of the task is changed. Each process
of a batch loads it for itself; so a task whose samples are not the same each time (a shuffle without a seed) has
another digest in each, and is refused before anything is spent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from bus.errors import InputError
from workers import usercode
from workers.cases import MAX_ID, check_id
from workers.inspecting.table import InspectTable

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

__all__ = ["IGNORED", "Loaded", "load_task", "require"]

IGNORED: Final = ("logs", "*.eval")
"""What Inspect leaves beside a task: no part of a suite, nor of its digest."""

_MARK: Final = "__registry_info__"
"""The attribute by which Inspect knows what it has decorated."""

_MODEL: Final = "INSPECT_EVAL_MODEL"
_PLAIN: Final = " !#$&'()*+,-./;<=>?@[]^_`{|}~"  # an id keeps these; a ':' parts keys on the server
_SHOWN: Final = 8
_IN_PLACE = threading.Lock()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A task, as this process has it."""

    task: Task
    table: InspectTable
    """Complete: with the task's name, and its model."""
    epochs: int
    samples: Mapping[str, Sample]
    """By the id of the case that each is."""
    left_out: int = 0
    """Of the task's, those beyond its limit."""

    @property
    def model(self) -> str | None:
        """As `eval_async` takes it."""
        return None if self.table.model == "none" else self.table.model

    @property
    def cases(self) -> tuple[dict[str, Any], ...]:
        """The tables of the cases."""
        return tuple(_case(name, sample) for name, sample in self.samples.items())


def require() -> None:
    """Raise InputError where `inspect_ai` is not installed, or does not import."""
    try:
        import inspect_ai  # noqa: F401, PLC0415 - it takes seconds, and is an extra
    except ImportError as error:
        raise InputError(
            f"an Inspect task needs inspect-ai: {error}", remedy="pip install 'evalbus[inspect]'"
        ) from error


def load_task(table: InspectTable, source: Path, root: Path) -> Loaded:
    """The task that a suite names; `source` is the suite's file, for messages. Raises InputError."""
    require()
    place, _, name = table.task.partition("@")
    if not (root / place).is_file():
        raise InputError(f"inspect.task: no such file: {place}", file=source)
    try:
        module = usercode.load_file(root / place, root)
    except usercode.UserCodeError as error:
        raise InputError(f"inspect.task: {error.problem}", file=root / place, line=error.line) from error
    tasks = _tasks(vars(module))
    if not name and len(tasks) == 1:
        name = next(iter(tasks))
    if name not in tasks:
        has = f"it has {', '.join(list(tasks)[:_SHOWN])}" if tasks else "it has none"
        problem = f"{place} has no task {name!r} ({has})" if name else f"name the task of {place} ({has})"
        raise InputError(f"inspect.task: {problem}", file=source, remedy="write FILE.py@TASK")
    task = _called(tasks[name], table, root, source)
    model = table.model or os.environ.get(_MODEL) or ("none" if task.model is not None else None)
    if model is None:
        raise InputError(
            f"the task {name} names no model", file=source, remedy=f"--model NAME, inspect.model, or {_MODEL}"
        )
    samples = _samples(task, table, source)
    known = table.model_copy(update={"task": f"{place}@{name}", "model": model})
    kept = dict(list(samples.items())[: table.limit])
    return Loaded(task, known, table.epochs or task.epochs or 1, kept, len(samples) - len(kept))


def _tasks(names: Mapping[str, object]) -> dict[str, Any]:
    """What a module decorates as tasks: Inspect marks each, and so the wrapper that it leaves in its place."""
    found: dict[str, Any] = {}
    for name, value in names.items():
        info = getattr(value, _MARK, None)
        if callable(value) and getattr(info, "type", None) == "task":
            found[name] = value
    return found


def _called(function: Any, table: InspectTable, root: Path, source: Path) -> Task:  # noqa: ANN401 - the user's own
    from inspect_ai import Task  # noqa: PLC0415

    with _in_place(root):
        try:
            task = function(**table.args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also sys.exit: it is the user's code
            raise InputError(
                f"the task {table.task} cannot be made: {usercode.describe(error)}", file=source
            ) from error
    if not isinstance(task, Task):
        raise InputError(f"{table.task} returned {type(task).__name__}, not a Task", file=source)
    if task.sample_source is not None:
        raise InputError(
            f"{table.task} makes its samples as it goes (SampleSource)",
            file=source,
            remedy="the runs of a batch are declared before it starts: give it a dataset",
        )
    return task


@contextlib.contextmanager
def _in_place(root: Path) -> Iterator[None]:
    """In the task's directory, where it finds its data by relative paths; as Inspect calls it."""
    with _IN_PLACE:
        before = Path.cwd()
        os.chdir(root)
        try:
            yield
        finally:
            os.chdir(before)


def _samples(task: Task, table: InspectTable, source: Path) -> dict[str, Sample]:
    samples: dict[str, Sample] = {}
    for number, sample in enumerate(task.dataset, start=1):
        if sample.id is None:
            sample.id = number  # as Inspect numbers them
        name = _case_id(sample.id)
        if name in samples:
            raise InputError(
                f"two samples of {table.task} have the id {sample.id!r}",
                file=source,
                remedy="each needs its own; repeats of a sample are made with epochs",
            )
        samples[name] = sample
    if not samples:
        raise InputError(f"{table.task} has no samples", file=source)
    return samples


def _case_id(sample_id: int | str) -> str:
    """The sample's id as text; where a run cannot be called that, quoted."""
    text = str(sample_id)
    if check_id(text) is None:
        return text
    safe = quote(text, safe=_PLAIN, errors="surrogatepass").strip()
    if len(safe) > MAX_ID or check_id(safe) is not None:
        safe = f"{safe[:100].strip()}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return safe


def _case(name: str, sample: Sample) -> dict[str, Any]:
    whole = _jsonable(sample.model_dump(exclude={"files"}))
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    metadata = whole.get("metadata") or {}
    # All that the task is asked stands in the sample; the case is what a report and a comparison show of it.
    return {
        "id": name,
        "input": whole["input"],
        "target": sample.target,
        "metadata": {**metadata, "inspect": {"id": sample.id, "sample": digest}},
    }


def _jsonable(value: object) -> Any:  # noqa: ANN401
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    return to_jsonable_python(value, fallback=lambda other: type(other).__name__, inf_nan_mode="null")
