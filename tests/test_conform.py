"""`evalbus conform`: vectors through the scripts of a live server and through the models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bus.conform import Conformance, collect, conform, conform_on_server
from bus.connection import Endpoint
from bus.contract import CONTRACT, PROTOCOLS
from bus.errors import InputError
from bus.keys import registry
from bus.link import Link
from bus.server_player import ServerPlayer
from bus.target import Target
from bus.types import Plane
from bus.vectors import ModelPlayer, Player, load_vector
from tests.both import data_of
from workers.runtime import SystemRuntime

VECTORS = Path(__file__).parent / "vectors"
FILES = sorted(VECTORS.rglob("*.json"))
FORGED = VECTORS / "07-transcript" / "forged-prefix.json"


@pytest.fixture
async def player(server: Target) -> AsyncIterator[ServerPlayer]:
    """A player on the session's Valkey."""
    player = ServerPlayer(Endpoint(server), SystemRuntime())
    yield player
    await player.aclose()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
async def test_a_vector_is_met_by_every_kind_of_server_and_by_the_model(any_server: Target, file: Path) -> None:
    """The contract, case by case. Afterwards no key of the played batch is left on the server."""
    lines: list[str] = []
    summary = await conform_on_server(collect([file]), Endpoint(any_server), SystemRuntime(), lines.append)

    steps = len(load_vector(file).ops)
    assert lines == [
        f"ok   {_label(file):<44} server {steps} steps, model {steps} steps",
        "1 vector played on both sides; 0 differ",
    ]
    assert (summary.passed, summary.differed) == (1, 0)
    link = Link(Endpoint(any_server), SystemRuntime())
    assert await link.command("DBSIZE") == 0
    link.close()


def test_every_fence_of_this_release_has_vectors() -> None:
    """A fence without one would pass `conform` by being silent."""
    assert {load_vector(file).protocol for file in FILES} == set(CONTRACT)


async def test_a_wrong_answer_is_shown_in_full_on_both_sides(player: ServerPlayer, tmp_path: Path) -> None:
    """An expectation that neither meets: the place, what was expected, what came, and the whole answer."""
    data = _read(FORGED)
    number = next(i for i, op in enumerate(data["ops"], 1) if op["expect"].get("reason") == "forged_prefix")
    data["ops"][number - 1]["expect"]["reason"] = "sealed"
    lines: list[str] = []
    summary = await _play([_written(tmp_path, data)], player, lines)

    assert (summary.passed, summary.differed, summary.ok) == (0, 1, False)
    problem = (
        f'op {number} append: expected reason "sealed", got "forged_prefix"; '
        'the whole answer: {"verb": "reject", "reason": "forged_prefix"}'
    )
    first, *sides = lines[0].splitlines()
    assert first.split() == ["DIFF", "transcript/forged-prefix", "server", "differs,", "model", "differs"]
    assert sides == [f"     server: {problem}", f"     model: {problem}"]


async def test_a_wrong_final_state_is_shown_in_full(player: ServerPlayer, tmp_path: Path) -> None:
    """All answers may be right and what was written not: the state is compared field by field."""
    data = _read(FORGED)
    data["final"]["refusals"] = {"forged_prefix": 99}
    lines: list[str] = []
    summary = await _play([_written(tmp_path, data)], player, lines)

    assert summary.differed == 1
    [_, server, model] = lines[0].splitlines()
    assert 'server: final: expected refusals {"forged_prefix": 99}, got {' in server
    assert 'the whole state: {"transcripts": {' in server
    assert server.removeprefix("     server") == model.removeprefix("     model")


async def test_a_side_that_differs_alone_is_named() -> None:
    """A fence with a check taken out stands in for a server with a bug: the model's side stays clean."""
    lines: list[str] = []
    summary = await _play([FORGED], ModelPlayer("gen_only"), lines)

    assert (summary.passed, summary.differed) == (0, 1)
    first, *sides = lines[0].splitlines()
    assert first.split()[2:] == ["server", "differs,", "model", "7", "steps"]
    assert [side.split(":")[0].strip() for side in sides] == ["server"]


