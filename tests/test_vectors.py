"""Vectors: what the loader refuses, how references are resolved, and what counts as equal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bus.contract import CONTRACT, PROTOCOLS
from bus.errors import InputError
from bus.vectors import ModelPlayer, Report, load_vector, play

Data = dict[str, object]

DESK: Data = {"bound": 1, "reclaim_ms": 1000}


def vector(*ops: Data, final: Data | None = None, **fields: object) -> Data:
    """A vector of the admission fence."""
    whole: Data = {"protocol": "admission", "name": "x", "config": DESK, "ops": list(ops), "final": final or {}}
    return whole | fields


def op(name: str, args: Data, **fields: object) -> Data:
    """One operation; `keep` stands for `as`."""
    kept = {"as": fields.pop("keep")} if "keep" in fields else {}
    return {"op": name, "args": args, **kept, **fields}


ACQUIRE = op("acquire", {"step": "s1"}, keep="a")


def written(directory: Path, data: object) -> Path:
    """The file of a vector; text is written as it is."""
    path = directory / "x.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return path


def complaint(path: Path) -> str:
    """What the loader says, without the file's name. It must be one line."""
    with pytest.raises(InputError) as caught:
        load_vector(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}:")
    return text.removeprefix(f"{path}:").strip()


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: not JSON: Expecting value"),
        ('{\n "protocol": "admission",\n "name" 5}', "3: not JSON: Expecting ':' delimiter"),
        ('{"name": "a", "name": "b"}', "not JSON: 'name' stands twice in one object"),
        ('{"final": {"in_flight": NaN}}', "not JSON: NaN is not a JSON number"),
        ('{"final": ' + "1" * 5000 + "}", "not JSON: Exceeds the limit"),
        ("[" * 100_000 + "]" * 100_000, "not a vector: nested too deeply"),
        ("[" * 100 + "]" * 100, "not a vector: nested too deeply"),
        ("[]", "the vector must be an object"),
        ("null", "the vector must be an object"),
    ],
)
def test_a_file_that_is_no_json_object_is_told_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    """An editor's slip, a file cut off, a hostile file: one line each, before anything is played."""
    assert complaint(written(tmp_path, text)).startswith(message)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Missing, a directory, not UTF-8, far too large."""
    assert complaint(tmp_path / "none.json") == "cannot be read: No such file or directory"
    assert complaint(tmp_path) == "cannot be read: Is a directory"
    path = tmp_path / "x.json"
    path.write_bytes(b'{\n"name": "\xff"}')
    assert complaint(path) == "2: is not UTF-8"
    path.write_bytes(b" " * (8 * 2**20 + 1))
    assert complaint(path) == "is larger than 8 MB: not a vector"
    with pytest.raises(InputError, match="cannot be read: embedded null byte"):
        load_vector("a\x00b")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (vector(protocol="admision"), "protocol 'admision' is unknown; did you mean 'admission'?"),
        (vector(protocol=""), "'protocol' must be text that is not empty"),
        (vector(name=7), "'name' must be text that is not empty"),
        (vector(note=7), "'note' must be text"),
        (vector(opps=[]), "the vector: field 'opps' is unknown; did you mean 'ops'?"),
        (vector(ops={}), "'ops' must be a list"),
        (vector() | {"final": []}, "'final' must be an object"),
        (vector(final={"inflight": 0}), "final: field 'inflight' is unknown; did you mean 'in_flight'?"),
        (vector(config=None), "'config' must be an object"),
        (vector(config={"bound": 1}), "config: 'reclaim_ms' is missing"),
        (vector(config=DESK | {"size": 1}), "config: field 'size' is unknown"),
        (vector(config=DESK | {"bound": 0}), "config: 'bound' must be int1"),
        (vector(config=DESK | {"bound": True}), "config: 'bound' must be int1"),
        (vector(config=DESK | {"bound": 1.0}), "config: 'bound' must be int1"),
        (
            vector(protocol="judge", config={"policy": "revue", "replay_budget": 0}),
            "config: 'policy' must be reject|replay|review",
        ),
        (
            vector(protocol="histogram", config={"intended": [], "quorum": 1, "bins": ["p"], "max_in_flight": 1}),
            "config: 'intended' must be strs",
        ),
    ],
)
def test_a_slip_at_the_top_is_told_with_its_field(data: Data, message: str, tmp_path: Path) -> None:
    """A misspelt field would quietly check nothing."""
    assert complaint(written(tmp_path, data)) == message


@pytest.mark.parametrize("name", ["protocol", "name", "config", "ops", "final"])
def test_a_missing_field_is_told(name: str, tmp_path: Path) -> None:
    """Only the note may be left out."""
    data = {key: value for key, value in vector().items() if key != name}
    assert complaint(written(tmp_path, data)) == f"{name!r} is missing"


def test_a_protocol_of_a_later_release_is_told_from_one_that_does_not_exist(tmp_path: Path) -> None:
    """The vectors of all twelve are public: whoever plays one that is not built yet has made no mistake."""
    for name in set(PROTOCOLS) - CONTRACT.keys():
        assert complaint(written(tmp_path, vector(protocol=name))) == f"protocol {name!r} is not built yet"


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([[]], "op 1 must be an object"),
        ([{"args": {}}], "op 1: 'op' is missing"),
        ([{"op": "acquire"}], "op 1: 'args' is missing"),
        ([{"op": 1, "args": {}}], "op 1: 'op' must be text that is not empty"),
        ([op("aquire", {})], "op 1 aquire: 'admission' has no such operation; did you mean 'acquire'?"),
        ([op("acquire", {}, note="x")], "op 1: field 'note' is unknown"),
        ([op("acquire", {"stop": "s"})], "op 1 acquire: argument 'stop' is unknown; did you mean 'step'?"),
        ([op("acquire", {"step": "s", "lease": "mine"})], "op 1 acquire: argument 'lease' is unknown"),
        ([{"op": "acquire", "args": []}], "op 1 acquire: 'args' must be an object"),
        ([op("acquire", {}, keep=1)], "op 1 acquire: 'as' must be text that is not empty"),
        ([op("acquire", {}, expect=[])], "op 1 acquire: 'expect' must be an object"),
        (
            [op("acquire", {}, expect={"reson": "x"})],
            "op 1 acquire: expect: field 'reson' is unknown; did you mean 'reason'?",
        ),
        (
            [op("acquire", {}, expect={"verb": "comit"})],
            "op 1 acquire: expect: 'comit' is no verb; did you mean 'commit'?",
        ),
        ([op("clock", {})], f"op 1 clock: 'advance_ms' must be a whole number from 0 to {2**53 - 1}"),
        ([op("clock", {"advance_ms": -1})], f"op 1 clock: 'advance_ms' must be a whole number from 0 to {2**53 - 1}"),
        ([op("clock", {"advance": 1})], "op 1 clock: argument 'advance' is unknown; did you mean 'advance_ms'?"),
        ([op("clock", {"advance_ms": 1}, keep="a")], "op 1 clock: the clock has no answer to keep or to expect"),
        ([op("release", {"lease": "$a.lease"}), ACQUIRE], "op 1 release: '$a.lease': no answer is kept as 'a' before"),
        (
            [ACQUIRE, op("release", {"lease": "$a.leese"})],
            "op 2 release: '$a.leese': answers there have no such field; did you mean 'lease'?",
        ),
        ([ACQUIRE, op("release", {"lease": "$a"})], "op 2 release: '$a' is no reference; one is written '$name.field'"),
        (
            [ACQUIRE, op("release", {"lease": [{"x": "$b.lease"}]})],
            "op 2 release: '$b.lease': no answer is kept as 'b' before",
        ),
    ],
)
def test_a_slip_in_an_operation_is_told_with_its_number(ops: list[object], message: str, tmp_path: Path) -> None:
    """The place is the operation's number in the file, from 1."""
    assert complaint(written(tmp_path, vector(ops=ops))) == message


