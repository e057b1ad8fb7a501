"""A model as judge: grades, judgements that are none, who gave them, what they cost; and the judge's deaths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from bus.errors import InputError
from bus.port import BatchStatus
from bus.types import RunId
from bus.wire import Wire
from tests.judge_stage import JudgeStage, judged_by
from tests.model_stage import SHORT, A, B, InMemory, Moment, OnServer, settled
from tests.suites import make_suite, write_suite
from tests.waiting import until
from workers import redaction
from workers.cases import Case
from workers.judging.prompt import JudgePrompt
from workers.judging.reading import grade_of
from workers.lab import Lab
from workers.lab.mischief import Api
from workers.scoring import ScorerError
from workers.suite import load_suite

ON_SERVER = pytest.mark.parametrize("stage", ["server"], indirect=True)

RIGHT, WRONG = "It is so. GRADE: C", "GRADE: C? No. GRADE: I"


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JudgeStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = JudgeStage(place, tmp_path)
    yield one
    await one.aclose()
    redaction.forget()


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A judge that says what it is told to."""
    with Lab(seed=1) as one:
        yield one


def asked(lab: Lab) -> int:
    """Requests that the endpoint has seen."""
    return lab.counts.requests[Api.MODEL].requests


# --- grades -----------------------------------------------------------------------------------------------


async def test_a_grade_is_a_bin_and_what_was_said_is_kept(stage: JudgeStage, lab: Lab) -> None:
    """The last grade counts. The tokens are in the batch's ledger, to the last one that the endpoint has billed."""
    await stage.judge(judged_by(lab), {"a": RIGHT, "b": WRONG})
    counters = await stage.run_to_the_end()
    assert await stage.bins([A, B]) == ["pass", "fail"]
    first, second = await stage.judgement(A), await stage.judgement(B)
    assert (first["grade"], first["text"], second["grade"], second["text"]) == ("C", RIGHT, "I", WRONG)
    assert counters.spent > 0
    settled(counters, lab)


async def test_a_judgement_without_a_grade_is_a_hole_and_no_fail(stage: JudgeStage, lab: Lab) -> None:
    """It is asked for again, as often as the table says. A grade that is not on the scale is none either."""
    await stage.judge(judged_by(lab, model="retries = 1"), {"a": "I cannot tell.", "b": "GRADE: X"})
    counters = await stage.run_to_the_end()
    assert counters.hole_reasons == {"judge_unparsed": 2}
    assert counters.bins == {"pass": 0, "fail": 0}
    assert asked(lab) == 4
    assert (await stage.row(A)).detail == "no grade in: 'I cannot tell.'"
    settled(counters, lab)


async def test_an_answer_that_is_none_is_asked_for_again_and_then_a_hole(stage: JudgeStage, lab: Lab) -> None:
    """Fence 4 does not stand in a judge's path: without a count of its own an empty answer would be asked for ever."""
    await stage.judge(judged_by(lab, model="retries = 1"), {"a": f"{RIGHT} | blank*1", "b": f"{RIGHT} | no-identity"})
    counters = await stage.run_to_the_end()
    assert await stage.bins([A, B]) == ["pass", "judge_error"]
    assert asked(lab) == 4
    settled(counters, lab)


async def test_a_judge_that_cannot_be_used_is_a_hole_of_its_own_name(stage: JudgeStage) -> None:
    """The key is refused: nothing of it says anything about the candidate."""
    with Lab(seed=1, api_key="another-key") as lab:
        await stage.judge(judged_by(lab), {"a": RIGHT})
        counters = await stage.run_to_the_end()
    assert counters.hole_reasons == {"judge_error": 1}
    assert (counters.spent, counters.reserved) == (0, 0)


async def test_a_judge_that_never_answers_hangs_no_batch(stage: JudgeStage, lab: Lab) -> None:
    """It accepts, and that was all."""
    await stage.judge(
        judged_by(lab, 'timeout = "60s"', 'first_token = "1s"\nretry_budget = 0'),
        {"a": f"{RIGHT} | hang", "b": RIGHT},
    )
    counters = await stage.run_to_the_end()
    assert await stage.bins([A, B]) == ["judge_error", "pass"]
    assert counters.reserved == 0


# --- who judged -------------------------------------------------------------------------------------------


