"""The lab's model: each protocol as a client sees it, each kind of mischief seen by one, and every token counted."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import soon, until
from workers.lab import Lab
from workers.lab.mischief import Api, Kind

Json = dict[str, Any]

SHORT = httpx.Timeout(60.0, read=0.05)
"""Of a client that has asked, and is impatient."""
STALLED = httpx.Timeout(60.0, read=1.0)
"""Of one that is so only when it has been told nothing for longer than any machine takes for two tokens."""


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """A lab without any mischief of its own."""
    async with Lab(seed=1) as running:
        yield running


@pytest.fixture
async def client(lab: Lab) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(base_url=lab.url, timeout=60) as opened:
        yield opened


@dataclass(slots=True)
class Seen:
    """What a client has seen of a stream."""

    events: list[Json] = field(default_factory=list)
    done: bool = False
    """It ended with [DONE]."""
    error: Exception | None = None

    @property
    def texts(self) -> list[str]:
        """Of each delta of text."""
        return [text for event in self.events for choice in event["choices"] if (text := _text(choice))]

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def usage(self) -> Json | None:
        """The last that was told."""
        told = [event["usage"] for event in self.events if event.get("usage")]
        return told[-1] if told else None

    @property
    def finishes(self) -> list[str]:
        return [reason for event in self.events for choice in event["choices"] if (reason := choice["finish_reason"])]


def _text(choice: Json) -> str:
    return str(choice["text"] if "text" in choice else choice["delta"].get("content") or "")


def prompt(text: str, **more: object) -> Json:
    """A chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def streamed(text: str, **more: object) -> Json:
    """A streaming chat request that asks for usage."""
    return prompt(text, stream=True, stream_options={"include_usage": True}, **more)


async def stream(
    client: httpx.AsyncClient, body: Json, mischief: str | None = None, *, path: str = "/v1/chat/completions",
    request_id: str | None = None,
) -> Seen:  # fmt: skip
    """Read a stream to whatever is its end."""
    seen = Seen()
    try:
        async with client.stream("POST", path, json=body, headers=headers(mischief, request_id)) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    seen.done = True
                elif line.startswith("data: "):
                    seen.events.append(json.loads(line.removeprefix("data: ")))
    except httpx.TransportError as error:
        seen.error = error
    return seen


def headers(mischief: str | None, request_id: str | None = None) -> dict[str, str]:
    """Of a request."""
    given = {"lab-mischief": mischief, "x-request-id": request_id}
    return {name: value for name, value in given.items() if value is not None}


def model_mischief(lab: Lab) -> Mapping[str, int]:
    """What went wrong at the model."""
    return lab.counts.requests[Api.MODEL].mischief


# --- the protocols ---------------------------------------------------------------------------------------


async def test_one_token_is_one_word_one_delta_and_one_in_usage_and_bill(lab: Lab, client: httpx.AsyncClient) -> None:
    """The rule by which ledgers are compared: prompt and answer in words, wherever they are counted."""
    seen = await stream(client, streamed("LAB-ANSWER: four words are here"), request_id="r1")
    assert seen.texts == ["four", " words", " are", " here"]
    assert seen.done
    assert seen.finishes == ["stop"]
    usage = seen.usage
    assert usage is not None
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 4, 9)
    bill = (await client.get("/billing/r1")).json()
    assert (bill["billed"], bill["delivered"], bill["finished"]) == (9, 4, True)
    assert (await client.get(f"/billing/{seen.events[0]['id']}")).json() == bill
    assert lab.counts.model.billed == 9


