"""Suites for tests: a directory with the files given, loaded."""

from __future__ import annotations

from pathlib import Path

from workers.suite import Suite, load_suite

__all__ = ["COMPARED", "MINIMAL", "make_suite", "write_suite"]

MINIMAL = """\
cases = "cases.jsonl"
[solver]
command = ["cat"]
[scorer]
kind = "exact"
"""
"""The least that a suite says: its solver answers with the prompt."""

COMPARED = """\
cases = "cases.jsonl"
lease = "5s"
[solver]
python = "agent.py:solve"
[scorer]
kind = "exact"
"""
"""A solver in Python, and its answer is the target or is not."""


def write_suite(root: Path, toml: str | None = MINIMAL, /, **files: str) -> Path:
    """A suite directory; `files` by name, `__` for `/` and `_DOT_` for `.`; two cases unless given others."""
    root.mkdir(parents=True, exist_ok=True)
    contents = {"cases.jsonl": '{"id": "a", "input": "1", "target": "1"}\n{"id": "b", "input": "2", "target": "3"}\n'}
    contents |= {name.replace("__", "/").replace("_DOT_", "."): text for name, text in files.items()}
    if toml is not None:
        contents["suite.toml"] = toml
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def make_suite(root: Path, toml: str = MINIMAL, /, **files: str) -> Suite:
    """The same, loaded."""
    return load_suite(write_suite(root, toml, **files))
