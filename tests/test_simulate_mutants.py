"""With a check of any one fence taken out, the simulation finds that something is broken, within few seeds.

The suites and the kinds of faults are those in which the check matters; the same seeds break nothing while it is there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from bus.errors import InputError
from bus.models import MODELS
from bus.models.model import Model
from tests.simulated import quiet
from workers.simulating.faults import ALL, Fault
from workers.simulating.findings import Finding
from workers.simulating.hand_backs import RULES
from workers.simulating.mutants import Mutant
from workers.simulating.play import Crew
from workers.simulating.schedule import Schedule, drawn
from workers.simulating.setting import built_in
from workers.simulating.shrinking import shrunk


@dataclass(frozen=True, slots=True)
class Hunt:
    """A policy, where it is looked for, and one of the properties that it breaks."""

    fence: str
    policy: str
    suites: tuple[str, ...]
    kinds: tuple[str, ...]
    breaks: str
    aim: str = ""
    """The only step that is struck, where a fault there is rare among all calls."""
    crew: Crew | None = None
    """By default the seed's."""

    def schedule(self, seed: int, mutant: Mutant) -> Schedule:
        """The seed's schedule with the check taken out."""
        whole = drawn([built_in(name) for name in self.suites], seed, self.kinds, mutant)
        whole = whole if self.crew is None else replace(whole, crew=self.crew)
        return whole.of(self._aimed(seed, whole.setting.suite.lease)) if self.aim else whole

    def _aimed(self, seed: int, lease: float) -> list[Fault]:
        """Four faults at its step, by different workers or at different times."""
        dice = random.Random(seed)
        places = {(f"worker-{dice.randint(1, 3)}", dice.randint(1, 4)) for _ in range(4)}
        return [
            Fault(process, self.aim, nth, dice.choice(self.kinds), round(lease * dice.uniform(1, 4), 3))
            for process, nth in sorted(places)
        ]

    def __str__(self) -> str:
        """As the tests are named by it."""
        return f"{self.fence}-{self.policy}"


HUNTS = (
    Hunt("transcript", "append_by_liveness", ("plain",), ("stall-before", "stall-after"), "transcript.P2"),
    Hunt("completion", "bind_on_shard_id", ("model",), ("bent",), "run.P1"),
    Hunt("admission", "retry_bypasses_bound", ("model", "fresh"), ("model-cut", "crash-after"), "admission.P1"),
    Hunt("histogram", "quorum_without_digest", ("plain",), ("bent",), "histogram.P3"),
    Hunt("judge", "sticky_routing", ("plain",), ("bent",), "judge.P1"),
    Hunt("outbox", "completion_ignores_executor", ("tools",), ("stall-after",), "outbox.P7", "tool_claim"),
    Hunt("indoubt", "shared_slots", ("tools",), ("overtaken", "lost"), "indoubt.P6"),
    Hunt("join", "commit_on_first_result", ("tools",), ALL, "replay.P1"),
    Hunt("plane", "shared_key", ("tools", "plain"), ("crossed",), "plane.P1"),
    Hunt("sandbox", "commit_on_200", ("disks",), ("bent",), "sandbox.P1"),
    Hunt("workspace", "gen_only", ("disks",), ("bent",), "workspace.P1"),
    Hunt("ledger", "step_counter", ("model",), ALL, "ledger.S1"),
)

_UNSEEN = ("unfit-unseen", "unfit-run")
HAND_BACKS = (
    Hunt("run", "hand_backs_count", ("plain",), _UNSEEN, "run.P14"),
    Hunt("run", "repeats_count", ("plain",), _UNSEEN, "run.P14"),
    Hunt("run", "what_is_seen_counts", ("plain",), ("unfit-all",), "run.P14", crew=Crew(workers=6)),
    Hunt("run", "whoever_is_at_work", ("plain",), _UNSEEN, "run.P14"),
)
"""Rules by which a machine's fault would be its run's."""

SEEDS = 80


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with quiet():
        yield


def test_every_fence_is_hunted() -> None:
    """One policy each."""
    assert sorted(hunt.fence for hunt in HUNTS) == sorted(MODELS)


def test_every_rule_of_hand_backs_is_hunted() -> None:
    """Likewise."""
    assert sorted(hunt.policy for hunt in HAND_BACKS) == sorted(RULES)


@pytest.mark.parametrize("hunt", [*HUNTS, *HAND_BACKS], ids=str)
def test_a_fence_without_its_check_is_found(hunt: Hunt) -> None:
    """And the very schedule that shows it breaks nothing when the check is there."""
    mutant = Mutant(hunt.fence, hunt.policy)
    for seed in range(SEEDS):
        played, finding = hunt.schedule(seed, mutant).found()
        if hunt.breaks in _broken(finding):
            _, intact = replace(hunt.schedule(seed, mutant).of(played.faults), mutant=None).found()
            assert intact.violations == ()
            return
    pytest.fail(f"{hunt} survived {SEEDS} schedules")


def test_a_shrunk_schedule_shows_the_same_and_would_not_without_any_one_of_its_faults() -> None:
    """Whatever else went wrong beside them is left out."""
    settings, mutant = [built_in("plain")], Mutant("transcript", "append_by_liveness")
    for seed in range(SEEDS):
        schedule = drawn(settings, seed, ("stall-before", "stall-after", "lost", "repeated"), mutant)
        played, finding = schedule.found()
        if "transcript.P2" in _broken(finding) and len(played.faults) > 1:
            short = shrunk(schedule, played.faults, "transcript.P2")
            assert short.faults is not None
            assert "transcript.P2" in _broken(short.found()[1])
            for fault in short.faults:
                without = short.of([other for other in short.faults if other is not fault])
                assert "transcript.P2" not in _broken(without.found()[1])
            return
    pytest.fail("no schedule of several faults showed it")


def test_an_unknown_policy_is_refused() -> None:
    """By the fence's name and its own."""
    with pytest.raises(InputError, match="no policy 'naive'"):
        _ = Mutant("judge", "naive").model
    with pytest.raises(InputError, match="no policy 'naive'"):
        _ = Mutant("run", "naive").rule


def test_a_mutant_adds_no_state_to_its_fence() -> None:
    """It takes over a model that was made as the fence's own, so it can have no other attributes than that."""
    for hunt in HUNTS:
        model: type[Model] = Mutant(hunt.fence, hunt.policy).model
        assert "__init__" not in vars(model), hunt
        assert issubclass(model, MODELS[hunt.fence])


def _broken(finding: Finding) -> set[str]:
    return {one.id for one in finding.violations}
