"""An endpoint that sends back every key that it is given: in answers, errors, pages, headers, echoes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    """See the module's text. What a request wants to meet stands in it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path.startswith("/v1/"):
            key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            self._model(body["messages"][-1]["content"], key)
        else:
            self._tool(body.get("mode", "fine"), self.headers.get("X-Key") or "")

    def _model(self, mode: str, key: str) -> None:
        match mode:
            case "refused":
                self._say(400, {"error": {"message": f"bad key {key}", "type": key, "code": key}}, key)
            case "forbidden":
                self._say(401, {"error": {"message": f"who is {key}?"}}, key)
            case "broken":
                self._say(500, {"error": {"message": f"no luck with {key}"}}, key)
            case "page":
                self._send(200, f"<title>{key}</title>".encode(), "text/html", key)
            case _:
                self._stream(mode, key)

    def _stream(self, mode: str, key: str) -> None:
        named = key if mode == "named" else "echo"
        text = f"you sent {key}, that is {json.dumps(key)}" + (" and on" * 12_000 if mode == "long" else "")
        piece = 1_000 if mode == "long" else 7  # in the short ones no piece holds the whole key
        deltas: list[dict] = [{"content": text[at : at + piece]} for at in range(0, len(text), piece)]
        if mode == "call":
            arguments = json.dumps({"key": key})
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "tell", "arguments": arguments}}
            deltas.append({"tool_calls": [call]})
        events = [self._event(named, {"delta": delta, "finish_reason": None}) for delta in deltas]
        if mode == "cut":
            events = [*events[:4], json.dumps({"error": {"message": f"cut, {key}"}})]
        else:
            events += [self._event(named, {"delta": {}, "finish_reason": "stop"}), "[DONE]"]
        self._send(200, "".join(f"data: {event}\n\n" for event in events).encode(), "text/event-stream", key)

    @staticmethod
    def _event(named: str, choice: dict) -> str:
        choices = [{"index": 0, **choice}]
        return json.dumps({"id": f"id-{named}", "model": named, "system_fingerprint": named, "choices": choices})

    def _tool(self, mode: str, key: str) -> None:
        if mode == "broken" and self.path == "/acts":
            self._say(500, {"error": f"no luck with {key}"}, key)
        else:
            echo = key if mode == "wrong-echo" and self.path == "/acts" else self.headers.get("Idempotency-Key") or ""
            self._say(200, {"you": key, "again": json.dumps(key)}, key, echo)

    def _say(self, status: int, content: object, key: str, echo: str = "") -> None:
        self._send(status, json.dumps(content).encode(), "application/json", key, echo)

    def _send(self, status: int, body: bytes, kind: str, key: str, echo: str = "") -> None:
        self.send_response(status, f"Sent {key}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", key)
        self.send_header("X-You-Sent", key)
        if echo:
            self.send_header("Idempotency-Key", echo)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tell nobody."""


@contextlib.contextmanager
def echoing() -> Iterator[str]:
    """Its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
