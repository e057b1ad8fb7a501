"""Edits of comparisons, arithmetic, conditions and constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from mend.scope import conditions, flags, locals_of, parameters, strings
from mend.siblings import ARITHMETIC, COMPARISONS, SIBLINGS
from mend.text import Edit, Function, Module


def comparison(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`<` for `<=`, `==` for `!=`; the sides changed over."""
    if not isinstance(node, ast.Compare):
        return
    for index, operator in enumerate(node.ops):
        for rank, other in enumerate(COMPARISONS[type(operator)]):
            operators = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield module.replace(
                node, ast.Compare(node.left, operators, node.comparators), "comparison", 1 + rank * 0.7
            )
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        yield module.replace(node, ast.Compare(node.comparators[0], node.ops, [node.left]), "comparison", 4)
    if len(node.ops) == 2:  # a chain that should be one comparison only
        yield module.replace(node, ast.Compare(node.left, node.ops[:1], node.comparators[:1]), "comparison", 3)
        yield module.replace(
            node, ast.Compare(node.comparators[0], node.ops[1:], node.comparators[1:]), "comparison", 3
        )


def arithmetic(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`+` for `-`, `//` for `/`; operands changed over, left out, or bracketed in another way."""
    if not isinstance(node, ast.BinOp):
        return
    left, right = node.left, node.right
    for rank, other in enumerate(ARITHMETIC.get(type(node.op), ())):
        yield module.replace(node, ast.BinOp(left, other(), right), "arithmetic", 1.5 + rank)
    if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod | ast.Add):
        yield module.replace(node, ast.BinOp(right, node.op, left), "operands", 2.5)
    for rank, operand in enumerate((left, right)):
        yield module.replace(node, operand, "operand_left_out", 2.5 + rank / 2)
    if isinstance(right, ast.BinOp):
        inner = ast.BinOp(left, node.op, right.left)
        yield module.replace(node, ast.BinOp(inner, right.op, right.right), "brackets", 2)
    if isinstance(left, ast.BinOp):
        inner = ast.BinOp(left.right, node.op, right)
        yield module.replace(node, ast.BinOp(left.left, left.op, inner), "brackets", 2)
    if isinstance(node.op, ast.Div | ast.FloorDiv):
        yield module.replace(node, f"-(-({ast.unparse(left)}) // ({ast.unparse(right)}))", "round_up", 3)


def negation(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A sign that is missing or too much."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield module.replace(node, node.operand, "negation", 1.5)
    parent = module.parent.get(node)
    if isinstance(parent, ast.Tuple | ast.Lambda | ast.Return | ast.keyword) and isinstance(
        node, ast.Name | ast.Subscript | ast.Attribute | ast.Call
    ):
        yield module.replace(node, f"-{ast.unparse(node)}", "negation", 4)


def boolean(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`and` for `or`; a part left out, asked first, or bracketed in another way."""
    if not isinstance(node, ast.BoolOp):
        return
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield module.replace(node, ast.BoolOp(other, node.values), "boolean", 1)
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield module.replace(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest), "condition_left_out", 2)
    yield module.replace(node, ast.BoolOp(node.op, [*node.values[1:], node.values[0]]), "condition_order", 2.5)
    for index, value in enumerate(node.values):
        if isinstance(value, ast.BoolOp) and len(node.values) == 2:
            outside = node.values[1 - index]
            first = ast.BoolOp(node.op, [outside, value.values[0]])
            yield module.replace(node, ast.BoolOp(value.op, [first, *value.values[1:]]), "brackets", 2)
    if isinstance(node.op, ast.Or) and len(node.values) == 2:  # 0 and "" are values, too
        asked, default = (ast.unparse(each) for each in node.values)
        yield module.replace(node, f"{default} if {asked} is None else {asked}", "falsy_is_not_none", 1.5)


