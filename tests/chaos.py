"""`evalbus chaos` as a command, and what it told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Told", "chaos"]

_PATIENCE = 900.0  # seconds; a command that takes so long has failed


@dataclass(frozen=True, slots=True)
class Told:
    """How it ended, and the JSON that it wrote."""

    code: int
    screen: str
    """Both streams, for whoever reads why a test failed."""
    json: dict[str, Any]

    @property
    def broken(self) -> set[str]:
        """The ids of the properties that did not hold."""
        return {name for name, (_, violations) in self.checks.items() if violations}

    @property
    def checks(self) -> dict[str, tuple[int, int]]:
        """Property's id → examined, violations."""
        return {
            one["property"].partition(":")[0]: (one["examined"], one["violations"])
            for one in self.json.get("checks", ())
        }


def chaos(root: Path, suite: Path, *options: object, **environment: str) -> Told:
    """To its end. `root`: where its home and its JSON are."""
    file = root / "chaos.json"
    words = ["chaos", suite, "--home", root / "home", "--json", file, *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
    done = subprocess.run(
        [sys.executable, "-m", "workers.cli", *map(str, words)],
        env=inherited | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE,
        check=False,
    )  # fmt: skip
    return Told(done.returncode, done.stdout + done.stderr, json.loads(file.read_text()) if file.exists() else {})
