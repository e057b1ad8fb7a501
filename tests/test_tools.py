"""Tools: what a suite may declare, and how a call ends: done, failed with nothing done, or nobody knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp.server.mcpserver import Context, MCPServer
from starlette.types import Receive, Scope, Send

from bus.errors import InputError
from bus.types import Plane, RunId
from tests.suites import MINIMAL, make_suite
from tests.tool_server import served
from workers.redaction import forget, redacted
from workers.suite import Suite
from workers.tools import ToolContext, mcp_tool
from workers.tools.keys import wire_key
from workers.tools.tables import ToolTable, tool_limits
from workers.tools.text import LONGEST, as_text, shortened
from workers.tools.toolbox import Toolbox
from workers.tools.values import Answer, Order, SilenceError
from workers.workspace import Workspace

KEY = "live:1/a#1~0.1.0"


def suite_of(root: Path, tables: str, /, **files: str) -> Suite:
    """A suite with these tool tables."""
    return make_suite(root, MINIMAL + tables, **files)


def order(tool: str, workspace: Workspace | None = None, undoes: str | None = None, /, **args: object) -> Order:
    """A call as an executor makes it; with a workspace, as the run's holder does."""
    deadline = time.monotonic() + 60
    return Order(tool, args, ToolContext(KEY, Plane.LIVE, RunId("a#1"), deadline, undoes, workspace))


async def silence(box: Toolbox, made: Order) -> str:
    """What happened instead of an answer. Fails when there was one."""
    with pytest.raises(SilenceError) as raised:
        await box.run(made)
    return str(raised.value)


# --- what is declared -------------------------------------------------------------------------------------

WRONG = {
    'http = "http://h/x"': "tools.t.effects: is missing",
    'effects = "none"': "exactly one of python, http, command and mcp is needed",
    'effects = "none"\nhttp = "http://h/x"\npython = "a.py:f"': "exactly one of python, http, command and mcp",
    'effects = "outsid"\nhttp = "http://h/x"': "did you mean 'outside'?",
    'effects = "none"\nhttp = "ftp://h/x"': "is not a URL",
    'effects = "none"\nhttp = "http://me:secret@h/x"': "headers_env",
    'effects = "none"\nhttp = "http://h/x"\nenv = ["A"]': "env is for a tool that is command",
    'effects = "none"\nhttp = "http://h/x"\ninverse = "u"': 'inverse is for a tool with effects = "outside"',
    'effects = "outside"\nhttp = "http://h/x"\ninverse = "u"': "tools.t.inverse: there is no other tool 'u'",
    'effects = "outside"\nhttp = "http://h/x"\ninverse = "t"': "tools.t.inverse: there is no other tool 't'",
    'effects = "outside"\nhttp = "http://h/x"\ntimeout = "3s"\nbound = "3s"': "is not longer than the timeout",
    'effects = "workspace"\nhttp = "http://h/x"': "where that is",
    'effects = "workspace"\ncommand = ["x"]\nremote = true': "where that is",
    'effects = "none"\nmcp = "files"': "there is no table [mcp.files]",
    'effects = "none"\nhttp = "http://h/x"\nheaders_env = {Idempotency-Key = "A"}': "cannot be set",
    'effects = "none"\nhttp = "http://h/x"\nheaders_env = {X = "a-b"}': "not the name of an environment variable",
    'effects = "none"\nhttp = "http://h/x"\ntimout = "3s"': "did you mean 'timeout'?",
    'effects = "none"\npython = "tools.py:lookup"': "no such file: tools.py",
}


@pytest.mark.parametrize(("table", "said"), WRONG.items())
def test_what_is_wrong_with_a_tool_is_one_line_that_names_the_field(tmp_path: Path, table: str, said: str) -> None:
    """A tool without declared effects would be retried, or not, by chance."""
    with pytest.raises(InputError) as raised:
        suite_of(tmp_path, f"[tools.t]\n{table}\n")
    assert said in str(raised.value)
    assert "suite.toml" in str(raised.value)


def test_a_tool_whose_function_does_not_import_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """With the line in its file."""
    with pytest.raises(InputError, match=r"tools\.t\.python: tools.py does not import: ValueError: no \(line 2\)"):
        suite_of(
            tmp_path, '[tools.t]\npython = "tools.py:f"\neffects = "none"\n', tools_DOT_py="\nraise ValueError('no')\n"
        )