def _is_condition(module: Module, node: ast.AST) -> bool:
    parent = module.parent.get(node)
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return node is parent.test
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    return isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def condition(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A test negated, made to tell None from falsy, widened or narrowed by another one of the function."""
    top = isinstance(module.parent.get(node), ast.If | ast.While | ast.IfExp | ast.comprehension)
    if isinstance(node, ast.expr) and isinstance(module.parent.get(node), ast.Return):
        asks = isinstance(node, ast.Compare | ast.BoolOp) or (
            isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("is")
        )
    else:
        asks = isinstance(node, ast.expr) and _is_condition(module, node)
    if not asks:
        return
    text = ast.unparse(node)
    if not isinstance(node, ast.Compare):
        yield module.replace(node, f"not ({text})", "negated_condition", 2)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and text not in flags(module, node):
        inverted = isinstance(module.parent[node], ast.UnaryOp)
        whole, question = (module.parent[node], "is") if inverted else (node, "is not")
        yield module.replace(whole, f"{text} {question} None", "falsy_is_not_none", 1.5)
    if not top and not isinstance(module.parent.get(node), ast.Return):
        return
    for other in (*conditions(module, node), *_questions(module, node)):
        if other != text:
            yield module.replace(node, f"({text}) and ({other})", "condition_narrowed", 4)
            yield module.replace(node, f"({text}) or ({other})", "condition_widened", 4)


def _questions(module: Module, node: ast.AST) -> Iterator[str]:
    function = module.function_of(node)
    for name in parameters(function) if isinstance(function, Function) else ():
        if name not in ("self", "cls"):
            yield from (name, f"not {name}", f"{name} is None", f"{name} is not None")
    for name in locals_of(module, node):
        yield from (f"{name} > 0", f"{name} <= 0")


def constant(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A number one off, a flag the other way round, another of the module's strings."""
    if not isinstance(node, ast.Constant) or (module.quoted(node) and isinstance(node.value, str)):
        return
    if isinstance(node.value, str) and isinstance(module.parent.get(node), ast.Expr):
        return
    for other in _others(module, node.value):
        if other.text != repr(node.value):
            yield module.replace(node, other.text, "constant", other.cost)


@dataclass(frozen=True, slots=True)
class _Other:
    text: str
    cost: float


def _others(module: Module, value: object) -> Iterator[_Other]:
    """What may stand in a constant's place."""
    if isinstance(value, bool):
        yield _Other(repr(not value), 1)
    elif isinstance(value, int):
        # 0 and 1 are often a mistake for one another; a number that was looked up seldom is
        base = 1 if value in (0, 1) else 2
        for rank, near in enumerate(dict.fromkeys((value + 1, value - 1, 0, 1, -value, value * 2))):
            yield _Other(repr(near), base + rank * 0.6)
        yield from (_Other(repr(each), 4) for each in _integers(module))
    elif isinstance(value, float):
        for number in (0.0, 1.0, value + 1, value - 1, -value, value * 100, value / 100):
            yield _Other(repr(number), 2)
    elif isinstance(value, str):
        yield from (_Other(repr(each), 1.5) for each in SIBLINGS.get(value, ()))
        yield from (_Other(repr(each), 3) for each in ("", " ", ", ", *strings(module)))
    elif value is None:
        yield from (_Other(text, 4) for text in ("0", "''", "[]", "False"))


def _integers(module: Module) -> list[int]:
    found = {each.value for each in ast.walk(module.tree) if isinstance(each, ast.Constant) and type(each.value) is int}
    return sorted(found)


def one_off(module: Module, node: ast.AST) -> Iterator[Edit]:
    """One more or one less, where a number counts or bounds something."""
    if not isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.Attribute | ast.Subscript):
        return
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return
    parent, cost = module.parent.get(node), 0.0
    if isinstance(parent, ast.Slice) or (isinstance(parent, ast.Subscript) and node is parent.slice):
        cost = 1.5
    elif isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and node is not parent.func:
        cost = 1.5 if parent.func.id == "range" else 4
    elif isinstance(parent, ast.Return | ast.Compare | ast.BinOp | ast.Assign | ast.IfExp | ast.AugAssign):
        cost = 3
    if cost:
        for rank, change in enumerate((" + 1", " - 1")):
            yield module.replace(node, ast.unparse(node) + change, "one_off", cost + rank / 4)


def choice(module: Module, node: ast.AST) -> Iterator[Edit]:
    """The branches of a conditional expression changed over, or one of them only."""
    if isinstance(node, ast.IfExp):
        yield module.replace(node, ast.IfExp(node.test, node.orelse, node.body), "choice", 2)
        yield module.replace(node, node.body, "choice", 3)
        yield module.replace(node, node.orelse, "choice", 3)


OPERATORS = (comparison, arithmetic, negation, boolean, condition, constant, one_off, choice)
