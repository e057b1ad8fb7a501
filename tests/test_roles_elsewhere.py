"""Roles that `evalbus run` did not start, on a server of the user's: another directory stands for another machine."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.port import Group
from bus.server import unix_url
from bus.target import Target
from tests.fleet import Stage, Watch, case, eventually
from tests.servers import Kind, Missing, binary, running

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


def result_of(stage: Stage) -> dict[str, Any]:
    """What `--json` wrote."""
    found: dict[str, Any] = json.loads((stage.root / "out.json").read_text())
    return found


async def consumers(batch: Watch, group: Group) -> set[str]:
    """Whoever has read from a group."""
    stream = batch.bus.keys(batch.batch).stream(group.stream)
    reply = await batch.bus.link.command("XINFO", "CONSUMERS", stream, group.value)
    return {dict(zip(flat[::2], flat[1::2], strict=True))[b"name"].decode() for flat in reply}


async def test_roles_elsewhere_finish_the_batch_and_those_with_an_altered_copy_take_nothing_of_it(
    stage: Stage, server: Target
) -> None:
    """`run` with no worker and no scorer: they are started in another directory, and given a copy of the suite.

    A copy may lie elsewhere and its directory have another name: what counts is its content. An altered one would
    answer, or judge, for a candidate that it is not; its role says so in one line and reads nothing, so that nothing
    has to be taken back from it.
    """
    url = unix_url(Path(server.path or ""))
    suite = stage.suite([case("a"), case("b", target="2"), case("c")])
    right = shutil.copytree(suite, stage.root / "right" / "a copy")
    wrong = shutil.copytree(suite, stage.root / "wrong" / "suite")
    (wrong / "agent.py").write_text((wrong / "agent.py").read_text() + "\n")
    run = stage.start("run", suite, "--workers", 0, "--scorers", 0, "--url", url, "--batch", "b", "--json", "out.json")
    async with stage.watch("b", url) as batch:

        async def admitted() -> bool:
            counters = await batch.counters()
            return counters is not None and counters.admitted == 3

        await eventually(admitted, "the runs to be admitted")
        planners = await consumers(batch, Group.PLANNER)
        altered = [
            stage.start(role, "--url", url, "--suite", wrong, "--name", f"wrong-{role}", cwd=wrong.parent)
            for role in ("planner", "worker", "scorer")
        ]
        for command in altered:
            done = await command.end()
            assert done.code == 2
            assert done.complaint.startswith("batch 'b' was made from another state of suite 'suite': ")
            assert "--suite" in done.complaint
        assert await consumers(batch, Group.PLANNER) == planners
        assert not await consumers(batch, Group.WORKER) | await consumers(batch, Group.SCORER)

        worker = stage.start("worker", "--url", url, "--suite", right, "--name", "far", cwd=right.parent)
        scorer = stage.start("scorer", "--url", url, "--suite", right, "--batch", "b", cwd=right.parent)
        assert (await run.end()).code == 0
        assert (await scorer.end()).code == 0, "with --batch it ends with the batch"
        worker.process.send_signal(signal.SIGTERM)
        assert (await worker.end()).code == 0, "without, it serves until it is told to stop"
        row = await batch.row("a#1")
        assert row is not None
        assert row.attempts == 1
        assert await consumers(batch, Group.WORKER) == {"far"}
    assert result_of(stage)["runs"] == {"a#1": "pass", "b#1": "fail", "c#1": "pass"}
    assert not stage.home.joinpath("server").exists(), "the user's server was used, and no other"


@pytest.mark.parametrize("kind", [Kind.REDIS8, Kind.REDIS7])
async def test_a_batch_closes_on_a_server_of_the_users_though_its_scripts_are_flushed_meanwhile(
    stage: Stage, kind: Kind
) -> None:
    """An operator, or a promotion, empties the script cache: each client loads again what it needs, unnoticed."""
    program = binary(kind)
    if isinstance(program, Missing):
        pytest.skip(program.reason)
    suite = stage.suite([case(f"c{number}", gate=f"go-{number}") for number in range(5)], quorum="100%")
    with running(kind, tcp=True) as server, server.client() as client:
        url = f"redis://{server.target.host}:{server.target.port}"
        run = stage.start(
            "run", suite, "--workers", 1, "--scorers", 1, "--url", url, "--batch", "b", "--json", "out.json"
        )
        async with stage.watch("b", url) as batch:
            for number in range(5):
                await eventually(batch.held, "the next run to run")
                client.script_flush()
                stage.open_gate(f"go-{number}")

                async def scored(count: int = number + 1) -> bool:
                    return (await batch.bus.counters(batch.batch)).scored == count

                await eventually(scored, "it to be scored")
        done = await run.end()
    assert done.code == 0, done.err
    result = result_of(stage)
    assert (result["state"], result["accepted"], result["holes"], result["rejects"]) == ("closed", 5, {}, {})
    assert all(line.startswith("suite · b: ") and "ended" not in line for line in done.err.splitlines()), done.err
