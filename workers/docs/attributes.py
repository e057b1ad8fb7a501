"""What is said below a field of a class: a string that Python itself throws away."""

from __future__ import annotations

import ast
import inspect
import textwrap

__all__ = ["said_of_fields"]


def said_of_fields(of: type) -> dict[str, str]:
    """Field → the text below it, as one line; of a class and those that it is made from."""
    found: dict[str, str] = {}
    for each in reversed(of.__mro__[: -1 if of.__mro__[-1] is object else None]):
        if each.__module__.startswith("workers."):
            found |= _said(each)
    return found


def _said(of: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(of))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found[field.target.id] = " ".join(text.split())
    return found
