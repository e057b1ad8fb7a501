"""The reference models: they meet the vectors, the contract and the schema, and lose none of the fences' races.

The exhaustive side is in `test_invariants.py`; here stand the races that one must be able to read.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bus.models
from bus.contract import CONTRACT, Arg, Kind
from bus.models import MODELS, MUTANTS, Answer, Model, build
from bus.models.admission import Admission
from bus.models.completion import Completion
from bus.models.histogram import Histogram
from bus.models.join import Join, window_of
from bus.models.judge import Judge
from bus.models.ledger import Ledger
from bus.models.plane import Plane
from bus.models.transcript import EMPTY, Transcript, chain
from bus.vectors import ModelPlayer, load_vector, play

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*/*.json"))


def told(model: Model, op: str, **args: object) -> str:
    """Play one operation; its verb and reason, as `reject stale_gen`."""
    answer = model.decide(op, args)
    return f"{answer.verb.value} {answer.reason}" if answer.reason else answer.verb.value


def granted(model: Model, op: str, **args: object) -> Answer:
    """Play one operation that must be granted."""
    answer = model.decide(op, args)
    assert answer.verb == "commit", answer
    return answer


# --- vectors and contract --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_a_model_meets_every_expectation_of_its_vectors(path: Path) -> None:
    """Each file is played alone, from the empty state, up to its final state."""
    report = await play(load_vector(path), ModelPlayer())
    assert report.passed, str(report.difference)
    assert report.played == len(report.vector.ops) > 0


def test_every_fence_has_vectors_under_its_number() -> None:
    """The files lie where the contract's numbers say, and none of a fence that is built is forgotten."""
    assert {path.parent.name for path in VECTORS} == {f"{one.number:02}-{one.name}" for one in CONTRACT.values()}
    assert all(load_vector(path).name == path.stem for path in VECTORS)


@pytest.mark.parametrize(("fence", "mutant"), [(fence, name) for fence in MUTANTS for name in MUTANTS[fence]])
async def test_a_naive_policy_fails_a_vector_of_its_fence(fence: str, mutant: str) -> None:
    """A vector that every policy passes would say nothing about the fence."""
    reports = [await play(load_vector(path), ModelPlayer(mutant)) for path in VECTORS if fence in path.parent.name]
    assert not all(report.passed for report in reports)


@pytest.mark.parametrize("fence", sorted(CONTRACT))
def test_a_model_declares_what_the_contract_says(fence: str) -> None:
    """Two tables, written apart: an argument that one of them forgot shows here."""
    model, contract = MODELS[fence], CONTRACT[fence]
    assert ", ".join(map(str, contract.config)) == model.CONFIG
    assert {name: ", ".join(map(str, op.args)) for name, op in contract.ops.items()} == dict(model.OPS)


def test_the_models_are_those_of_the_contract() -> None:
    """One class a fence, under its own name."""
    assert MODELS.keys() == CONTRACT.keys()
    assert all(fence == model.FENCE for fence, model in MODELS.items())


def test_the_models_import_nothing_of_the_project_but_themselves() -> None:
    """What judges the server must not share its code."""
    for source in Path(bus.models.__path__[0]).glob("*.py"):
        for name in _imported(ast.parse(source.read_text("utf-8"))):
            root = name.partition(".")[0]
            assert root in sys.stdlib_module_names or name.startswith("bus.models"), f"{source.name}: {name}"


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module or ""


# --- the schema ------------------------------------------------------------------------------------------

CONFIGS: dict[str, dict[str, object]] = {
    "join": {"budget": 10, "budget_epoch": 1},
    "plane": {"capacity": 1},
    "outbox": {"ack_bound_ms": 1000, "inverses": {}},
    "indoubt": {},
    "histogram": {"intended": ["n1"], "quorum": 1, "bins": ["pass", "fail"], "max_in_flight": 1},
    "completion": {"compute_retries": 1, "model_retries": 1},
    "judge": {"policy": "reject", "replay_budget": 0},
    "ledger": {"budget": 100},
    "transcript": {},
    "sandbox": {"heartbeat_ms": 1000},
    "workspace": {"schemas": ["v1"]},
    "admission": {"bound": 1, "reclaim_ms": 1000},
}

