"""`requirements.lock` pins what the project asks for, and nothing in it belongs to the machine that made it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LINES = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
PINNED = {canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in LINES)}


def _asked() -> Iterator[tuple[str, str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, wanted in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for one in wanted:
            yield extra or "evalbus", one


@pytest.mark.parametrize(("extra", "wanted"), list(_asked()))
def test_each_direct_dependency_is_pinned_within_its_bounds(extra: str, wanted: str) -> None:
    """Of the project itself and of each extra."""
    requirement = Requirement(wanted)
    version = PINNED.get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} of {extra} is not pinned: make lock"
    assert version in requirement.specifier, f"{requirement} of {extra} is pinned to {version}: make lock"


def test_every_line_is_one_pin() -> None:
    """No index, no path, no URL, no hash of one platform's file; each package once, in order."""
    assert [line for line in LINES if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.+!]*", line)] == []
    assert len(PINNED) == len(LINES)
    assert list(PINNED) == sorted(PINNED)


def test_the_image_is_built_from_it() -> None:
    """As the pins were tested."""
    assert "pip install --no-cache-dir -c requirements.lock ." in (ROOT / "Dockerfile").read_text()
