"""What is at hand at a place in a module: names in scope, and expressions that the module uses elsewhere.

A repair is mostly made of what the program has already, only not where it is needed.
"""

from __future__ import annotations

import ast

from mend.text import Function, Module


def _dedupe(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def parameters(function: Function | ast.Lambda) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [each.arg for each in every if each is not None]


def locals_of(module: Module, node: ast.AST) -> list[str]:
    """Parameters and variables of the functions around a node, innermost first, in the order they appear."""
    found: list[str] = []
    for function in module.ancestors(node):
        if isinstance(function, ast.Lambda):
            found += parameters(function)
        elif isinstance(function, Function):
            names = (each for each in ast.walk(function) if isinstance(each, ast.Name))
            stores = [each for each in names if isinstance(each.ctx, ast.Store)]
            stores.sort(key=lambda each: (each.lineno, each.col_offset))
            found += [*parameters(function), *(each.id for each in stores)]
    return _dedupe(found)


def flags(module: Module, node: ast.AST) -> set[str]:
    """The variables of the function around a node that are set to True or False: they are never None."""
    return {
        target.id
        for each in ast.walk(module.function_of(node) or module.tree)
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, bool)
        for target in each.targets
        if isinstance(target, ast.Name)
    }


def globals_of(module: Module) -> list[str]:
    """The module's own constants, functions and classes."""
    found: list[str] = []
    for statement in module.tree.body:
        if isinstance(statement, Function | ast.ClassDef):
            found.append(statement.name)
        elif isinstance(statement, ast.Assign):
            found.extend(each.id for each in statement.targets if isinstance(each, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.append(statement.target.id)
    return _dedupe(found)


def attributes_of_self(module: Module) -> list[str]:
    """The attributes that the module reads or writes on `self`."""
    return _dedupe(
        [
            each.attr
            for each in ast.walk(module.tree)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
        ]
    )


def conditions(module: Module, node: ast.AST) -> list[str]:
    """What the function around a node asks in its tests and comparisons, as text."""
    function = module.function_of(node)
    nodes = ast.walk(function or module.tree)
    return _dedupe([ast.unparse(each) for each in nodes if isinstance(each, ast.Compare) and not module.quoted(each)])


def expressions_of(module: Module, node: ast.AST) -> list[str]:
    """Variables, and attributes, elements and lengths of them, that the function around a node reads."""
    function = module.function_of(node)
    if function is None:
        return []
    found = list(locals_of(module, node))
    for each in ast.walk(function):
        if isinstance(each, ast.Attribute | ast.Subscript) and isinstance(each.ctx, ast.Load):
            parent = module.parent.get(each)
            called = isinstance(parent, ast.Call) and each is parent.func
            if not called and not isinstance(parent, ast.arg | ast.AnnAssign | Function) and not module.quoted(each):
                found.append(ast.unparse(each))
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "len":
            found.append(ast.unparse(each))
    return _dedupe([each for each in found if each not in ("self", "cls") and len(each) <= 40])


def strings(module: Module) -> list[str]:
    """The short strings that the module uses, docstrings left out."""
    documents = {
        id(each.body[0].value)
        for each in ast.walk(module.tree)
        if isinstance(each, Function | ast.ClassDef | ast.Module) and each.body and isinstance(each.body[0], ast.Expr)
    }
    return _dedupe(
        [
            each.value
            for each in ast.walk(module.tree)
            if isinstance(each, ast.Constant)
            and isinstance(each.value, str)
            and len(each.value) <= 20
            and id(each) not in documents
            and not module.quoted(each)
        ]
    )