GOOD: dict[Kind, object] = {
    Kind.STR: "x",
    Kind.INT: 0,
    Kind.INT1: 1,
    Kind.BOOL: False,
    Kind.DRAWN: "id",
    Kind.OBJ: {"a": 1},
    Kind.STRS: ["x"],
}

NO_TEXT: tuple[object, ...] = ("", 1, True, [], {}, ["x"], "\ud800", b"x")
NO_NUMBER: tuple[object, ...] = (-1, 2**53, 1.0, 1.5, True, "1", "", [1], {})
MALFORMED: dict[Kind, tuple[object, ...]] = {
    Kind.STR: NO_TEXT,
    Kind.DRAWN: NO_TEXT,
    Kind.INT: NO_NUMBER,
    Kind.INT1: (0, *NO_NUMBER),
    Kind.BOOL: (0, 1, "true", "", [], {}),
    Kind.STRS: (0, 1.5, True, "", "x", {}, {"x": "y"}, [], [""], ["x", 1], [["x"]], ["x", "\ud800"], [None]),
    Kind.OBJ: (0, 1.5, True, "", "{}", [], [{}], {"a": ["\ud800"]}, {"a": float("nan")}),
}

ARGUMENTS = [
    pytest.param(fence.name, op.name, arg, id=f"{fence.name}.{op.name} {arg}")
    for fence in CONTRACT.values()
    for op in fence.ops.values()
    for arg in op.args
]


SHAPED: dict[tuple[str, str], dict[str, tuple[object, ...]]] = {
    ("histogram", "score"): {"bin": ("pass", "fail")},
    ("workspace", "attach"): {"schema": ("v1",)},
    ("plane", "rewrite"): {"run": (" ", "é", "😀", "\x00"), "step": (" ", "é", "😀", "\x00")},
    ("plane", "admit"): {"key": ("live:n1:pay", "shadow: :é", "live:😀:\x00"), "plane": ("live", "shadow")},
}
"""Arguments that are refused as `schema` unless they are more than text: the first is good, the others at the edge."""


def _shaped(fence: str, op: str) -> dict[str, tuple[object, ...]]:
    return SHAPED.get((fence, op), {})


def _good(fence: str, op: str) -> dict[str, object]:
    plain = {arg.name: GOOD[arg.kind] for arg in CONTRACT[fence].ops[op].args}
    return plain | {name: values[0] for name, values in _shaped(fence, op).items()}


@pytest.mark.parametrize(("fence", "op", "arg"), ARGUMENTS)
def test_a_malformed_argument_is_refused_before_any_check_and_counted(fence: str, op: str, arg: Arg) -> None:
    """Absent, null, empty, of another type, out of range; nothing but the count of refusals moves."""
    model = build(fence, CONFIGS[fence])
    empty = model.state()
    without = {name: value for name, value in _good(fence, op).items() if name != arg.name}
    spoilt = [{**without, arg.name: value} for value in MALFORMED[arg.kind]]
    if not arg.optional and arg.kind is not Kind.DRAWN:
        spoilt += [without, {**without, arg.name: None}]
    for args in spoilt:
        assert told(model, op, **args) == f"reject {arg.otherwise}", args
    assert model.dump() == {**empty, "refusals": {arg.otherwise: len(spoilt)}}


@pytest.mark.parametrize(("fence", "op", "arg"), ARGUMENTS)
def test_a_well_formed_argument_at_the_edge_is_not_refused_for_its_form(fence: str, op: str, arg: Arg) -> None:
    """The smallest and the largest number, text of one letter, of blanks, beyond ASCII and beyond 16 bits."""
    edges: dict[Kind, tuple[object, ...]] = {
        Kind.STR: (" ", "é", "😀", "a:b", "\x00"),
        Kind.DRAWN: ("é", None),
        Kind.INT: (0, 2**53 - 1),
        Kind.INT1: (1, 2**53 - 1),
        Kind.BOOL: (True, False),
        Kind.STRS: ([" "], ["x", "x"], ["\x00", "a:b", "😀"]),
        Kind.OBJ: ({}, {"": [None, {"é": 1.5}]}),
    }
    values = [*edges[arg.kind], *([None] if arg.optional else [])]
    values = list(_shaped(fence, op).get(arg.name, values))
    rest = _good(fence, op)
    for value in values:
        answer = build(fence, CONFIGS[fence]).decide(op, {**rest, arg.name: value})
        assert answer.reason != "schema", value


