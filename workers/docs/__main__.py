"""Write the pages: `python -m workers.docs [DIRECTORY]`; the directory is `docs` when it is left out."""

from __future__ import annotations

import sys
from pathlib import Path

from workers.docs import pages

if __name__ == "__main__":
    directory = Path(sys.argv[1] if sys.argv[1:] else "docs")
    if not directory.is_dir():
        sys.exit(f"evalbus: {directory}: no such directory (run it where the project's docs/ is, or name one)")
    for name, text in pages().items():
        (directory / name).write_text(text, "utf-8")
        print(directory / name)
