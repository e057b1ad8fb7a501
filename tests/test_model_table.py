"""`[model]`: what it says, where the rest comes from, what it is bound to; and that no key is ever repeated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.types import BatchId, ConsumerId, Plane
from tests.suites import make_suite, write_suite
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue
from workers.modelling.plane import ModelPlane, rates_of
from workers.runtime import SystemRuntime
from workers.suite import load_suite
from workers.worker import Worker

HEAD = 'cases = "cases.jsonl"\n[solver]\ncommand = ["cat"]\n[scorer]\nkind = "exact"\n'
URL = 'base_url = "http://127.0.0.1:1/v1"\n'
NAMED = f'{HEAD}[model]\n{URL}name = "m"\n'

VARIABLES = (
    "EVALBUS_MODEL_URL", "EVALBUS_MODEL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"
)  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is named in the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def complaint(root: Path, toml: str) -> str:
    """The one line that loading ends with, from the field on."""
    with pytest.raises(InputError) as caught:
        load_suite(write_suite(root, toml))
    return re.sub(r"^.*suite\.toml:(\d+:)? ", "", str(caught.value))


def test_every_field_of_the_model_is_read(tmp_path: Path) -> None:
    """Times in seconds; what the endpoint is asked for, in the words of the API."""
    suite = make_suite(
        tmp_path,
        'budget = 5000\nresume = "prefix"\n' + NAMED + 'api = "completions"\nkey_env = "MY_KEY"\ntemperature = 0.5\n'
        'max_tokens = 9\ntop_p = 0.9\nstop = "END"\nseed = 4\nslots = 3\nretries = 0\ntimeout = "10s"\nidle = "2s"\n'
        'first_token = "5s"\nrequests_per_minute = 60\ntokens_per_minute = 6000\nretry_budget = 0\nexpected = 50\n'
        'include_usage = false\nextra = {min_p = 0.1}\nbilling_url = "http://127.0.0.1:1/billing/{request_id}"\n',
    )
    table = suite.model
    assert table is not None
    assert (suite.budget, suite.resume, table.api, table.key_env) == (5000, "prefix", "completions", "MY_KEY")
    assert (table.timeout, table.idle, table.first_token, table.slots, table.retries) == (10, 2, 5, 3, 0)
    assert (table.stop, table.extra, table.expected) == (("END",), {"min_p": 0.1}, 50)
    rates = rates_of(table)
    assert (rates.requests_per_minute, rates.tokens_per_minute, rates.retries) == (60, 6000, 0)
    spec = spec_of(suite, BatchId("b"))
    assert spec.limits == {"compute_retries": 5 + 20 + 100, "model_retries": 0, "model_slots": 3, "budget": 5000}


def test_a_workspace_is_fenced_for_longer_than_its_holder_may_be_silent(tmp_path: Path) -> None:
    """Three lease times, and never less than ten seconds; the scorer's verdict has a form that is declared."""
    toml = 'lease = "20s"\n' + HEAD + "[workspace]\n"
    assert spec_of(make_suite(tmp_path, toml), BatchId("b")).limits == {"heartbeat_ms": 60_000, "schemas": '["bin/1"]'}


@pytest.mark.parametrize(
    ("shadow", "capacity", "bound", "budget"),
    [
        ("", 20, 10, 500),
        ("[shadow]\ncapacity = 4\nbudget = 70\n", 4, 3, 70),
        ("[shadow]\ncapacity = 90\n", 90, 10, 500),
    ],
)
def test_a_shadow_batch_has_a_capacity_and_a_budget_of_its_own(
    tmp_path: Path, shadow: str, capacity: int, bound: int, budget: int
) -> None:
    """Runs may never hold every place: one that waits for its tool's would wait for itself. A live batch is as ever."""
    suite = make_suite(tmp_path, "bound = 10\nbudget = 500\n" + NAMED + shadow)
    spec = spec_of(suite, BatchId("b"), plane=Plane.SHADOW)
    assert (spec.limits["capacity"], spec.bound, spec.limits["budget"]) == (capacity, bound, budget)
    live = spec_of(suite, BatchId("b"))
    assert ("capacity" in live.limits, live.bound, live.limits["budget"]) == (False, 10, 500)


def test_the_environment_names_what_the_suite_leaves_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """evalbus' own variable before the client library's; it is part of the candidate, and not of the suite."""
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.example/v1/")
    monkeypatch.setenv("EVALBUS_MODEL", "m")
    first = make_suite(tmp_path, HEAD + "[model]\n")
    assert str(first.target) == "m at https://api.example/v1"
    monkeypatch.setenv("EVALBUS_MODEL_URL", "http://127.0.0.1:2/v1")
    second = make_suite(tmp_path, HEAD + "[model]\n")
    assert str(second.target) == "m at http://127.0.0.1:2/v1"
    assert first.digest == second.digest
    assert first.candidate != second.candidate
    assert first.candidate.endswith(" m at https://api.example/v1")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            'name = "m"\n',
            "model.base_url: no endpoint is named, neither here nor in the environment (write base_url = ",
        ),
        (URL, "model.name: no model is named, neither here nor in the environment (write name = "),
    ],
)
def test_a_model_that_nobody_names_is_told_to_who_needs_it(tmp_path: Path, lines: str, said: str) -> None:
    """A scorer or a planner elsewhere loads the suite without it; who makes the batch, or asks, must know."""
    suite = make_suite(tmp_path, HEAD + "[model]\n" + lines)
    with pytest.raises(InputError) as caught:
        spec_of(suite, BatchId("b"))
    assert said in str(caught.value)


