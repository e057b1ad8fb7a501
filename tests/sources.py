"""The project's own source, read: which files there are, and which modules of the project each of them imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

PACKAGES = ("bus", "workers", "lua", "tests")


def modules(folder: str) -> list[Path]:
    """The Python files below a folder of the project."""
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, folder
    return found


@cache
def parsed(text: str) -> ast.Module:
    """A file's syntax tree; many tests look at the same one."""
    return ast.parse(text)


def imports(module: Path) -> set[str]:
    """The project's own modules that a file imports, anywhere in it, under their full names."""
    package = module.relative_to(ROOT).with_suffix("").parts
    found = set()
    for node in ast.walk(parsed(module.read_text("utf-8"))):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                base = ".".join(package[: -node.level]) + "." if node.level else ""
                found |= {f"{base}{node.module or ''}".strip("."), *_members(base, node)}
    return {name for name in found if name.split(".")[0] in PACKAGES}


def _members(base: str, node: ast.ImportFrom) -> Iterator[str]:
    """`from bus import fences` imports bus.fences."""
    for alias in node.names:
        name = f"{base}{node.module or ''}.{alias.name}".strip(".")
        if (ROOT / Path(*name.split("."))).is_dir() or (ROOT / Path(*name.split("."))).with_suffix(".py").is_file():
            yield name


def below(name: str, package: str) -> bool:
    """Whether a module is the package or in it."""
    return name == package or name.startswith(f"{package}.")


def offenders(folder: str, *forbidden: str, but: str = "") -> list[str]:
    """`file imports module` for each import that runs the wrong way; files below `but` are left out."""
    return [
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules(folder)
        if not but or not module.is_relative_to(ROOT / but)
        for name in sorted(imports(module))
        if any(below(name, package) for package in forbidden)
    ]