def test_the_mcp_client_is_asked_for_only_when_a_tool_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an optional dependency; the one line says how to install it."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    suite_of(tmp_path / "without", '[mcp.files]\ncommand = ["x"]\n')
    with pytest.raises(InputError, match=r"tools\.t: the MCP client is not installed .*evalbus\[mcp\]"):
        suite_of(tmp_path / "with", '[tools.t]\nmcp = "files"\neffects = "none"\n[mcp.files]\ncommand = ["x"]\n')


def test_a_batch_declares_the_largest_bound_and_who_undoes_whom(tmp_path: Path) -> None:
    """Of what only reads nobody is ever in doubt."""
    suite = suite_of(
        tmp_path,
        '[tools.book]\nhttp = "http://h/b"\neffects = "outside"\ntimeout = "2s"\ninverse = "cancel"\n'
        '[tools.cancel]\nhttp = "http://h/c"\neffects = "outside"\nbound = "25s"\ntimeout = "1s"\n'
        '[tools.look]\nhttp = "http://h/l"\neffects = "none"\nremote = true\ntimeout = "1h"\n',
    )
    assert tool_limits(suite.tools) == {"ack_bound_ms": 25_000, "inverses": '{"book": "cancel"}'}
    assert tool_limits({"look": suite.tools["look"]}) == {}


def test_what_has_effects_outside_always_goes_through_the_stream() -> None:
    """Only there is it made at most once."""
    through = ToolTable(http="http://h/x", effects="outside")
    assert through.from_stream
    assert not ToolTable(http="http://h/x", effects="none").from_stream
    assert ToolTable(http="http://h/x", effects="none", remote=True).from_stream


def test_a_key_is_fit_for_a_header_and_no_other_batch_has_it() -> None:
    """The same suite's second batch would otherwise be given the first one's answers by the tool."""
    key = wire_key(Plane.SHADOW, "ab" * 16, "größe#1~0.2.0")
    assert key.startswith("shadow:" + "ab" * 16 + ":gr%C3%B6")
    assert key.isascii()
    assert key.isprintable()
    assert " " not in wire_key(Plane.LIVE, "x", "a b#1~0.1.0")
    assert key != wire_key(Plane.SHADOW, "cd" * 16, "größe#1~0.2.0")
    long = [wire_key(Plane.LIVE, "x", "ü" * 100 + f"#1~0.1.{n}") for n in (1, 2)]
    assert max(map(len, long)) <= 200
    assert long[0] != long[1]


# --- functions --------------------------------------------------------------------------------------------

FUNCTIONS = """
import asyncio, os, time
from pathlib import Path
from workers.tools import NothingDoneError

def add(a, b=1):
    return {"sum": a + b}

async def told(*, context, x):
    return f"{context.key} {context.plane} {context.run} {context.undoes} {x}"

def touch(name, context):
    (context.workspace.path / name).write_text("x")

def raises():
    raise ValueError("no")

def refuses():
    raise NothingDoneError("sold out")

def hangs():
    time.sleep(3)

def odd():
    return object

def leaks():
    return "the key is " + os.environ["TOOL_CANARY"]
"""


def functions(root: Path, effects: str) -> Toolbox:
    """Each of the functions above as a tool of that kind; there is time for all but the one that hangs."""
    names = ("add", "told", "touch", "raises", "refuses", "hangs", "odd", "leaks")
    tables = "".join(
        f'[tools.{name}]\npython = "tools.py:{name}"\neffects = "{effects}"\n'
        f'timeout = "{"300ms" if name == "hangs" else "60s"}"\n'
        for name in names
    )
    return Toolbox(suite_of(root, tables, tools_DOT_py=FUNCTIONS))


async def test_a_function_gets_its_arguments_as_keywords_and_returns_text_or_json(tmp_path: Path) -> None:
    """What is hard to write down was done all the same."""
    box = functions(tmp_path, "outside")
    assert await box.run(order("add", a=2)) == Answer(True, '{"sum":3}', KEY)
    assert await box.run(order("told", None, "live:1/u", x=1)) == Answer(True, f"{KEY} live a#1 live:1/u 1", KEY)
    assert (await box.run(order("odd"))).text == "<class 'object'>"