KEY = "sk-proj_0123456789abcdef0123"


@pytest.mark.parametrize(
    "line",
    [
        f'key = "{KEY}"',
        f'api_key = "{KEY}"',
        f'api-key = "{KEY}"',
        f'key_env = "{KEY}"',
        'key_env = "sk_0123456789abcdef0123"',
        f'extra = {{api_key = "{KEY}"}}',
        f'extra = {{headers = {{Authorization = "Bearer {KEY}"}}}}',
        f'extra = {{hooks = [{{token = "{KEY}"}}]}}',
        f'base_url = "https://user:{KEY}@api.example/v1"',
        f'base_url = "https://api.example/v1?key={KEY}"',
    ],
)
def test_a_key_in_the_suite_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    """The file is under version control, and so is whatever shows this line."""
    said = complaint(tmp_path, f'{HEAD}[model]\nname = "m"\n{line}\n')
    assert "a key does not belong in a suite file" in said
    assert 'key_env = "OPENAI_API_KEY"' in said
    assert KEY not in said
    assert "0123456789" not in said


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('base_url = "api.example"\n', "model.base_url: base_url is not a URL (write it as "),
        ('base_url = "ftp://api.example"\n', "model.base_url: base_url is not a URL (write it as "),
        (URL + "slots = 0\n", "model.slots: must be at least 1, it is 0"),
        (URL + 'extra = {model = "n"}\n', "model.extra: 'model' cannot be set here, evalbus sets it"),
        (URL + "extra = {stream = false}\n", "model.extra: 'stream' cannot be set here, evalbus sets it"),
        (URL + "extra = {n = 2}\n", "model.extra: 'n' must be 1, a model call asks for one answer"),
        (URL + "max_tokens = 1_000_000_001\n", "model.max_tokens: must be at most 1,000,000,000, it is 1000000001"),
        (URL + "retries = -1\n", "model.retries: must be at least 0, it is -1"),
        (
            URL + 'api = "chatt"\n',
            "model.api: unknown api 'chatt' (did you mean 'chat'? it is one of chat, completions,",
        ),
        (URL + 'timeout = "1"\n', "model.timeout: '1' is not a duration (write it as \"500ms\""),
        (URL + "temprature = 1\n", "model.temprature: unknown field (did you mean 'temperature'?)"),
        (URL + 'billing_url = "http://x/"\n', "model.billing_url: billing_url has no {request_id} to be replaced"),
        (URL + 'api = "anthropic"\nseed = 1\n', "model: seed is not used by the api 'anthropic'"),
    ],
)
def test_what_is_wrong_with_the_model_is_told_by_its_field(tmp_path: Path, lines: str, said: str) -> None:
    """In one line."""
    assert complaint(tmp_path, f"{HEAD}[model]\n{lines}").startswith(said)


def test_budget_and_resume_are_checked(tmp_path: Path) -> None:
    """A budget of nothing is a mistake."""
    assert complaint(tmp_path / "a", "budget = 0\n" + HEAD) == "budget: must be at least 1, it is 0"
    assert complaint(tmp_path / "b", 'resume = "last"\n' + HEAD).startswith(
        "resume: unknown resume 'last' (one of fresh,"
    )


def test_a_key_that_is_wanted_and_not_there_is_told_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default variable may be empty, as for a model on this machine; one that the suite names may not."""
    assert plane(tmp_path / "a", NAMED).table.key() is None
    with pytest.raises(InputError, match="MY_KEY is not set"):
        plane(tmp_path / "b", NAMED + 'key_env = "MY_KEY"\n')
    monkeypatch.setenv("MY_KEY", "two\nlines")
    with pytest.raises(InputError, match="what MY_KEY holds is not a key") as caught:
        plane(tmp_path / "c", NAMED + 'key_env = "MY_KEY"\n')
    assert "lines" not in str(caught.value)


def plane(root: Path, toml: str) -> ModelPlane:
    """As a worker makes it."""
    suite = make_suite(root, toml)
    assert suite.model is not None
    assert suite.target is not None
    return ModelPlane(suite.model, suite.target)


async def test_a_worker_whose_environment_names_another_model_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would answer with another model under the batch's name. A scorer, which asks nobody, may be anywhere."""
    runtime = SystemRuntime()
    bus = MemoryBus(MemoryWorld(runtime), runtime)
    monkeypatch.setenv("EVALBUS_MODEL", "m")
    suite = make_suite(tmp_path, f"{HEAD}[model]\n{URL}")
    batch = BatchId("b")
    await bus.create(spec_of(suite, batch))
    monkeypatch.setenv("EVALBUS_MODEL", "other")
    elsewhere = load_suite(tmp_path)
    worker = Worker(bus, runtime, ConsumerId("w"), tmp_path / "work")
    with pytest.raises(InputError) as caught:
        await Catalogue(bus, elsewhere, batch, prepare=worker.prepare).open_batches()
    assert str(caught.value) == (
        "batch 'b' asks the model m at http://127.0.0.1:1/v1, and this environment names other at "
        "http://127.0.0.1:1/v1 (set EVALBUS_MODEL and EVALBUS_MODEL_URL as they were where the batch was made)"
    )
    [served] = await Catalogue(bus, elsewhere, batch).open_batches()
    assert served.candidate == suite.candidate