async def test_usage_comes_only_when_it_is_asked_for_and_cumulative_when_that_is(client: httpx.AsyncClient) -> None:
    """OpenAI's `include_usage` and vLLM's `continuous_usage_stats`."""
    silent = await stream(client, prompt("LAB-ANSWER: a b", stream=True))
    assert all("usage" not in event for event in silent.events)
    options = {"include_usage": True, "continuous_usage_stats": True}
    told = await stream(client, prompt("LAB-ANSWER: a b", stream=True, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in told.events] == [0, 1, 2, 2, 2]


async def test_whole_and_streamed_answers_are_the_same(client: httpx.AsyncClient) -> None:
    """A made-up answer depends on prompt and seed only, and is a few words."""
    whole = (await client.post("/v1/chat/completions", json=prompt("what is a lease"))).json()
    seen = await stream(client, streamed("what is a lease"))
    assert whole["choices"][0]["message"]["content"] == seen.text
    assert whole["usage"] == seen.usage
    assert whole["model"] == "m" == seen.events[0]["model"]
    assert seen.text != (await stream(client, streamed("what is a fence"))).text


async def test_another_seed_answers_otherwise_and_the_same_seed_alike(client: httpx.AsyncClient) -> None:
    """So that a rehearsal can be repeated."""
    told = (await stream(client, streamed("what is a lease"))).text
    for seed, same in ((1, True), (2, False)):
        async with Lab(seed=seed) as other, httpx.AsyncClient(base_url=other.url) as its:
            assert ((await stream(its, streamed("what is a lease"))).text == told) is same


async def test_completions_stream_and_answer_whole(client: httpx.AsyncClient) -> None:
    """For base models; the prompt is one text."""
    body = {"model": "m", "prompt": "LAB-ANSWER: one two"}
    whole = (await client.post("/v1/completions", json=body)).json()
    assert whole["choices"][0]["text"] == "one two"
    seen = await stream(client, body | {"stream": True}, path="/v1/completions")
    assert seen.texts == ["one", " two"]
    assert seen.done


async def test_an_answer_of_several_lines_is_a_json_string_and_max_tokens_cuts_it(client: httpx.AsyncClient) -> None:
    """Code is an answer too; white space belongs to the word behind it."""
    line = "LAB-ANSWER: " + json.dumps("def f():\n    return 1\n")
    seen = await stream(client, streamed(line))
    assert seen.text == "def f():\n    return 1\n"
    short = await stream(client, streamed(line, max_tokens=2))
    assert short.text == "def f():"
    assert short.finishes == ["length"]
    assert short.usage is not None
    assert short.usage["completion_tokens"] == 2


async def test_a_script_goes_on_with_each_turn(client: httpx.AsyncClient) -> None:
    """A tool loop: the first line is a call, the second the answer once the tool's result is there."""
    first: Json = {"role": "user", "content": 'LAB-CALL: {"name": "f", "arguments": {"a": 1}}\nLAB-ANSWER: it is one'}
    seen = await stream(client, {"model": "m", "messages": [first], "stream": True})
    parts = [part for event in seen.events for part in event["choices"][0]["delta"].get("tool_calls", [])]
    assert parts[0]["function"]["name"] == "f"
    assert json.loads("".join(part["function"]["arguments"] for part in parts)) == {"a": 1}
    assert seen.finishes == ["tool_calls"]
    call = (await client.post("/v1/chat/completions", json={"model": "m", "messages": [first]})).json()
    said = call["choices"][0]["message"]
    assert call["usage"]["completion_tokens"] == 3  # the name, and two words of arguments
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "1"}
    last = await client.post("/v1/chat/completions", json={"model": "m", "messages": [first, said, result]})
    assert last.json()["choices"][0]["message"]["content"] == "it is one"


async def test_anthropics_stream_has_its_events_and_cumulative_usage(client: httpx.AsyncClient) -> None:
    """Cached tokens stand beside the input's; whoever adds the message_delta's up counts twice."""
    text = 'LAB-CACHED: 2\nLAB-CALL: [{"name": "f"}, {"name": "g"}]'
    body = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": text}]}
    events = (await stream(client, body | {"stream": True}, path="/v1/messages")).events
    assert events[0]["type"] == "message_start"
    usage = events[0]["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (5, 2)
    blocks = [event["content_block"]["name"] for event in events if event["type"] == "content_block_start"]
    assert blocks == ["f", "g"]
    deltas = [event for event in events if event["type"] == "message_delta"]
    assert [event["usage"]["output_tokens"] for event in deltas] == [4, 4]
    assert deltas[-1]["delta"]["stop_reason"] == "tool_use"
    assert events[-1]["type"] == "message_stop"
    whole = (await client.post("/v1/messages", json=body)).json()
    assert [block["name"] for block in whole["content"]] == ["f", "g"]


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b'{"model": "m"}', b'{"model": "m", "messages": [1]}', b'{"messages": [{"role": "user"}]}',
        json.dumps(prompt("LAB-CALL: {")).encode(), json.dumps(prompt("x", n=2)).encode(),
        json.dumps(prompt("x", max_tokens=0)).encode(), json.dumps(prompt("x", lab_mischief="nonsense")).encode(),
        json.dumps(prompt("x", lab_mischief="missing-echo")).encode(),
    ],
)  # fmt: skip
async def test_a_request_that_is_wrong_is_told_so_and_costs_nothing(
    lab: Lab, client: httpx.AsyncClient, body: bytes
) -> None:
    """Not a mischief: status 400 and a sentence, also for a mischief that there is not."""
    response = await client.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert lab.counts.model.billed == 0


