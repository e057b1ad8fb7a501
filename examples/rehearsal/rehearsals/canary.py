"""Keys from the environment and from a file, with an endpoint, tools, a candidate and a judge that tell all they can.

Then every place where something may have been written is searched: all files of the directory (logs, the server's own
data, artifacts, `--json`, the export, the report), what stood on the terminal, the page of metrics, and each key of the
server with its value. A word that is no secret was told beside them: where that is found, a key would have been, too.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from echo import echoing
from findings import Findings
from place import SUITES, Place, Run

from bus.connection import Endpoint
from bus.redis_bus import RedisBus
from workers.runtime import SystemRuntime

DRAWN = 32
"""Characters at the end of each word that is looked for: hex digits, drawn anew each time."""

READ = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"list": ("LRANGE", (0, -1)),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"stream": ("XRANGE", ("-", "+")),
}


def search(places: Mapping[str, bytes], secret: str) -> list[str]:
    """Where it stands. Its random end is looked for: however often the rest is escaped, that stays as it is."""
    return [name for name, data in places.items() if secret[-DRAWN:].encode() in data]


def files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, as it is; one that is compressed also as it was."""
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            data = file.read_bytes()
            name = str(file.relative_to(root))
            yield name, data
            for way in (gzip.decompress, zlib.decompress):
                try:
                    yield f"{name}, unpacked", way(data)
                except (OSError, EOFError, zlib.error):
                    continue


async def dump(home: Path) -> dict[str, bytes]:
    """Each key of the server, with all that is in it."""
    endpoint = await asyncio.to_thread(Endpoint.from_options, None, home)
    bus = RedisBus(endpoint, SystemRuntime())
    found = {}
    try:
        for key in await bus.link.command("KEYS", "*"):
            command, rest = READ[await bus.link.command("TYPE", key)]
            value = await bus.link.command(command, key, *rest)
            found[f"server: {key.decode()}"] = key + b"\n" + b"\n".join(flat(value))
    finally:
        await bus.aclose()
        await endpoint.aclose()
    return found


def page(role: Run) -> bytes:
    """The metrics of a role that was started with `--metrics 0`: it logs the port."""
    port = next(json.loads(line)["port"] for line in role.err.read_text().splitlines() if '"metrics.served"' in line)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read()


def flat(value: object) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, Mapping):
        for item in value.items():
            yield from flat(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from flat(item)
    else:
        yield str(value).encode()


def rehearse(seed: int, size: int | None) -> Findings:
    """Neither matters: keys are drawn anew each time, and each way to tell one is tried once."""
    found = Findings("canary: keys from the environment never reach history, logs, errors or exports")
    keys = {
        "CANARY_MODEL_KEY": f"sk-canary-{secrets.token_hex(DRAWN // 2)}",
        "CANARY_FILE_KEY": f"sk-canary-{secrets.token_hex(DRAWN // 2)}",
        "CANARY_TOOL_KEY": f'sk"canary\\{secrets.token_hex(DRAWN // 2)}',  # JSON and Python write this one otherwise
    }
    mark = f"mark-{secrets.token_hex(DRAWN // 2)}"
    with Place.opened() as place, echoing() as url, tempfile.NamedTemporaryFile("w", prefix="canary-") as file:
        file.write(keys["CANARY_FILE_KEY"] + "\n")
        file.flush()
        given = {"REHEARSAL_ECHO": url, "CANARY_MARK": mark, "EVALBUS_LOG": "debug", "CANARY_FILE_KEY_FILE": file.name}
        given |= {name: key for name, key in keys.items() if name != "CANARY_FILE_KEY"}
        beside = place.role("worker", SUITES / "canary", "--metrics", 0, **given)
        run = place.start(SUITES / "canary", "canary", workers=0, **given)
        ended = run.end()
        result = place.result("canary")
        lines = place.history("canary")
        metrics = page(beside)
        beside.process.terminate()
        beside.end()
        some = next(line["envelope"]["run"] for line in lines[1:-1] if line["envelope"].get("run"))
        asked = [("status", "canary"), ("gate", "canary"), ("why", "canary", some), ("explain", "canary", some)]
        asked.append(("report", "canary", "-o", "report.html"))
        shown = {f"evalbus {words[0]}": place.call(*words) for words in asked}
        places = asyncio.run(dump(place.home))
        places |= dict(files(place.root))
        places |= {name: (done.out + done.err).encode() for name, done in shown.items()}
        places["metrics"] = metrics
    names = sorted(result["holes"].items())
    found.count("runs", f"{result['intended']}, {result['state']} after {ended.seconds:.0f} s")
    found.count("holes", " · ".join(f"{why} {n}" for why, n in names))
    found.count("places searched", len(places))
    found.count("bytes", sum(map(len, places.values())))
    marked = search(places, mark)
    found.count("places where the other word stands", len(marked))
    for name, key in keys.items():
        leaks = search(places, key)
        found.count(f"places where {name} stands", len(leaks))
        found.must(not leaks, f"{name} stands in {', '.join(leaks[:8])}")
    found.must(result["state"] == "closed", f"the batch is {result['state']}")
    found.must(b"evalbus_steps_total" in metrics, "the page of metrics is none")
    for kind in ("server: ", "logs/", "canary.jsonl", "canary.out", "worker.", "report.html", "evalbus why"):
        found.must(any(kind in name for name in marked), f"the search finds nothing in {kind}: it proves nothing")
    return found
