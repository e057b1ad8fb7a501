"""The documents that are played: their commands in one shell each, and what they print beside what they say it is.

A fenced block of `sh` is run, in the order of the page, in an empty directory. One that cannot be has a line before it:
`<!-- not run: it needs a cluster -->`. A block of `text` shows output: each of its lines must be among what the page's
commands printed, where digits and hashes are only compared for being there, and … stands for anything.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fleet import end_below

__all__ = ["ROOT", "Block", "Link", "Played", "blocks", "links", "play", "sections", "unfound", "unseen"]

ROOT = Path(__file__).parent.parent
_PATIENCE = 240.0  # seconds; what takes so long waits for something that will not come
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"(?:bus|workers|lua|tests|docs|examples)/[\w./*<>-]*[\w/*]|[\w*]+\.(?:py|lua|md)\b")
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>.+?) -->\n\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, its line in the file, and why it is not run."""

    language: str
    text: str
    line: int
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a file of the project, and perhaps to a heading in it."""

    file: Path
    heading: str

    @property
    def leads_somewhere(self) -> bool:
        """Whether both are there."""
        if not self.file.exists() or not self.heading:
            return self.file.exists()
        return self.heading in {_anchor(title) for title in _titles(self.file.read_text("utf-8"))}


@dataclass(frozen=True, slots=True)
class Played:
    """What a page's commands came to: the shell's exit code, and all that it printed."""

    code: int
    said: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        marked = _NOT_RUN.search(before)
        found.append(Block(match[1], match[2], before.count("\n") + 1, marked["why"] if marked else ""))
    return found


def sections(page: Path) -> dict[str, str]:
    """What stands below each heading of the second level."""
    parts = re.split(r"^## (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def links(page: Path) -> list[Link]:
    """The links of a page that stay within the project."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text("utf-8"))):
        if not re.match(r"[a-z]+:", target):
            file, _, heading = target.partition("#")
            found.append(Link((page.parent / file).resolve() if file else page, heading))
    return found


def unfound(text: str) -> list[str]:
    """The paths that a text names and the project has not.

    A file without a folder is looked for at the top, and in the folders that stand before it in the same paragraph, or
    entry of the map. `<fence>` stands for any.
    """
    missing = []
    for entry in re.split(r"\n(?=\S)", text):
        folders = [ROOT]
        for name in _PATH.findall(entry):
            path = ROOT / name.replace("<fence>", "join")
            if not any(one for folder in folders for one in folder.glob(str(path.relative_to(ROOT)))):
                missing.append(name)
            folders.append(path if name.endswith("/") else path.parent)
    return missing


def _titles(text: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", _FENCE.sub("", text), flags=re.MULTILINE)


def _anchor(title: str) -> str:
    """As GitHub names it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def play(page: Path, directory: Path) -> Played:
    """Run a page's commands in a directory, as somebody would who reads it; whatever they left running is ended."""
    script = "set -e\n" + "".join(block.text for block in blocks(page) if block.language == "sh" and not block.not_run)
    kept = {name: value for name, value in os.environ.items() if not re.match("EVALBUS_|OPENAI_|GITHUB_", name)}
    environment = kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (directory / "said.log").open("w+b") as said:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = shell.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            end_below(directory)  # a server that the page was to stop, and did not come to
        said.seek(0)
        return Played(code, said.read().decode("utf-8", "replace"))


def unseen(page: Path, played: Played) -> list[str]:
    """Lines that the page shows and its commands did not print."""
    said = [_masked(line) for line in played.said.splitlines()]
    shown = [line for block in blocks(page) if block.language == "text" for line in block.text.splitlines()]
    return [line for line in shown if line.strip("… ") and not any(_pattern(line).fullmatch(one) for one in said)]


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, _masked(line).split("…"))))


def _masked(line: str) -> str:
    plain = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8,}\b", "#", line)
    plain = re.sub(r"\d+(\.\d+)?", "0", plain)
    return " ".join(plain.split())
