"""The visible tests, against many versions of one module. A program: it runs in the workspace, within its limits.

It reads a request as JSON from standard input and writes the answer as JSON to standard output:

    {"module", "tests", "steps", "source"}                          -> {"tests": [{"id", "passed", "lines"}]}
    {"module", "tests", "steps", "candidates", "first", "wanted"}   -> {"plausible": [index], "tried": n}

`module` and `tests` are names of modules, `steps` the lines that one version may run, `first` the ids of tests to
run first. Candidates are judged in their order until `wanted` have passed; `tried` may count a few more than that.

Each version is run in a forked child, which may loop, fill its memory, print, or exit: nothing but its verdict
comes back. What ends a child that loops is a count of the lines it ran, so that the verdict is the same on a
busy machine. The limits of time are for what the count cannot see, such as a power of huge numbers.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

CPU = 2
"""Seconds of one version. The count of lines ends nearly all that would take longer than one tenth of it."""

WALL = 15
"""Seconds until a version that waits for what never comes is ended."""

TOGETHER = 20
"""Versions that one child runs."""

MEMORY = 512 * 2**20
"""Bytes of one child's addresses."""


class Verdict(unittest.TestResult):
    """Passed or not, without the text of a failure, which nobody reads here."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    def _fail(self, *_: object) -> None:
        self.failed = True
        self.stop()

    addError = addFailure = addUnexpectedSuccess = _fail  # noqa: N815 - unittest's names

    def addSubTest(self, _test: object, _subtest: object, err: object) -> None:  # noqa: N802
        if err is not None:
            self._fail()


@dataclass
class Trace:
    """Counts the lines of one file that are run, and notes which."""

    file: str
    steps: int
    over: Callable[[], None]
    lines: set[int] = field(default_factory=set)

    def start(self) -> None:
        sys.settrace(self._call)

    def _call(self, frame: types.FrameType, _event: str, _argument: object) -> object:
        self._count()
        return self._line if frame.f_code.co_filename == self.file else None

    def _line(self, frame: types.FrameType, event: str, _argument: object) -> object:
        if event == "line":
            self._count()
            self.lines.add(frame.f_lineno)
        return self._line

    def _count(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            self.over()


@dataclass(frozen=True)
class Programme:
    """What all versions have in common."""

    module: str
    tests: str
    steps: int

    @property
    def file(self) -> str:
        return f"{self.module}.py"

    def code(self, source: str) -> types.CodeType | None:
        """None when it is not Python."""
        try:
            return compile(source, self.file, "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def load(self, code: types.CodeType, tests: types.CodeType) -> list[unittest.TestCase]:
        """Import a version of the module, and the tests that import it in turn."""
        for name, body in ((self.module, code), (self.tests, tests)):
            module = types.ModuleType(name)
            module.__file__ = os.path.abspath(f"{name}.py")  # noqa: PTH100 - pathlib would be one more import
            sys.modules[name] = module
            exec(body, vars(module))  # noqa: S102 - running it is what this program is for
        return sorted(flat(unittest.defaultTestLoader.loadTestsFromModule(module)), key=lambda test: test.id())


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        else:
            yield each


def begin() -> None:
    """In the child, before a version is run: its own limits of time, and the same random numbers as any other."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    until = int(time.process_time()) + 1 + CPU
    resource.setrlimit(resource.RLIMIT_CPU, (until if most == resource.RLIM_INFINITY else min(until, most), most))
    signal.alarm(WALL)
    random.seed(0)


def in_child(work: Callable[[Callable[[bytes], None]], None]) -> bytes:
    """Call `work(say)` in a child and return all that it said until it ended or died."""
    near, far = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(near)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

            def say(data: bytes) -> None:
                view = memoryview(data)
                while view:
                    view = view[os.write(far, view) :]

            work(say)
        finally:
            os._exit(1)
    os.close(far)
    data = b""
    while piece := os.read(near, 2**16):
        data += piece
    os.close(near)
    os.waitpid(pid, 0)
    return data


