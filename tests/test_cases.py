"""Cases from JSON lines, CSV, Parquet and tables: what is read, and how each bad row is told."""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bus.errors import InputError
from workers.cases import Case, cases_from_tables, check_id, read_cases


def write(directory: Path, name: str, content: str | bytes) -> Path:
    """A file with that content."""
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(path: Path) -> str:
    """The one line that reading the file ends with, the directory taken out."""
    with pytest.raises(InputError) as caught:
        read_cases(path)
    line = str(caught.value)
    assert "\n" not in line
    return line.replace(f"{path.parent}/", "")


def write_parquet(path: Path, columns: dict[str, list[object]]) -> Path:
    """A Parquet file with those columns."""
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


class TestJsonLines:
    """One JSON object a line."""

    def test_each_line_is_a_case_and_blank_lines_are_none(self, tmp_path: Path) -> None:
        """Fields that are left out have their defaults; the order of the file is kept."""
        path = write(
            tmp_path,
            "cases.jsonl",
            '{"id": "b", "input": "2+2", "target": "4", "metadata": {"level": 1}}\n\n{"id": "a"}\r\n',
        )
        assert read_cases(path) == (Case("b", "2+2", "4", {"level": 1}), Case("a", "", None, {}))

    def test_input_and_target_may_be_any_json(self, tmp_path: Path) -> None:
        """A prompt of an object is its JSON, for commands that read text."""
        path = write(tmp_path, "c.jsonl", '{"id": 7, "input": {"q": "é"}, "target": [1, "x", null]}')
        (case,) = read_cases(path)
        assert (case.id, case.target, case.prompt) == ("7", [1, "x", None], '{"q": "é"}')

    def test_a_line_separator_inside_text_does_not_end_the_line(self, tmp_path: Path) -> None:
        """U+2028 ends a line for `str.splitlines`, but JSON allows it inside text."""
        path = write(tmp_path, "c.jsonl", '{"id": "a", "input": "one\u2028two"}\n')
        assert read_cases(path)[0].input == "one\u2028two"

    def test_a_byte_order_mark_is_not_part_of_the_first_case(self, tmp_path: Path) -> None:
        """Editors on Windows write one."""
        assert read_cases(write(tmp_path, "c.jsonl", b'\xef\xbb\xbf{"id": "a"}'))[0].id == "a"

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (
                '{"id": "a"}\n{"id": oops}',
                "c.jsonl:2: invalid JSON: Expecting value at column 8 (each line is one JSON object)",
            ),
            ('{"id": "a"}\n{"input": "x"}', "c.jsonl:2: a case without id (every case needs an id of its own)"),
            ('{"id": ""}', "c.jsonl:1: a case without id (every case needs an id of its own)"),
            (
                '{"id": "a"}\n\n{"id": "b"}\n{"id": "a"}',
                "c.jsonl:4: two cases have the id 'a', the first is line 1 "
                "(give each case its own; repeats of a case are made with `trials`)",
            ),
            ('{"id": 1}\n{"id": "1"}', "c.jsonl:2: two cases have the id '1', the first is line 1 "),
            ('{"id": "a", "inptu": 1}', "c.jsonl:1: unknown field 'inptu' (did you mean 'input'?)"),
            ('{"id": "a", "level": 1}', "c.jsonl:1: unknown field 'level' (put what is your own into metadata)"),
            ("\n\n", "c.jsonl: holds no case (a suite needs at least one)"),
            ('["a"]', "c.jsonl:1: each line is one JSON object, this is a list"),
            ('{"id": "a:b"}', "c.jsonl:1: id: 'a:b' holds a ':', which parts the keys on the server"),
            ('{"id": true}', "c.jsonl:1: id: True is not text"),
            ('{"id": "a", "metadata": []}', "c.jsonl:1: metadata: is not an object but a list"),
            ('{"id": "a", "target": NaN}', "c.jsonl:1: invalid JSON: NaN is no JSON number"),
            ('{"id": "a", "target": 1e999}', "c.jsonl:1: target: is infinite"),
            ('{"id": "a", "id": "b"}', "c.jsonl:1: invalid JSON: the field 'id' is given twice"),
            ('{"id": "a", "input": "\\ud800"}', "c.jsonl:1: input: is not valid Unicode (a lone surrogate)"),
            ('{"id": "a", "input": ' + "[" * 100_000, "c.jsonl:1: invalid JSON: "),
        ],
    )
    def test_a_bad_line_is_told_with_its_number(self, tmp_path: Path, content: str, said: str) -> None:
        """One line: file, line, what is wrong, what to do."""
        assert complaint(write(tmp_path, "c.jsonl", content)).startswith(said)

    def test_bytes_that_are_not_utf8_are_told_with_their_line(self, tmp_path: Path) -> None:
        """A Latin-1 file must not lose its accents in silence."""
        path = write(tmp_path, "c.jsonl", b'{"id": "a"}\n{"id": "caf\xe9"}\n')
        assert complaint(path) == "c.jsonl:2: is not UTF-8 text (byte 0xe9) (save it as UTF-8)"

    def test_a_missing_file_and_an_unknown_ending_are_told(self, tmp_path: Path) -> None:
        """The ending decides how a file is read."""
        assert complaint(tmp_path / "none.jsonl") == "none.jsonl: no such file"
        (tmp_path / "d.csv").mkdir()
        assert complaint(tmp_path / "d.csv") == "d.csv: is not a file"
        assert complaint(write(tmp_path, "c.xlsx", "")) == (
            "c.xlsx: cases cannot be read from a file ending in '.xlsx' "
            "(use .jsonl (one JSON object a line), .csv, .tsv or .parquet)"
        )


