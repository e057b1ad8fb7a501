"""A module under repair: its text, its tree, and edits of the one by way of the other.

An edit replaces a piece of text, not the whole module: what it does not touch keeps its layout and comments.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef

_CLOSED = (
    ast.Name,
    ast.Constant,
    ast.Call,
    ast.Attribute,
    ast.Subscript,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.Tuple,
    ast.JoinedStr,
)
"""Expressions that need no parentheses wherever they stand (`ast.unparse` gives a tuple its own)."""

_OPEN = (ast.Return, ast.If, ast.While, ast.Assign, ast.AugAssign, ast.Assert, ast.Expr, ast.Slice)
"""What holds any expression without parentheses, if it is written on one line."""

_SHARED = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""One object for all places: these have no one parent."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str
    line: int
    """Where it is, as fault localisation counts."""
    operator: str
    cost: float
    """How unlikely such an edit is to be the repair, before anything is known: 1 is likely."""
    prelude: str = ""
    """A line that it needs further up, such as an import, and where: at `prelude_at`, before `start`."""
    prelude_at: int = 0

    def applied_to(self, source: str) -> str:
        top = source[: self.prelude_at] + self.prelude + source[self.prelude_at : self.start]
        return top + self.text + source[self.end :]

    @property
    def size(self) -> int:
        """How much it changes, in characters."""
        return max(self.end - self.start, len(self.text))


class Module:
    """The source of a module and its tree, with the way up from each node. Raises `SyntaxError`."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self.parent: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, _SHARED):
                    self.parent[child] = node
        self._lines = re.findall(r"[^\n]*\n|[^\n]+", source)  # unlike splitlines, what Python takes for lines
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self.top = self._top()
        """Where an import can be added."""

    def _top(self) -> int:
        for statement in self.tree.body:
            document = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not document and getattr(statement, "module", "") != "__future__":
                return self._starts[statement.lineno - 1]
        return len(self.source)

    def offset(self, line: int, column: int) -> int:
        """Where a line (from 1) and a column (in bytes of UTF-8, as the tree has it) are in the text."""
        if line > len(self._lines):
            return len(self.source)
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def text_of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parent:
            node = self.parent[node]
            yield node

    def statement_of(self, node: ast.AST) -> ast.AST:
        """The statement that a node belongs to: itself, if it is one."""
        return next(each for each in (node, *self.ancestors(node)) if isinstance(each, ast.stmt | ast.Module))

    def function_of(self, node: ast.AST) -> Function | None:
        return next((each for each in self.ancestors(node) if isinstance(each, Function)), None)

    def quoted(self, node: ast.AST) -> bool:
        """Whether it is inside an f-string: before Python 3.12 such nodes have no place in the text."""
        return any(isinstance(each, ast.JoinedStr) for each in self.ancestors(node))

    def replace(self, node: ast.AST, new: str | ast.AST, operator: str, cost: float) -> Edit:
        """An edit that puts an expression in the place of another one."""
        tree = ast.parse(new, mode="eval").body if isinstance(new, str) else new
        if self.quoted(node):
            whole = [each for each in self.ancestors(node) if isinstance(each, ast.JoinedStr)][-1]
            # What is in the memo is taken for a copy already made: this copies all but the node.
            node, new = whole, copy.deepcopy(whole, {id(node): tree})
            tree = new
        start, end = self.span(node)
        text = new if isinstance(new, str) else ast.unparse(new)
        if not isinstance(tree, _CLOSED) and not self._stands_alone(start, end, node):
            text = f"({text})"
        return Edit(start, end, text, node.lineno, operator, cost)

    def _stands_alone(self, start: int, end: int, node: ast.AST) -> bool:
        """Whether anything may be written there without parentheses."""
        before, after = self.source[:start].rstrip(" "), self.source[end:].lstrip(" ")
        if before.endswith("(") and after.startswith(")"):
            return True
        up = self.parent.get(node)
        if isinstance(up, _OPEN):
            return "\n" not in self.source[start:end]
        if isinstance(up, ast.keyword):
            return True
        return isinstance(up, ast.Call | ast.Subscript) and node is not getattr(up, "func", getattr(up, "value", None))

    def block(self, first: ast.stmt, last: ast.stmt) -> tuple[int, int] | None:
        """The text of whole statements, from the start of their first line; None when they share a line."""
        top = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", []))])
        start, end = self._starts[top - 1], self.span(last)[1]
        if self.source[start : self.span(first)[0]].strip() and top == first.lineno:
            return None
        stop = self._starts[min(last.end_lineno, len(self._lines))]
        rest = self.source[end:stop].strip()
        return None if rest and not rest.startswith("#") else (start, stop)


def reindent(text: str, old: int, new: int) -> str:
    """Lines that were indented by `old` blanks at least, indented by `new` instead."""
    return "".join(
        " " * new + line[old:] if line[:old].strip() == "" and line.strip() else line
        for line in text.splitlines(keepends=True)
    )
