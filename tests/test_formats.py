"""`evalbus convert`: evaluations of other tools as suites, and what they have and evalbus has not, by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from typer.testing import CliRunner, Result

from bus.errors import InputError
from tests.fleet import Stage
from workers.cases import Case, Json
from workers.cli import app
from workers.formats import openai_evals, promptfoo
from workers.formats.assertions import SUPPORTED, Assertions, check
from workers.formats.grading import fuzzy_match, includes, includes_any_case, json_match, match
from workers.formats.yaml_file import YamlFile
from workers.lab import Lab
from workers.scoring import ScorerError, Sealed
from workers.suite import load_suite

CONFIG = """\
prompts:
  - "The capital of {{country}}?"
  - {id: file://chat.json, label: chat}
providers: [openai:chat:gpt-4.1-mini]
defaultTest:
  assert: [{type: not-contains, value: sorry}]
tests:
  - vars: {country: France}
    assert: [{type: icontains, value: paris}]
  - description: several
    vars: {country: [Italy, 'Sp"ain'], hint: "not {{country}}"}
    assert: [{type: levenshtein, value: "{{country}}", threshold: 3}]
    metadata: {level: hard}
  - file://more.csv
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that uses most of what is supported."""
    (tmp_path / "promptfooconfig.yaml").write_text(CONFIG)
    (tmp_path / "chat.json").write_text('[{"role": "system", "content": "Be brief."}, '
                                        '{"role": "user", "content": "Capital of {{country}}?"}]')  # fmt: skip
    (tmp_path / "more.csv").write_text(
        'country,__expected,__expected2\nChad,"contains-any: N, D",regex: N.+\nPeru,Lima,\n'
    )
    return tmp_path / "promptfooconfig.yaml"


def small(directory: Path, assertion: str = "{type: equals, value: a}", more: str = "", test: str = "") -> Path:
    """A configuration of one prompt and one test."""
    path = directory / "promptfooconfig.yaml"
    path.write_text(
        f"prompts: ['{{{{x}}}}']\nproviders: [openai:m]\n{more}\n"
        f"tests:\n  - vars: {{x: 1}}\n    assert:\n      - {assertion}\n{test}\n"
    )
    return path


def convert(*words: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["convert", *map(str, words)])


# --- promptfoo --------------------------------------------------------------------------------------------


def test_prompts_and_tests_are_multiplied(config: Path, tmp_path: Path) -> None:
    """Two prompts, four tests of which one has two variants: ten cases, in a suite that loads."""
    told = convert(config, tmp_path / "suite")
    assert told.exit_code == 0, told.output
    suite = load_suite(tmp_path / "suite")
    cases = {case.id: case for case in suite.cases}
    assert list(cases) == [f"p{prompt}-{test}" for prompt in (1, 2) for test in ("t1", "t2.1", "t2.2", "t3", "t4")]
    assert suite.model is not None
    assert (suite.model.name, suite.model.base_url) == ("gpt-4.1-mini", "https://api.openai.com/v1")
    assert cases["p1-t1"].input == "The capital of France?"
    several = cases["p2-t2.2"]
    assert several.input == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": 'Capital of Sp"ain?'},
    ]
    assert several.metadata == {
        "prompt": "chat", "test": "several", "country": 'Sp"ain', "hint": 'not Sp"ain', "level": "hard",
    }  # fmt: skip
    assert several.target == {
        "assert": [
            {"type": "levenshtein", "value": 'Sp"ain', "threshold": 3}, {"type": "not-contains", "value": "sorry"},
        ]
    }  # fmt: skip
    assert cases["p1-t3"].target == {
        "assert": [
            {"type": "contains-any", "value": ["N", "D"]}, {"type": "regex", "value": "N.+"},
            {"type": "not-contains", "value": "sorry"},
        ]
    }  # fmt: skip
    assert cases["p1-t4"].target["assert"][0] == {"type": "equals", "value": "Lima"}  # type: ignore[call-overload,index]


def test_a_rubric_becomes_the_judge(tmp_path: Path) -> None:
    """The question shows rubric and answer."""
    path = small(tmp_path, "{type: llm-rubric, value: 'says {{x}}', provider: 'anthropic:messages:c'}")
    assert convert(path, tmp_path / "suite").exit_code == 0
    suite = load_suite(tmp_path / "suite")
    assert suite.scorer.kind == "model"
    assert (suite.scorer.model.api, suite.scorer.model.name) == ("anthropic", "c")
    assert suite.cases[0].target == "says 1"
    assert "{answer}" in (tmp_path / "suite" / "judge.txt").read_text()


@pytest.mark.parametrize(
    ("assertion", "told"),
    [
        ("{type: similar, value: a}", ":7: tests[0].assert[0]: the assertion 'similar' is not supported (supported: "),
        ("{type: javascript, value: a}", "the assertion 'javascript' is not supported"),
        ("{type: cost, threshold: 1}", "the assertion 'cost' is not supported"),
        ("{type: equals, value: a, transform: b}", "'transform' of an assertion is not supported"),
        ("{type: contains-all, value: a}", "contains-all needs a list of texts"),
        ("{type: regex, value: '('}", "'(' is no regular expression of Python"),
        ("{type: is-json, value: {type: nonsense}}", "its JSON schema is none"),
        ("{type: contains, value: '{{nothing}}'}", "needs a variable that the test does not have"),
        ("{type: contains, value: '{% if %}'}", "is no template that can be read"),
        ("{type: python, value: 'file://judge.js'}", "'file://judge.js' is not supported"),
        ("{type: equals, value: a}\n      - {type: llm-rubric, value: b}", "llm-rubric beside another assertion"),
    ],
    ids=[
        "similar", "javascript", "cost", "transform", "no-list", "no-pattern", "no-schema", "no-variable",
        "no-template", "other-language", "two-judges",
    ],
)  # fmt: skip
def test_an_assertion_that_is_not_supported_is_named(tmp_path: Path, assertion: str, told: str) -> None:
    """With file and line, exit code 2, and nothing is written."""
    said = convert(small(tmp_path, assertion), tmp_path / "suite")
    assert said.exit_code == 2
    assert told in said.output
    assert len(said.output.splitlines()) == 1
    assert not (tmp_path / "suite").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["promptfooconfig.yaml"]


@pytest.mark.parametrize(
    ("more", "test", "told"),
    [
        ("scenarios: []", "", ":3: scenarios: is not supported"),
        ("defaultTest: {options: {transform: x}}", "", "defaultTest.options.transform: is not supported"),
        ("", "  - vars: {x: 2}", "tests[1]: asserts nothing, and would always pass"),
        ("", "  - provider: x", "tests[1].provider: of a test is not supported"),
        ("", "  - file://gone.csv", "tests[1]: no file gone.csv"),
        ("", "  - vars: {x: []}\n    assert: [{type: contains, value: a}]", "makes 0 combinations"),
        ("x: &a [1, 2]\nx: 3", "", "the key 'x' is given twice"),
        ("bad: [", "", "invalid YAML: "),
    ],
    ids=["scenarios", "options", "no-assertion", "provider", "no-file", "no-variant", "twice", "no-yaml"],
)
def test_what_else_cannot_be_converted_is_named(tmp_path: Path, more: str, test: str, told: str) -> None:
    """Nothing is passed over in silence."""
    with pytest.raises(InputError) as caught:
        promptfoo.convert(small(tmp_path, more=more, test=test))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("providers", "choice", "told"),
    [
        ("[openai:a, anthropic:b]", None, "there are 2 providers (openai:a, anthropic:b) (a suite evaluates one: "),
        ("[openai:a, {id: anthropic:b, label: c}]", "d", "'d' is none of them (openai:a, c)"),
        ("[exec:python x.py]", None, "the provider 'exec:python x.py' is not supported"),
        ("[{id: openai:a, config: {apiKey: sk-1}}]", None, "a key does not belong in a file"),
        ("[{id: openai:a, config: {tools: []}}]", None, "providers[0].config.tools: of a provider is not supported"),
    ],
    ids=["several", "another", "exec", "key", "tools"],
)
def test_one_provider_is_evaluated(tmp_path: Path, providers: str, choice: str | None, told: str) -> None:
    """Of several the command says which; a key is not repeated."""
    path = small(tmp_path)
    path.write_text(path.read_text().replace("[openai:m]", providers))
    with pytest.raises(InputError) as caught:
        promptfoo.convert(path, choice)
    assert told in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_aliases_of_aliases_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short file that unfolds into a million values, where twenty thousand are the most: more would take as long."""
    monkeypatch.setattr("workers.formats.yaml_file._MOST", 20_000)
    path = tmp_path / "laughs.yaml"
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    path.write_text("\n".join(levels))
    with pytest.raises(InputError, match="more than two million values"):
        YamlFile(path)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    """YAML or not: read, or an InputError."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        path = Path(file.name)
        path.write_text(text, encoding="utf-8", errors="replace")
        with contextlib.suppress(InputError):
            YamlFile(path)


# --- what is asserted -------------------------------------------------------------------------------------

HOLDS: list[tuple[str, Mapping[str, Json], str, str]] = [
    ("equals", {"value": "a"}, "a", "A"),
    ("equals", {"value": 4}, "4", "4.0"),
    ("equals", {"value": {"a": 1}}, '{"a": 1}', "{a: 1}"),
    ("contains", {"value": "b"}, "abc", "ABC"),
    ("icontains", {"value": "B"}, "abc", "ac"),
    ("contains-all", {"value": ["a", "b"]}, "ba", "a"),
    ("contains-any", {"value": ["a", "b"]}, "b", "c"),
    ("icontains-all", {"value": ["A", "b"]}, "Ba", "a"),
    ("icontains-any", {"value": ["A"]}, "xa", "x"),
    ("starts-with", {"value": "ab"}, "abc", "cab"),
    ("ends-with", {"value": "bc"}, "abc", "bca"),
    ("regex", {"value": "^b+$"}, "bbb", "abb"),
    ("is-json", {}, '{"a": 1}', "{a"),
    ("is-json", {"value": {"required": ["a"]}}, '{"a": 1}', '{"b": 1}'),
    ("contains-json", {"value": {"type": "object", "required": ["a"]}}, 'so: {} {"a": 1}.', "so: [1]"),
    ("levenshtein", {"value": "kitten", "threshold": 3}, "sitting", "sittings"),
    ("python", {"value": "len(output) > 2"}, "abc", "ab"),
    ("python", {"value": "x = output\nreturn {'pass': x == context['vars']['k'], 'score': 0.5}"}, "v", "w"),
]


@pytest.mark.parametrize(("kind", "rest", "good", "bad"), HOLDS, ids=[f"{row[0]}-{at}" for at, row in enumerate(HOLDS)])
async def test_an_assertion_holds_or_does_not(
    tmp_path: Path, kind: str, rest: Mapping[str, Json], good: str, bad: str
) -> None:
    """Each kind, and turned around."""
    case = Case("c", "", None, {"k": "v"})
    for name, right, wrong in ((kind, good, bad), (f"not-{kind}", bad, good)):
        assertion = {"type": name, **rest}
        assert check(assertion) is None
        assert (await Assertions(tmp_path).judge(assertion, case, right)).passed
        assert not (await Assertions(tmp_path).judge(assertion, case, wrong)).passed


def test_every_kind_is_tried() -> None:
    """A kind that is added and not in the table above is not supported yet."""
    assert {row[0] for row in HOLDS} == SUPPORTED


@pytest.mark.parametrize(
    ("threshold", "answer", "expected"),
    [(None, "ab", "pass"), (None, "a", "fail"), (0.5, "a", "pass"), (0.9, "a", "fail"), (0.25, "b", "pass")],
    ids=["all", "one-missing", "half", "not-enough", "the-lighter"],
)
async def test_weights_and_a_threshold(tmp_path: Path, threshold: float | None, answer: str, expected: str) -> None:
    """Without a threshold all must hold; with one, their weighted mean decides."""
    asserted: list[Json] = [{"type": "contains", "value": "a", "weight": 3}, {"type": "contains", "value": "b"}]
    target: dict[str, Json] = {"assert": asserted}
    if threshold is not None:
        target["threshold"] = threshold
    assert (await Assertions(tmp_path).score(Case("c", "", target), Sealed(answer))).bin == expected


async def test_a_function_of_the_suite_judges(tmp_path: Path) -> None:
    """`file://judge.py:name` comes along; what it does wrong is the scorer's error, not the candidate's."""
    (tmp_path / "judge.py").write_text("def ok(output, context): return 0.4\ndef bad(output, context): return None\n")
    path = small(tmp_path, "{type: python, value: 'file://judge.py:ok', threshold: 0.5}")
    promptfoo.convert(path).write(tmp_path / "suite")
    case = load_suite(tmp_path / "suite").cases[0]
    scored = await Assertions(tmp_path / "suite").score(case, Sealed("x"))
    assert (scored.bin, scored.value) == ("fail", "0.4")
    bad = Case("c", "", {"assert": [{"type": "python", "value": "file://judge.py:bad"}]})
    with pytest.raises(ScorerError, match="it returned None"):
        await Assertions(tmp_path / "suite").score(bad, Sealed("x"))


async def test_a_pattern_without_end_is_the_scorers_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched in a process of its own, which can be killed."""
    monkeypatch.setattr("workers.formats.assertions._PATIENCE", 0.5)
    case = Case("c", "", {"assert": [{"type": "regex", "value": "(a+)+$"}]})
    with pytest.raises(ScorerError, match="searching"):
        await asyncio.wait_for(Assertions(tmp_path).score(case, Sealed("a" * 60 + "b")), 20)


def test_levenshtein_is_the_published_one() -> None:
    """Kitten to sitting is 3, the textbook's."""
    assert Levenshtein.distance("kitten", "sitting") == 3


# --- OpenAI evals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grader", "ideal", "good", "bad"),
    [
        (match, ["Paris", "PARIS"], "Paris, of course", "It is Paris"),
        (includes, ["Paris"], "It is Paris", "it is paris"),
        (includes_any_case, ["Paris"], "it is paris", "Rome"),
        (fuzzy_match, ["The Eiffel Tower!"], "eiffel  tower", "a bridge"),
        (json_match, ['{"a": [1, 2]}'], '{ "a":[1,2] }', '{"a": [2, 1]}'),
        (json_match, ["true"], "true", "1"),
        (json_match, ["{}"], "{}", "no json"),
    ],
    ids=["match", "includes", "includes-any-case", "fuzzy", "json", "json-boolean", "json-none"],
)
def test_a_class_compares_as_its_own_does(grader: object, ideal: list[Json], good: str, bad: str) -> None:
    """What is right there is right here."""
    assert callable(grader)
    assert grader(Case("c", "", ideal), Sealed(good))
    assert not grader(Case("c", "", ideal), Sealed(bad))


