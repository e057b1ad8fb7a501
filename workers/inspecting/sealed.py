"""What of a sample is sealed, and what a verdict keeps: two JSON objects.

    sealed    {"format", "inspect_ai", "choices", "sample"}    the run's answer: everything that the scorers need
    verdict   {"format", "inspect_ai", "scores", "events"}     an artifact that the run's value names

`sample` is Inspect's own `EvalSample`, as it stands before scoring. It has everything of a `TaskState` that Inspect
itself scores a log by, but for which choices were marked: that is `choices`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from bus.errors import ViolationError

if TYPE_CHECKING:
    from inspect_ai.event import Event
    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score
    from inspect_ai.solver import TaskState

__all__ = ["Mark", "SealedSample", "Verdict", "marks_of"]

_SAMPLE: Final = "evalbus-inspect-sample 1"
_VERDICT: Final = "evalbus-inspect-verdict 1"

Mark = tuple[str, bool | None, int]
"""One choice: its text, whether it was chosen, where it stood in the sample."""


def marks_of(state: TaskState) -> list[Mark]:
    """Which of a state's choices were marked."""
    return [(choice.value, choice.correct, choice.original_position) for choice in state.choices]


@dataclass(frozen=True, slots=True)
class SealedSample:
    """A sample as its solver left it."""

    sample: EvalSample
    choices: list[Mark]

    def dumps(self) -> str:
        """The run's answer."""
        import inspect_ai  # noqa: PLC0415

        told = {"format": _SAMPLE, "inspect_ai": inspect_ai.__version__, "choices": self.choices}
        sample = self.sample.model_dump_json(exclude_none=True, fallback=lambda other: repr(other)[:200])
        return f'{json.dumps(told)[:-1]}, "sample": {sample}}}'

    @classmethod
    def loads(cls, text: str) -> SealedSample:
        """Raises ViolationError when it is nothing that `dumps` wrote."""
        from inspect_ai.log import EvalSample  # noqa: PLC0415

        told = _told(text, _SAMPLE)
        try:
            choices = [(value, correct, position) for value, correct, position in told["choices"]]
            return cls(EvalSample.model_validate(told["sample"]), choices)
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise ViolationError(f"what was sealed is no sample: {_line(error)}") from error


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the scorers said of one sample, in full."""

    scores: dict[str, Score]
    events: list[Event]
    """What happened while they did: their own model calls, the scores."""

    def dumps(self) -> bytes:
        """As it is kept."""
        import inspect_ai  # noqa: PLC0415
        from pydantic import TypeAdapter  # noqa: PLC0415

        shape = TypeAdapter(dict[str, Any])
        scores = {name: score.model_dump(mode="json", exclude_none=True) for name, score in self.scores.items()}
        events = [json.loads(event.model_dump_json(exclude_none=True, fallback=repr)) for event in self.events]
        told = {"format": _VERDICT, "inspect_ai": inspect_ai.__version__, "scores": scores, "events": events}
        return shape.dump_json(told)

    @classmethod
    def loads(cls, data: bytes) -> Verdict:
        """Raises ViolationError when it is nothing that `dumps` wrote."""
        from inspect_ai.event import Event  # noqa: PLC0415
        from inspect_ai.scorer import Score  # noqa: PLC0415
        from pydantic import TypeAdapter  # noqa: PLC0415

        told = _told(data, _VERDICT)
        try:
            scores = {name: Score.model_validate(score) for name, score in told["scores"].items()}
            events: list[Event] = TypeAdapter(list[Event]).validate_python(told["events"])
        except (KeyError, AttributeError, ValueError, ValidationError) as error:
            raise ViolationError(f"a score's artifact is no verdict: {_line(error)}") from error
        return cls(scores, events)


def _told(text: str | bytes, wanted: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise ViolationError(f"no {wanted}: {error}") from error
    if not isinstance(told, dict) or told.get("format") != wanted:
        raise ViolationError(f"no {wanted}")
    return told


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
