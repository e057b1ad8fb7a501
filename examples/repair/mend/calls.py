"""Edits of calls, names, attributes, subscripts, and of what is made of a value before it is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mend.scope import attributes_of_self, globals_of, locals_of
from mend.siblings import SIBLINGS
from mend.text import Edit, Module


def _is_load(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load)


def name(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Another variable of the function; a builtin or function for its sibling."""
    if not isinstance(node, ast.Name) or not _is_load(node):
        return
    for rank, other in enumerate(SIBLINGS.get(node.id, ())):
        yield module.replace(node, other, "sibling", 1.5 + rank / 2)
    mine = locals_of(module, node)
    if node.id in mine:
        for other in mine:
            if other != node.id:
                yield module.replace(node, other, "name", 2.5)
    elif node.id in globals_of(module):
        called = isinstance(module.parent.get(node), ast.Call)
        for other in globals_of(module):
            if other != node.id and other.isupper() == node.id.isupper():
                yield module.replace(node, other, "name", 3.5 if called else 2.5)


def target(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Assigned to another variable."""
    if isinstance(node, ast.Name) and isinstance(module.parent.get(node), ast.Assign | ast.AugAssign):
        for other in locals_of(module, node):
            if other != node.id and isinstance(node.ctx, ast.Store):
                yield module.replace(node, other, "target", 4)


def attribute(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A method or attribute for its sibling, or for another one of the same object."""
    if not isinstance(node, ast.Attribute):
        return
    others = [(each, 1 + rank / 2) for rank, each in enumerate(SIBLINGS.get(node.attr, ()))]
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        others += [(each, 3.0) for each in attributes_of_self(module)]
    base = ast.unparse(node.value)
    for other, cost in others:
        if other != node.attr:
            yield module.replace(node, f"{base}.{other}", "sibling", cost)


def arguments(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Arguments changed over, left out, or added where a well-known function takes one more."""
    if not isinstance(node, ast.Call):
        return
    function, given = ast.unparse(node.func), node.args
    for index in range(len(given) - 1):
        swapped = [*given[:index], given[index + 1], given[index], *given[index + 2 :]]
        yield module.replace(node, ast.Call(node.func, swapped, node.keywords), "argument_order", 2)
    for index in range(len(given)):
        rest = [*given[:index], *given[index + 1 :]]
        yield module.replace(node, ast.Call(node.func, rest, node.keywords), "argument_left_out", 3)
    for index in range(len(node.keywords)):
        rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
        yield module.replace(node, ast.Call(node.func, given, rest), "argument_left_out", 2.5)
    short = function.rpartition(".")[2]
    for extra, cost in _EXTRAS.get(short, ()):
        label = extra.partition("=")[0] if "=" in extra else ""
        if label and any(keyword.arg == label for keyword in node.keywords):
            continue
        before = ", ".join([*map(ast.unparse, given), *([] if label else [extra])])
        after = ", ".join([*map(ast.unparse, node.keywords), *([extra] if label else [])])
        inside = ", ".join(each for each in (before, after) if each)
        try:
            yield module.replace(node, f"{function}({inside})", "argument_added", cost)
        except SyntaxError:  # after a generator that had the brackets for itself
            continue
    if isinstance(node.func, ast.Attribute) and short == "get" and len(given) == 1:
        for default in ("0", "[]", "''", "False"):
            yield module.replace(node, f"{function}({ast.unparse(given[0])}, {default})", "argument_added", 2)


_EXTRAS: dict[str, tuple[tuple[str, float], ...]] = {
    "sorted": (("reverse=True", 1.5), ("key=str.lower", 4), ("key=len", 4), ("key=str", 5)),
    "sort": (("reverse=True", 1.5), ("key=str.lower", 4), ("key=len", 4)),
    "split": (("1", 2.5), ("maxsplit=1", 2.5)),
    "rsplit": (("1", 2.5), ("maxsplit=1", 2.5)),
    "replace": (("1", 4),),
    "enumerate": (("1", 2),),
    "sum": (("0", 5),),
    "min": (("default=None", 3), ("default=0", 3)),
    "max": (("default=None", 3), ("default=0", 3)),
    "next": (("None", 2.5),),
    "getattr": (("None", 2.5),),
    "pop": (("0", 2), ("None", 2.5), ("-1", 3)),
    "zip": (("strict=True", 3),),
    "round": (("2", 3),),
    "range": (("-1", 3),),
    "int": (("16", 5), ("2", 5)),
    "findall": (("re.IGNORECASE", 4), ("re.MULTILINE", 4)),
    "compile": (("re.IGNORECASE", 4), ("re.MULTILINE", 4)),
    "dumps": (("sort_keys=True", 3), ("ensure_ascii=False", 3)),
}


def unwrap(module: Module, node: ast.AST) -> Iterator[Edit]:
    """The value itself, without the call that was made with it or on it."""
    if not isinstance(node, ast.Call):
        return
    if len(node.args) == 1 and not isinstance(node.args[0], ast.GeneratorExp | ast.Starred):
        yield module.replace(node, node.args[0], "unwrap", 3)
    if isinstance(node.func, ast.Attribute) and len(node.args) <= 1:
        yield module.replace(node, node.func.value, "unwrap", 3)


_WRAPS = (
    ("list({})", 3),
    ("sorted({})", 3.5),
    ("set({})", 4.5),
    ("reversed({})", 4.5),
    ("list(reversed({}))", 5),
    ("dict({})", 4),
    ("{}.copy()", 3.5),
    ("list(dict.fromkeys({}))", 5),
    ("abs({})", 4),
    ("int({})", 4),
    ("str({})", 4),
    ("float({})", 5),
    ("len({})", 4.5),
    ("round({})", 5),
    ("max(0, {})", 4),
    ("{}.lower()", 4),
    ("{}.casefold()", 4.5),
    ("{}.strip()", 4),
    ("{}.rstrip('\\n')", 5),
)


def wrap(module: Module, node: ast.AST) -> Iterator[Edit]:
    """The value copied, sorted, made absolute, freed of blanks or case."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp) or not (
        _is_load(node) or isinstance(node, ast.Call | ast.BinOp)
    ):
        return
    parent = module.parent.get(node)
    if isinstance(parent, ast.Attribute | ast.Expr | ast.arguments | ast.arg | ast.ClassDef):
        return
    if isinstance(parent, ast.Call) and node is parent.func:
        return
    text = ast.unparse(node)
    closed = f"({text})" if isinstance(node, ast.BinOp) else text
    for form, cost in _WRAPS:
        yield module.replace(node, form.format(closed if form.startswith("{}") else text), "wrap", cost)
    needs = "" if "import copy\n" in module.source else "import copy\n"
    edit = module.replace(node, f"copy.deepcopy({text})", "wrap", 3.5)
    yield Edit(edit.start, edit.end, edit.text, edit.line, "wrap", edit.cost, needs, module.top)


def subscript(module: Module, node: ast.AST) -> Iterator[Edit]:
    """The other end of a sequence, a bound more or less, a key that may be missing."""
    if not isinstance(node, ast.Subscript):
        return
    base = ast.unparse(node.value)
    if isinstance(node.slice, ast.Slice):
        lower, upper = (ast.unparse(each) if each else "" for each in (node.slice.lower, node.slice.upper))
        step = f":{ast.unparse(node.slice.step)}" if node.slice.step else ""
        forms = [(f":{upper}", 2.0), (f"{lower}:", 2.0)]
        forms += [(f"1:{upper}", 2.5)] if not lower else [(f"-{lower}:{upper}", 3.0)]
        forms += [(f"{lower}:-1", 2.5)] if not upper else [(f"{lower}:-({upper})", 4.0)]
        forms += [(f"{lower}:{lower} + {upper}", 2.5)] if lower and upper else []
        for form, cost in forms:
            yield module.replace(node, f"{base}[{form}{step}]", "slice", cost)
        if step:
            yield module.replace(node, f"{base}[{lower}:{upper}]", "slice", 3)
        return
    key = ast.unparse(node.slice)
    if not _is_load(node):
        return
    for default, cost in (("", 3.0), (", 0", 2.5), (", []", 3.5), (", ''", 3.5)):
        yield module.replace(node, f"{base}.get({key}{default})", "key_may_be_missing", cost)
    if key in ("0", "-1"):
        yield module.replace(node, f"{base}[{'-1' if key == '0' else '0'}]", "other_end", 1.5)
    yield module.replace(node, node.value, "unwrap", 4)


def late_binding(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A lambda that keeps the value a variable has now, not the one it will have in the end."""
    if not isinstance(node, ast.Lambda):
        return
    inside = {each.id for each in ast.walk(node.body) if isinstance(each, ast.Name)}
    own = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    given = ast.unparse(node.args)
    names: list[str] = []
    for up in module.ancestors(node):
        targets = [up.target] if isinstance(up, ast.For) else [g.target for g in getattr(up, "generators", [])]
        names += [each.id for where in targets for each in ast.walk(where) if isinstance(each, ast.Name)]
    for each in dict.fromkeys(names or sorted(inside)):
        if each in inside and each not in own:
            bound = ", ".join(part for part in (given, f"{each}={each}") if part)
            yield module.replace(node, f"lambda {bound}: {ast.unparse(node.body)}", "late_binding", 2)


def sequence(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Elements of a tuple changed over; a loop's filter left out; an error that is not caught yet."""
    if isinstance(node, ast.Tuple) and 2 <= len(node.elts) <= 4:
        for index in range(len(node.elts) - 1):
            order = [*node.elts[:index], node.elts[index + 1], node.elts[index], *node.elts[index + 2 :]]
            yield module.replace(node, ast.Tuple(order, node.ctx), "order_in_tuple", 2.5)
    elif isinstance(node, ast.ExceptHandler) and node.type is not None:
        caught = ast.unparse(node.type)
        for other in ("ValueError", "KeyError", "TypeError", "IndexError", "AttributeError", "ZeroDivisionError"):
            if other not in caught:
                both = f"{caught[:-1]}, {other})" if caught.endswith(")") else f"({caught}, {other})"
                yield module.replace(node.type, both, "also_caught", 2.5)


OPERATORS = (name, target, attribute, arguments, unwrap, wrap, subscript, late_binding, sequence)