def judge(programme: Programme, codes: list[types.CodeType], tests: types.CodeType, first: list[str]) -> list[bool]:
    """Which versions pass all tests; those in `first` are run first.

    A fork costs more than most versions do, so that one child runs several, each as modules of its own. One that
    takes the child with it has failed, and the next child goes on behind it; one that passes has to do so again
    with nothing before it.
    """
    verdicts: list[bool] = []
    while len(verdicts) < len(codes):
        rest = codes[len(verdicts) :]
        told = in_child(functools.partial(judge_some, programme, rest, tests, first))
        verdicts += [letter == ord("p") for letter in told]
        if len(told) < len(rest):
            verdicts.append(False)
    if len(codes) == 1:
        return verdicts
    return [passed and judge(programme, [code], tests, first)[0] for passed, code in zip(verdicts, codes, strict=True)]


def judge_some(
    programme: Programme,
    codes: list[types.CodeType],
    tests: types.CodeType,
    first: list[str],
    say: Callable[[bytes], None],
) -> None:
    """In the child: say one letter for each version."""
    for code in codes:
        begin()
        Trace(programme.file, programme.steps, over=lambda: os._exit(1)).start()
        result = Verdict()
        try:
            found = programme.load(code, tests)
            for test in sorted(found, key=lambda each: each.id() not in first):
                unittest.TestSuite([test]).run(result)
                if result.failed:
                    break
        except BaseException:  # it does not import, or calls sys.exit: no repair either way
            result.failed = True
        sys.settrace(None)
        say(b"f" if result.failed or not result.testsRun else b"p")


def locate(programme: Programme, code: types.CodeType, tests: types.CodeType) -> list[dict[str, object]]:
    """Each test by itself: whether it passed, and which lines it ran."""

    def names(say: Callable[[bytes], None]) -> None:
        say(json.dumps([test.id() for test in programme.load(code, tests)]).encode())

    def one(name: str) -> bytes:
        def work(say: Callable[[bytes], None]) -> None:
            def report(passed: bool) -> None:
                sys.settrace(None)
                say(json.dumps({"id": name, "passed": passed, "lines": sorted(trace.lines)}).encode())
                os._exit(0)

            begin()
            trace = Trace(programme.file, programme.steps, over=lambda: report(False))
            trace.start()
            result = Verdict()
            unittest.TestSuite(t for t in programme.load(code, tests) if t.id() == name).run(result)
            report(not result.failed)

        return in_child(work)

    answers = [(name, one(name)) for name in json.loads(in_child(names) or b"[]")]
    return [json.loads(data or json.dumps({"id": name, "passed": False, "lines": []})) for name, data in answers]


def warm(*sources: str) -> None:
    """Import what the children are going to import from the standard library: once, not once for each."""
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                if name.partition(".")[0] in sys.stdlib_module_names:
                    importlib.import_module(name)


def main() -> None:
    request = json.load(sys.stdin)
    programme = Programme(request["module"], request["tests"], request["steps"])
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    with open(f"{programme.tests}.py", encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    sources = request.get("candidates", [])
    warm(text, "import copy", request.get("source", ""), *sources[:1])
    tests = compile(text, f"{programme.tests}.py", "exec")
    gc.freeze()  # or each child would copy every page that the collector touches
    if "source" in request:
        code = programme.code(request["source"])
        assert code is not None
        print(json.dumps({"tests": locate(programme, code, tests)}))
        return
    plausible: list[int] = []
    versions = [(index, code) for index, source in enumerate(sources) if (code := programme.code(source)) is not None]
    tried = 0
    while tried < len(versions) and len(plausible) < request["wanted"]:
        some = versions[tried : tried + TOGETHER]
        verdicts = judge(programme, [code for _, code in some], tests, request["first"])
        plausible += [index for (index, _), passed in zip(some, verdicts, strict=True) if passed]
        tried += len(some)
    print(json.dumps({"plausible": plausible[: request["wanted"]], "tried": tried}))


if __name__ == "__main__":
    main()