def test_a_malformed_argument_is_no_slip(tmp_path: Path) -> None:
    """Values may be wrong on purpose: what the fence says to them is what the vector is about."""
    values: tuple[object, ...] = (None, "", 1, True, 1.5, [], {}, ["s1"], "\ud800")
    ops = [op("acquire", {"step": value}, expect={"verb": "reject", "reason": "schema"}) for value in values]
    assert load_vector(written(tmp_path, vector(*ops))).ops[3].args == {"step": True}


# --- playing ---------------------------------------------------------------------------------------------


class Echo:
    """A player whose answers are scripted, to see what `play` sends and how it compares."""

    def __init__(self, *answers: Mapping[str, object], state: Mapping[str, object] | None = None) -> None:
        """One answer for each operation, in order."""
        self.answers = list(answers)
        self.state = state or {}
        self.told: list[object] = []

    async def begin(self, protocol: str, config: Mapping[str, object]) -> None:
        self.told.append((protocol, dict(config)))

    async def apply(self, op: str, args: Mapping[str, object]) -> Mapping[str, object]:
        self.told.append((op, dict(args)))
        return self.answers.pop(0)

    async def advance(self, ms: int) -> None:
        self.told.append(ms)

    async def dump(self) -> Mapping[str, object]:
        return self.state

    async def end(self) -> None:
        self.told.append("end")