def test_a_registry_file_names_its_samples(tmp_path: Path) -> None:
    """In the registry's own directories, by the eval's name or its alias."""
    (tmp_path / "evals").mkdir()
    (tmp_path / "data" / "capitals").mkdir(parents=True)
    samples = [{"input": [{"role": "user", "content": "France?"}], "ideal": "Paris", "continent": "Europe"}]
    (tmp_path / "data" / "capitals" / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
    registry = tmp_path / "evals" / "capitals.yaml"
    registry.write_text(
        "capitals: {id: capitals.dev.v0, metrics: [accuracy]}\n"
        "capitals.dev.v0:\n  class: evals.elsuite.basic.includes:Includes\n"
        "  args: {samples_jsonl: capitals/samples.jsonl, ignore_case: true}\n"
    )
    told = convert(f"openai-evals:{registry}", tmp_path / "suite", "--eval", "capitals", "--model", "m")
    assert told.exit_code == 0, told.output
    suite = load_suite(tmp_path / "suite")
    assert suite.scorer.python == "workers.formats.grading:includes_any_case"
    assert suite.cases == (
        Case("1", [{"role": "user", "content": "France?"}], ["Paris"], {"continent": "Europe"}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{class: 'evals.elsuite.modelgraded.classify:ModelBasedClassify', args: {samples_jsonl: s.jsonl}}",
         ":1: a.class: the class 'evals.elsuite.modelgraded.classify:ModelBasedClassify' is not supported"),
        ("{class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: s.jsonl, num_few_shot: 3}}",
         "a.args.num_few_shot: is not supported"),
        ("{class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: gone.jsonl}}", "no file gone.jsonl"),
        ("{class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: s.jsonl}}",
         "s.jsonl:1: ideal must be a text or a list of texts"),
    ],
    ids=["model-graded", "few-shot", "no-file", "no-ideal"],
)  # fmt: skip
def test_what_evals_have_and_we_do_not_is_named(tmp_path: Path, entry: str, told: str) -> None:
    """With the line."""
    (tmp_path / "r.yaml").write_text(f"a: {entry}\n")
    (tmp_path / "s.jsonl").write_text('{"input": "x"}\n')
    with pytest.raises(InputError) as caught:
        openai_evals.convert(tmp_path / "r.yaml")
    assert told in str(caught.value)


