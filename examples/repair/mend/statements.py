"""Edits of whole statements: left out, changed over, moved, taken from elsewhere in the function."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from mend.scope import locals_of
from mend.text import Edit, Module, reindent

SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Delete)
_BLOCKS = ("body", "orelse", "finalbody")


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements directly in a node."""
    for field in _BLOCKS:
        block = getattr(node, field, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def is_document(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def left_out(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A statement left out; of an `if`, only the question."""
    for block in blocks_of(node):
        for statement in block:
            span = module.block(statement, statement)
            if span is None or is_document(statement) or isinstance(node, ast.Module):
                continue
            text = "" if len(block) > 1 else " " * statement.col_offset + "pass\n"
            cost = 3 if isinstance(statement, ast.If | ast.For | ast.While | ast.Try) else 2
            yield Edit(*span, text, statement.lineno, "left_out", cost)
            if isinstance(statement, ast.If) and not statement.orelse:
                inside = module.block(statement.body[0], statement.body[-1])
                if inside is not None:
                    body = module.source[slice(*inside)]
                    text = reindent(body, statement.body[0].col_offset, statement.col_offset)
                    yield Edit(*span, text, statement.lineno, "unconditional", 3.5)


def order(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Neighbours changed over."""
    for block in blocks_of(node):
        for first, second in itertools.pairwise(block):
            one, two = module.block(first, first), module.block(second, second)
            if one is None or two is None or is_document(first) or isinstance(node, ast.Module):
                continue
            between = module.source[one[1] : two[0]]
            second_text = module.source[slice(*two)]
            if not second_text.endswith("\n"):
                second_text += "\n"
            text = second_text + between + module.source[slice(*one)]
            yield Edit(one[0], two[1], text, second.lineno, "order", 2)


def depth(module: Module, node: ast.AST) -> Iterator[Edit]:
    """The last statement of a block moved out behind it, or the one behind it moved in."""
    for block in blocks_of(node):
        for index, statement in enumerate(block):
            if not isinstance(statement, ast.For | ast.While | ast.If | ast.With | ast.Try):
                continue
            inner = next(iter([*blocks_of(statement)][-1:]), None)
            if inner is None:
                continue
            last, span = inner[-1], module.block(inner[-1], inner[-1])
            if len(inner) > 1 and span is not None:
                text = reindent(module.source[slice(*span)], last.col_offset, statement.col_offset)
                yield Edit(*span, text, last.lineno, "moved_out", 2)
            if index + 1 < len(block):
                behind = block[index + 1]
                span = module.block(behind, behind)
                if span is not None:
                    # Blank lines and comments stay where they are: only the statement moves.
                    text = reindent(module.source[slice(*span)], behind.col_offset, last.col_offset)
                    yield Edit(*span, text, behind.lineno, "moved_in", 2.5)
                    yield from _else_removed(module, statement, last)


def _else_removed(module: Module, statement: ast.stmt, last: ast.stmt) -> Iterator[Edit]:
    if isinstance(statement, ast.For | ast.While) and statement.orelse:
        return
    if isinstance(statement, ast.For | ast.While) and isinstance(last, ast.If) and len(last.orelse) == 1:
        inside = last.orelse[0]
        span = module.block(inside, inside)
        before = module.block(last.body[-1], last.body[-1])
        if span is not None and before is not None and not isinstance(inside, ast.If):
            text = reindent(module.source[slice(*span)], inside.col_offset, statement.col_offset)
            yield Edit(before[1], span[1], text, inside.lineno, "else_moved_behind_loop", 2.5)


def jump(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`break` for `continue`, `if` for `while`, a result returned and not dropped, one chain of tests cut."""
    if isinstance(node, ast.Break | ast.Continue):
        yield Edit(*module.span(node), "continue" if isinstance(node, ast.Break) else "break", node.lineno, "jump", 1.5)
    elif isinstance(node, ast.If | ast.While):
        start, end = module.span(node)
        word = "if" if isinstance(node, ast.If) else "while"
        if module.source.startswith("elif", start):
            yield Edit(start, start + 4, "if", node.lineno, "jump", 2)
        else:
            other = "while" if word == "if" else "if"
            yield Edit(start, start + len(word), other, node.lineno, "jump", 3)
            if word == "if":
                yield Edit(start, start + len(word), "elif", node.lineno, "jump", 2.5)
    elif isinstance(node, ast.Expr) and not is_document(node):
        start, _ = module.span(node)
        yield Edit(start, start, "return ", node.lineno, "returned", 3)
    elif isinstance(node, ast.Return) and node.value is not None:
        start, end = module.span(node)
        yield Edit(start, end, module.text_of(node.value), node.lineno, "not_returned", 4)
        if isinstance(node.value, ast.Call):
            yield Edit(start, start + 6, "yield from", node.lineno, "jump", 5)
        for word in ("continue", "break"):
            yield Edit(start, end, word, node.lineno, "jump", 4)


def assignment(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`+=` for `=`, `-=` for `+=`."""
    if isinstance(node, ast.AugAssign):
        start, end = module.span(node.target)[1], module.span(node.value)[0]
        written = module.source[start:end].split("=")[0].strip()
        others = {"+": "-", "-": "+", "*": "/", "//": "/", "/": "//", "|": "&", "&": "|"}
        if written in others:
            yield Edit(start, end, f" {others[written]}= ", node.lineno, "assignment", 1.5)
        yield Edit(start, end, " = ", node.lineno, "assignment", 2)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and not isinstance(node.targets[0], ast.Tuple):
        start, end = module.span(node.targets[0])[1], module.span(node.value)[0]
        if module.source[start:end].strip() == "=":
            for rank, operator in enumerate(("+=", "-=", "*=", "|=")):
                yield Edit(start, end, f" {operator} ", node.lineno, "assignment", 2.5 + rank / 2)


def insert(module: Module, beside: ast.stmt, text: str, operator: str, cost: float, *, after: bool) -> Iterator[Edit]:
    """Lines of text before or after a statement, indented as it is."""
    span = module.block(beside, beside)
    if span is None:
        return
    lines = "".join(" " * beside.col_offset + line + "\n" for line in text.split("\n"))
    place = span[1] if after else span[0]
    if after and place and module.source[place - 1] != "\n":
        lines = "\n" + lines
    yield Edit(place, place, lines, beside.lineno, operator, cost)


def again(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A simple statement of the function done once more, somewhere else in it."""
    function = module.function_of(node)
    if not isinstance(node, ast.stmt) or function is None or is_document(node):
        return
    if isinstance(node, ast.For | ast.While):
        for inner in ast.walk(node):
            if isinstance(inner, SIMPLE) and module.function_of(inner) is function:
                text = ast.unparse(inner)
                yield from insert(module, node, text, "again_behind_loop", 3.5, after=True)
                for asked in dict.fromkeys(n.id for n in ast.walk(inner) if isinstance(n, ast.Name)):
                    if asked in locals_of(module, inner):
                        guarded = f"if {asked}:\n    {text}"
                        yield from insert(module, node, guarded, "again_behind_loop", 3.5, after=True)
    for other in ast.walk(function):
        if not isinstance(other, SIMPLE) or is_document(other) or other is node:
            continue
        if module.function_of(other) is function:
            text = ast.unparse(other)
            yield from insert(module, node, text, "again", 5, after=False)
            yield from insert(module, node, text, "again", 5, after=True)


OPERATORS = (left_out, order, depth, jump, assignment, again)