async def test_another_model_behind_the_name_gives_no_verdict(stage: JudgeStage, lab: Lab) -> None:
    """In the middle of a batch the endpoint answers with another model: that run is a hole, and the others stand."""
    await stage.judge(judged_by(lab), {"a": RIGHT, "b": f"{WRONG} | wrong-model", "c": RIGHT})
    counters = await stage.run_to_the_end()
    assert await stage.bins([A, B, RunId("c#1")]) == ["pass", "judge_mismatch", "pass"]
    assert counters.refusals["judge_mismatch"] == 1
    detail = (await stage.row(B)).detail
    assert "the judge says that it is 'lab-1-other', bound is 'lab-1'" in detail
    assert 'identity = { model = "lab-1-other" }' in detail
    settled(counters, lab)


async def test_an_identity_that_is_declared_is_the_one_that_must_answer(stage: JudgeStage, lab: Lab) -> None:
    """An alias whose real name is known: that is bound, and the alias itself would be refused."""
    await stage.judge(
        judged_by(lab, rest='[scorer.identity]\nmodel = "lab-1-other"\n'), {"a": f"{RIGHT} | wrong-model", "b": RIGHT}
    )
    await stage.run_to_the_end()
    assert await stage.bins([A, B]) == ["pass", "judge_mismatch"]


async def test_a_fingerprint_is_compared_only_where_it_is_declared(stage: JudgeStage, lab: Lab) -> None:
    """The lab gives one; this is not it."""
    await stage.judge(judged_by(lab, rest='[scorer.identity]\nfingerprint = "fp_of_last_week"\n'), {"a": RIGHT})
    await stage.run_to_the_end()
    assert await stage.bins([A]) == ["judge_mismatch"]
    assert "fp_of_last_week" in (await stage.row(A)).detail


async def test_under_replay_a_mismatch_is_asked_for_anew(stage: JudgeStage, lab: Lab) -> None:
    """One answer came from elsewhere; the planner binds the run anew, and the next one is the bound judge's."""
    await stage.judge(
        judged_by(lab, rest='[judge]\npolicy = "replay"\nreplay_budget = 2\n'), {"a": f"{RIGHT} | wrong-model*1"}
    )
    counters = await stage.run_to_the_end()
    assert await stage.bins([A]) == ["pass"]
    assert counters.refusals == {"judge_mismatch": 1}


async def test_a_review_that_nobody_ends_ends_by_itself(stage: JudgeStage, lab: Lab) -> None:
    """A parked score must not keep its batch open for ever."""
    await stage.judge(
        judged_by(lab, rest='[judge]\npolicy = "review"\nreview = "100ms"\n'),
        {"a": f"{RIGHT} | wrong-model", "b": RIGHT},
    )
    counters = await stage.run_to_the_end()
    assert await stage.bins([A, B]) == ["unreviewed", "pass"]
    assert counters.review == 0


# --- what it costs ----------------------------------------------------------------------------------------


async def test_candidate_and_judge_spend_one_budget(stage: JudgeStage, lab: Lab) -> None:
    """Both ask the same lab; what it has billed to either is what the batch has spent."""
    code = "async def solve(case, run):\n    return await run.model.text('LAB-ANSWER: 42')\n"
    model = f'[model]\nbase_url = "{lab.url}/v1"\nname = "lab-1"\n'
    toml = judged_by(lab, rest=model)
    await stage.judge(toml, {"a": RIGHT}, agent_DOT_py=code, judge_DOT_txt="{answer}\nLAB-ANSWER: GRADE: C")
    counters = await stage.run_to_the_end()
    assert await stage.bins([A]) == ["pass"]
    assert asked(lab) == 2
    settled(counters, lab)


async def test_a_judge_does_not_pass_the_budget(stage: JudgeStage, lab: Lab) -> None:
    """Two scorers share what is left; whose judgement no longer fits is a hole that says so."""
    said = {f"c{n}": RIGHT for n in range(6)}
    await stage.judge(judged_by(lab, model="expected = 40", top="budget = 100"), said)
    stage.scorer()
    counters = await stage.run_to_the_end()
    assert counters.hole_reasons.keys() == {"over_budget"}
    assert counters.bins["pass"] >= 1
    assert counters.spent <= 100
    settled(counters, lab)


