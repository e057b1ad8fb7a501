"""Secrets by file: read like the variable's own value, hidden like it, and a file that is none is one clear line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.server import unix_url
from bus.target import Target
from tests.fleet import Stage, case, eventually
from tests.servers import RealServer
from workers.bundle import BUNDLE_KEY, BundleKey, take_key
from workers.modelling.table import ModelTable
from workers.processes.role_options import Role
from workers.redaction import forget, hide_access, hide_variable, redacted
from workers.secret_files import glance, secret
from workers.tools.headers import complaint, headers_of

WORD = "canary-of-a-file-4711"


@pytest.fixture(autouse=True)
def nothing_hidden() -> Iterator[None]:
    """What one test hides is no secret of the next."""
    yield
    forget()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a secret, which A_KEY_FILE names."""
    path = tmp_path / "a key"
    path.write_text(WORD + "\n")
    monkeypatch.setenv("A_KEY_FILE", str(path))
    monkeypatch.delenv("A_KEY", raising=False)
    return path


@pytest.mark.usefixtures("file")
def test_a_secret_is_the_content_of_the_file_that_is_named() -> None:
    """Without the line end that every editor adds; of a model, and of a tool's headers."""
    assert secret("A_KEY") == WORD
    assert ModelTable.model_validate({"key_env": "A_KEY"}).key() == WORD
    assert complaint({"X-Key": "A_KEY"}) is None
    assert headers_of({"X-Key": "A_KEY"}) == {"X-Key": WORD}


@pytest.mark.usefixtures("file")
def test_it_is_hidden_as_the_value_of_a_variable_is() -> None:
    """Wherever it stands."""
    hide_variable("A_KEY")
    assert redacted(json.dumps({"said": f"it is {WORD}"})) == '{"said": "it is ***"}'


def test_without_either_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with two empty ones: a template that was not filled in."""
    monkeypatch.delenv("A_KEY", raising=False)
    monkeypatch.delenv("A_KEY_FILE", raising=False)
    assert secret("A_KEY") == ""
    monkeypatch.setenv("A_KEY_FILE", "")
    monkeypatch.setenv("A_KEY", WORD)
    assert secret("A_KEY") == WORD


@pytest.mark.parametrize("fault", ["missing", "a directory", "empty", "blank", "too large", "both"])
def test_what_is_wrong_is_one_line_that_names_the_file(file: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """And never a part of what stands in it."""
    match fault:
        case "missing":
            file.unlink()
        case "a directory":
            monkeypatch.setenv("A_KEY_FILE", str(file.parent))
        case "empty":
            file.write_text("")
        case "blank":
            file.write_text(" \n\n")
        case "too large":
            file.write_text(WORD * 10_000)
        case "both":
            monkeypatch.setenv("A_KEY", WORD)
    with pytest.raises(InputError) as refused:
        secret("A_KEY")
    said = str(refused.value)
    assert "A_KEY_FILE" in said and "\n" not in said and WORD not in said
    assert fault == "both" or str(file.parent) in said
    assert glance("A_KEY") == ""
    assert "A_KEY_FILE" in str(complaint({"X-Key": "A_KEY"}))


def test_the_key_of_bundles_is_taken_with_its_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the suite, later in this process, is not told where it is."""
    monkeypatch.setenv(BUNDLE_KEY + "_FILE", str(file))
    assert take_key() == BundleKey(WORD.encode())
    assert take_key() is None
    assert WORD not in redacted(WORD)


@pytest.mark.parametrize(
    "url",
    [f"redis://u:{WORD}@h", f"sentinel://h/n?sentinel_password={WORD}", "redis://u:canary%2Fof%40a%20url@h"],
    ids=["server", "sentinels", "percent"],
)
def test_the_servers_password_is_hidden(url: str) -> None:
    """As it stands in the URL, and as it is sent."""
    hide_access(url)
    assert "canary" not in redacted(url)
    assert url.endswith("url@h") == (redacted("canary/of@a url") == "***")


def test_a_password_that_is_a_common_word_is_left_alone() -> None:
    """A model may say it, and the verdict would be about another answer."""
    hide_access("redis://u:password@h")
    assert redacted("the password") == "the password"


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"])
def test_the_keys_of_the_bucket_are_hidden(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """They are in the environment of every worker with `--artifacts s3://…`."""
    monkeypatch.setenv(variable, WORD)
    hide_access(None)
    assert redacted(WORD) == "***"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own."""
    with Stage.opened(tmp_path) as opened:
        yield opened


@pytest.mark.process
async def test_no_process_of_a_run_shows_its_url_or_keys_in_its_command_line(
    stage: Stage, valkey: RealServer, server: Target
) -> None:
    """URL and bundle key come by file, the model's key by variable. `ps` is for every user of the machine."""
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "boss", "on", f">{WORD}", "~*", "&*", "+@all")
    url = unix_url(Path(server.path or "")).replace("unix://", f"unix://boss:{WORD}@")
    files = {"EVALBUS_URL": url, BUNDLE_KEY: "canary-of-bundles-0123"}
    env = {"OPENAI_API_KEY": "canary-of-a-model-0815"}
    for name, text in files.items():
        (stage.root / name).write_text(text + "\n")
        env[name + "_FILE"] = str(stage.root / name)
    suite = stage.suite([case("a", gate="go")], directory="plain")
    run = stage.start("run", suite, "--batch", "b", "--workers", 1, "--scorers", 1, env=env)
    try:
        async with stage.watch("b", url) as batch:
            await eventually(batch.held, "the run to be held")
            assert {one.options.role for one in await stage.crew(len(Role)) if one.options} == set(Role)
            for process in stage.processes():
                assert "canary" not in " ".join(process.arguments), process.arguments
            stage.open_gate("go")
        assert (done := await run.end()).code == 0, done.err
    finally:
        with valkey.client() as client:
            client.execute_command("ACL", "DELUSER", "boss")
    logs = "".join(path.read_text() for path in stage.home.rglob("*.log"))
    assert "role.started" in logs and "canary" not in logs + done.out + done.err


@pytest.mark.process
async def test_a_file_that_is_not_there_is_one_line_of_any_command(stage: Stage) -> None:
    """Exit 2; no server is started in place of the one that was meant."""
    for command in (("status",), ("run", stage.suite([case("a")]))):
        done = await stage.start(*command, env={"EVALBUS_URL_FILE": str(stage.root / "none")}).end()
        assert done.code == 2
        assert "cannot be read for EVALBUS_URL_FILE: no such file" in done.complaint
    assert not stage.home.exists()


@pytest.mark.process
async def test_the_token_of_the_dashboard_may_stand_in_a_file(stage: Stage) -> None:
    """What is in it is the token: one that can be guessed is refused as if it had been typed."""
    (stage.root / "token").write_text("guess\n")
    done = await stage.start("serve", env={"EVALBUS_TOKEN_FILE": str(stage.root / "token")}).end()
    assert (done.code, "a token of 5 characters can be guessed" in done.complaint) == (2, True)