class TestCsv:
    """A header with the names of the fields, a row for each case."""

    def test_further_columns_are_metadata(self, tmp_path: Path) -> None:
        """Quoted cells may hold commas and line breaks; a metadata column holds a JSON object."""
        path = write(
            tmp_path, "c.csv", 'id,input,target,level,metadata\r\na,"x, ""y""\nz",4,hard,"{""n"": 1}"\r\nb,,,,\r\n'
        )
        assert read_cases(path) == (
            Case("a", 'x, "y"\nz', "4", {"level": "hard", "n": 1}),
            Case("b", "", "", {"level": ""}),
        )

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("", "c.csv: holds no case (a suite needs at least one)"),
            ("id,input\n", "c.csv: holds no case (a suite needs at least one)"),
            ("ID,input\na,b\n", "c.csv:1: has no column 'id' (it has 'ID', 'input') (write the name as id)"),
            (
                "name,input\na,b\n",
                "c.csv:1: has no column 'id' (it has 'name', 'input') (every case needs an id of its own: fields = ",
            ),
            ("id,x,x\na,b,c\n", "c.csv:1: has two columns 'x'"),
            (
                'id,input\na,"one\ntwo"\nb\n',
                "c.csv:4: has 1 cells, the header has 2 (quote cells that hold a comma or a line break)",
            ),
            (
                'id,input\na,"one\ntwo"\na,b\n',
                "c.csv:4: two cases have the id 'a', the first is line 2 ",
            ),
            ("id,input\n,b\n", "c.csv:2: a case without id (every case needs an id of its own)"),
            ('id,input\na,"b"c\n', "c.csv:2: invalid CSV: ',' expected after '\"'"),
            ('id,metadata\na,"{x}"\n', "c.csv:2: metadata: invalid JSON: Expecting property name"),
            ("id,metadata\na,3\n", "c.csv:2: metadata: is not an object but a number"),
        ],
    )
    def test_a_bad_row_is_told_with_its_line(self, tmp_path: Path, content: str, said: str) -> None:
        """The line is the one on which the row begins, however many lines its cells have."""
        assert complaint(write(tmp_path, "c.csv", content)).startswith(said)

    def test_a_long_prompt_fits_into_a_cell(self, tmp_path: Path) -> None:
        """The csv module refuses cells above 128 kB unless told otherwise."""
        long = "x" * 200_000
        assert read_cases(write(tmp_path, "c.csv", f"id,input\na,{long}\n"))[0].input == long