# --- deaths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        Moment("after", "score_claim"),
        Moment("before", "open_judge"),
        Moment("after", "open_judge"),
        Moment("before", "bind_judge"),
        Moment("after", "bind_judge"),
        Moment("before", "score"),
        Moment("after", "score"),
    ],
    ids=str,
)
async def test_a_judge_that_dies_is_replaced_and_each_run_is_scored_once(
    stage: JudgeStage, lab: Lab, moment: Moment
) -> None:
    """What was asked and not signed is asked again, under a newer epoch; the desk has room for it."""
    await stage.judge(judged_by(lab, model="slots = 2"), {"a": RIGHT, "b": WRONG})
    stage.planner()
    stage.worker()
    await stage.scorer(moment).halted()
    stage.scorer()
    counters = await stage.closed()
    assert (counters.status, await stage.bins([A, B])) == (BatchStatus.CLOSED, ["pass", "fail"])
    assert counters.spent + counters.reserved >= lab.counts.model.billed - counters.estimated


@pytest.mark.parametrize(("concurrency", "lease"), [(1, SHORT), (2, SHORT), (1, "1500ms")])
async def test_a_judge_that_waits_for_a_dead_ones_place_makes_way_for_who_frees_it(
    stage: JudgeStage, lab: Lab, concurrency: int, lease: str
) -> None:
    """Two died, and the second had the only place. Their runs are taken over one at a time, the placeless one first.

    Also when a lease takes longer than the time between two looks for a place.
    """
    toml = judged_by(lab, model='slots = 1\nreclaim = "1s"', top=f"concurrency = {concurrency}")
    await stage.judge(toml.replace('lease = "300ms"', f'lease = "{lease}"'), {"a": RIGHT, "b": WRONG})
    stage.planner()
    stage.worker()
    await stage.until(lambda now: now.sealed == 2)
    await stage.scorer(Moment("after", "score_claim"), slots=1).halted()
    await stage.scorer(Moment("after", "open_judge"), slots=1).halted()
    stage.scorer()
    counters = await stage.closed()
    assert await stage.bins([A, B]) == ["pass", "fail"]
    assert counters.reserved == 0


async def test_a_judge_that_woke_up_late_signs_nothing(stage: JudgeStage, lab: Lab) -> None:
    """It had its verdict, stalled, and its run was scored by another."""
    await stage.judge(judged_by(lab), {"a": RIGHT})
    stage.planner()
    stage.worker()
    late = stage.scorer(Moment("before", "score"))
    await late.halted()
    stage.scorer()
    await stage.until(lambda now: now.scored == 1)
    late.bus.resume()
    await until(lambda: any(one.reason == "stale_lease" for one in late.bus.decided), "its score to be refused")
    counters = await stage.closed()
    assert await stage.bins([A]) == ["pass"]
    assert counters.scored == 1


# --- secrets ----------------------------------------------------------------------------------------------


