"""Result files are whole or not there, and a place that will not do is found before anything starts."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from bus.errors import InputError
from workers.files import check_writable, write_whole


def test_a_new_file_holds_the_text_and_nothing_else_is_left(tmp_path: Path) -> None:
    """The plain case, with text beyond ASCII."""
    path = tmp_path / "out.json"
    check_writable(path)
    assert list(tmp_path.iterdir()) == []
    write_whole(path, '{"name": "Größe"}\n')
    assert path.read_bytes() == '{"name": "Größe"}\n'.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_mode_that_the_user_asked_for(tmp_path: Path) -> None:
    """A private temporary file moved into place is readable by its owner only; CI reads as another."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "out.json", "{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o640


def test_an_old_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    """Somebody made it group-writable for a reason."""
    path = tmp_path / "out.json"
    path.write_text("a long old text")
    path.chmod(0o664)
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """`latest.json` points to today's file: today's file gets the text."""
    target, link = tmp_path / "today.json", tmp_path / "latest.json"
    target.write_text("old")
    link.symlink_to(target)
    check_writable(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file_whole(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up half-way: the reader finds yesterday's numbers or none, never half of today's."""
    path = tmp_path / "out.json"
    path.write_text("old and whole")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "write":
        monkeypatch.setattr(os, "fchmod", full)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match=r"out\.json: cannot be written: No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old and whole"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control-C while the file is flushed."""

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "out.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`--json /dev/stdout`, `--json >(jq .)`: replacing what is there by a file would be a surprise."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "through")
    reader.join(timeout=60)
    assert found == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/out.json", "its directory does not exist (create it, or name another)"),
        ("file/out.json", "its directory is not a directory (create it, or name another)"),
        ("directory", "is a directory (name a file)"),
        ("loop", "cannot be resolved"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_a_place_that_will_not_do_is_one_clear_line(name: str, message: str, tmp_path: Path) -> None:
    """Found before the run, not after hours of it; nothing is created on the way."""
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError) as caught:
        check_writable(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {message}"
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_that_takes_no_file_is_found_by_trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only mount looks writable to root: only the attempt tells."""
    real = os.open

    def readonly(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", readonly)
    with pytest.raises(InputError, match="cannot be written: Read-only file system"):
        check_writable(tmp_path / "out.json")


def test_a_write_protected_file_is_left_alone() -> None:
    """It could be moved over, for that needs the directory's permission only; but somebody protected it."""
    with tempfile.TemporaryDirectory() as name:  # and not `tmp_path`, which is closed to other users
        path = Path(name, "out.json")
        path.write_text("kept")
        path.chmod(0o444)
        Path(name).chmod(0o777)
        root = os.geteuid() == 0
        if root:  # nothing is write-protected against root: be somebody else
            os.seteuid(65_534)
        try:
            with pytest.raises(InputError, match=r"out\.json: cannot be written: Permission denied"):
                check_writable(path)
        finally:
            if root:
                os.seteuid(0)
