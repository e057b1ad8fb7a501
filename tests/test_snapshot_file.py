"""Frozen snapshots: the same batch again, and nothing that somebody edited."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.errors import EvalbusError, InputError, ViolationError
from bus.port import BatchStatus
from tests.gated import found
from workers.gating.sources import from_file

BINS = {"a#1": "pass", "b#1": "fail", "\u00e4#1": "pass"}


def written(tmp_path: Path, **how: Any) -> Path:  # noqa: ANN401 - as `found` takes it
    """A frozen batch."""
    file = tmp_path / "base.json"
    found(BINS, holes={"c#1": "poison"}, spent=900, gate={"min_pass_rate": 0.5, "must_pass": ["a"]}, **how).freeze(file)
    return file


def test_what_was_frozen_is_read_as_it_was(tmp_path: Path) -> None:
    """Counts, runs, holes, tokens, rules, names: a gate on the file is a gate on the batch."""
    before, again = found(BINS, holes={"c#1": "poison"}, spent=900), from_file(str(written(tmp_path)))
    assert again.outcome.as_json() | {"gate": None} == before.outcome.as_json() | {"gate": None}
    assert (again.suite, again.suite_digest, again.candidate) == ("suite", "d" * 64, "c1")
    assert (again.outcome.gate.rule, again.outcome.gate.passed) == ("pass_rate >= 0.5 and must_pass 1 case", True)
    assert again.snapshot == before.snapshot


def test_a_frozen_one_can_be_frozen_again_to_the_same_bytes(tmp_path: Path) -> None:
    """A copy of a baseline is the baseline."""
    file = written(tmp_path)
    from_file(str(file)).freeze(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(("chosen", "how"), [(False, "the first of"), (True, "chosen from")])
def test_what_has_some_of_a_suites_cases_says_so_when_it_was_frozen(tmp_path: Path, chosen: bool, how: str) -> None:
    """A number over a part must not become the suite's in a file; a file of the whole stays as it always was."""
    one, file = found(BINS), tmp_path / "base.json"
    replace(one, outcome=replace(one.outcome, first_of=46, chosen=chosen)).freeze(file)
    again = from_file(str(file))
    assert again.outcome.size == f"3 runs, {how} the suite's 46"
    again.freeze(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file.read_bytes()
    assert "some_of" not in written(tmp_path).read_text()


@pytest.mark.parametrize("status", [BatchStatus.OPEN, BatchStatus.INCONCLUSIVE])
def test_only_a_closed_batch_is_frozen(status: BatchStatus, tmp_path: Path) -> None:
    """What may still move is no baseline; and no file is left."""
    with pytest.raises(InputError, match="no snapshot to freeze"):
        found(BINS, status=status).freeze(tmp_path / "base.json")
    assert list(tmp_path.iterdir()) == []


def _renamed(said: dict[str, Any]) -> None:
    """Somebody turns a fail into a pass, counts included, and gives the file the names that it then has."""
    _counted(said)
    spelt = json.dumps(said["snapshot"], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    said["snapshot_id"] = hashlib.sha256(spelt.encode()).hexdigest()
    rest = {name: value for name, value in said.items() if name != "digest"}
    whole = json.dumps(rest, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    said["digest"] = hashlib.sha256(whole.encode()).hexdigest()


def _counted(said: dict[str, Any]) -> None:
    said["snapshot"]["rows"][1][3] = "pass"
    said["snapshot"]["bins"] = {"fail": 0, "pass": 3}


def _uncounted(said: dict[str, Any]) -> None:
    said["snapshot"]["bins"] = {"fail": 0, "pass": 3}
    spelt = json.dumps(said["snapshot"], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    said["snapshot_id"] = hashlib.sha256(spelt.encode()).hexdigest()


@pytest.mark.parametrize(
    ("edit", "error", "why"),
    [
        (lambda said: said["snapshot"]["rows"].pop(), ViolationError, "it was edited"),
        (_counted, ViolationError, "it was edited"),
        (_uncounted, ViolationError, "its counts are not those of its rows"),
        (lambda said: said.update(version=2), InputError, "is of version 2, not 1"),
        (lambda said: said.update(format="other"), InputError, "neither a history nor a snapshot"),
        (lambda said: said.pop("snapshot"), InputError, "is no whole snapshot"),
        (lambda said: said.update(bins=["pass"]), ViolationError, "it was edited"),
        (lambda said: said.update(bins=[1]), InputError, "is no whole snapshot"),
        (lambda said: said["snapshot"]["rows"].append([1, 2]), InputError, "is no whole snapshot"),
        (lambda said: said.update(gate=[]), InputError, "is no whole snapshot"),
        (lambda said: said["tokens"].update(budget="all"), InputError, "is no whole snapshot"),
        (lambda said: said["tokens"].update(spent=float("inf")), InputError, "is no whole snapshot"),
        (lambda said: said["tokens"].update(spent=-1), InputError, "is no whole snapshot"),
        (lambda said: said.update(batch="a b\x1b"), InputError, "is no whole snapshot"),
        (lambda said: said.update(snapshot=[]), InputError, "is no whole snapshot"),
        (lambda said: said["snapshot"].update(more=1), ViolationError, "it was edited"),
        (lambda said: said["bins"].reverse(), ViolationError, "what stands beside its snapshot is not what was frozen"),
        (lambda said: said["tokens"].update(spent=1), ViolationError, "what stands beside its snapshot"),
        (lambda said: said.pop("digest"), ViolationError, "what stands beside its snapshot"),
    ],
    ids=[
        "row gone", "verdict turned", "counts turned", "version", "format", "no content", "bin gone", "bin no text",
        "half a row", "gate", "budget no number", "tokens without end", "tokens below nought", "batch",
        "content no table", "one more", "pass and fail swapped", "other tokens", "no digest",
    ],
)  # fmt: skip
def test_an_edited_file_is_not_believed(
    edit: Callable[[dict[str, Any]], None], error: type[EvalbusError], why: str, tmp_path: Path
) -> None:
    """One line that names the file; exit 5 where the content is not what it says that it is."""
    file = written(tmp_path)
    said = json.loads(file.read_text())
    edit(said)
    file.write_text(json.dumps(said, indent=1))
    with pytest.raises(error) as caught:
        from_file(str(file))
    assert why in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_also_gives_it_the_new_name_is_seen_by_the_name(tmp_path: Path) -> None:
    """The limit: the file proves its content by its name. Whoever wrote that down elsewhere sees another one."""
    file = written(tmp_path)
    said = json.loads(file.read_text())
    _renamed(said)
    file.write_text(json.dumps(said, indent=1))
    assert from_file(str(file)).outcome.snapshot_id != found(BINS, holes={"c#1": "poison"}).outcome.snapshot_id


@pytest.mark.parametrize("text", ["", "{", "{\n", "[]", "{\n]", "null\n", "\x00"])
def test_what_is_neither_is_told_in_one_line(text: str, tmp_path: Path) -> None:
    """No traceback for a file of another kind."""
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        from_file(str(file))
    assert str(caught.value).startswith(str(file))
