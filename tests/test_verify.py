"""`evalbus verify`: the acceptance rules on a live server, the mutants caught, and what makes it fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import cast

import pytest
import structlog

from bus import verify
from bus.acceptance import workspace as workspace_rules
from bus.acceptance.tool_server import Answer, Fault, ToolServer, call
from bus.connection import Endpoint
from bus.contract import PROTOCOLS
from bus.link import Door, Link
from bus.models import MODELS, MUTANTS, Model
from bus.models.workspace import Workspace
from bus.port import Runtime
from bus.redis_bus import RedisBus
from bus.server import unix_url
from bus.target import Target
from bus.vectors import ModelPlayer, Player
from tests.both import data_of
from workers import cli
from workers.runtime import SystemRuntime

HELD = "no stale verdict is attached"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the test's own to work and to have its home in; the command's logging goes with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALBUS_HOME", str(tmp_path / "home"))
    yield tmp_path
    structlog.reset_defaults()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few schedules, where the test is about something else than what they find."""
    monkeypatch.setattr(workspace_rules, "WAKE_UPS", 10)


def verified(*arguments: str) -> int:
    """Call `evalbus verify` in this process; its exit code. An exception that got through would fail the test."""
    with pytest.raises(SystemExit) as stop:
        cli.app(["verify", *arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def url_of(server: Target) -> str:
    """Where it listens, as the command line takes it."""
    return unix_url(Path(server.path or ""))


def played_by(mutant: str | None) -> Callable[..., Player]:
    """What makes players in the server's place: models, or mutants."""

    def make(_door: Door, _runtime: Runtime, *, bus: RedisBus) -> Player:
        assert bus is not None
        return ModelPlayer(mutant)

    return make


def test_two_fences_hold_on_a_server_of_its_own(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With no server named, one is started. The table, the file and the exit code say the same."""
    assert verified("workspace", "judge", "--json", "found.json", "--seed", "7") == 0
    out, err = capfd.readouterr()
    titles, first, second, summary = out.splitlines()
    assert titles.split() == ["fence", "property", "examined", "violations", "mutants", "caught"]
    assert first.startswith(f"workspace  {HELD}")
    assert "400 verdicts" in first
    assert first.endswith("job_id_only, gen_only")
    assert second.endswith("sticky_routing")
    assert summary == "seed 7: 2 properties, 0 broken; 3 mutants, 0 survived"
    assert err.splitlines() == ["workspace …", "judge …"]

    found = json.loads((place / "found.json").read_text())
    assert found.keys() == {"seed", "fences"}
    assert found["seed"] == 7
    assert found["fences"][0] == {
        "fence": "workspace",
        "property": HELD,
        "denominator": 400,
        "violations": 0,
        "mutants": {"job_id_only": HELD, "gen_only": HELD},
    }
    assert [line["fence"] for line in found["fences"]] == ["workspace", "judge"]


@pytest.mark.usefixtures("few")
async def test_nothing_is_left_of_it_on_the_server(server: Target) -> None:
    """Each schedule has a batch of its own, under a random name; with thousands of them a leak would be felt."""
    endpoint = Endpoint(server)
    played: list[str] = []
    found = await verify.verify(["workspace"], endpoint, SystemRuntime(), seed=1, tick=lambda f, _: played.append(f))
    assert found.ok
    assert played == ["workspace"] * 3 * 40, "the server and two mutants"

    link = Link(endpoint, SystemRuntime())
    left = await data_of(link)
    link.close()
    assert left == {}


@pytest.mark.usefixtures("few")
def test_a_mutant_that_survives_makes_it_fail(
    server: Target, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A policy under which nothing breaks: either it is not naive, or the rule cannot see. Neither proves anything."""
    mutants = cast(MutableMapping[str, type[Model]], MUTANTS["workspace"])
    monkeypatch.setitem(mutants, "gen_only", Workspace)
    assert verified("workspace", "--url", url_of(server), "--json", "found.json") == 5
    out, _ = capfd.readouterr()
    assert "gen_only SURVIVED" in out
    assert out.splitlines()[-1] == "seed 1: 1 properties, 1 broken; 2 mutants, 1 survived"
    (line,) = json.loads((place / "found.json").read_text())["fences"]
    assert (line["violations"], line["mutants"]) == (0, {"job_id_only": HELD, "gen_only": None})


@pytest.mark.usefixtures("few")
def test_a_server_that_breaks_a_property_makes_it_fail(
    server: Target, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fence with a check taken out stands in for the server: how to find the schedules again is said."""
    monkeypatch.setattr(verify, "ServerPlayer", played_by("gen_only"))
    assert verified("workspace", "--url", url_of(server), "--json", "found.json") == 5
    out, _ = capfd.readouterr()
    assert f"workspace: {HELD}: broken by hash drift, seed " in out
    (line,) = json.loads((place / "found.json").read_text())["fences"]
    assert line["violations"] > 0
    assert None not in line["mutants"].values()


@pytest.mark.usefixtures("few")
async def test_the_same_seed_finds_the_same_violations(server: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a violation would be of no use if it could not be played again."""
    monkeypatch.setattr(verify, "ServerPlayer", played_by("job_id_only"))

    async def broken(seed: int) -> tuple[str, ...]:
        found = await verify.verify(["workspace"], Endpoint(server), SystemRuntime(), seed=seed, tick=lambda *_: None)
        return tuple(sorted(found.lines[0].stories))

    assert await broken(3) == await broken(3) != await broken(300)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["workspce"], "no fence 'workspce' (did you mean workspace? it is one of plane, "),
        (["workspace", "Judge"], "no fence 'Judge' (did you mean judge? it is one of plane, "),
        (["workspace", "--json", "no/out.json"], "no/out.json: its directory does not exist"),
        (["workspace", "--json", "."], ".: is a directory"),
    ],
    ids=["unknown fence", "one of two unknown", "no directory", "directory"],
)
def test_bad_input_is_one_line_and_starts_nothing(
    arguments: list[str], line: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Found before a server is started and minutes are spent."""
    assert verified(*arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (told,) = err.splitlines()
    assert told.startswith(f"evalbus: {line}"), told
    assert list(place.iterdir()) == []


def test_every_fence_has_rules_in_the_order_of_the_fences() -> None:
    """A fence without one would be verified by being passed over."""
    assert tuple(verify.FENCES) == tuple(PROTOCOLS)
    assert verify.FENCES.keys() == MODELS.keys()
    assert all(module.RULES for module in verify.FENCES.values())


def test_every_mutant_is_claimed_by_a_rule() -> None:
    """A naive policy that no rule is there to catch would survive unseen; one that is not there cannot be caught."""
    assert verify.unclaimed_mutants() == {}
    for fence, module in verify.FENCES.items():
        assert {mutant for rule in module.RULES for mutant in rule.breaks} <= MUTANTS[fence].keys()


async def test_the_tool_has_one_effect_a_key_and_one_a_call_without() -> None:
    """The header is what makes a call safe to send again, also where the first answer was lost."""
    async with ToolServer() as tool:
        tool.misbehave("s", Fault.DROP_ANSWER)
        assert await call(tool.port, "book", {"subject": "s"}, key="k") is None
        assert tool.made["s"] == 1
        assert await call(tool.port, "book", {"subject": "s"}, key="k") == Answer(200, "k", "effect 1 on s")
        assert tool.made["s"] == 1
        for _ in range(2):
            assert await call(tool.port, "book", {"subject": "s"}, key=None)
        assert tool.made["s"] == tool.standing["s"] == 3


async def test_the_tool_refuses_a_key_whose_undo_came_first() -> None:
    """A slow original must not land after its undo, nor an undo take back what was never there."""
    async with ToolServer() as tool:
        for key in ("done before", "never done"):
            if key == "done before":
                await call(tool.port, "book", {"subject": "s"}, key=key)
            for _ in range(2):
                undo = await call(tool.port, "cancel", {"subject": "s"}, key=f"{key}~undo", undoes=key)
                assert undo is not None
                assert undo.ok
            late = await call(tool.port, "book", {"subject": "s"}, key=key)
            assert late is not None
            assert (late.status, late.ok) == (409, False)
        assert (tool.made["s"], tool.standing["s"]) == (1, 0)


async def test_the_tool_can_lose_its_echo_or_refuse() -> None:
    """Once each: an effect that is told without its key, and none at all."""
    async with ToolServer() as tool:
        tool.misbehave("s", Fault.NO_ECHO)
        assert await call(tool.port, "book", {"subject": "s"}, key="k") == Answer(200, None, "effect 1 on s")
        tool.misbehave("t", Fault.REFUSE)
        refused = await call(tool.port, "book", {"subject": "t"}, key="l")
        assert refused == Answer(422, "l", "nothing was done")
        assert (tool.made["s"], tool.made["t"]) == (1, 0)