async def test_a_call_that_a_function_cannot_take_has_done_nothing(tmp_path: Path) -> None:
    """It is the model that writes the arguments; a wrong name is not a doubt."""
    box = functions(tmp_path, "outside")
    wrong = await box.run(order("add", c=1))
    assert not wrong.ok
    assert "argument" in wrong.text
    taken = await box.run(order("told", x=1, context=2))
    assert not taken.ok


async def test_an_exception_of_an_outside_tool_is_doubt_unless_it_says_that_nothing_was_done(tmp_path: Path) -> None:
    """It may have been raised after the effect."""
    box = functions(tmp_path, "outside")
    assert await silence(box, order("raises")) == "ValueError: no"
    assert await silence(box, order("hangs")) == "no answer within 0.3 s"
    assert await box.run(order("refuses")) == Answer(False, "sold out")


async def test_a_failure_of_a_tool_that_changes_nothing_outside_is_a_failure(tmp_path: Path) -> None:
    """There is nothing to be in doubt of."""
    box = functions(tmp_path, "none")
    assert await box.run(order("raises")) == Answer(False, "ValueError: no")
    assert await box.run(order("hangs")) == Answer(False, "no answer within 0.3 s")


async def test_a_tool_of_the_workspace_finds_it_in_its_context(tmp_path: Path) -> None:
    """Which only the run's holder has."""
    box = functions(tmp_path / "suite", "workspace")
    workspace = Workspace(tmp_path / "work")
    assert (await box.run(order("touch", workspace, name="made"))).ok
    assert (workspace.path / "made").read_text() == "x"


async def test_a_key_from_the_environment_is_in_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the tool itself prints it."""
    monkeypatch.setenv("TOOL_CANARY", 'ca"nary-4711')
    suite = suite_of(
        tmp_path,
        '[tools.leaks]\npython = "tools.py:leaks"\neffects = "none"\n'
        '[tools.shows]\ncommand = ["sh", "-c", "echo $TOOL_CANARY; exit 1"]\n'
        'env = ["TOOL_CANARY"]\neffects = "outside"\n',
        tools_DOT_py=FUNCTIONS,
    )
    box = Toolbox(suite)
    assert (await box.run(order("leaks"))).text == "the key is ***"
    assert "4711" not in await silence(box, order("shows"))
    forget()


async def test_a_key_is_not_recognised_by_its_beginning_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is cut to a line of three hundred characters, and the key that it quotes may lie across the cut."""
    monkeypatch.setenv("TOOL_CANARY", "canary-4711-canary")
    far = "x" * 285
    code = f'import os\ndef leaks():\n    raise ValueError("{far}" + os.environ["TOOL_CANARY"])\n'
    async with answering(f"HTTP/1.1 400 No\r\nContent-Length: 303\r\n\r\n{far}canary-4711-canary") as url:
        suite = suite_of(
            tmp_path,
            '[tools.leaks]\npython = "tools.py:leaks"\neffects = "none"\n'
            f'[tools.asks]\nhttp = "{url}"\neffects = "none"\nheaders_env = {{ X-Key = "TOOL_CANARY" }}\n',
            tools_DOT_py=code,
        )
        box = Toolbox(suite)
        for tool in ("leaks", "asks"):
            answer = await box.run(order(tool))
            assert "canary" not in answer.text
            assert "***" in answer.text
    forget()


async def test_what_a_program_is_given_is_hidden_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with a line end behind it, or of several lines, is printed without them."""
    monkeypatch.setenv("TOOL_CANARY", 'canary-4711\ngrün"canary-4712\n')
    suite = suite_of(
        tmp_path,
        '[tools.shows]\ncommand = ["sh", "-c", "echo $TOOL_CANARY"]\nenv = ["TOOL_CANARY"]\neffects = "none"\n',
    )
    said = (await Toolbox(suite).run(order("shows"))).text
    assert said == "*** ***\n"
    assert redacted(json.dumps({"a": 'grün"canary-4712'}, ensure_ascii=False)) == '{"a": "***"}'
    forget()


HARD = """
class Mute:
    def __repr__(self):
        raise RuntimeError("no")

class Shy(dict):
    def items(self):
        raise KeyError("no")

def mute():
    return Mute()

def shy():
    return Shy(a=1)

def deep():
    found = []
    for _ in range(100_000):
        found = [found]
    return found

def digits():
    return 10**6000

def half():
    raise ValueError(chr(0xD800))