@ON_SERVER
@pytest.mark.parametrize("said", ["GRADE: C", "no grade", "GRADE: C\nLAB-MISCHIEF: wrong-model", "LAB-MISCHIEF: blank"])
async def test_the_judges_key_is_nowhere(
    stage: JudgeStage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    """The judge repeats it in what it says: not in a row, a blob, an event, the history or a log line."""
    canary = "canary-4711-of-the-judge"
    monkeypatch.setenv("JUDGE_KEY", canary)
    with Lab(seed=1, api_key=canary) as lab, structlog.testing.capture_logs() as logged:
        toml = judged_by(lab, model='key_env = "JUDGE_KEY"\nretries = 0')
        prompt = f"{{answer}}\nLAB-ANSWER: {canary} {said}\n"
        await stage.judge(toml, {}, judge_DOT_txt=prompt, cases_DOT_jsonl='{"id": "a", "input": "1"}\n')
        await stage.run_to_the_end()
        assert asked(lab) == 1
    assert isinstance(stage.place, OnServer)
    wire = await Wire.open(stage.place.target.address())
    for key in await wire.call("KEYS", "*"):
        assert canary.encode() not in await wire.call("DUMP", key), key
    wire.close()
    assert canary not in str(logged)
    assert canary not in "".join(capsys.readouterr())


# --- the question -----------------------------------------------------------------------------------------


def test_what_is_put_into_the_question_is_never_looked_at_again() -> None:
    """An answer that holds a place's name shows just that; other braces stay as they are."""
    prompt = JudgePrompt('{"json": {input}} {target} [{answer}] {metadata} {other}', "")
    case = Case("a", "in {target}", ["x", "y"], {"k": "{answer}"})
    assert prompt.fill(case, "{input} {{answer}}") == (
        '{"json": in {target}} ["x", "y"] [{input} {{answer}}] {"k": "{answer}"} {other}'
    )


def test_instructions_come_as_the_api_wants_them(tmp_path: Path) -> None:
    """From the text itself, or from a file that is named; a base model is given one text."""
    toml = JUDGED.replace("MORE", 'system = "rules.md"')
    suite = make_suite(tmp_path / "s", toml, judge_DOT_txt="{answer}?", rules_DOT_md="Be strict.")
    prompt = JudgePrompt.of(suite.root, suite.source, suite.scorer)
    case = suite.cases[0]
    assert prompt.messages("chat", case, "1") == [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": "1?"},
    ]
    assert prompt.messages("completions", case, "1") == "Be strict.\n\n1?"
    inline = make_suite(tmp_path / "t", JUDGED.replace("MORE", 'system = "Be kind."'), judge_DOT_txt="{answer}?")
    assert JudgePrompt.of(inline.root, inline.source, inline.scorer).system == "Be kind."


# --- the grade --------------------------------------------------------------------------------------------

JUDGED = """\
cases = "cases.jsonl"
[solver]
command = ["cat"]
[scorer]
kind = "model"
prompt = "judge.txt"
grades = { C = "pass", I = "fail" }
MORE
[scorer.model]
base_url = "http://127.0.0.1:9/v1"
name = "lab-1"
"""


@pytest.mark.parametrize(
    ("more", "said", "grade"),
    [
        ("", "GRADE: C", "C"),
        ("", "GRADE: C, or rather GRADE: I", "I"),
        ("", "GRADE:\nI", "I"),
        ("", "grade: C", None),
        ("", "GRADE: c", None),
        ("ignore_case = true", "grade: c", "C"),
        ("", "GRADE: CORRECT", None),
        ("", "", None),
        ("parse = '^(?:([CI])|none)$'", "none", None),
        ("parse = '<(.)>'", "<I> <C>", "C"),
    ],
)
async def test_the_last_match_is_the_grade(tmp_path: Path, more: str, said: str, grade: str | None) -> None:
    """And only if it is on the scale, letter by letter unless the case is ignored."""
    suite = make_suite(tmp_path / "s", JUDGED.replace("MORE", more), judge_DOT_txt="{answer}")
    found = await grade_of(said, suite)
    assert (found and found.name) == grade


async def test_a_pattern_that_takes_for_ever_does_not_take_the_scorer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is searched in a process that can be killed."""
    monkeypatch.setattr("workers.judging.reading._TIME", 0.3)
    suite = make_suite(tmp_path / "s", JUDGED.replace("MORE", "parse = '((a+)+)$'"), judge_DOT_txt="{answer}")
    with pytest.raises(ScorerError, match="in what the judge said: timed out"):
        await grade_of("a" * 40 + "b", suite)


# --- what a suite may say ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('prompt = "judge.txt"\n', "", "scorer: the kind 'model' needs prompt, the file with the question"),
        ("judge.txt", "none.txt", "scorer.prompt: no such file: none.txt"),
        ("MORE", 'system = "none.md"', "scorer.system: no such file: none.md"),
        ('grades = { C = "pass", I = "fail" }', "", "scorer: the kind 'model' needs grades"),
        ('I = "fail"', 'I = "wrong"', "scorer.grades: 'I' is of the bin 'wrong' (the bins are pass, fail: others are "),
        ("MORE", "parse = 'GRADE'", "scorer: parse 'GRADE' has no group to be the grade"),
        ("MORE", "parse = '('", "scorer: parse '(' is not a regular expression"),
        ('I = "fail" }\nMORE', 'c = "fail" }\nignore_case = true', "scorer: grades: two are the same"),
        ("MORE", 'pattern = "x"', "scorer: pattern is not used by the kind 'model' (only by regex)"),
        ('name = "lab-1"', 'nam = "lab-1"', "scorer.model.nam: unknown field (did you mean 'name'?)"),
        ('name = "lab-1"', '[scorer.identity]\nmodle = "x"', "scorer.identity.modle: unknown field (did you mean"),
        ('name = "lab-1"', 'api_key = "sk-1"', "scorer.model: a key does not belong in a suite file"),
    ],
)
def test_a_judge_that_is_not_well_declared_is_told_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Before anything is asked."""
    toml = JUDGED.replace(old, new).replace("MORE", "")
    with pytest.raises(InputError) as caught:
        load_suite(write_suite(tmp_path, toml, judge_DOT_txt="{answer}"))
    assert str(caught.value).split(": ", 1)[1].startswith(said), str(caught.value)


def test_a_prompt_that_does_not_show_the_answer_is_refused(tmp_path: Path) -> None:
    """Its verdicts would be about nothing."""
    with pytest.raises(InputError, match=r"judge.txt does not show the judge what it judges \(write \{answer\}"):
        make_suite(tmp_path / "s", JUDGED.replace("MORE", ""), judge_DOT_txt="{input}")


def test_the_judge_is_found_in_its_own_variables_and_then_in_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who judges is part of the binding wherever it is written; and the binding tells two judges apart."""
    toml = JUDGED.replace("MORE", "").replace('base_url = "http://127.0.0.1:9/v1"\nname = "lab-1"\n', "")
    for variable in (
        "EVALBUS_JUDGE_URL",
        "EVALBUS_JUDGE_MODEL",
        "EVALBUS_MODEL",
        "EVALBUS_MODEL_URL",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InputError, match=r"scorer.model.base_url: no endpoint.*or set EVALBUS_JUDGE_URL"):
        _ = make_suite(tmp_path / "s", toml, judge_DOT_txt="{answer}").judge
    monkeypatch.setenv("EVALBUS_MODEL_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("EVALBUS_MODEL", "candidate")
    shared = load_suite(tmp_path / "s").judge
    assert shared.endswith(' candidate at http://127.0.0.1:1/v1 as {"model": "candidate"}')
    monkeypatch.setenv("EVALBUS_JUDGE_URL", "http://127.0.0.1:2/v1")
    monkeypatch.setenv("EVALBUS_JUDGE_MODEL", "judge")
    assert load_suite(tmp_path / "s").judge.endswith(' judge at http://127.0.0.1:2/v1 as {"model": "judge"}')


def test_everything_that_makes_a_verdict_is_in_the_binding(tmp_path: Path) -> None:
    """One letter of the prompt, a grade, the parser, a parameter, the identity: another judge each time."""
    plain = JUDGED.replace("MORE", "")
    variants = [
        (plain, "{answer}"),
        (plain, "{answer}!"),
        (plain.replace('I = "fail"', 'N = "fail"'), "{answer}"),
        (JUDGED.replace("MORE", 'system = "Be strict."'), "{answer}"),
        (JUDGED.replace("MORE", "parse = '(.)'"), "{answer}"),
        (plain + "temperature = 0.5\n", "{answer}"),
        (plain.replace("lab-1", "lab-2"), "{answer}"),
        (plain.replace(":9/", ":10/"), "{answer}"),
        (plain + '[scorer.identity]\nmodel = "lab-1-2026"\n', "{answer}"),
        (plain + '[scorer.identity]\nfingerprint = "fp"\n', "{answer}"),
    ]
    judges = [
        make_suite(tmp_path / f"s{number}", toml, judge_DOT_txt=prompt).judge
        for number, (toml, prompt) in enumerate(variants)
    ]
    assert len(set(judges)) == len(variants)


async def test_a_scorer_whose_environment_names_another_judge_is_refused(
    stage: JudgeStage, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask somebody else, and every score of its would be a mismatch."""
    monkeypatch.setenv("EVALBUS_JUDGE_MODEL", "lab-1")
    await stage.judge(judged_by(lab).replace('name = "lab-1"\n', ""), {"a": RIGHT})
    monkeypatch.setenv("EVALBUS_JUDGE_MODEL", "lab-2")
    stage.suite = load_suite(stage.suite.root)
    process = stage.scorer()
    with pytest.raises(InputError, match=r"batch 'b' is judged by lab-1 at .*, and this environment names lab-2 at "):
        await process.task
