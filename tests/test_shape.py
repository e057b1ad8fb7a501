"""The shape of the project, kept: which way the imports run, where a protocol has its rooms, who may write a key.

workers → bus.fences → bus core → bus.types
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.contract import CONTRACT, PROTOCOLS
from tests.sources import PACKAGES, ROOT, below, imports, modules, offenders, parsed

FENCES = pytest.mark.parametrize("fence", CONTRACT)


# --- arrows -----------------------------------------------------------------------------------------------


def test_the_bus_knows_nothing_of_the_workers() -> None:
    """The mechanism serves roles that it has never heard of."""
    assert offenders("bus", "workers", "tests") == []


def test_nothing_that_is_shipped_imports_the_tests() -> None:
    """They are not in the wheel."""
    assert offenders("workers", "tests") + offenders("lua", *PACKAGES) == []


def test_no_module_imports_a_test() -> None:
    """What two of them need stands in a module that is none; else the first could not be split, or take a new name."""
    found = [
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules("tests")
        for name in sorted(imports(module))
        if name.startswith("tests.test_")
    ]
    assert found == []


def test_the_core_of_the_bus_does_not_import_the_fences() -> None:
    """A fence stands on the core. What plays vectors against a server stands on both, and nothing stands on that."""
    above = ("bus.conform", "bus.server_player", "bus.verify", "bus.acceptance")
    found = offenders("bus", "bus.fences", *above, but="bus/fences")
    standing_on_both = {"bus/conform.py", "bus/server_player.py", "bus/verify.py"}
    files = {one.split()[0] for one in found}
    assert {file for file in files if not file.startswith("bus/acceptance/")} <= standing_on_both


def test_the_models_import_nothing_of_the_project() -> None:
    """They are what the scripts are judged by, so they share nothing with them."""
    found = [
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules("bus/models")
        for name in imports(module)
        if not below(name, "bus.models")
    ]
    assert found == []


def test_the_fences_do_not_import_each_other() -> None:
    """They meet in `lua/run`, and nowhere else."""
    for kind in ("fences", "models"):
        for fence in CONTRACT:
            own = ROOT / "bus" / kind / f"{fence}.py"
            others = [f"bus.{kind}.{other}" for other in PROTOCOLS if other != fence]
            assert not own.exists() or not [name for name in imports(own) if name in others]


def test_types_and_errors_are_at_the_bottom() -> None:
    """Everything may import them, so they import nothing."""
    for name in ("types", "errors"):
        assert imports(ROOT / "bus" / f"{name}.py") == set()


def test_imports_do_not_run_in_a_circle() -> None:
    """Two modules that need each other are one, in two files."""
    graph = {
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): imports(module)
        for package in ("bus", "workers", "lua")
        for module in modules(package)
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail[trail.index(name) :], name))
        if name in done:
            return
        for other in graph.get(name, set()) - {name}:
            visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_an_import_that_runs_the_wrong_way_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any spelling, and inside a function too."""
    (tmp_path / "workers").mkdir()
    (tmp_path / "bus" / "fences").mkdir(parents=True)
    monkeypatch.setattr("tests.sources.ROOT", tmp_path)
    for line in (
        "import workers.cli",
        "from workers import cli",
        "from ..workers import cli",
        "from .. import workers",
    ):
        module = tmp_path / "bus" / "module.py"
        module.write_text(f"def f():\n    {line}\n")
        assert offenders("bus", "workers") != [], line
    module.write_text("from bus import fences\n")
    assert offenders("bus", "bus.fences") == ["bus/module.py imports bus.fences"]


# --- rooms ------------------------------------------------------------------------------------------------


@FENCES
def test_a_fence_has_all_its_rooms_under_one_name(fence: str) -> None:
    """A search for the stem shows the whole protocol; a stem that is missing somewhere is one that was forgotten."""
    number = PROTOCOLS.index(fence) + 1
    for room in (
        f"lua/{fence}/fence.lua",
        f"bus/fences/{fence}.py",
        f"bus/models/{fence}.py",
        f"tests/vectors/{number:02d}-{fence}",
    ):
        assert (ROOT / room).exists(), room
    assert list((ROOT / f"tests/vectors/{number:02d}-{fence}").glob("*.json"))


def test_no_room_stands_for_a_fence_that_does_not_exist_yet() -> None:
    """What is not built is not stubbed either."""
    assert {path.parent.name for path in (ROOT / "lua").glob("*/fence.lua")} == set(CONTRACT)
    assert {path.name for path in (ROOT / "lua").iterdir() if path.is_dir()} - {"__pycache__"} == {
        *CONTRACT,
        "endpoint",
        "include",
        "run",
    }
    for kind in ("fences", "models"):
        stems = {path.stem for path in modules(f"bus/{kind}")}
        assert stems & set(PROTOCOLS) == set(CONTRACT)
    assert {path.name[3:] for path in (ROOT / "tests/vectors").iterdir()} == set(CONTRACT)


@FENCES
def test_a_fences_own_lua_includes_no_other_fence(fence: str) -> None:
    """Each can be read, and conformed to, by itself."""
    for path in (ROOT / "lua" / fence).glob("*.lua"):
        included = set(re.findall(r'#include "(.*)"', path.read_text("utf-8")))
        assert all(name.startswith((f"{fence}/", "include/")) for name in included), path
        assert "include/run.lua" not in included, path


# --- keys -------------------------------------------------------------------------------------------------


def test_keys_are_written_in_one_module_only() -> None:
    """The prefix stands in no other string. A docstring may speak of keys, and so may a script's header."""
    found = [
        f"{module.relative_to(ROOT)}:{node.lineno}"
        for package in ("bus", "workers")
        for module in modules(package)
        if module != ROOT / "bus" / "keys.py"
        for node in _texts(module)
        if re.match(r"evb:(\{|$)", str(node.value))
    ]
    assert found == []


def test_lua_builds_no_keys() -> None:
    """Every key of a script is declared by its caller: that is what makes a cluster, and an access list, possible."""
    for path in (ROOT / "lua").rglob("*.lua"):
        code = re.sub(r"--\[\[.*?\]\]|--[^\n]*", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert "evb" not in code, path
        assert not re.search(r"KEYS\[[^\]]*\] *\.\.|\.\. *KEYS\[", code), path


def _texts(module: Path) -> Iterator[ast.Constant]:
    """The string constants of a file that are no docstrings."""
    tree = parsed(module.read_text("utf-8"))
    speech = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in speech:
            yield node