def test_an_argument_that_the_operation_does_not_have_is_refused() -> None:
    """A misspelt optional argument would otherwise be dropped in silence."""
    model = build("histogram", CONFIGS["histogram"])
    assert told(model, "drain", now=True) == "reject schema"
    assert told(model, "drain") == "commit"


def test_a_missing_identity_is_unbound_only_when_the_rest_is_well_formed() -> None:
    """Of a missing observation and a missing epoch, the epoch is told first."""
    judge = Judge(policy="reject", replay_budget=0)
    signed: dict[str, object] = {"run": "n1", "observed_candidate": "ca", "epoch": 1, "score_digest": "d1"}
    assert told(judge, "commit", **signed) == "reject unbound"
    assert told(judge, "commit", **(signed | {"epoch": 0})) == "reject schema"
    assert judge.refusals == {"unbound": 1, "schema": 1}


def test_an_operation_that_a_fence_does_not_have_is_an_error_of_the_caller() -> None:
    """A refusal would hide the slip in the history."""
    with pytest.raises(LookupError, match="transcript has no operation 'apend'"):
        Transcript().decide("apend", {})


# --- transcript ------------------------------------------------------------------------------------------


def append(run: str, lease_id: str, gen: object, parent: str, seq: int, payload: str) -> dict[str, object]:
    """The arguments of an append."""
    return {"run": run, "lease_id": lease_id, "gen": gen, "parent": parent, "seq": seq, "payload": payload}


def test_a_preempted_workers_event_never_enters_its_successors_transcript() -> None:
    """The old worker wakes up between the successor's lease and its first event, and loses."""
    transcript = Transcript()
    old = granted(transcript, "lease", run="n1", lease_id="la").fields["gen"]
    new = granted(transcript, "lease", run="n1", lease_id="lb").fields["gen"]
    assert told(transcript, "append", **append("n1", "la", old, EMPTY, 1, "late")) == "reject stale_gen"
    assert told(transcript, "append", **append("n1", "lb", new, EMPTY, 1, "mine")) == "commit"
    assert transcript.runs["n1"].events == ["mine"]
    assert [letter.event.payload for letter in transcript.dead_letters] == ["late"]


def test_a_lease_request_that_comes_late_takes_the_run_from_nobody() -> None:
    """The first holder's request is delivered a second time, after its successor got the run."""
    transcript = Transcript()
    first = granted(transcript, "lease", run="n1", lease_id="la")
    assert transcript.decide("lease", {"run": "n1", "lease_id": "la"}).fields == first.fields
    granted(transcript, "lease", run="n1", lease_id="lb")
    assert told(transcript, "lease", run="n1", lease_id="la") == "reject lease_reused"
    assert told(transcript, "resume", run="n1", lease_id="lb", gen=2) == "commit"


def test_a_duplicate_is_told_from_another_event_at_the_same_place() -> None:
    """The answer to an append was lost: the same bytes are a duplicate, others at that seq a forgery."""
    transcript = Transcript()
    gen = granted(transcript, "lease", run="n1", lease_id="la").fields["gen"]
    granted(transcript, "append", **append("n1", "la", gen, EMPTY, 1, "plan"))
    granted(transcript, "append", **append("n1", "la", gen, chain(EMPTY, "plan"), 2, "call"))
    assert told(transcript, "append", **append("n1", "la", gen, EMPTY, 1, "plan")) == "duplicate"
    assert told(transcript, "append", **append("n1", "la", gen, EMPTY, 1, "other")) == "reject forged_prefix"


def test_the_head_is_the_hash_of_the_parents_text_followed_by_the_payload() -> None:
    """Known values, beyond ASCII too: another implementation must come to the same head."""
    assert chain(EMPTY, "plan") == "d35a18dfe6bbe1075facab249e524769764ef3c7284125527a586bc6f14e8baa"
    assert chain("ab", "é☃😀") == "da3132c12d07fe2abef3ce310d3bf2320ce456113079c313311407c4ef3c383a"


