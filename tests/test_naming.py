"""What processes are called: whatever the machine is called, and whatever `--name` is given."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.types import BatchId, ConsumerId, Plane
from tests.suites import MINIMAL, make_suite
from workers import naming
from workers.batch_spec import specs_of
from workers.processes.leftovers import clear_leftovers


@pytest.mark.parametrize("name", ["", " ", "a/b", "../x", "..", ".hidden", "two words", "a\nb", "ü", "x" * 201])
def test_a_name_that_is_no_files_is_refused(name: str) -> None:
    """Workspaces lie below a directory of that name: `../x` would make, and at the next start remove, another one."""
    with pytest.raises(InputError, match="cannot name a process"):
        naming.checked_name(name)


@pytest.mark.parametrize("name", ["far", "worker-1", "pod:a.b_c", "x" * 200])
def test_other_names_stay_as_they_are(name: str) -> None:
    """As a pod's."""
    assert naming.checked_name(name) == name


@pytest.mark.parametrize(
    ("host", "called"), [("", "host"), ("   ", "host"), ("my host/x", "my-host-x"), ("a.b-c", "a.b-c"), ("..", "host")]
)
def test_a_machine_may_be_called_anything(
    host: str, called: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also nothing. What its killed processes left is found under the name that they had."""
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert naming.this_host() == called
    made = naming.made_up_name("worker")
    assert naming.checked_name(made) == made
    assert re.fullmatch(rf"{re.escape(called)}-\d+-[0-9a-f]{{6}}", naming.fleet_place())
    assert naming.fleet_place() != naming.fleet_place()
    gone = [f"worker-{called}-4194305-abc123", f"scorer-{called}-4194305-abc123-2"]
    for name in [*gone, "worker-elsewhere-4194305-abc123"]:
        (tmp_path / name).mkdir()
    clear_leftovers(tmp_path, ConsumerId("me")).join()
    assert [path.name for path in tmp_path.iterdir()] == ["worker-elsewhere-4194305-abc123"]


@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "<&-", "<&- 1>&- 2>&-"])
def test_a_command_that_was_started_without_a_stream_goes_on(closed: str, tmp_path: Path) -> None:
    """`evalbus run SUITE 2>&-`: it ended with exit 1, and could tell nobody why."""
    code = (
        "import sys\nfrom workers.cli import in_utf8\nin_utf8.ensure()\n"
        "print('told')\nprint('told', file=sys.stderr, flush=True)\nsys.stdout.flush()\n"
        f"kept = open({str(tmp_path / 'kept')!r}, 'w')\nassert kept.fileno() > 2\nassert not sys.stderr.isatty()\n"
    )
    done = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["b.json", "b.jsonl.zst", "-x", ".b"])
def test_a_batch_that_has_an_older_name_can_be_looked_at_and_none_is_made_of_it(name: str) -> None:
    """It is on somebody's server, or in an archive: status, export, prune and import speak of it as of any other."""
    assert naming.batch_name(name) == name
    with pytest.raises(InputError, match="cannot name a batch"):
        naming.new_batch_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a:b", "x" * 201])
def test_what_stands_in_no_key_or_leads_elsewhere_names_no_batch(name: str) -> None:
    """Whether it is there or to be made."""
    for check in (naming.batch_name, naming.new_batch_name):
        with pytest.raises(InputError, match="cannot name a batch"):
            check(name)


def test_a_suite_in_a_hidden_directory_has_batches(tmp_path: Path) -> None:
    """It is called like the directory, as no batch may be; its batches' names begin with the rest of that."""
    suite = make_suite(tmp_path / ".evals", MINIMAL)
    assert [spec.suite for spec in specs_of(suite, BatchId(suite.name), Plane.LIVE)] == [".evals"]
