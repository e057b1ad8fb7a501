"""What is shown of a batch whose history is archived in part: the whole of it, or in one line where the rest is."""

from __future__ import annotations

import html
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bus.chain import EMPTY_HEAD
from bus.errors import InputError
from bus.target import Target
from bus.types import LeaseId
from tests.archiving import archivist_of, info_of
from tests.batches import Batch
from tests.fleet import Stage, case
from tests.houses import open_house
from tests.screens import seated
from workers.gating.sources import from_file
from workers.histories.exporting import export_batch
from workers.histories.importing import checked
from workers.histories.replaying import replay_batch, replay_file
from workers.watching.top import RunScreen

pytestmark = pytest.mark.usefixtures("patient_pages")


@pytest.fixture
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page waits for what it shows, however slow the machine is."""
    monkeypatch.setattr("workers.watching.web._FIRST_LOOK", 20.0)


async def archived(batch: Batch, place: Path) -> str:
    """A run is scored, and all but the newest entries go. Returns where to, as the row says it."""
    await batch.scored()
    info = await info_of(batch)
    assert await archivist_of(batch, place, segment=2).tend(info) > 0
    return str(await batch.batch_field("archive.place"))


async def test_pages_say_where_the_history_is_and_which_option_shows_it(server: Target, tmp_path: Path) -> None:
    """Before somebody follows a link, and when somebody has; an open batch, and one that has ended."""
    async with open_house(server, tmp_path / "reports", runs=1) as house:
        place = await archived(house.batch, tmp_path / "archive")
        notice = f"The older part of the history is in {place}: runs and the report are shown with --archive DIR."
        assert notice in html.unescape((await house.client.get("/batch/b")).text)
        await house.batch.closed()
        assert notice in html.unescape((await house.client.get("/batch/b")).text)
        for path in ("/batch/b/run/c0%231", "/batch/b/report"):
            answer = await house.client.get(path)
            said = html.unescape(answer.text)
            assert answer.status_code == 404
            assert f"was archived to {place}. It is read from there with: evalbus serve --archive DIR" in said
            assert "Not found" not in said


async def test_pages_show_all_of_it_with_the_archive(server: Target, tmp_path: Path) -> None:
    """The run's first steps are in the archive, its last on the server; and no notice is left to give."""
    async with open_house(server, tmp_path / "reports", runs=1, archive=tmp_path / "archive") as house:
        await archived(house.batch, tmp_path / "archive")
        snapshot = await house.batch.closed()
        assert "--archive" not in (await house.client.get("/batch/b")).text
        run = await house.client.get("/batch/b/run/c0%231")
        assert (run.status_code, "worker w1, generation 1" in run.text) == (200, True)
        report = await house.client.get("/batch/b/report")
        assert (report.status_code, snapshot.snapshot_id in report.text) == (200, True)


@pytest.mark.parametrize("has_it", [True, False], ids=["with-the-archive", "without"])
async def test_top_explains_a_run_from_both_or_names_the_option(server: Target, tmp_path: Path, has_it: bool) -> None:
    """In place of half of its story."""
    place = tmp_path / "archive"
    async with seated(server, runs=2, archive=place if has_it else None) as seat:
        where = await archived(seat.batch, place)
        held = await seat.batch.claimed()
        late = await seat.batch.bus.append(replace(held.ref, lease_id=LeaseId("late")), EMPTY_HEAD, 1, ["late"])
        assert late.reason == "lease_mismatch"
        await seat.sees("1/2")
        await seat.pilot.press("enter")
        await seat.sees("W w1  c1#1")
        await seat.sees("Latest refusals, of those since")
        if not has_it:
            await seat.sees(f"! The older part of the history is in {where}")
        seat.app.screen.query_one("#holds").focus()
        await seat.pilot.press("enter")
        await seat.until(lambda: isinstance(seat.app.screen, RunScreen), "the run's screen")
        await seat.sees("worker w1, generation 1" if has_it else "(name that directory: --archive DIR)")
        assert ("archived to" in seat.text) is not has_it


async def test_a_segment_by_itself_is_told_from_a_history(server: Target, tmp_path: Path) -> None:
    """Somebody finds the files, and not the command that puts them together."""
    async with open_house(server, tmp_path / "reports", runs=1) as house:
        await archived(house.batch, tmp_path)
        segment = min((tmp_path / "live" / "b.segments").iterdir())
        words = (
            r"is one segment of the history of batch 'b', which was archived while it ran "
            r"\(all of it: evalbus export BATCH FILE --archive DIR\)"
        )
        with pytest.raises(InputError, match=words):
            replay_file(segment, None)
        with pytest.raises(InputError, match=words):
            from_file(str(segment))
        with pytest.raises(InputError, match=words), checked(str(segment), None):
            pass
        whole = tmp_path / "b.jsonl"
        assert await export_batch(house.batch.bus, house.batch.name, whole, tmp_path) > 0
        assert replay_file(whole, None).batch == "b"


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_batch_that_is_archived_is_scored_anew_and_that_is_archived_too(tmp_path: Path) -> None:
    """Its rows and transcripts are what is read, and they stay on the server. The new history goes where it is sent."""
    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case(f"c{number}") for number in range(3)])
        judge, archive = stage.root / "judge", ("--archive", "archive", "--segment", 4)
        shutil.copytree(suite, judge)
        async with stage.watch("new") as watch:
            old = ("run", suite, "--workers", 1, "--scorers", 1, "--batch", "old")
            new = ("rescore", "old", "--judge", judge, "--scorers", 1, "--batch", "new", "--json", "new.json")
            for words in (old, new):
                done = await stage.call(*words, *archive)
                assert done.code == 0, done.err
            told = json.loads((stage.root / "new.json").read_text())
            with pytest.raises(InputError, match=r"\(name that directory: --archive DIR\)"):
                await replay_batch(watch.bus, watch.batch, None)
            found = await replay_batch(watch.bus, watch.batch, None, archive=stage.root / "archive")
            assert (found.snapshot_id, sum(found.bins.values())) == (told["snapshot_id"], 3)