# --- each mischief, as a client sees it -----------------------------------------------------------------

TEN = "LAB-ANSWER: 1 2 3 4 5 6 7 8 9 10"


async def test_cut_dies_after_so_many_tokens_and_bills_them(lab: Lab, client: httpx.AsyncClient) -> None:
    """What was delivered is read by the client before the connection ends; nothing beyond it is billed."""
    seen = await stream(client, streamed(TEN), "cut@3", request_id="r")
    assert isinstance(seen.error, httpx.RemoteProtocolError)
    assert seen.text == "1 2 3"
    assert not seen.done
    bill = lab.bill("r")
    assert bill is not None
    assert bill.as_json()["billed"] == 11 + 3
    assert bill.sendings[0].delivered == 3
    assert not bill.sendings[0].finished
    assert lab.counts.requests[Api.MODEL].cuts == {"cut": 1}


async def test_cut_of_a_whole_answer_ends_within_its_body(lab: Lab, client: httpx.AsyncClient) -> None:
    """All of it was generated, and none of it can be read."""
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post("/v1/chat/completions", json=prompt(TEN), headers=headers("cut"))
    assert (lab.counts.model.generated, lab.counts.model.delivered) == (10, 0)


async def test_unterminated_ends_cleanly_without_finish_usage_and_done(lab: Lab, client: httpx.AsyncClient) -> None:
    """HTTP is content; only the protocol above knows that the end is missing."""
    seen = await stream(client, streamed(TEN), "unterminated")
    assert seen.error is None
    assert len(seen.texts) == 10
    assert not seen.finishes
    assert seen.usage is None
    assert not seen.done
    assert (lab.counts.model.generated, lab.counts.model.finished) == (10, 0)
    whole = await client.post("/v1/chat/completions", json=prompt(TEN), headers=headers("unterminated"))
    with pytest.raises(ValueError, match=r"delimiter|value|string|char"):
        whole.json()


async def test_drop_dies_before_a_byte_and_bills_nothing(lab: Lab, client: httpx.AsyncClient) -> None:
    """The model never saw the request."""
    seen = await stream(client, streamed(TEN), "drop")
    assert isinstance(seen.error, httpx.RemoteProtocolError)
    assert not seen.events
    assert lab.counts.model.billed == 0


async def test_hang_accepts_and_never_answers_until_the_client_leaves(lab: Lab, client: httpx.AsyncClient) -> None:
    """Only the client can end it, and the lab notices that it did."""
    with pytest.raises(httpx.ReadTimeout):
        await client.post("/v1/chat/completions", json=prompt(TEN), headers=headers("hang"), timeout=SHORT)
    await until(lambda: lab.counts.requests[Api.MODEL].open == 0, "the request's end")
    assert lab.counts.requests[Api.MODEL].cuts == {"client": 1}
    assert lab.counts.model.billed == 0


async def test_stall_falls_silent_in_the_middle(lab: Lab, client: httpx.AsyncClient) -> None:
    """A read timeout with tokens already there."""
    with pytest.raises(httpx.ReadTimeout):
        async with client.stream(
            "POST", "/v1/chat/completions", json=streamed(TEN), headers=headers("stall@2", "r"), timeout=STALLED
        ) as response:
            async for _ in response.aiter_lines():
                pass
    await until(lambda: (bill := lab.bill("r")) and not bill.sendings[0].open, "the end of the request")
    assert lab.counts.model.generated == lab.counts.model.delivered == 2


async def test_late_and_stutter_are_too_slow_for_an_impatient_client(lab: Lab, client: httpx.AsyncClient) -> None:
    """Late: not a byte in time, yet the prompt is billed. Stutter: the first token may come, the last does not."""
    for mischief in ("late@60s", "stutter@60s"):
        with pytest.raises(httpx.ReadTimeout):
            async with client.stream(
                "POST", "/v1/chat/completions", json=streamed(TEN), headers=headers(mischief, mischief), timeout=SHORT
            ) as response:
                await response.aread()
    await until(lambda: lab.counts.requests[Api.MODEL].cuts == {"client": 2}, "the lab to notice")
    assert (lab.counts.model.prompt, lab.counts.model.generated) == (22, 0)
    assert (await stream(client, streamed(TEN), "late@1ms")).done