async def played(directory: Path, data: Data, player: Echo) -> Report:
    """Load and play."""
    return await play(load_vector(written(directory, data)), player)


async def test_references_stand_for_answer_fields_however_deep(tmp_path: Path) -> None:
    """In arguments, expectations and the final state; the newest answer of a name counts."""
    data = vector(
        ACQUIRE,
        op("clock", {"advance_ms": 5}),
        ACQUIRE | {"expect": {"gen": "$a.gen"}},
        op("release", {"lease": {"deep": ["$a.lease", "plain"]}}, expect={"reason": "$a.lease"}),
        final={"live": ["$a.lease"]},
    )
    answers: list[Data] = [{"lease": "one", "gen": 1}, {"lease": "two", "gen": 1}, {"reason": "two"}]
    player = Echo(*answers, state={"live": ["two"], "more": 1})
    assert (await played(tmp_path, data, player)).difference is None
    assert player.told == [
        ("admission", DESK),
        ("acquire", {"step": "s1"}),
        5,
        ("acquire", {"step": "s1"}),
        ("release", {"lease": {"deep": ["two", "plain"]}}),
        "end",
    ]


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, True),
        (1, 1.0),
        (0, False),
        ("1", 1),
        ([], {}),
        ({}, None),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": None}, {}),
        ({"a": [1]}, {"a": [1.0]}),
        (None, ""),
    ],
)
async def test_values_that_python_calls_equal_or_close_are_told_apart(
    expected: object, got: object, tmp_path: Path
) -> None:
    """Same type, lists in order, objects with the same keys: in both directions."""
    for one, other in ((expected, got), (got, expected)):
        data = vector(op("acquire", {}, expect={"gen": one}))
        difference = (await played(tmp_path, data, Echo({"gen": other}))).difference
        assert difference is not None
        assert str(difference) == (
            f"op 1 acquire: expected gen {json.dumps(one)}, got {json.dumps(other)}; "
            f"the whole answer: {json.dumps({'gen': other})}"
        )


async def test_an_expected_null_is_met_by_an_absent_field(tmp_path: Path) -> None:
    """The other way round it is not: a field that is expected must be there."""
    data = vector(op("acquire", {}, expect={"gen": None, "reason": None}), final={"live": None})
    assert (await played(tmp_path, data, Echo({"reason": None}))).passed
    report = await played(tmp_path, vector(final={"live": []}), Echo())
    assert str(report.difference) == "final: expected live [], got nothing; the whole state: {}"


async def test_playing_stops_at_the_first_difference_and_gives_back(tmp_path: Path) -> None:
    """What follows a wrong answer proves nothing; the player is always released."""
    data = vector(op("acquire", {}, expect={"verb": "commit"}), ACQUIRE)
    player = Echo({"verb": "reject", "reason": "schema"})
    report = await played(tmp_path, data, player)
    assert (report.passed, report.played, player.told[-1]) == (False, 1, "end")
    assert len(player.told) == 3


async def test_a_reference_to_what_a_refusal_lacks_is_a_difference(tmp_path: Path) -> None:
    """The first acquire should have been granted but nobody said so: the use of its lease tells."""
    data = vector(ACQUIRE, op("release", {"lease": "$a.lease"}))
    report = await played(tmp_path, data, Echo({"verb": "reject", "reason": "bound_full"}))
    assert str(report.difference) == (
        'op 2 release: "$a.lease" names nothing: that answer has no such field; '
        'the whole answer: {"verb": "reject", "reason": "bound_full"}'
    )


async def test_a_player_that_cannot_begin_is_given_back_too(tmp_path: Path) -> None:
    """A server that goes away in the middle leaves no batch open on our side."""

    class Broken(Echo):
        async def begin(self, protocol: str, config: Mapping[str, object]) -> None:
            raise ConnectionError

    player = Broken()
    with pytest.raises(ConnectionError):
        await played(tmp_path, vector(), player)
    assert player.told == ["end"]


async def test_the_model_player_plays_the_policy_that_it_is_given(tmp_path: Path) -> None:
    """The same vector passes through the fence and differs under a naive policy."""
    ops = [
        op("acquire", {"step": "s1"}, keep="a"),
        op("expire", {"lease": "$a.lease"}),
        op("acquire", {"step": "s1"}, expect={"verb": "reject", "reason": "bound_full"}),
    ]
    loaded = load_vector(written(tmp_path, vector(*ops, final={"in_flight": 1})))
    assert (await play(loaded, ModelPlayer())).passed
    difference = (await play(loaded, ModelPlayer("retry_bypasses_bound"))).difference
    assert difference is not None
    assert str(difference).startswith('op 3 acquire: expected verb "reject", got "commit"; the whole answer: {')