def test_an_intention_survives_its_holder_and_is_resolved_at_its_place_only() -> None:
    """A worker dies between the intention and the outcome; its successor can neither skip it nor write over it."""
    transcript = Transcript()
    gen = granted(transcript, "lease", run="n1", lease_id="la").fields["gen"]
    holder = {"run": "n1", "lease_id": "la", "gen": gen, "parent": EMPTY}
    granted(transcript, "intend", **holder, seq=1, digest="call-7")
    assert told(transcript, "intend", **holder, seq=1, digest="call-8") == "reject intent_conflict"
    lease = granted(transcript, "lease", run="n1", lease_id="lb").fields
    assert lease["unresolved"] == [1]
    holder = {"run": "n1", "lease_id": "lb", "gen": lease["gen"], "parent": EMPTY}
    assert told(transcript, "append", **holder, seq=1, payload="x", intent="call-8") == "reject intent_mismatch"
    assert told(transcript, "append", **holder, seq=1, payload="lost", intent="call-7") == "commit"


# --- histogram -------------------------------------------------------------------------------------------


def histogram(**config: object) -> Model:
    """Two runs, one bin that passes and one that does not."""
    whole = {"intended": ["n1", "n2"], "quorum": 1, "bins": ["pass", "fail"], "max_in_flight": 2, **config}
    return build("histogram", whole)


def test_no_order_of_arrival_shows_in_the_snapshot() -> None:
    """Two scorers, either first; a restart of one of them and a refusal do not show either."""
    snapshots = set()
    for order in (("n1", "n2"), ("n2", "n1")):
        batch = histogram()
        for run in order:
            granted(batch, "fence", run=run, epoch=1, digest=f"art-{run}")
        for run in order:
            told(batch, "score", run=run, epoch=9, digest="dirty", bin="pass", value="1")
            granted(batch, "score", run=run, epoch=1, digest=f"art-{run}", bin="pass", value="é/")
        granted(batch, "drain")
        snapshots.add(granted(batch, "close").fields["snapshot_id"])
    assert len(snapshots) == 1


def test_a_slow_run_holds_the_close_until_it_is_scored_or_named() -> None:
    """The quorum is reached by the fast run: closing there would drop whatever is slow."""
    batch = histogram()
    granted(batch, "fence", run="n1", epoch=1, digest="art")
    granted(batch, "score", run="n1", epoch=1, digest="art", bin="pass", value="1")
    assert told(batch, "close") == "in_doubt not_drained"
    granted(batch, "drain")
    assert told(batch, "close") == "in_doubt in_flight"
    granted(batch, "abandon", run="n2", epoch=0, why="never_started")
    assert told(batch, "close") == "commit"


def test_a_batch_below_its_quorum_ends_and_gives_no_number() -> None:
    """It stays inconclusive for ever: a score that comes later can't lift it over the quorum."""
    batch = histogram(quorum=2)
    granted(batch, "fence", run="n1", epoch=1, digest="art")
    granted(batch, "abandon", run="n1", epoch=1, why="poison")
    granted(batch, "abandon", run="n2", epoch=0, why="poison")
    granted(batch, "drain")
    assert told(batch, "close") == "reject below_quorum"
    assert told(batch, "score", run="n1", epoch=1, digest="art", bin="pass", value="1") == "reject after_close"
    assert (told(batch, "close"), told(batch, "pass_rate")) == ("reject below_quorum",) * 2
    assert batch.dump()["status"] == "inconclusive"


def test_the_place_in_flight_comes_back_with_the_score_or_the_hole() -> None:
    """With one place, the second run waits; the restart of the first does not wait behind itself."""
    batch = histogram(max_in_flight=1)
    granted(batch, "fence", run="n1", epoch=1, digest="art")
    assert told(batch, "fence", run="n2", epoch=1, digest="art-2") == "reject backpressure"
    granted(batch, "fence", run="n1", epoch=5, digest="art")
    granted(batch, "abandon", run="n1", epoch=5, why="scorer_error")
    granted(batch, "fence", run="n2", epoch=1, digest="art-2")
    assert isinstance(batch, Histogram)
    assert batch.in_flight == {"n2"}


# --- judge -----------------------------------------------------------------------------------------------


def signed(candidate: str, judge: str, epoch: int, digest: str = "d1") -> dict[str, object]:
    """The arguments of a commit."""
    observed = {"observed_candidate": candidate, "observed_judge": judge}
    return {"run": "n1", **observed, "epoch": epoch, "score_digest": digest}


