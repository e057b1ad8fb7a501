"""The harness as a tool: a program that puts the files of a workspace into the directory it is run in, and is it then.

It reads {"files": {name: text}, "request": …} as JSON from standard input; what the harness says is what it says.
"""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    for name, text in asked["files"].items():
        Path(Path(name).name).write_text(text, encoding="utf-8")
    sys.stdin = io.StringIO(json.dumps(asked["request"]))
    runpy.run_path(str(Path(__file__).with_name("harness.py")), run_name="__main__")
