"""`fields` in a suite: cases from a file whose columns are called otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bus.errors import InputError
from workers.cases import Case, Json, read_cases
from workers.suite import load_suite

MAP = {"id": "qid", "input": "{context}\n\nQ: {question}", "target": "gold"}
WANTED = (
    Case("q1", "It rained.\n\nQ: Wet?", "yes", {"context": "It rained.", "question": "Wet?", "level": "1"}),
    Case("q2", "Sun.\n\nQ: Wet?", "no", {"context": "Sun.", "question": "Wet?", "level": "2"}),
)
ROWS = [("q1", "It rained.", "Wet?", "yes", "1"), ("q2", "Sun.", "Wet?", "no", "2")]
NAMES = ("qid", "context", "question", "gold", "level")


def written(directory: Path, kind: str) -> Path:
    """The same rows in each kind of file."""
    path = directory / f"data.{kind}"
    match kind:
        case "csv":
            path.write_text("\n".join(",".join(row) for row in [NAMES, *ROWS]))
        case "jsonl":
            objects = ["{" + ", ".join(f'"{n}": "{v}"' for n, v in zip(NAMES, row, strict=True)) + "}" for row in ROWS]
            path.write_text("\n".join(objects))
        case _:
            columns = {name: [row[at] for row in ROWS] for at, name in enumerate(NAMES)}
            pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_columns_become_fields_and_the_rest_metadata(tmp_path: Path, kind: str) -> None:
    """The same cases from each kind of file."""
    assert read_cases(written(tmp_path, kind), fields=MAP) == WANTED


def test_rows_can_be_numbered(tmp_path: Path) -> None:
    """For a file without ids: the number of the row, not of the line."""
    path = tmp_path / "data.csv"
    path.write_text('question,gold\n"two\nlines",a\nx,b\n')
    cases = read_cases(path, fields={"id": "#", "input": "question", "target": "gold"})
    assert [(case.id, case.input) for case in cases] == [("1", "two\nlines"), ("2", "x")]


def test_a_column_that_is_in_the_way_is_kept(tmp_path: Path) -> None:
    """`input` is taken from another column; the one of that name is not lost."""
    path = tmp_path / "data.csv"
    path.write_text("id,input,text\na,raw,clean\n")
    assert read_cases(path, fields={"input": "text"}) == (Case("a", "clean", None, {"column.input": "raw"}),)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_is_inside_a_column_is_named_by_its_path(tmp_path: Path, kind: str) -> None:
    """As data sets of others are nested; a column of just that name comes first."""
    row: dict[str, Json] = {
        "id": "a",
        "answers": {"text": ["Oslo", "oslo"]},
        "answers.text": "no",
        "ask": {"q": "capital?"},
    }
    path = tmp_path / f"data.{kind}"
    if kind == "jsonl":
        path.write_text(json.dumps(row) + "\n")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    whole = {"answers": row["answers"], "answers.text": "no", "ask": row["ask"]}
    fields = {"input": "Q: {ask.q}", "target": "answers.text.1"}
    assert read_cases(path, fields=fields) == (Case("a", "Q: capital?", "oslo", whole),)
    assert read_cases(path, fields={"target": "answers.text"})[0].target == "no"


def test_a_path_that_leads_to_nothing_is_told_with_its_row(tmp_path: Path) -> None:
    """A target that is missing in one row must not become an empty one."""
    path = tmp_path / "data.jsonl"
    path.write_text('{"id": "a", "m": {"gold": "x"}}\n{"id": "b", "m": {"gold": null}}\n{"id": "c", "m": {}}\n')
    with pytest.raises(InputError) as found:
        read_cases(path, "data.jsonl", fields={"target": "m.gold"})
    assert str(found.value) == (
        "data.jsonl:3: has nothing at 'm.gold', which `fields` names: 'm' has no 'gold' "
        "(change `fields` in the suite file)"
    )


@pytest.mark.parametrize("step", ["2", "-1", "9" * 5_000, "\N{SUPERSCRIPT TWO}", "1_0", " 0", ""])
def test_a_step_that_counts_nothing_of_a_list_is_told(tmp_path: Path, step: str) -> None:
    """Also one of so many digits that Python makes no number of it."""
    path = tmp_path / "data.jsonl"
    path.write_text('{"id": "a", "m": ["x", "y"]}\n')
    with pytest.raises(InputError, match="'m' has no "):
        read_cases(path, fields={"target": f"m.{step}"})


@pytest.mark.parametrize(
    ("name", "header", "remedy"),
    [
        ("d.csv", "qid;q", "parted by ';' (save it with commas)"),
        ("d.csv", "qid\tq", "parted by '\\t' (call it .tsv)"),
        ("d.tsv", "qid,q", "parted by ',' (save it with tabs)"),
    ],
)
def test_cells_that_are_parted_otherwise_are_told_though_columns_are_named(
    tmp_path: Path, name: str, header: str, remedy: str
) -> None:
    """Spreadsheets write semicolons in half of the world."""
    (tmp_path / name).write_text(f"{header}\n1{header[3]}2\n")
    with pytest.raises(InputError) as found:
        read_cases(tmp_path / name, fields={"id": "qid"})
    assert str(found.value).endswith(remedy)


def test_tabs_part_the_cells_of_a_tsv(tmp_path: Path) -> None:
    """It is a CSV file else, quotes and line breaks too."""
    (tmp_path / "d.tsv").write_text('qid\tq\n7\t"two\nlines, and a\ttab"\n')
    assert read_cases(tmp_path / "d.tsv", fields={"id": "qid", "input": "q"}) == (Case("7", "two\nlines, and a\ttab"),)


def test_braces_can_be_written(tmp_path: Path) -> None:
    """A doubled brace is one brace; a value is never read as a template."""
    path = tmp_path / "data.csv"
    path.write_text("id,q\na,{id}\n")
    assert read_cases(path, fields={"input": '{{"ask": "{q}"}}'})[0].input == '{"ask": "{id}"}'


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"id": "quid"}, "data.csv:1: has no column 'quid', which `fields` names (it has 'qid', 'context', 'question', "
                         "'gold', 'level') (did you mean 'qid'?)"),
        ({"id": "qid", "input": "{nothing}"}, "has no column 'nothing'"),
    ],
    ids=["misspelt", "in-a-template"],
)  # fmt: skip
def test_a_column_that_is_not_there_is_named(tmp_path: Path, fields: dict[str, str], told: str) -> None:
    """With the nearest one that is."""
    with pytest.raises(InputError) as caught:
        read_cases(written(tmp_path, "csv"), fields=fields)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ('{ ide = "qid" }', "fields: a case has no field 'ide' (did you mean 'id'?)"),
        ('{ input = "{a" }', "fields: input: '{a' has a brace without its other half"),
        ('{ input = "#" }', "fields: input cannot be '#', only an id is numbered"),
    ],
    ids=["field", "brace", "number"],
)
def test_a_map_that_cannot_be_is_told_with_its_field(tmp_path: Path, fields: str, told: str) -> None:
    """Before any case is read."""
    (tmp_path / "cases.csv").write_text("qid\n1\n")
    suite = f'cases = "cases.csv"\nfields = {fields}\nsolver = {{ command = ["cat"] }}\nscorer = {{ kind = "exact" }}\n'
    (tmp_path / "suite.toml").write_text(suite)
    with pytest.raises(InputError) as caught:
        load_suite(tmp_path)
    assert told in str(caught.value)


def test_a_suite_reads_its_cases_through_it(tmp_path: Path) -> None:
    """And another map is another suite."""
    written(tmp_path, "csv")
    suite = 'cases = "data.csv"\nsolver = { command = ["cat"] }\nscorer = { kind = "exact" }\n'

    def load(fields: str) -> tuple[tuple[Case, ...], str]:
        (tmp_path / "suite.toml").write_text(f"{suite}[fields]\n{fields}\n")
        loaded = load_suite(tmp_path)
        return loaded.cases, loaded.digest

    cases, digest = load('id = "qid"\ninput = "{context}\\n\\nQ: {question}"\ntarget = "gold"')
    assert cases == WANTED
    assert load('id = "qid"\ntarget = "gold"')[1] != digest