class TestParquet:
    """The columns of CSV, with types."""

    def test_columns_are_read_as_from_csv(self, tmp_path: Path) -> None:
        """Whole numbers as ids, nested targets, dates as their text, a data frame's NaN as nothing."""
        path = write_parquet(
            tmp_path / "c.parquet",
            {
                "id": [1, 2],
                "input": ["x", None],
                "target": [["a", "b"], []],
                "day": [datetime.date(2024, 2, 29), None],
                "score": [0.5, float("nan")],
            },
        )
        assert read_cases(path) == (
            Case("1", "x", ["a", "b"], {"day": "2024-02-29", "score": 0.5}),
            Case("2", None, [], {"day": None, "score": None}),
        )

    def test_a_file_that_is_no_parquet_is_told(self, tmp_path: Path) -> None:
        """Renaming a CSV is a common way to make one."""
        said = complaint(write(tmp_path, "c.parquet", "id,input\na,b\n"))
        assert said.startswith("c.parquet: is not a Parquet file: Parquet magic bytes not found")

    def test_rows_without_lines_are_told_by_their_number(self, tmp_path: Path) -> None:
        """A Parquet file has no lines to point at."""
        twice = write_parquet(tmp_path / "c.parquet", {"id": ["a", "b", "a"]})
        assert complaint(twice).startswith("c.parquet: row 3: two cases have the id 'a', the first is row 1 ")
        odd = write_parquet(tmp_path / "d.parquet", {"id": ["a"], "raw": [b"\x00"]})
        assert complaint(odd) == ("d.parquet: row 1: metadata: is of the type bytes, which JSON cannot hold")
        none = write_parquet(tmp_path / "e.parquet", {"name": ["a"]})
        assert complaint(none).startswith("e.parquet: has no column 'id' (it has 'name')")

    def test_without_pyarrow_the_remedy_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """pyarrow is an extra: most suites do not need its 100 MB."""
        path = write_parquet(tmp_path / "c.parquet", {"id": ["a"]})
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert complaint(path) == "c.parquet: reading Parquet needs pyarrow (pip install 'evalbus[parquet]')"


class TestTables:
    """Cases that stand in the suite file."""

    def test_tables_of_the_suite_file_are_cases(self) -> None:
        """TOML knows dates, JSON does not: they become their text."""
        (case,) = cases_from_tables([{"id": "a", "metadata": {"day": datetime.date(2024, 1, 2)}}], "suite.toml")
        assert case.metadata == {"day": "2024-01-02"}

    def test_a_bad_table_is_told_with_its_place(self) -> None:
        """`cases[1]` counts as Python and TOML do."""
        with pytest.raises(InputError, match=re.escape("suite.toml: cases[1]: a case without id")):
            cases_from_tables([{"id": "a"}, {"input": "b"}], "suite.toml")
        with pytest.raises(InputError, match=re.escape("two cases have the id 'a', the first is cases[0]")):
            cases_from_tables([{"id": "a"}, {"id": "a"}], "suite.toml")


class TestIds:
    """What a case may be called."""

    @pytest.mark.parametrize("case_id", ["a", "a#1", "a b", "é" * 100, "dir/file.py", "日本"])
    def test_ids_that_can_be_used(self, case_id: str) -> None:
        """A `#` is fine: the last one of a run id parts the trial."""
        assert check_id(case_id) is None

    @pytest.mark.parametrize("case_id", ["", " a", "a ", "a\n", "a\tb", "a:b", "é" * 101, "\ud800", "a\u200bb", "\x7f"])
    def test_ids_that_cannot_be_used(self, case_id: str) -> None:
        """They are parts of keys and of lines: no `:`, nothing that cannot be seen, at most 200 bytes."""
        assert check_id(case_id)

    def test_an_id_that_is_refused_is_shown_as_it_is(self, tmp_path: Path) -> None:
        """Also one with a line break stays in one line."""
        path = write(tmp_path, "c.jsonl", json.dumps({"id": "a\nb"}))
        assert complaint(path) == r"c.jsonl:1: id: 'a\nb' holds a control or invisible character"