"""


async def test_a_result_that_cannot_be_written_down_is_still_that_of_a_call_that_was_made(tmp_path: Path) -> None:
    """An exception on the way would leave in doubt what is known to be done, and take an effect back for it."""
    names = ("mute", "shy", "deep", "digits", "half")
    tables = "".join(f'[tools.{name}]\npython = "tools.py:{name}"\neffects = "outside"\n' for name in names)
    box = Toolbox(suite_of(tmp_path, tables, tools_DOT_py=HARD))
    for name, text in (("mute", "<Mute>"), ("deep", "<list>"), ("digits", "<int>")):
        assert await box.run(order(name)) == Answer(True, text, KEY)
    assert (await box.run(order("shy"))).ok
    assert await silence(box, order("half")) == "ValueError: ?"


@pytest.mark.parametrize("charset", ["undefined", "idna", "no-such", "base64", "utf-7", "raw_unicode_escape"])
async def test_an_answer_in_a_charset_that_is_none_is_read_all_the_same(tmp_path: Path, charset: str) -> None:
    """Python knows codecs that decode no text, raise for everything, or make halves of surrogate pairs."""
    body = {"utf-7": "+2AA-", "raw_unicode_escape": r"\ud800"}.get(charset, "done")
    answer = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\nIdempotency-Key: {KEY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    async with answering(answer) as url:
        box = Toolbox(suite_of(tmp_path, f'[tools.h]\nhttp = "{url}"\neffects = "outside"\n'))
        said = await box.run(order("h"))
    assert said == Answer(True, "done" if body == "done" else "?", KEY)


async def test_an_undo_that_comes_at_a_bad_time_is_tried_again(tmp_path: Path) -> None:
    """Nobody else would: it would be stuck for good over a limit of the rate, or a restart. A call is the solver's."""
    busy = "HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n\r\n"
    done = f"HTTP/1.1 200 OK\r\nIdempotency-Key: {KEY}\r\nContent-Length: 4\r\n\r\ndone"
    table = '[tools.h]\nhttp = "{}"\neffects = "outside"\ntimeout = "{}"\n'
    async with answering(busy, busy, done) as url:
        box = Toolbox(suite_of(tmp_path / "call", table.format(url, "5s")))
        assert await box.run(order("h")) == Answer(False, "HTTP 429")
        assert await box.run(order("h", None, "live:1/b")) == Answer(True, "done", KEY)
    async with answering(busy) as url:
        box = Toolbox(suite_of(tmp_path / "undo", table.format(url, "5s")))
        context = ToolContext(KEY, Plane.LIVE, RunId("a#1"), time.monotonic() + 0.15, "live:1/b")
        assert await box.run(Order("h", {}, context)) == Answer(False, "HTTP 429")


