"""Edits made of what the function has elsewhere: an expression, a call, a statement of another branch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mend.scope import expressions_of
from mend.statements import SIMPLE, blocks_of, insert, is_document
from mend.text import Edit, Function, Module


def _is_value(module: Module, node: ast.AST) -> bool:
    """An expression that is read, and not a part of a name such as `a.b`, a call's function, or an annotation."""
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp):
        return False
    parent = module.parent.get(node)
    if isinstance(parent, ast.Attribute | ast.Expr | ast.arg | ast.arguments | Function | ast.ClassDef | ast.AnnAssign):
        return isinstance(parent, ast.AnnAssign) and node is parent.value
    if isinstance(parent, ast.Call) and node is parent.func:
        return False
    return not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def reused(module: Module, node: ast.AST) -> Iterator[Edit]:
    """Another expression of the function, in its place, added to it, or as its upper or lower bound."""
    if not _is_value(module, node) or module.function_of(node) is None:
        return
    text = ast.unparse(node)
    inside = {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.expr)}
    numeric = isinstance(module.parent.get(node), ast.Call | ast.BinOp | ast.Return | ast.Assign | ast.Compare)
    for other in expressions_of(module, node):
        if other in inside:
            continue
        if not other.isidentifier() and not isinstance(node, ast.BinOp):
            yield module.replace(node, other, "reused", 4)
        if numeric:
            for form, cost in (("max({}, {})", 4), ("min({}, {})", 4), ("{} + {}", 5), ("{} - {}", 5)):
                yield module.replace(node, form.format(text, other), "combined", cost)


def applied(module: Module, node: ast.AST) -> Iterator[Edit]:
    """`f(x.g())` for `f(x).g()`, `f(x[a:b])` for `f(x)[a:b]`; a method's call that the function makes elsewhere."""
    inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if isinstance(node, ast.Subscript):
        inner = node.value
    if isinstance(inner, ast.Call) and len(inner.args) == 1:
        argument = inner.args[0]
        if isinstance(node, ast.Subscript):
            moved: ast.expr = ast.Subscript(argument, node.slice, ast.Load())
        else:
            moved = ast.Call(ast.Attribute(argument, node.func.attr, ast.Load()), node.args, node.keywords)
        yield module.replace(node, ast.Call(inner.func, [moved], inner.keywords), "applied_before", 1.5)
    function = module.function_of(node)
    if function is None or not _is_value(module, node) or isinstance(node, ast.BinOp):
        return
    text = ast.unparse(node)
    tails = {}
    for each in ast.walk(function):
        if isinstance(module.parent.get(each), ast.Expr):
            continue
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            whole, base = ast.unparse(each), ast.unparse(each.func.value)
            tails[whole.removeprefix(base)] = None
    for tail in tails:
        if not text.endswith(tail):
            yield module.replace(node, text + tail, "applied_again", 3.5)


def part(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A sequence without its first or last element, or backwards; a list where a generator would be used up."""
    if isinstance(node, ast.GeneratorExp):
        if not isinstance(module.parent.get(node), ast.Call):
            yield module.replace(node, ast.ListComp(node.elt, node.generators), "kept_as_list", 1.5)
        return
    if not _is_value(module, node) or not isinstance(node, ast.Name | ast.Attribute | ast.Call):
        return
    parent = module.parent.get(node)
    cost = 2.5 if isinstance(parent, ast.For | ast.comprehension) else 4
    if isinstance(parent, ast.Compare | ast.BinOp | ast.Subscript | ast.Slice):
        return
    for bounds in ("[1:]", "[:-1]", "[::-1]"):
        yield module.replace(node, ast.unparse(node) + bounds, "part", cost)


def guarded(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A statement that is done only if something it uses is there."""
    if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return) or is_document(node):
        return
    span = module.block(node, node)
    if span is None or module.function_of(node) is None:
        return
    blanks, text = " " * node.col_offset, ast.unparse(node)
    used = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    for asked in dict.fromkeys(ast.unparse(each) for each in used if isinstance(each.ctx, ast.Load)):
        if not asked.isidentifier() or asked in expressions_of(module, node):
            for question, cost in ((asked, 3.5), (f"{asked} is not None", 3), (f"not {asked}", 4)):
                lines = f"{blanks}if {question}:\n{blanks}    {text}\n"
                yield Edit(*span, lines, node.lineno, "guarded", cost)


def other_branch(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A simple statement at the end of one branch that belongs to the other one, or the two branches changed over."""
    if not isinstance(node, ast.If) or not node.orelse:
        return
    branches = list(blocks_of(node))
    spans = [module.block(each[0], each[-1]) for each in branches]
    if len(branches) != 2 or None in spans or isinstance(node.orelse[0], ast.If):
        return
    (one, two), source = spans, module.source
    between = source[one[1] : two[0]]
    for index, branch in enumerate(branches):
        last = module.block(branch[-1], branch[-1])
        if len(branch) > 1 and last is not None and isinstance(branch[-1], SIMPLE):
            moved = source[slice(*last)].rstrip("\n") + "\n"
            first = source[one[0] : last[0]] if index == 0 else source[slice(*one)] + moved
            second = source[slice(*two)] + moved if index == 0 else source[two[0] : last[0]]
            yield Edit(one[0], two[1], first + between + second, branch[-1].lineno, "other_branch", 2)
    swapped = source[slice(*two)].rstrip("\n") + "\n" + between + source[slice(*one)]
    yield Edit(one[0], two[1], swapped, node.lineno, "other_branch", 2.5)


def again_whole(module: Module, node: ast.AST) -> Iterator[Edit]:
    """A short `if` of a loop asked once more behind it: what the last pass has left."""
    if not isinstance(node, ast.For | ast.While) or module.function_of(node) is None:
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.If) and not inner.orelse and all(isinstance(each, SIMPLE) for each in inner.body):
            yield from insert(module, node, ast.unparse(inner), "again_behind_loop", 2.5, after=True)


OPERATORS = (reused, applied, part, guarded, other_branch, again_whole)