async def test_duplicate_repeats_one_event_and_bills_it_once(lab: Lab, client: httpx.AsyncClient) -> None:
    """A proxy that sends again what it has sent."""
    seen = await stream(client, streamed(TEN), "duplicate@2")
    assert seen.texts[:4] == ["1", " 2", " 2", " 3"]
    assert seen.usage is not None
    assert seen.usage["completion_tokens"] == lab.counts.model.generated == 10


async def test_twice_answers_a_second_time_in_the_same_response(lab: Lab, client: httpx.AsyncClient) -> None:
    """Whoever reads on behind the finish has twice the text."""
    seen = await stream(client, streamed("LAB-ANSWER: a b"), "twice")
    assert seen.text == "a ba b"
    assert seen.finishes == ["stop", "stop"]
    assert lab.counts.model.generated == 2
    whole = await client.post("/v1/chat/completions", json=prompt("LAB-ANSWER: a b"), headers=headers("twice"))
    with pytest.raises(ValueError, match="Extra data"):
        whole.json()


async def test_a_storm_refuses_so_many_in_a_row_and_counts_who_comes_early(client: httpx.AsyncClient, lab: Lab) -> None:
    """429 for this request and the next two, whoever sends them; then it is over. `Retry-After` is one second."""
    statuses = []
    for n in range(4):
        mischief = headers("429@3" if n == 0 else None)
        response = await client.post("/v1/chat/completions", json=prompt(f"p{n}"), headers=mischief)
        statuses.append(response.status_code)
        if n == 0:
            assert (response.headers["retry-after"], response.headers["retry-after-ms"]) == ("1", "1000")
    assert statuses == [429, 429, 429, 200]
    assert model_mischief(lab) == {"429": 3}
    assert lab.counts.requests[Api.MODEL].early == 3
    assert lab.counts.model.prompt == 1


@pytest.mark.parametrize("status", [500, 503])
async def test_server_errors_do_nothing(lab: Lab, client: httpx.AsyncClient, status: int) -> None:
    """An error in the protocol's own shape; 503 says when to come again."""
    body = prompt(TEN, max_tokens=1)
    failed = await client.post("/v1/messages", json=body, headers=headers(str(status)))
    assert failed.status_code == status
    assert failed.json()["type"] == "error"
    assert failed.headers.get("retry-after") == ("1" if status == 503 else None)
    assert lab.counts.model.billed == 0


async def test_a_wrong_identity_and_none(client: httpx.AsyncClient) -> None:
    """The answer says another model's name, or none; streamed and whole."""
    for mischief, model in (("wrong-model", "m-other"), ("no-identity", None)):
        seen = await stream(client, streamed(TEN), mischief)
        whole = (await client.post("/v1/chat/completions", json=prompt(TEN), headers=headers(mischief))).json()
        for event in (*seen.events, whole):
            assert event.get("model") == model
            assert ("id" in event) is (model is not None)


async def test_nothing_a_page_and_blank_where_an_answer_should_be(lab: Lab, client: httpx.AsyncClient) -> None:
    """Status 200, each time: no body; HTML; a well-formed answer without content."""
    for body in (prompt(TEN), streamed(TEN)):
        empty = await client.post("/v1/chat/completions", json=body, headers=headers("empty"))
        assert (empty.status_code, empty.content) == (200, b"")
        page = await client.post("/v1/chat/completions", json=body, headers=headers("html"))
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
    blank = await stream(client, streamed(TEN), "blank")
    assert blank.done
    assert not blank.texts
    assert (lab.counts.model.prompt, lab.counts.model.generated) == (33, 0)
    assert model_mischief(lab) == {"empty": 2, "html": 2, "blank": 1}