@contextlib.asynccontextmanager
async def answering(*answers: str) -> AsyncIterator[str]:
    """A server that gives these answers one after the other, and the last one for ever; its URL."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)  # the arguments: {}
        writer.write((left.pop(0) if len(left) > 1 else left[0]).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def test_text_is_always_text() -> None:
    """Whatever a tool returns, it can be sent and kept."""
    assert as_text(None) == ""
    assert as_text(b"\xff") == "\ufffd"
    assert as_text("a\ud800") == "a?"
    assert as_text([1, True]) == "[1,true]"
    assert as_text(float("nan")) == "nan"
    assert shortened("x" * LONGEST).endswith("[2 more characters]")  # the quotes
    assert shortened("x" * (LONGEST - 2)) == "x" * (LONGEST - 2)
    assert len(json.dumps(shortened("\0" * LONGEST))) < LONGEST + 100


# --- programs ---------------------------------------------------------------------------------------------

PROGRAMS = """
[tools.greet]
command = ["sh", "-c", "cat; echo ' {name} {n}' $EVALBUS_IDEMPOTENCY_KEY $EVALBUS_PLANE $EVALBUS_UNDOES"]
effects = "outside"
[tools.busy]
command = ["sh", "-c", "echo try later >&2; exit 75"]
effects = "outside"
[tools.breaks]
command = ["sh", "-c", "echo half; echo why >&2; exit 3"]
effects = "outside"
[tools.slow]
command = ["sleep", "60"]
effects = "outside"
timeout = "200ms"
[tools.absent]
command = ["no-such-program"]
effects = "outside"
[tools.check]
command = ["sh", "-c", "echo half; echo why >&2; exit 3"]
effects = "none"
[tools.list]
command = ["ls"]
effects = "workspace"
"""


async def test_a_program_is_told_its_arguments_and_its_key(tmp_path: Path) -> None:
    """In its words, as JSON on its input, and in its environment."""
    box = Toolbox(suite_of(tmp_path, PROGRAMS))
    answer = await box.run(order("greet", None, "live:1/u", name="{n} Ada", n=[1]))
    assert answer == Answer(True, f'{{"n":[1],"name":"{{n}} Ada"}} {{n}} Ada [1] {KEY} live live:1/u\n', KEY)


async def test_how_a_program_ends_says_whether_anything_was_done(tmp_path: Path) -> None:
    """75 is EX_TEMPFAIL; any other failure may have come after the effect."""
    box = Toolbox(suite_of(tmp_path, PROGRAMS))
    assert await box.run(order("busy")) == Answer(False, "try later")
    assert await silence(box, order("breaks")) == "exit code 3\nhalf\nwhy"
    assert (await silence(box, order("slow"))).startswith("timed out")
    absent = await box.run(order("absent"))
    assert absent == Answer(False, "there is no program 'no-such-program' on this machine; nothing was done")
    assert await box.run(order("check")) == Answer(False, "exit code 3\nhalf\nwhy")


async def test_a_program_of_the_workspace_runs_there_and_one_without_it_in_an_empty_directory(tmp_path: Path) -> None:
    """A remote executor has nothing of the run."""
    box = Toolbox(suite_of(tmp_path / "suite", PROGRAMS))
    workspace = Workspace(tmp_path / "work")
    (workspace.path / "kept").touch()
    assert (await box.run(order("list", workspace))).text == "kept\n"
    assert (await box.run(order("list"))).text == ""


# --- MCP --------------------------------------------------------------------------------------------------

MCP_SERVER = """
import os, sys
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("desk")
print("the key is", os.environ.get("DESK_CANARY"), file=sys.stderr)

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool()
async def told(ctx: Context) -> str:
    meta = ctx.request_context.meta or {}
    return " ".join(str(dict(meta).get(f"evalbus/{name}")) for name in ("idempotency-key", "plane", "undoes"))

@server.tool()
def fails() -> str:
    raise ValueError("sold out")

@server.tool()
def dies() -> str:
    os._exit(3)

if __name__ == "__main__":
    if sys.argv[1:] == ["broken"]:
        sys.exit("no desk today")
    server.run(*sys.argv[1:])
"""

MCP_TABLES = """
[mcp.desk]
command = ["{python}", "{suite}/desk.py"]
env = ["DESK_CANARY"]
[mcp.broken]
command = ["{python}", "{suite}/desk.py", "broken"]
env = ["DESK_CANARY"]
[tools.sum]
mcp = "desk"
tool = "add"
effects = "none"
[tools.told]
mcp = "desk"
effects = "outside"
[tools.fails]
mcp = "desk"
effects = "outside"
[tools.dies]
mcp = "desk"
effects = "outside"
[tools.nowhere]
mcp = "desk"
effects = "outside"
[tools.lost]
mcp = "broken"
effects = "outside"
"""


async def test_tools_of_an_mcp_server_that_is_a_command(tmp_path: Path) -> None:
    """One process for all calls, which gets the key with each; what it cannot have done is no doubt.

    A call with which it dies may have had its effect. The next one has nothing to do with that: it is started anew.
    """
    box = Toolbox(suite_of(tmp_path, MCP_TABLES, desk_DOT_py=MCP_SERVER))
    try:
        assert (await box.run(order("sum", a=1, b=2))).text == "3"
        assert await box.run(order("told", None, "live:1/u")) == Answer(True, f"{KEY} live live:1/u", KEY)
        missing = await box.run(order("nowhere"))
        assert (missing.ok, missing.text) == (False, "the server desk has no tool 'nowhere'")
        assert "fails" in await silence(box, order("fails"))
        assert not (await box.run(order("sum", a="x"))).ok
        assert "the server desk" in await silence(box, order("dies"))
        assert (await box.run(order("told"))).ok
    finally:
        await box.aclose()


async def test_an_mcp_server_that_does_not_start_was_asked_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it said on its way out is told, but for secrets."""
    monkeypatch.setenv("DESK_CANARY", "canary-0815")
    box = Toolbox(suite_of(tmp_path, MCP_TABLES, desk_DOT_py=MCP_SERVER))
    try:
        lost = await box.run(order("lost"))
        assert not lost.ok
        assert "no desk today" in lost.text
    finally:
        await box.aclose()
        forget()


