"""YAML with the line of each value: what is wrong in a converted file is told with its place.

Only what JSON has is read: a mapping's keys are text, dates and other tags stay the text that was written. Aliases are
followed, each once: a file that unfolds into millions of values by aliases of aliases is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bus.errors import InputError
from workers.rows import read_text

__all__ = ["Place", "YamlFile"]

Place = tuple[str | int, ...]
"""Where a value stands: the keys and indices that lead to it."""

_MOST: Final = 2_000_000  # values, aliases followed
_DEEP: Final = 100


class YamlFile:
    """One file, read."""

    def __init__(self, path: Path) -> None:
        """Raises InputError when it is no YAML, or the library that reads it is not there."""
        try:
            import yaml  # noqa: PLC0415 - an extra, which nothing else needs
        except ImportError:
            raise InputError("reading YAML needs PyYAML", file=path, remedy="pip install 'evalbus[formats]'") from None
        self.path = path
        self._lines: dict[Place, int] = {}
        self._count = 0
        try:
            node = yaml.compose(read_text(path, path), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = None if mark is None else mark.line + 1
            raise InputError(f"invalid YAML: {error.problem or error.context}", file=path, line=line) from None
        except (yaml.YAMLError, RecursionError) as error:
            raise InputError(f"invalid YAML: {' '.join(str(error).split())}", file=path) from None
        self._construct = yaml.SafeLoader("")
        self._yaml = yaml
        self.value: object = None if node is None else self._of(node, ())

    def line(self, place: Place) -> int | None:
        """The line of a value, from 1; of the nearest one around it that has one."""
        for end in range(len(place), -1, -1):
            if (line := self._lines.get(place[:end])) is not None:
                return line
        return None

    def wrong(self, place: Place, problem: str, remedy: str | None = None) -> InputError:
        """The error for a value: `tests[2].assert[0]: …`."""
        return InputError(f"{_dotted(place)}{problem}", file=self.path, line=self.line(place), remedy=remedy)

    def _of(self, node: object, place: Place) -> object:
        yaml = self._yaml
        self._count += 1
        self._lines[place] = node.start_mark.line + 1  # type: ignore[attr-defined]
        if self._count > _MOST:
            raise InputError(
                "holds more than two million values", file=self.path, remedy="are there aliases of aliases?"
            )
        if len(place) > _DEEP:
            raise self.wrong(place, "is nested too deep")
        if isinstance(node, yaml.MappingNode):
            made: dict[str, object] = {}
            for key_node, value_node in self._pairs(node):
                key = str(getattr(key_node, "value", ""))
                if not isinstance(key_node, yaml.ScalarNode):
                    raise self.wrong(place, "has a key that is no text")
                if key in made:
                    raise InputError(
                        f"the key {key!r} is given twice", file=self.path, line=key_node.start_mark.line + 1
                    )
                made[key] = self._of(value_node, (*place, key))
            return made
        if isinstance(node, yaml.SequenceNode):
            return [self._of(item, (*place, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _pairs(self, node: Any) -> list[tuple[object, object]]:  # noqa: ANN401 - a node of the library's
        """A mapping's pairs, merge keys (`<<`) unfolded as YAML has them."""
        try:
            self._construct.flatten_mapping(node)
        except self._yaml.YAMLError as error:
            raise InputError(f"invalid YAML: {error}", file=self.path) from None
        return list(node.value)

    def _scalar(self, node: object, place: Place) -> object:
        tag = node.tag.rpartition(":")[2]  # type: ignore[attr-defined]
        if tag not in ("null", "bool", "int", "float"):
            return node.value  # type: ignore[attr-defined]
        try:
            return self._construct.construct_object(node)
        except (ValueError, self._yaml.YAMLError) as error:
            raise self.wrong(place, f"cannot be read: {error}") from None


def _dotted(place: Place) -> str:
    told = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    return f"{told}: " if told else ""