def test_an_answer_that_was_lost_is_told_again_and_a_second_score_is_not_taken() -> None:
    """The scorer sends its score twice; then another verdict for the same run comes."""
    judge = Judge(policy="reject", replay_budget=0)
    granted(judge, "mint", run="n1", candidate="ca", judge="ja", epoch=1)
    assert told(judge, "commit", **signed("ca", "ja", 1)) == "commit"
    assert told(judge, "commit", **signed("ca", "ja", 1)) == "duplicate"
    assert told(judge, "commit", **signed("ca", "ja", 1, "d2")) == "reject already_scored"
    assert told(judge, "rebind", run="n1", epoch=1, candidate="ca", judge="jb") == "reject already_scored"


def test_a_replay_is_charged_once_a_token_and_refused_beyond_the_budget() -> None:
    """A mismatch that is delivered twice costs one; the next token's costs another, which there is not."""
    judge = Judge(policy="replay", replay_budget=1)
    granted(judge, "mint", run="n1", candidate="ca", judge="ja", epoch=1)
    for _ in range(2):
        answer = judge.decide("commit", signed("ca", "jb", 1))
        assert (answer.verb, answer.reason, answer.fields) == ("replay", "judge_mismatch", {"replays": 1})
    granted(judge, "rebind", run="n1", epoch=1, candidate="ca", judge="jb")
    assert told(judge, "commit", **signed("ca", "jc", 2)) == "reject judge_mismatch"
    assert judge.dump()["replays"] == 1
    assert told(judge, "commit", **signed("ca", "jb", 2)) == "commit"


def test_a_run_waits_for_review_until_it_is_bound_anew_or_scored() -> None:
    """Under `review` a mismatch is a question to a person; it leaves the queue with the answer."""
    judge = Judge(policy="review", replay_budget=0)
    granted(judge, "mint", run="n1", candidate="ca", judge="ja", epoch=1)
    assert told(judge, "commit", **signed("cb", "ja", 1)) == "in_doubt candidate_mismatch"
    assert judge.review == {"n1"}
    granted(judge, "rebind", run="n1", epoch=1, candidate="cb", judge="ja")
    assert judge.review == set()
    assert told(judge, "commit", **signed("ca", "ja", 2)) == "in_doubt candidate_mismatch"
    assert told(judge, "commit", **signed("cb", "ja", 2)) == "commit"
    assert judge.review == set()
    assert told(judge, "commit", **signed("ca", "ja", 2)) == "reject candidate_mismatch"


# --- outbox ----------------------------------------------------------------------------------------------


def test_a_keyless_outcome_is_unkeyed_before_it_is_malformed() -> None:
    """Of a missing executor and a missing observation, the executor is told."""
    outbox = build("outbox", {"ack_bound_ms": 1000, "inverses": {}})
    assert told(outbox, "complete", intent_id="i", gen=0) == "reject unkeyed"
    assert told(outbox, "complete", intent_id="i", gen=0, executor="e") == "reject schema"
    assert told(outbox, "complete", intent_id="i", gen=0, executor="e", ok=True, observation="o") == (
        "reject unknown_intent"
    )


def test_an_inverse_that_is_no_name_is_no_inverse() -> None:
    """A configuration's slip leaves an effect for a person; it makes no call of a tool without a name."""
    outbox = build("outbox", {"ack_bound_ms": 1, "inverses": {"book": "", "pay": 7}})
    for tool in ("book", "pay"):
        holder: dict[str, object] = {"intent_id": tool, "gen": 0, "executor": "e"}
        granted(outbox, "put", intent_id=tool, gen=0, tool=tool, args={})
        granted(outbox, "claim", **holder)
        granted(outbox, "sent", **holder)
    outbox.elapse(1)
    assert [told(outbox, "recover", intent_id=tool) for tool in ("book", "pay")] == ["reject stuck"] * 2


# --- completion ------------------------------------------------------------------------------------------


def asked(gen: object, lease_id: str, request_id: str) -> dict[str, object]:
    """The arguments of an open."""
    lease = {"run": "n1", "step": "s1", "lease_id": lease_id, "gen": gen}
    return {**lease, "request_id": request_id, "prompt_hash": "hash"}


