"""Code that is missing: a guard for an empty argument, a fresh default, a copy before a change, a filter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mend.scope import conditions, locals_of, parameters
from mend.statements import is_document
from mend.text import Edit, Function, Module

_EMPTY = (ast.List, ast.Dict, ast.Set, ast.Call)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a body starts, behind its docstring: the character and the line of its first statement."""

    at: int
    line: int


def _place(module: Module, node: Function | ast.For | ast.While) -> Place | None:
    first = node.body[0]
    if is_document(first) and len(node.body) > 1:
        first = node.body[1]
    span = module.block(first, first)
    return None if span is None else Place(span[0], first.lineno)


def _indented(text: str, blanks: int) -> str:
    return "".join(" " * blanks + line + "\n" for line in text.split("\n"))


def _own_parameters(function: Function) -> list[str]:
    return [each for each in parameters(function) if each not in ("self", "cls")]


def guard(module: Module, node: ast.AST) -> Iterator[Edit]:
    """An early answer for an argument that is empty, None, or not positive."""
    if not isinstance(node, Function) or (place := _place(module, node)) is None:
        return
    constants = {
        ast.unparse(each.value)
        for each in ast.walk(node)
        if isinstance(each, ast.Return) and isinstance(each.value, ast.Constant | ast.List | ast.Dict | ast.Tuple)
    }
    answers = [f"return {each}" for each in sorted(constants | {"None", "0", "[]", "''", "{}", "False", "True"})]
    raised = sorted(
        {ast.unparse(each) for each in ast.walk(module.tree) if isinstance(each, ast.Raise) and each.exc is not None}
    )
    for name in _own_parameters(node):
        for rank, question in enumerate((f"not {name}", f"{name} is None", f"{name} <= 0", f"{name} < 0")):
            for answer in [*answers, f"return {name}", *raised, "raise ValueError"]:
                text = _indented(f"if {question}:\n    {answer}", node.body[0].col_offset)
                yield Edit(place.at, place.at, text, place.line, "guard", 4 + rank / 2)


def fresh_default(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A default that is made at each call, and not once for all calls."""
    if not isinstance(node, Function) or (place := _place(module, node)) is None:
        return
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if isinstance(default, _EMPTY):
            start, end = module.span(default)
            text = f"if {argument.arg} is None:\n    {argument.arg} = {ast.unparse(default)}"
            lines = _indented(text, node.body[0].col_offset)
            whole = "None" + module.source[end : place.at] + lines
            yield Edit(start, place.at, whole, place.line, "fresh_default", 0.5)


def own_attribute(module: Module, node: ast.AST) -> Iterator[Edit]:
    """An attribute of each object, and not one that all objects of the class share."""
    if not isinstance(node, ast.ClassDef):
        return
    maker = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
    for statement in node.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not isinstance(statement.value, _EMPTY):
            continue
        where = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        text = f"self.{ast.unparse(where)} = {ast.unparse(statement.value)}"
        if isinstance(maker, ast.FunctionDef) and (place := _place(module, maker)) is not None:
            lines = _indented(text, maker.body[0].col_offset)
        elif (span := module.block(statement, statement)) is not None:
            place = Place(span[1], statement.lineno)
            lines = "\n" + _indented(f"def __init__(self):\n    {text}", statement.col_offset)
        else:
            continue
        yield Edit(place.at, place.at, lines, statement.lineno, "own_attribute", 0.7)


def prepared(module: Module, node: ast.AST) -> Iterator[Edit]:
    """An argument copied, or brought into a common form, before anything is done with it."""
    if not isinstance(node, Function) or (place := _place(module, node)) is None:
        return
    for name in _own_parameters(node):
        forms = (
            (f"{name} = list({name})", 3.0),
            (f"{name} = dict({name})", 3.5),
            (f"{name} = sorted({name})", 4.0),
            (f"{name} = {name}.strip()", 4.0),
            (f"{name} = {name}.lower()", 4.5),
            (f"{name} = {name}.casefold()", 4.5),
            (f"{name} = abs({name})", 4.5),
            (f"{name} = list(dict.fromkeys({name}))", 5.0),
        )
        for text, cost in forms:
            line = _indented(text, node.body[0].col_offset)
            yield Edit(place.at, place.at, line, place.line, "prepared", cost)
        text = _indented(f"{name} = copy.deepcopy({name})", node.body[0].col_offset)
        prelude = "" if "import copy\n" in module.source else "import copy\n"
        yield Edit(place.at, place.at, text, place.line, "prepared", 3.5, prelude, module.top)


def skipped(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A pass of a loop left out, or the loop ended, for a value that it should not work on."""
    if isinstance(node, ast.For | ast.While) and (place := _place(module, node)) is not None:
        questions = []
        if isinstance(node, ast.For):
            for each in ast.walk(node.target):
                if isinstance(each, ast.Name):
                    questions += [f"not {each.id}", f"not {each.id}.strip()", f"{each.id} is None"]
        questions += conditions(module, node)
        for question in questions:
            for word in ("continue", "break"):
                text = _indented(f"if {question}:\n    {word}", node.body[0].col_offset)
                yield Edit(place.at, place.at, text, place.line, "skipped", 4 + 0.5 * (word == "break"))
    elif isinstance(node, ast.comprehension) and not module.quoted(node):
        end = module.span(node.ifs[-1] if node.ifs else node.iter)[1]
        joint = " and " if node.ifs else " if "
        for each in ast.walk(node.target):
            if isinstance(each, ast.Name):
                for test in (each.id, f"{each.id} is not None", f"{each.id}.strip()"):
                    yield Edit(end, end, joint + test, node.iter.lineno, "skipped", 3.5)
        for test in node.ifs:
            start, end = module.span(test)
            yield Edit(start, end, "True", node.iter.lineno, "not_skipped", 3)


def returned(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A result at the end of a function that has none; a variable of the function around it changed."""
    if not isinstance(node, Function):
        return
    last = node.body[-1]
    span = module.block(last, last)
    if span is not None and not isinstance(last, ast.Return | ast.Raise):
        before = "" if module.source[: span[1]].endswith("\n") else "\n"
        for answer in (*locals_of(module, last), "True", "False"):
            line = before + _indented(f"return {answer}", last.col_offset)
            yield Edit(span[1], span[1], line, last.lineno, "returned", 3)
    outer, place = module.function_of(node), _place(module, node)
    if outer is not None and place is not None:
        for name in locals_of(module, node):
            line = _indented(f"nonlocal {name}", node.body[0].col_offset)
            yield Edit(place.at, place.at, line, place.line, "nonlocal", 3)


OPERATORS = (guard, fresh_default, own_attribute, prepared, skipped, returned)
