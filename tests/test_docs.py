"""The documents are true: their commands run and print what they show; what is made of the code is up to date."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bus.contract import CONTRACT
from bus.models import MUTANTS
from tests.documents import ROOT, Played, blocks, links, play, sections, unfound, unseen
from tests.fleet import processes_below
from tests.soak import times
from workers.cli import GROUPS, app
from workers.docs import pages
from workers.docs.attributes import said_of_fields
from workers.docs.commands import Named, commands, examples_of
from workers.docs.suites import TABLES
from workers.judging.table import JudgeModelTable
from workers.tables import Table

DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "howto").glob("*.md"))]
LONG = ("tls-and-users",)  # 8 s of a processor; what it says is tried by tests/test_tls.py
PLAYED = [page for page in PAGES if page.stem not in LONG or times(1) > 1]


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Future[Played]]]:
    """The pages that were asked for, begun at once: most of their time is waiting."""
    asked = [
        page
        for item in request.session.items
        if isinstance(item, pytest.Function) and "played" in item.fixturenames
        if isinstance(page := item.callspec.params["page"], Path)
    ]
    with ThreadPoolExecutor(3) as pool:
        yield {page: pool.submit(play, page, tmp_path_factory.mktemp(page.stem)) for page in dict.fromkeys(asked)}


@pytest.mark.process
@pytest.mark.parametrize("page", PLAYED, ids=_name)
def test_the_commands_of_a_page_run_and_print_what_it_shows(page: Path, played: dict[Path, Future[Played]]) -> None:
    """Somebody who copies them line by line gets what was promised."""
    for tool in ("bash", "curl", "openssl", "pkill", "redis-cli", "redis-server"):
        if shutil.which(tool) is None and tool in page.read_text("utf-8"):
            pytest.skip(f"{tool} is not installed")
    done = played[page].result()
    assert done.code == 0, done.said
    assert unseen(page, done) == [], done.said


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_a_page_that_fails_leaves_nothing_running(tmp_path: Path) -> None:
    """Neither what it had in the background, nor a server that it was to stop further down."""
    page = tmp_path / "page.md"
    page.write_text("```sh\nevalbus server start\nsetsid sleep 600 &\nfalse\n```\n```sh\nevalbus server stop\n```\n")
    (tmp_path / "played").mkdir()
    done = play(page, tmp_path / "played")
    assert done.code == 1
    assert "up until `evalbus server stop`" in done.said, done.said
    assert processes_below(tmp_path) == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_of_a_page_is_run_or_says_why_not(page: Path) -> None:
    """A block under another name, or a reason without a block, would be a command that nobody tries."""
    found = blocks(page)
    known = {"sh", "text", "toml", "python", "json", "yaml", "mermaid", "markdown"}
    assert [block.line for block in found if block.language not in known] == []
    assert [block.line for block in found if block.not_run and block.language != "sh"] == []
    assert page.read_text("utf-8").count("<!-- not run:") == sum(1 for block in found if block.not_run)
    assert any(block.language == "sh" and not block.not_run for block in found), "nothing of it is run"


# --- made of the code -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pages())
def test_what_is_made_of_the_code_is_up_to_date(name: str) -> None:
    """Who changes an option or a field changes its page with it."""
    assert (DOCS / name).read_text("utf-8") == pages()[name], f"docs/{name} is out of date: run `make docs`"


@pytest.mark.parametrize("command", list(commands()), ids=lambda one: one.name.replace(" ", "-"))
def test_the_help_of_every_command_has_an_example(command: Named) -> None:
    """An example is read before the options are."""
    shown = CliRunner().invoke(app, [*command.name.split(), "--help"])
    assert shown.exit_code == 0
    assert examples_of(command)
    assert [line for line in examples_of(command) if line not in " ".join(shown.output.split())] == []


def test_the_help_lists_each_command_once_under_what_it_is_for() -> None:
    """Thirty in one list are read by nobody; one that is left out is found by nobody."""
    lines = CliRunner().invoke(app, ["--help"]).output.splitlines()
    assert [line[:-1] for line in lines if line[:1].isalpha() and line.endswith(":")] == ["Options", *GROUPS]
    begin = lines.index(f"{next(iter(GROUPS))}:")
    end = next(number for number, line in enumerate(lines) if line.startswith("  Exit codes"))
    listed = [line.split()[0] for line in lines[begin:end] if line.startswith("  ")]
    assert sorted(listed) == sorted({one.name.split()[0] for one in commands()})


@pytest.mark.parametrize(
    "table", [one for one in TABLES if one is not JudgeModelTable], ids=lambda one: one.table or "suite"
)
def test_every_field_of_a_suite_says_what_it_is(table: type[Table]) -> None:
    """A row without a word is a question to whoever wrote it. A table is described where it stands."""
    said = said_of_fields(table)
    tables = {"solver", "scorer", "limits", "judging", "gate", "shadow"}
    assert [name for name in table.model_fields if not said.get(name) and name not in tables] == []


def test_every_table_of_a_suite_is_on_the_page() -> None:
    """A new one would be missing, and nobody would miss it."""
    made = [Table]
    for table in made:
        made += table.__subclasses__()
    assert {table for table in made[1:] if table.__module__.startswith("workers.")} == set(TABLES)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("rn", "run"),
        ("statsu", "status"),
        ("server strt", "start"),
        ("run --worker 3 suite", "--workers"),
        ("gate nightly --min-pas-rate 1", "--min-pass-rate"),
    ],
)
def test_what_does_not_exist_is_answered_with_the_nearest_that_does(written: str, meant: str) -> None:
    """Nobody looks a command up who only mistyped it."""
    done = CliRunner().invoke(app, written.split())
    assert done.exit_code == 2
    assert meant in done.output.splitlines()[-1], done.output


@pytest.mark.parametrize(("line", "offered"), [("evalbus rep", "report replay"), ("evalbus run --wor", "--workers")])
def test_a_shell_is_told_how_a_line_may_go_on(line: str, offered: str) -> None:
    """The commands are made ready late; a shell must hear of them, and of their options, all the same."""
    asked = {"_EVALBUS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = CliRunner().invoke(app, env=asked, prog_name="evalbus")
    assert done.output.split() == offered.split()


# --- by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", CONTRACT)
def test_each_fence_is_explained_with_its_picture_its_refusals_and_its_mutants(fence: str) -> None:
    """A refusal that is renamed, or a mutant that is added, is told there too."""
    text = sections(DOCS / "fences.md")[fence]
    refusals = text.partition("**Refused as**")[2].partition("**See it:**")[0].split("`")[1::2]
    reasons = {outcome.reason for op in CONTRACT[fence].ops.values() for outcome in op.outcomes}
    assert refusals and not set(refusals) - reasons, set(refusals) - reasons
    assert [name for name in MUTANTS[fence] if f"`{name}`" not in text] == []
    assert "```mermaid\nsequenceDiagram\n" in text
    assert f"`evalbus verify {fence}`" in text


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=_name)
def test_no_link_of_the_documents_leads_nowhere(page: Path) -> None:
    """Neither to a file that is not there nor to a heading that was renamed."""
    assert [link for link in links(page) if not link.leads_somewhere] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_map_names_no_file_that_is_not_there(page: str) -> None:
    """Whoever moves a module mends the map with it."""
    assert unfound((ROOT / page).read_text("utf-8")) == []


def test_a_file_that_has_moved_is_missed() -> None:
    """In its own folder, beside a file of its new one, or at the end of a sentence."""
    text = "bus/port.py, port_calls.py, moved.py   bus/models/\n`workers/port.py`; `bus/po*.py`. Also bus/elsewhere/.\n"
    assert unfound(text) == ["moved.py", "workers/port.py", "bus/elsewhere/"]


def test_every_document_is_in_the_index() -> None:
    """A page that nobody finds was written for nobody."""
    found = {link.file for link in links(DOCS / "README.md")}
    assert [page.name for page in sorted(DOCS.rglob("*.md")) if page not in found and page.name != "README.md"] == []