async def test_a_vector_that_fails_leaves_no_key_behind(player: ServerPlayer, server: Target, tmp_path: Path) -> None:
    """The batch of a vector is removed after a difference too, its entry in the registry with it."""
    data = _read(FORGED)
    data["ops"][1]["expect"] = {"verb": "compensate"}
    await _play([_written(tmp_path, data)], player, [])

    link = Link(Endpoint(server), SystemRuntime())
    assert await data_of(link) == {}
    link.close()


async def test_no_role_finds_the_batch_of_a_vector(player: ServerPlayer, server: Target) -> None:
    """A worker on the same server looks in the registry for work; a vector is none."""
    await player.begin("transcript", {})
    link = Link(Endpoint(server), SystemRuntime())
    assert await link.command("HGETALL", registry(Plane.LIVE)) == []
    assert await link.command("EXISTS", player.keys.batch_row) == 1
    link.close()
    await player.end()


async def test_a_directory_is_played_in_order_and_what_is_not_built_is_counted(tmp_path: Path) -> None:
    """A collection may be ahead of the release. It is said, not passed over in silence."""
    late = [name for name in PROTOCOLS if name not in CONTRACT]
    if not late:
        pytest.skip("every protocol is built")
    for name in ("b", "a"):
        _written(tmp_path / "07-transcript", _read(FORGED) | {"name": name})
        _written(tmp_path / "later", {"protocol": late[0], "name": name})
    lines: list[str] = []
    summary = await _play([tmp_path], ModelPlayer(), lines)

    assert [line.split()[1] for line in lines] == ["transcript/a", "transcript/b"]
    assert summary.not_built == {late[0]: 2}
    assert str(summary) == (
        f"2 vectors played on both sides; 0 differ; 2 passed over, of protocols not built yet: {late[0]}"
    )


async def test_a_file_of_a_protocol_that_is_not_built_is_an_error(tmp_path: Path) -> None:
    """Who names a file wants it played."""
    late = [name for name in PROTOCOLS if name not in CONTRACT]
    if not late:
        pytest.skip("every protocol is built")
    file = _written(tmp_path, {"protocol": late[0], "name": "x", "config": {}, "ops": [], "final": {}})
    await _one_line([file], f"{file}: protocol '{late[0]}' is not built yet")


async def test_bad_input_is_one_line_and_plays_nothing(tmp_path: Path) -> None:
    """The good vectors beside it are not played either: a mistake in the command is found before it takes time."""
    (tmp_path / "empty").mkdir()
    cases = {
        tmp_path / "nowhere.json": "cannot be read: No such file or directory",
        tmp_path / "empty": "no vector below this directory (vectors are *.json files)",
        _text(tmp_path / "cut.json", '{"protocol":\n'): "not JSON: Expecting value",
        _text(tmp_path / "list.json", "[]"): "the vector must be an object",
        _written(tmp_path, _read(FORGED) | {"protocol": "transcripd", "name": "p"}): "did you mean 'transcript'?",
        _written(tmp_path, _read(FORGED) | {"final": {"event": 1}, "name": "f"}): "final: field 'event' is unknown",
    }
    for path, problem in cases.items():
        await _one_line([FORGED, path], problem)
        if path.is_file():
            await _one_line([path.parent], "")


async def _play(paths: list[Path], player: Player, lines: list[str]) -> Conformance:
    return await conform(collect(paths), player, lines.append)


async def _one_line(paths: list[Path], problem: str) -> None:
    lines: list[str] = []
    with pytest.raises(InputError) as caught:
        await _play(paths, ModelPlayer(), lines)
    text = str(caught.value)
    assert problem in text
    assert len(text.splitlines()) == 1
    assert lines == []


def _label(file: Path) -> str:
    vector = load_vector(file)
    return f"{vector.protocol}/{vector.name}"


def _read(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def _written(directory: Path, data: Mapping[str, Any]) -> Path:
    directory.mkdir(exist_ok=True)
    return _text(directory / f"{data['name']}.json", json.dumps(data))


def _text(file: Path, text: str) -> Path:
    file.write_text(text)
    return file