def test_the_live_lease_cannot_adopt_the_request_of_a_dead_one() -> None:
    """The prompt left under another life of the run: its answer binds neither there nor here."""
    calls = Completion(compute_retries=1, model_retries=0)
    old = granted(calls, "lease", run="n1", lease_id="la").fields["gen"]
    granted(calls, "open", **asked(old, "la", "q1"))
    new = granted(calls, "lease", run="n1", lease_id="lb").fields["gen"]
    answer = {"payload_ok": True, "digest": "d1"}
    assert told(calls, "bind", **asked(old, "la", "q1"), **answer) == "reject stale_lease"
    assert told(calls, "bind", **asked(new, "lb", "q1"), **answer) == "reject unknown_request"
    assert told(calls, "bind", **asked(new, "la", "q1"), **answer) == "reject stale_lease"
    assert calls.bound == {}


def test_a_request_that_was_answered_corrupt_is_used_up_and_costs_once() -> None:
    """Delivered again it gets the same answer, whole or not; the next one is refused for good, and so is the run."""
    calls = Completion(compute_retries=5, model_retries=1)
    gen = granted(calls, "lease", run="n1", lease_id="la").fields["gen"]
    granted(calls, "open", **asked(gen, "la", "q1"))
    for ok in (False, False, True):
        answer = calls.decide("bind", {**asked(gen, "la", "q1"), "payload_ok": ok, "digest": "d1"})
        assert (answer.verb, answer.fields) == ("replay", {"model_left": 0})
    assert told(calls, "open", **asked(gen, "la", "q1")) == "reject request_reused"
    granted(calls, "open", **asked(gen, "la", "q2"))
    corrupt = {**asked(gen, "la", "q2"), "payload_ok": False, "digest": "d1"}
    assert told(calls, "bind", **corrupt) == "reject retries_exhausted"
    assert told(calls, "bind", **{**corrupt, "payload_ok": True}) == "reject retries_exhausted"
    assert told(calls, "lease", run="n1", lease_id="la") == "reject retries_exhausted"


# --- ledger ----------------------------------------------------------------------------------------------


def test_two_attempts_that_fit_alone_are_not_admitted_together() -> None:
    """Both ask while nothing is spent yet; the second fits again once the first has ended below its estimate."""
    ledger = Ledger(budget=100)
    granted(ledger, "admit", step="s1", attempt=1, estimate=60)
    assert told(ledger, "admit", step="s2", attempt=1, estimate=60) == "reject over_budget"
    assert told(ledger, "admit", step="s2", attempt=1, estimate=1) == "reject attempt_reused"
    granted(ledger, "chunk", step="s1", attempt=1, seq=1, tokens=40, durable=True)
    granted(ledger, "done", step="s1", attempt=1, last_seq=1)
    granted(ledger, "admit", step="s2", attempt=2, estimate=60)
    assert (ledger.spent, ledger.reserved) == (40, 60)


def test_spend_beyond_the_estimate_and_after_the_end_is_counted() -> None:
    """An estimate binds nobody: what comes is spent, and what comes late is an orphan, until the gateway has spoken."""
    ledger = Ledger(budget=100)
    granted(ledger, "admit", step="s1", attempt=1, estimate=10)
    granted(ledger, "chunk", step="s1", attempt=1, seq=1, tokens=30, durable=False)
    assert (ledger.spent, ledger.reserved) == (30, 0)
    granted(ledger, "cut", step="s1", attempt=1)
    assert told(ledger, "chunk", step="s1", attempt=1, seq=2, tokens=5, durable=True) == "reject attempt_closed"
    assert told(ledger, "chunk", step="s1", attempt=1, seq=1, tokens=99, durable=True) == "duplicate"
    assert told(ledger, "chunk", step="s1", attempt=1, seq=2, tokens=5, durable=True) == "duplicate"
    assert (ledger.spent, ledger.durable) == (35, 30)
    granted(ledger, "reconcile", step="s1", attempt=1, gateway_billed=50)
    assert told(ledger, "chunk", step="s1", attempt=1, seq=3, tokens=7, durable=True) == "reject attempt_closed"
    assert (ledger.spent, ledger.durable) == (50, 30)


# --- admission -------------------------------------------------------------------------------------------


def desk(bound: int = 2) -> Admission:
    """A desk that gives an expired lease up after a second."""
    return Admission(bound=bound, reclaim_ms=1000)