async def test_bad_call_breaks_off_the_arguments_and_finishes_all_the_same(lab: Lab, client: httpx.AsyncClient) -> None:
    """The finish says tool_calls, the arguments are no JSON; where nothing can be called, it is not done."""
    tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    for text in (TEN, 'LAB-CALL: {"name": "search", "arguments": {"query": "x y"}}'):
        said = (
            await client.post("/v1/chat/completions", json=prompt(text, tools=tools), headers=headers("bad-call"))
        ).json()
        assert said["choices"][0]["finish_reason"] == "tool_calls"
        with pytest.raises(ValueError, match=r"delimiter|value|string|char"):
            json.loads(said["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    await client.post("/v1/chat/completions", json=prompt(TEN), headers=headers("bad-call"))
    assert model_mischief(lab) == {"bad-call": 2}


# --- who asks for it, and what is counted ---------------------------------------------------------------


async def test_a_request_asks_by_header_field_or_line_and_a_test_in_advance(
    lab: Lab, client: httpx.AsyncClient
) -> None:
    """`*1`: only the first time that the same is asked. Over HTTP too, for a lab in another process."""
    asked = f"{TEN}\nLAB-MISCHIEF: cut@1*1"
    assert [len((await stream(client, streamed(asked))).texts) for _ in range(2)] == [1, 10]
    assert len((await stream(client, streamed(TEN, lab_mischief="cut@4"))).texts) == 4
    lab.misbehave("model", "cut@5")
    posted = await client.post("/mischief", json={"api": "model", "mischief": "cut@6", "times": 1})
    assert posted.status_code == 200
    assert [len((await stream(client, streamed(TEN))).texts) for _ in range(3)] == [5, 6, 10]
    refused = await client.post("/mischief", json={"api": "tools", "mischief": "cut@6"})
    assert refused.status_code == 400


async def test_the_same_seed_and_request_id_meet_the_same_mischief_in_any_order() -> None:
    """Draws don't depend on the order of arrival, and another seed draws otherwise."""
    ids = [f"r{n}" for n in range(40)]

    async def play(seed: int, order: list[str]) -> dict[str, object]:
        async with Lab(seed=seed, mischief="cut=0.3,500=0.2,unterminated=0.1") as lab:
            async with httpx.AsyncClient(base_url=lab.url) as client:
                for name in order:
                    with contextlib.suppress(httpx.TransportError):
                        await client.post("/v1/chat/completions", json=streamed(TEN), headers=headers(None, name))
            return {name: lab.counts.by_request[name].as_json() for name in ids}

    first = await play(7, ids)
    assert await play(7, ids[::-1]) == first
    assert await play(8, ids) != first


async def test_two_hundred_concurrent_requests_with_cuts_are_counted_to_the_token() -> None:
    """The sum of what clients read is what was delivered; prompt and generated are what is billed."""
    async with Lab(seed=3, mischief={"model": {"cut": 0.4, "500": 0.1}}) as lab:
        at_once = asyncio.Semaphore(20)  # a pool's own queue takes quadratic time
        async with httpx.AsyncClient(base_url=lab.url, timeout=60) as client:

            async def one(n: int) -> int:
                name = f"r{n}"
                try:
                    async with at_once:
                        return len((await stream(client, streamed(f"{TEN} {n}"), request_id=name)).texts)
                except AssertionError:  # the 500
                    return 0

            read = await asyncio.gather(*(one(n) for n in range(200)))
        counts = lab.counts
    model = counts.requests[Api.MODEL]
    assert model.requests == 200
    assert model.open == 0
    assert 2 <= model.most_open <= 20
    assert sum(read) == counts.model.delivered == counts.model.generated
    refused = model.mischief["500"]
    assert counts.model.prompt == 12 * (200 - refused)
    assert counts.model.billed == counts.model.prompt + sum(read)
    assert counts.model.finished == 200 - refused - model.mischief["cut"]
    assert model.cuts == {"cut": model.mischief["cut"]}
    assert 40 < model.mischief["cut"] < 120


async def test_a_client_that_leaves_is_billed_what_was_generated_until_it_was_noticed() -> None:
    """Generation stops, soon; what was generated in between is billed, and that is at least what was read."""
    async with Lab(latency=0.005) as lab, httpx.AsyncClient(base_url=lab.url) as client:
        async with client.stream(
            "POST", "/v1/chat/completions", json=streamed("LAB-TOKENS: 5000"), headers=headers(None, "r")
        ) as response:
            lines = response.aiter_lines()
            while '"content":""' in (line := await soon(anext(lines))) or not line:
                pass
        await until(lambda: lab.counts.requests[Api.MODEL].cuts == {"client": 1}, "the lab to notice")
        assert 1 <= lab.counts.model.generated < 5000
        assert lab.counts.model.billed == 2 + lab.counts.model.generated
        assert lab.counts.model.finished == 0


def test_every_kind_of_mischief_is_named_in_the_table_of_the_documentation() -> None:
    """The table is what users choose from."""
    text = (Path(__file__).parent.parent / "docs" / "lab.md").read_text("utf-8")
    assert [kind for kind in Kind if f"| `{kind}" not in text] == []
