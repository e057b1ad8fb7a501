"""The commands about histories: write one, derive it again, explain what is in it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bus.errors import InputError
from bus.types import Plane
from workers.cli.common import console, guard, quiet_logs, with_bus, with_endpoint
from workers.cli.options import ArchivedIn, Artifacts, HomeOption, JsonFile, PlaneOption, SegmentSize, SuiteCopy, Url

if TYPE_CHECKING:
    from bus.connection import Endpoint
    from workers.explaining.reading import Told
    from workers.reporting.gather import Fetched

__all__ = ["archive", "explain", "export", "import_", "prune", "replay", "report", "why"]


def export(
    batch: Annotated[str, typer.Argument(help="The batch.")],
    file: Annotated[
        Path, typer.Argument(help="Where to: FILE.jsonl, FILE.jsonl.zst, '-' for standard output, or FILE.eval.")
    ],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
    suite: SuiteCopy = None,
    artifacts: Artifacts = None,
) -> None:
    """Write a batch's history as chained JSON lines. Of a partitioned batch, a file for each partition.

    A batch of an Inspect task also as Inspect's own log, FILE.eval; --suite and --artifacts are for that.

    evalbus export nightly nightly.jsonl

    evalbus export addition addition.eval
    """
    if file.suffix == ".eval":
        _export_log(batch, file, url, plane, home, suite, artifacts)
        return
    from workers.histories.exporting import export_whole  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415

    quiet_logs()
    written = with_bus(lambda bus: export_whole(bus, batch_name(batch), file, archive), url, home, plane)
    for one in written:
        where = "on standard output" if str(one.file) == "-" else f"in {one.file}"
        print(f"{one.lines} lines of history {where}", file=sys.stderr)


def _export_log(
    batch: str, file: Path, url: str | None, plane: Plane, home: Path | None, suite: Path | None, artifacts: str | None
) -> None:
    from bus.artifacts import artifacts_for  # noqa: PLC0415
    from bus.cluster import open_bus  # noqa: PLC0415
    from bus.home import home_directory  # noqa: PLC0415
    from workers.inspecting.loading import require  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415
    from workers.suite import load_suite  # noqa: PLC0415

    quiet_logs()
    guard(require)
    from workers.inspecting.log import LogExport, export_log  # noqa: PLC0415 - an extra, and seconds to import

    async def go(endpoint: Endpoint) -> LogExport:
        kept = artifacts_for(artifacts, url, home_directory(home))
        bus = open_bus(endpoint, SystemRuntime(), plane=plane, patience=5.0, artifacts=kept)
        try:
            return await export_log(bus, batch_name(batch), file, lambda made: load_suite(suite or made))
        finally:
            await bus.aclose()

    done = with_endpoint(go, url, home, only_look=True)
    print(f"{done.samples} samples, {done.holes} of them with an error, in {file}", file=sys.stderr)


def import_(
    file: Annotated[str, typer.Argument(help="A file that `export` wrote; '-' is standard input.")],
    url: Url = None,
    plane: Annotated[
        Plane | None, typer.Option("--plane", help="The world that it must be of; default: whichever it is.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Put an exported history back into a server, for looking at. Of a partitioned batch, that of each partition.

    evalbus import nightly.jsonl.zst --home elsewhere
    """
    from workers.histories.history_files import files_of  # noqa: PLC0415
    from workers.histories.importing import checked, import_on, say  # noqa: PLC0415

    quiet_logs()

    def go() -> None:
        with ExitStack() as kept:
            sources = [kept.enter_context(checked(one, plane)) for one in files_of(file)]
            for source in sources:
                again = partial(import_on, source=source)
                with_endpoint(again, url, home, only_look=True)  # it asks itself
                say(source)

    guard(go)


