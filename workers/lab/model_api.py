"""The model interface: OpenAI's chat and completions, Anthropic's messages, streamed or whole.

A request is billed its prompt when the model begins to read it, and each token when it is generated: until the
answer ends, is cut, or the client is seen to have left. What a proxy refuses in the model's place costs nothing. Nor
does a request whose bill was asked for before it had come: it is refused when it comes after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from workers.lab.asking import Asked, BadRequest, Shape, read_request
from workers.lab.counts import Sending
from workers.lab.exchange import Exchange, Header
from workers.lab.mischief import Api, Kind, Mischief
from workers.lab.service import State, is_welcome, meets, refuses
from workers.lab.wires import Identity, failure, render, whole
from workers.lab.words import Answer, answer

__all__ = ["MODEL", "chat", "completions", "list_models", "messages"]

MODEL = "lab-1"
"""The name in `/v1/models`; a request may name any other, and is answered under that."""


async def chat(state: State, exchange: Exchange) -> None:
    """`POST /v1/chat/completions`."""
    await _serve(state, exchange, Shape.CHAT)


async def completions(state: State, exchange: Exchange) -> None:
    """`POST /v1/completions`."""
    await _serve(state, exchange, Shape.COMPLETIONS)


async def messages(state: State, exchange: Exchange) -> None:
    """`POST /v1/messages`."""
    await _serve(state, exchange, Shape.MESSAGES)


async def list_models(state: State, exchange: Exchange) -> None:
    """`GET /v1/models`; also what asks whether a key is right."""
    if not is_welcome(state, exchange):
        await exchange.json(401, failure(Shape.CHAT, "authentication_error", "the API key is missing, or wrong"))
        return
    listed = {"id": MODEL, "object": "model", "created": 0, "owned_by": "evalbus"}
    await exchange.json(200, {"object": "list", "data": [listed]})


async def _serve(state: State, exchange: Exchange, shape: Shape) -> None:
    def failed(kind: str, message: str) -> object:
        return failure(shape, kind, message)

    if not is_welcome(state, exchange):
        await exchange.json(401, failed("authentication_error", "the API key is missing, or wrong"))
        return
    content = sha256(exchange.body).hexdigest()
    request_id = (
        exchange.text_header("x-request-id") or exchange.text_header("idempotency-key") or f"lab-{content[:24]}"
    )
    try:
        asked = read_request(shape, exchange.body)
        chosen = meets(state, exchange, request_id, asked.mischief, content)
    except BadRequest as error:
        await exchange.json(400, failed("invalid_request_error", str(error)))
        return
    if state.counting.is_too_late(request_id):
        await exchange.json(409, failed("conflict_error", "somebody was told that this request has cost nothing"))
        return
    bill = state.counting.bill(request_id)
    nth = 0 if bill is None else len(bill.sendings)
    digest = sha256(f"{state.plan.seed}/{request_id}/{nth}".encode("utf-8", "surrogatepass")).hexdigest()
    answer_id = ("msg_" if shape is Shape.MESSAGES else "chatcmpl-" if shape is Shape.CHAT else "cmpl-") + digest[:24]
    sending = state.counting.sending(request_id, answer_id)
    try:
        if not await refuses(state, exchange, chosen, failed):
            echo = Header("x-request-id", exchange.header("x-request-id") or request_id)
            identity = Identity(answer_id, asked.model, f"fp_lab_{state.plan.seed}")
            await _Answering(state, exchange, asked, chosen, sending, identity, echo).run()
    finally:
        sending.open, sending.cut = False, exchange.cause or sending.cut
        exchange.told |= {
            "model": asked.model,
            "prompt": sending.prompt,
            "generated": sending.generated,
            "delivered": sending.delivered,
            "finished": sending.finished,
        }


@dataclass(slots=True)
class _Answering:
    """The making of one answer."""

    state: State
    exchange: Exchange
    asked: Asked
    chosen: Mischief | None
    sending: Sending
    identity: Identity
    echo: Header

    async def run(self) -> None:
        state, exchange, asked = self.state, self.exchange, self.asked
        said = answer(state.plan.seed, asked.prompt, asked.scripted, asked.tokens or state.tokens)
        said = self._disturbed(said.limited(asked.max_tokens))
        if self.chosen is not None:
            state.counting.misbehaved(Api.MODEL, self.chosen)
        self.sending.prompt = asked.prompt_tokens
        if self.chosen is not None and self.chosen.kind is Kind.EMPTY:
            kind = "text/event-stream; charset=utf-8" if asked.stream else "application/json"
            await exchange.answer(200, b"", kind, self.echo)
            return
        if self.chosen is not None and self.chosen.kind is Kind.LATE and not await exchange.pause(self.chosen.seconds):
            await exchange.lost()
            return
        await (self._stream(said) if asked.stream else self._whole(said))

    def _disturbed(self, said: Answer) -> Answer:
        """The answer and the identity as the mischief has them; a mischief that is not possible here is dropped."""
        match None if self.chosen is None else self.chosen.kind:
            case Kind.BLANK:
                return said.blank()
            case Kind.BAD_CALL:
                cut = said.with_a_cut_call(self.asked.tools, self.asked.prompt)
                if cut is None:
                    self.chosen = None
                    return said
                return cut
            case Kind.WRONG_MODEL:
                self.identity = Identity(self.identity.id, f"{self.asked.model}-other", self.identity.fingerprint)
            case Kind.NO_IDENTITY:
                self.identity = Identity(None, None, None)
            case _:
                pass
        return said

    def _ends_after(self, tokens: int) -> int:
        """How many tokens are generated."""
        if self.chosen is None or self.chosen.kind not in (Kind.CUT, Kind.STALL):
            return tokens
        return self.chosen.place(tokens)

    async def _thinks(self) -> bool:
        """The time before a token; False: nobody waits for it any more."""
        stutter = self.chosen.seconds if self.chosen is not None and self.chosen.kind is Kind.STUTTER else 0.0
        return await self.exchange.pause(self.state.latency + stutter)

    async def _stream(self, said: Answer) -> None:
        exchange, sending = self.exchange, self.sending
        kind = None if self.chosen is None else self.chosen.kind
        parts = render(self.asked, said, self.identity)
        twice = -1  # the index of the token whose event comes twice
        if self.chosen is not None and kind is Kind.DUPLICATE:
            twice = max(0, min(self.chosen.place(len(parts.deltas)), len(parts.deltas)) - 1)
        await exchange.start(200, "text/event-stream; charset=utf-8", Header("cache-control", "no-cache"), self.echo)
        if parts.opening:
            await exchange.write(parts.opening)
        for index in range(self._ends_after(len(parts.deltas))):
            if not await self._thinks():
                await exchange.lost()
                return
            sending.generated += 1
            sending.delivered += await exchange.write(parts.deltas[index])
            if index == twice:
                await exchange.write(parts.deltas[index])
        if kind is Kind.CUT:
            await exchange.cut("cut")
        elif kind is Kind.STALL:
            await exchange.gone()
            await exchange.lost()
        elif kind is Kind.UNTERMINATED:
            await self._ends_unterminated()
        elif not exchange.is_open:
            await exchange.lost()
        else:
            sending.finished = True  # before the last byte: who has read it finds it counted
            again = parts.opening + b"".join(parts.deltas) + parts.finish if kind is Kind.TWICE else b""
            await exchange.write(parts.finish + again + parts.done)
            await exchange.end()

    async def _whole(self, said: Answer) -> None:
        exchange, sending = self.exchange, self.sending
        kind = None if self.chosen is None else self.chosen.kind
        for _ in range(len(said.deltas) if kind is not Kind.STALL else self._ends_after(len(said.deltas))):
            if not await self._thinks():
                await exchange.lost()
                return
            sending.generated += 1
        body = whole(self.asked, said, self.identity)
        if kind is Kind.STALL:
            await exchange.gone()
            await exchange.lost()
        elif kind is Kind.CUT:
            await exchange.start(200, "application/json", self.echo, length=len(body))
            await exchange.write(body[: len(body) // 2])
            await exchange.cut("cut")
        elif kind is Kind.UNTERMINATED:
            await exchange.start(200, "application/json", self.echo)
            await exchange.write(body[: len(body) // 2])
            await self._ends_unterminated()
        elif not exchange.is_open:
            await exchange.lost()
        else:
            sending.delivered, sending.finished = len(said.deltas), True
            await exchange.answer(
                200, body * 2 if kind in (Kind.TWICE, Kind.DUPLICATE) else body, "application/json", self.echo
            )

    async def _ends_unterminated(self) -> None:
        self.sending.cut = Kind.UNTERMINATED.value
        self.state.counting.cut(Api.MODEL, Kind.UNTERMINATED.value)
        await self.exchange.end(whole=False)