# --- the command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["gone.yaml"],
            "its name does not say which format it is in (write promptfoo:gone.yaml or openai-evals:gone.yaml)",
        ),
        (["promptfoo:gone.yaml"], "gone.yaml: no such file"),
        (["openai-evals:s.jsonl"], "samples do not say how answers are compared (--class, one of match, "),
        (["openai-evals:s.jsonl", "--class", "nearly"], "--class: 'nearly' is none"),
        (["openai-evals:s.jsonl", "--provider", "x"], "--provider is not for openai-evals"),
    ],
    ids=["unknown", "no-file", "no-class", "other-class", "other-option"],
)
def test_a_wrong_call_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str) -> None:
    """Exit code 2."""
    monkeypatch.chdir(tmp_path)
    Path("s.jsonl").write_text('{"input": "x", "ideal": "y"}\n')
    said = convert(words[0], "suite", *words[1:])
    assert said.exit_code == 2
    assert told in said.output
    assert len(said.output.splitlines()) == 1


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A suite that somebody has worked on."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "mine").touch()
    said = convert(small(tmp_path), tmp_path / "suite")
    assert said.exit_code == 2
    assert "is there already, and not empty" in said.output


@pytest.mark.process
async def test_a_converted_suite_runs(tmp_path: Path) -> None:
    """Prompts go to the model, its answers are judged by what the tests assert."""
    path = small(tmp_path, "{type: python, value: len(output) > 0}")
    path.write_text(path.read_text() + "  - vars: {x: 2}\n    assert: [{type: contains, value: NO SUCH WORD}]\n")
    promptfoo.convert(path).write(tmp_path / "suite")
    with Lab(seed=1) as lab, Stage.opened(tmp_path) as stage:
        toml = tmp_path / "suite" / "suite.toml"
        toml.write_text(toml.read_text().replace("https://api.openai.com/v1", f"{lab.url}/v1"))
        done = await stage.start("run", tmp_path / "suite", "--json", tmp_path / "out.json").end()
        assert done.code == 0, done.err
    assert json.loads((tmp_path / "out.json").read_text())["runs"] == {"t1#1": "pass", "t2#1": "fail"}
