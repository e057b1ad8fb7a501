"""What `evalbus run` says of itself: how to go on with a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus.types import BatchId, Plane
from workers.job_options import JobOptions, resume_with


def options(
    url: str | None = None,
    workers: int | None = None,
    json_file: Path | None = None,
    plane: Plane = Plane.LIVE,
) -> JobOptions:
    """A command line that names little."""
    return JobOptions(
        suite=Path("a suite"),
        workers=workers,
        scorers=None,
        url=url,
        home=None,
        plane=plane,
        batch=None,
        json_file=json_file,
        artifacts=None,
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (options(), ""),
        (options(workers=0, json_file=Path("out.json")), " --workers 0 --json out.json"),
        (options(plane=Plane.SHADOW), " --plane shadow"),
        (options(url="redis://queue"), " --url redis://queue:6379/0"),
        (options(url="redis://:se%2Fcret@queue"), " --url 'redis://:***@queue:6379/0' (with the "),
    ],
    ids=["nothing", "fleet and file", "plane", "url", "password"],
)
def test_the_command_to_resume_with_is_what_was_given_without_a_password(
    given: JobOptions, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied from the screen, and from the log of a CI system that everybody reads."""
    monkeypatch.delenv("EVALBUS_URL", raising=False)
    line = resume_with(given, BatchId("b"))
    assert line.startswith(f"resume with: evalbus run 'a suite' --batch b{said}")
    assert "cret" not in line


def test_a_url_of_the_environment_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next command reads it there, too."""
    monkeypatch.setenv("EVALBUS_URL", "redis://queue")
    assert resume_with(options(url="redis://queue"), BatchId("b")) == "resume with: evalbus run 'a suite' --batch b"
