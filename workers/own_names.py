"""A suite's own `bus.py` or `workers.py`, which no code of the suite can import: those names are evalbus's packages.

They are loaded before any suite is, so `import workers` gives evalbus's, wherever the suite's stands on the import
path, and what follows is an ImportError, or an AttributeError in the middle of a run. A file of such a name that
nothing imports does no harm (`python = "workers.py:solve"` reads it by its path), nor does a directory of data.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bus.errors import InputError

__all__ = ["check_own_names"]

_OURS = Path(__file__).parent.parent
_NAMES = ("bus", "workers")


def check_own_names(root: Path, shown: Path) -> None:
    """Raises InputError with the file and the line that imports one. `shown`: how messages name `root`."""
    own = {name: place for name in _NAMES if (place := _place_in(root, name)) is not None}
    if not own:  # nearly always
        return
    for file in sorted(root.rglob("*.py")):
        if any(part.startswith(".") for part in file.relative_to(root).parts):  # .venv
            continue
        for name, line in _imported(file):
            if name in own:
                raise InputError(
                    f"imports evalbus's own package {name!r}, and not the suite's {own[name]}",
                    file=shown / file.relative_to(root),
                    line=line,
                    remedy=f"rename {own[name]}",
                )


def _place_in(root: Path, name: str) -> str | None:
    if (root / f"{name}.py").is_file():
        return f"{name}.py"
    folder = root / name
    is_code = folder.is_dir() and folder.resolve() != _OURS / name and any(folder.glob("*.py"))
    return f"{name}/" if is_code else None


def _imported(file: Path) -> Iterator[tuple[str, int]]:
    """The top-level names of what it imports, without evalbus's own modules, each with its line."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # said when it is loaded, if it ever is
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            asked = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            asked = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for dotted in asked:
            if not _is_ours(dotted):
                yield dotted.partition(".")[0], node.lineno


def _is_ours(dotted: str) -> bool:
    """Whether evalbus has that module, or the one that it is said to be in: `workers.suite`, `workers.suite.Suite`."""
    top, _, rest = dotted.partition(".")
    place = _OURS / top / rest.partition(".")[0]
    return bool(rest) and (place.is_dir() or place.with_suffix(".py").is_file())