def test_a_command_that_is_sent_again_under_its_own_id_gets_the_first_answer() -> None:
    """The answer to an acquire was lost: the resend takes no second place, even when the lease is gone by now."""
    admission = desk(bound=1)
    first = granted(admission, "acquire", step="s1", lease="id-1")
    again = admission.decide("acquire", {"step": "s1", "lease": "id-1"})
    assert (again.verb, again.fields) == ("duplicate", first.fields)
    granted(admission, "release", lease="id-1")
    assert admission.decide("acquire", {"step": "s1", "lease": "id-1"}) == again
    assert admission.in_flight == 0
    assert told(admission, "acquire", step="s2", lease="id-1") == "reject lease_reused"


def test_an_equal_command_under_a_new_id_is_a_second_command() -> None:
    """Without an id of its own each acquire draws anew: the step is in flight already."""
    admission = desk()
    granted(admission, "acquire", step="s1")
    assert told(admission, "acquire", step="s1") == "reject step_in_flight"


def test_the_late_body_loses_to_the_retry_whichever_comes_first() -> None:
    """The clock fires, the retry goes out, both bodies arrive: only the retry's can count."""
    for order in (("a", "b"), ("b", "a")):
        admission = desk()
        leases = {"a": granted(admission, "acquire", step="s1", lease="a").fields}
        granted(admission, "expire", lease="a")
        leases["b"] = granted(admission, "acquire", step="s1", lease="b").fields
        answers = {who: told(admission, "apply", **leases[who], digest=f"body of {who}") for who in order}
        assert answers == {"a": "reject stale_gen", "b": "commit"}


def test_a_lease_id_does_not_pass_under_another_generation() -> None:
    """Both are compared: a holder that quotes its id with a number of somebody else is stale."""
    admission = desk()
    lease = granted(admission, "acquire", step="s1").fields
    assert told(admission, "apply", lease=lease["lease"], gen=99, digest="d1") == "reject stale_gen"


def test_a_slot_comes_back_once_the_bound_has_passed_and_only_once() -> None:
    """At one millisecond before the bound the request may still answer; at the bound its slot is free."""
    admission = desk(bound=1)
    granted(admission, "acquire", step="s1", lease="a")
    assert told(admission, "reclaim", lease="a", cancelled=True) == "reject still_live"
    granted(admission, "expire", lease="a")
    admission.elapse(999)
    assert told(admission, "reclaim", lease="a", cancelled=False) == "in_doubt cancel_pending"
    admission.elapse(1)
    assert told(admission, "reclaim", lease="a", cancelled=False) == "commit"
    assert told(admission, "release", lease="a") == "reject double_release"
    assert admission.in_flight == 0


def test_ids_come_from_outside_when_a_source_is_given() -> None:
    """A simulation draws them from its own seed; an id in the call goes before both."""
    source = iter(["one", "two"])
    admission = Admission(bound=3, reclaim_ms=1, draw=lambda: next(source))
    leases = [granted(admission, "acquire", step=step).fields["lease"] for step in ("s1", "s2")]
    leases.append(granted(admission, "acquire", step="s3", lease="mine").fields["lease"])
    assert leases == ["one", "two", "mine"]


# --- plane -----------------------------------------------------------------------------------------------


def test_a_late_worker_writes_neither_the_key_that_it_lost_nor_a_live_one() -> None:
    """Its admission was released while it stalled, and its twin has written: whatever it brings is refused."""
    plane = Plane(capacity=1)
    key = granted(plane, "rewrite", run="n3", step="pay").fields["key"]
    late = granted(plane, "admit", key=key, plane="shadow").fields["admission"]
    granted(plane, "release", admission=late)
    twin = granted(plane, "admit", key=key, plane="shadow").fields["admission"]
    assert told(plane, "write", admission=late, key=key, plane="shadow", body="b") == "reject not_admitted"
    assert told(plane, "write", admission=late, key="live:n3:pay", plane="live", body="b") == "reject plane_key"
    assert told(plane, "write", admission=late, key=key, plane="live", body="b") == "reject plane_header"
    granted(plane, "write", admission=twin, key=key, plane="shadow", body="b")
    assert (plane.dump()["live_keys"], plane.crossed["shadow"]) == ([], ["live:n3:pay", key])