SLOW_SERVER = """
import time
from pathlib import Path

with Path(__file__).with_name("starts.log").open("a") as log:
    log.write("started\\n")
time.sleep(1.2)
from mcp.server.mcpserver import MCPServer

server = MCPServer("slow")

@server.tool()
def hello() -> str:
    return "hello"

server.run("stdio")
"""
SLOW_TABLES = """
[mcp.slow]
command = {}
[tools.hello]
mcp = "slow"
effects = "none"
timeout = "1s"
"""


async def test_the_start_of_an_mcp_server_is_no_part_of_a_calls_time(tmp_path: Path) -> None:
    """It would depend on the machine whether a tool that answers at once ever does."""
    box = Toolbox(suite_of(tmp_path, SLOW_TABLES.format('["{python}", "{suite}/slow.py"]'), slow_DOT_py=SLOW_SERVER))
    try:
        answers = await asyncio.gather(*(box.run(order("hello")) for _ in range(5)))
        assert {answer.text for answer in answers} == {"hello"}
        assert (tmp_path / "starts.log").read_text() == "started\n"
    finally:
        await box.aclose()


async def test_calls_of_an_mcp_server_that_never_starts_wait_for_it_once_and_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waiting by itself, one behind the other, a fan-out would wait for many minutes."""
    monkeypatch.setattr(mcp_tool, "_CONNECT", 1.0)
    command = '["sh", "-c", "echo $$ >> {suite}/starts.log; exec sleep 60"]'
    box = Toolbox(suite_of(tmp_path, SLOW_TABLES.format(command)))
    try:
        answers = await asyncio.gather(*(box.run(order("hello")) for _ in range(5)))
        assert {answer.ok for answer in answers} == {False}
    finally:
        await box.aclose()
    (started,) = (tmp_path / "starts.log").read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started), 0)


@pytest.mark.parametrize("value", ["", "two\nlines", None])
async def test_an_mcp_server_is_not_asked_with_a_header_that_has_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """It was connected to with an empty one, and said who knows what to whom it did not know."""
    asked: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        asked.append(scope["path"])

    if value is None:
        monkeypatch.delenv("DESK_CANARY", raising=False)
    else:
        monkeypatch.setenv("DESK_CANARY", value)
    async with served(app) as port:
        tables = f'[mcp.desk]\nurl = "http://127.0.0.1:{port}/mcp"\nheaders_env = {{ X-Key = "DESK_CANARY" }}\n'
        box = Toolbox(suite_of(tmp_path, f'{tables}[tools.told]\nmcp = "desk"\neffects = "outside"\n'))
        try:
            why = await box.ready("told")
        finally:
            await box.aclose()
    assert why is not None
    assert "nothing was asked: DESK_CANARY, set where the tool is called, is no header's value" in why
    assert asked == []


async def test_tools_of_an_mcp_server_behind_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamable HTTP, with a header from the environment."""
    server = MCPServer("desk")
    seen: list[str] = []

    @server.tool()
    async def told(ctx: Context) -> str:
        request = ctx.request_context.request
        seen.append(str(request.headers["x-key"]) if request is not None else "")
        return str(dict(ctx.request_context.meta or {})["evalbus/idempotency-key"])

    monkeypatch.setenv("DESK_CANARY", "canary-0816")
    async with served(server.streamable_http_app()) as port:
        tables = f'[mcp.desk]\nurl = "http://127.0.0.1:{port}/mcp"\nheaders_env = {{ X-Key = "DESK_CANARY" }}\n'
        box = Toolbox(suite_of(tmp_path, f'{tables}[tools.told]\nmcp = "desk"\neffects = "outside"\n'))
        try:
            assert await box.run(order("told")) == Answer(True, KEY, KEY)
            assert seen == ["canary-0816"]
        finally:
            await box.aclose()
            forget()
    gone = await box.run(order("told"))
    assert not gone.ok
    assert "nothing was asked" in gone.text
    assert "canary" not in gone.text