def replay(
    history: Annotated[str, typer.Argument(help="A file that `export` wrote ('-': standard input), or a batch.")],
    head: Annotated[
        list[str] | None,
        typer.Option(help="The chain's head, as it was written down elsewhere; one for each partition, in order."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Also say what this naive policy would have made of it; may be repeated. 'all': each."),
    ] = None,
    show_why: Annotated[bool, typer.Option("--why", help="With the entries that prove each claim.")] = False,
    json_file: JsonFile = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Derive every decision of a history again, and compare. Exit 5 names the first entry that differs.

    Of a partitioned batch: the history of each partition, and what they come to together.

    evalbus replay nightly.jsonl --policy all --why
    """
    from workers.histories.history_files import check_other, files_of, is_history  # noqa: PLC0415
    from workers.histories.replaying import (  # noqa: PLC0415
        batches_of,
        derive_batch,
        derive_file,
        heads_of,
        show,
        show_joint,
    )
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.results.derived import Derived, joined  # noqa: PLC0415
    from workers.results.prevented import Watch  # noqa: PLC0415

    quiet_logs()
    watch = guard(lambda: Watch(policy or (), json_file, why=show_why))
    derived: list[Derived] = []

    def note(one: Derived) -> None:
        derived.append(one)
        guard(lambda: show(one.found, console()))

    if is_history(history):
        guard(lambda: _only_of_a_batch(archive, history))
        if json_file is not None:
            guard(partial(check_other, history, json_file))
        files = guard(lambda: files_of(history))
        for file, expected in zip(files, guard(lambda: heads_of(head or (), history, len(files))), strict=True):
            note(guard(partial(derive_file, file, expected, watch.see)))
    else:
        batches = with_bus(lambda bus: batches_of(bus, batch_name(history)), url, home, plane)
        for batch, expected in zip(batches, guard(lambda: heads_of(head or (), history, len(batches))), strict=True):
            again = partial(derive_batch, batch=batch, head=expected, watch=watch.see, archive=archive)
            note(with_bus(again, url, home, plane))
    both = guard(lambda: joined(derived))
    if both.parts:
        guard(lambda: show_joint(both, console()))
    guard(lambda: watch.report(both, console()))


def archive(
    batch: Annotated[str, typer.Argument(help="A batch, open or ended.")],
    directory: Annotated[Path, typer.Argument(help="Where to; the same directory each time.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the batch has ended.")] = False,
    segment: SegmentSize = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Move the older part of a history from the server to files. Also while the batch runs.

    evalbus archive nightly /srv/evals/archive --follow
    """
    from bus.cluster import open_bus  # noqa: PLC0415
    from bus.connection import check_fit  # noqa: PLC0415
    from bus.rights import ARCHIVING, COMMANDS  # noqa: PLC0415
    from workers.histories.archive_place import SEGMENT, check_archive  # noqa: PLC0415
    from workers.histories.archivist import Archivist  # noqa: PLC0415
    from workers.histories.following import archive_batch  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    quiet_logs()
    name = guard(lambda: batch_name(batch))
    place = guard(lambda: check_archive(directory))

    async def go(endpoint: Endpoint) -> list[str]:
        await check_fit(endpoint.target, plane=plane, commands=(*COMMANDS, *ARCHIVING))
        bus = open_bus(endpoint, SystemRuntime(), plane=plane)
        try:
            return await archive_batch(bus, name, Archivist(bus, place, segment or SEGMENT), follow=follow)
        finally:
            await bus.aclose()

    for line in with_endpoint(go, url, home, only_look=True):  # its own rights are asked for there
        console().print(line, markup=False, soft_wrap=True)


def prune(
    batches: Annotated[list[str] | None, typer.Argument(help="Batches that have ended; none: all, by --keep.")] = None,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Directory of the archives; default: archive/ in the home.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Keep those that match: 30d (younger), last=20, 'release-*'; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Archive ended batches, and delete them from the server. The archives are replayed before.

    evalbus prune --keep 30d --keep 'release-*'
    """
    from bus.home import home_directory  # noqa: PLC0415
    from workers.histories import pruning  # noqa: PLC0415
    from workers.runtime import SystemRuntime  # noqa: PLC0415

    quiet_logs()
    options = guard(lambda: pruning.PruneOptions.of(batches or [], keep or [], dry_run=dry_run))
    directory = archive or home_directory(home) / "archive"

    async def go(endpoint: Endpoint) -> None:
        await pruning.prune_on(endpoint, SystemRuntime(), plane, options, directory, console())

    with_endpoint(go, url, home, only_look=True)  # its own rights are asked for there


def explain(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL; CASE, if it has one trial.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As Mermaid text.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write it to FILE.svg, FILE.html or FILE.mmd.")
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Draw one run as a sequence diagram. Who said what to whom, and who was refused.

    evalbus explain nightly "interval_merging#1" -o run.html
    """
    from workers.explaining.command import check_output, show_picture  # noqa: PLC0415
    from workers.histories.history_files import check_other  # noqa: PLC0415

    quiet_logs()
    guard(lambda: check_output(output))
    if output is not None:
        guard(partial(check_other, batch, output))
    told = _read(batch, run, url, plane, home, archive)
    guard(lambda: show_picture(told, console(), as_mermaid=mermaid, output=output))


def why(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL; CASE, if it has one trial.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Say in words why one run has its verdict. Who judged what, who was refused, what was spent.

    evalbus why nightly "interval_merging#1"
    """
    from workers.explaining.command import show_words  # noqa: PLC0415

    quiet_logs()
    told = _read(batch, run, url, plane, home, archive)
    guard(lambda: show_words(told, console()))


def report(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page: FILE.html; default: BATCH.html, here.")
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Write what a batch came to as one page. It needs no network: its number, its holes, and each run.

    evalbus report nightly -o nightly.html
    """
    from workers.files import check_writable  # noqa: PLC0415
    from workers.histories.history_files import is_history  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.reporting.command import fetching, page_of  # noqa: PLC0415

    quiet_logs()
    name = None if is_history(batch) else guard(lambda: batch_name(batch))
    whole = page_of(batch) if output is None else output
    guard(lambda: check_writable(whole))
    if name is None:
        guard(lambda: _only_of_a_batch(archive, batch))
        _report(batch, whole)
    else:
        with fetching(archive) as fetch:
            _report(with_bus(lambda bus: fetch(bus, name), url, home, plane), whole)


def _report(history: str | Fetched, page: Path) -> None:
    from workers.reporting.command import say, write_report  # noqa: PLC0415

    guard(lambda: say(write_report(history, page), page))


def _only_of_a_batch(archive: Path | None, history: str) -> None:
    if archive is not None:
        raise InputError(
            f"{history} is a file, whole by itself, and --archive is about a batch on a server", remedy="leave one out"
        )


def _read(batch: str, run: str, url: str | None, plane: Plane, home: Path | None, archive: Path | None) -> Told:
    from workers.explaining.reading import read_file, read_server  # noqa: PLC0415
    from workers.histories.history_files import is_history  # noqa: PLC0415
    from workers.naming import batch_name  # noqa: PLC0415

    if is_history(batch):
        guard(lambda: _only_of_a_batch(archive, batch))
        return guard(lambda: read_file(batch, run))
    name = guard(lambda: batch_name(batch))
    return with_bus(lambda bus: read_server(bus, name, run, archive), url, home, plane)