def test_a_lost_admission_is_found_again_by_its_own_id_and_named_to_any_other() -> None:
    """Neither way takes a second slot of a plane that has one."""
    plane = Plane(capacity=1)
    first = granted(plane, "admit", key="shadow:n3:pay", plane="shadow", admission="id-1").fields
    again = plane.decide("admit", {"key": "shadow:n3:pay", "plane": "shadow", "admission": "id-1"})
    assert (again.verb, again.fields) == ("duplicate", first)
    other = plane.decide("admit", {"key": "shadow:n3:pay", "plane": "shadow", "admission": "id-2"})
    assert (other.reason, other.fields) == ("duplicate_key", first)
    assert told(plane, "admit", key="shadow:n4:pay", plane="shadow", admission="id-1") == "reject admission_reused"
    assert told(plane, "admit", key="shadow:n4:pay", plane="shadow", admission="id-3") == "reject capacity"
    assert told(plane, "admit", key="live:n4:pay", plane="live") == "commit", "the live plane has no bound here"


# --- join ------------------------------------------------------------------------------------------------


def fan_out(join: Join, case: str = "c", cost: int = 10) -> dict[str, object]:
    """Open a case of two attempts; what each of its results quotes."""
    answer = granted(join, "admit", case=case, expected=["grep", "ls"], window_cost=cost)
    return {"case": case, "window": answer.fields["window"], "ok": True}


def test_a_window_is_named_by_its_case_its_set_and_the_epoch_of_its_budget() -> None:
    """Another implementation must come to the same name: neither the order nor a repetition counts."""
    named = "63fcff1a5d533c4136e9e718fe472c1ffef5dbe6a64762d521c34020afaeb6b6"
    assert window_of("case-a", ["ls", "grep", "ls"], 1) == window_of("case-a", ["grep", "ls"], 1) == named
    other_case, other_set = window_of("case-b", ["grep", "ls"], 1), window_of("case-a", ["ls"], 1)
    assert len({named, other_case, other_set, window_of("case-a", ["grep", "ls"], 0)}) == 4
    assert window_of("é/😀", ["\x00"], 2) == "fdc9fd179faa31595fa76dce8904fc1cc4f9d82b91675ed754e5560c9b10ba89"


def test_the_first_answer_is_not_the_verdict() -> None:
    """The fast attempt has passed; the slow one fails, and is waited for."""
    join = Join(budget=10, budget_epoch=1)
    quoted = fan_out(join)
    assert granted(join, "result", **quoted, attempt="ls", tokens=4).fields == {"state": "OPEN"}
    assert told(join, "commit", case="c", verdict="pass") == "reject not_joined"
    assert granted(join, "result", **(quoted | {"ok": False}), attempt="grep", tokens=6).fields == {"state": "JOINED"}
    assert told(join, "expire", case="c") == "reject not_open", "anybody may commit what has joined"
    assert told(join, "commit", case="c", verdict="fail") == "commit"


def test_the_tokens_of_a_window_come_back_once_and_those_of_an_aborted_one_never() -> None:
    """A late attempt of the aborted case may still be spending what its window held."""
    join = Join(budget=20, budget_epoch=1)
    for case in ("kept", "lost"):
        quoted = fan_out(join, case)
        granted(join, "result", **quoted, attempt="ls", tokens=3)
    granted(join, "expire", case="lost")
    kept = {"case": "kept", "window": join.cases["kept"].window, "ok": True}
    granted(join, "result", **kept, attempt="grep", tokens=1)
    assert granted(join, "commit", case="kept", verdict="pass").fields == {"remaining": 6}
    assert join.decide("commit", {"case": "kept", "verdict": "pass"}).as_dict() == {
        "verb": "duplicate",
        "reason": None,
        "remaining": 6,
    }
    assert told(join, "result", **quoted, attempt="grep", tokens=3) == "reject late"
    assert join.remaining == 6


def test_a_window_is_exhausted_by_what_does_not_fit_and_not_by_what_just_fits() -> None:
    """The attempt that would overspend is refused and ends the case: there is no verdict without it."""
    for last, outcome, state in ((6, "commit", "JOINED"), (7, "reject window_exhausted", "ABORTED")):
        join = Join(budget=10, budget_epoch=1)
        quoted = fan_out(join)
        granted(join, "result", **quoted, attempt="ls", tokens=4)
        assert told(join, "result", **quoted, attempt="grep", tokens=last) == outcome
        assert join.cases["c"].state == state
