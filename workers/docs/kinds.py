"""A field's type and default in words, as somebody would write them in a suite file."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from workers.tables import Table

__all__ = ["anchor_of", "default_of", "kind_of"]

_CHECKED: Final[Mapping[str, str]] = {
    "duration": "a duration",
    "size": "a size",
    "_name": "a name",
    "_cases": "a file's name, or a list of tables",
    "_fields": "a table of field and column",
    "_quorum": 'a number of runs, or a share, `"50%"`',
    "_inside": "a path in the suite's directory",
    "_function": '`"file.py:function"`',
    "_variable": "the name of a variable",
    "_key_variable": "the name of a variable",
    "_url": "a URL",
    "_base_url": "a URL",
    "_billing_url": "a URL",
    "_headers": "a table of header and variable",
    "_extra": "a table",
    "_one_or_many": "text, or a list of texts",
    "_grades": "a table of grade and bin",
    "_ending": 'an exit code, `"timeout"` or `"signal"`',
    "_task": '`"file.py@task"`',
    "_arguments": "a table",
    "_finite": "a number",
}
"""What a validator understands, by its name: it is the only one who knows."""
_PLAIN: Final[Mapping[object, str]] = {str: "text", int: "a whole number", float: "a number", bool: "`true` or `false`"}
_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def anchor_of(table: str) -> str:
    """Where on the page a table stands, `scorer.model` at `#scorermodel`, as GitHub names headings."""
    return "#" + "".join(letter for letter in table if letter.isalnum())


def kind_of(field: FieldInfo) -> str:
    """What may be written there."""
    return _kind(field.annotation, field.metadata)


def default_of(field: FieldInfo) -> str:
    """What holds when it is left out; empty when that is nothing."""
    if field.is_required():
        return "**must be given**"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined or value in ("", (), {}) or isinstance(value, Table):
        return ""
    checks = {_name_of(one) for one in field.metadata}
    if "duration" in checks:
        return f'`"{value / 3600:g}h"`' if value % 3600 == 0 else f'`"{value:g}s"`'
    if "size" in checks:
        unit, name = next(size for size in _SIZES if value % size[0] == 0)
        return f'`"{value // unit}{name}"`'
    return f"`{json.dumps(value)}`".replace("|", "\\|")


def _kind(annotation: Any, checks: Sequence[object]) -> str:  # noqa: ANN401 - an annotation can be anything
    checks = [one for check in checks for one in (check.metadata if isinstance(check, FieldInfo) else (check,))]
    for check in reversed(checks):
        if words := _CHECKED.get(_name_of(check)):
            return words
    origin, parts = get_origin(annotation), [one for one in get_args(annotation) if one is not type(None)]
    if origin is Annotated:
        return _kind(parts[0], parts[1:])
    if origin is Literal:
        return ", ".join(f'`"{one}"`' for one in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(one, checks) for one in parts))
    if origin is tuple:
        return f"a list: {_kind(parts[0], ())}"
    if origin is dict:
        inner = parts[1]
        return f"[tables]({anchor_of(inner.table)})" if _is_table(inner) else "a table"
    if _is_table(annotation):
        return f"[a table]({anchor_of(annotation.table)})"
    return f"{_PLAIN.get(annotation, 'a value')}{_range(checks)}"


def _is_table(annotation: Any) -> bool:  # noqa: ANN401 - likewise
    return isinstance(annotation, type) and issubclass(annotation, Table)


def _range(checks: Sequence[object]) -> str:
    least, most, above, below = (
        next((value for one in checks if (value := getattr(one, limit, None)) is not None), None)
        for limit in ("ge", "le", "gt", "lt")
    )
    said = []
    if least is not None:
        said.append(f"from {least:,}")
    if above is not None:
        said.append(f"above {above:,}")
    if most is not None and most < 2**53 - 1:
        said.append(f"to {most:,}")
    if below is not None:
        said.append(f"below {below:,}")
    return f", {' '.join(said)}" if said else ""


def _name_of(check: object) -> str:
    return getattr(getattr(check, "func", None), "__name__", "")
