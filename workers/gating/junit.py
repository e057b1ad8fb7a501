"""A batch as a JUnit XML file: what every CI server shows.

A run that was wrong is a `failure`. A run that is missing, for whatever reason, is an `error`: nobody knows whether
the candidate can do it. Each rule of the gate is a test case of its own, in a suite before that of the runs.

There are several schemas of this format and no standard. What is written here is valid by those of Ant and of Jenkins
alike: `tests/junit.xsd` has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

from workers.files import write_whole
from workers.gating.gate import GateVerdict, GateWord
from workers.gating.sources import Found
from workers.gating.visible import visible
from workers.results.outcome import Outcome
from workers.results.showing import Shown
from workers.statistics.results import case_and_trial

__all__ = ["junit", "write_junit"]

# Beside control characters: halves of surrogate pairs and two that are none (XML 1.0, production 2).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(found: Found, file: Path, now: datetime) -> None:
    """Write it, whole or not at all. Raises InputError."""
    write_whole(file, junit(found, now))


def junit(found: Found, now: datetime) -> str:
    """The file. `now`: when the gate was asked; a batch has no one time of its own."""
    outcome, root = found.outcome, ElementTree.Element("testsuites")
    gate = outcome.gate
    if gate.word is not GateWord.NOT_SET:
        _gate(root, outcome, gate, now)
    if outcome.status.ended:
        _runs(root, found, now)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _gate(root: ElementTree.Element, outcome: Outcome, gate: GateVerdict, now: datetime) -> None:
    suite = _suite(root, f"gate of {outcome.batch}", now)
    place = f"{_package(outcome.batch)}.gate"
    if not gate.lines:
        case = _case(suite, place, "gate")
        _add(case, "error", gate.word.value, "; ".join(gate.why))
    for line in gate.lines:
        case = _case(suite, place, f"{line.rule} {line.bound}")
        if line.met is not True:
            kind = "error" if line.met is None else "failure"
            _add(case, kind, line.verdict, line.why, f"measured {line.measured}, asked for {line.bound}")
    _close(suite)


def _runs(root: ElementTree.Element, found: Found, now: datetime) -> None:
    outcome, passing = found.outcome, next(iter(found.outcome.bins))
    suite = _suite(root, outcome.batch, now, _told(found))
    place = _package(found.suite or outcome.batch)
    values = {} if found.snapshot is None else {row.run: row.value for row in found.snapshot.rows}
    for run in sorted({**outcome.runs, **outcome.hole_runs}, key=case_and_trial):
        case = _case(suite, place, run)
        if (why := outcome.hole_runs.get(run)) is not None:
            _add(case, "error", why, outcome.hole_details.get(run) or why, "no score: it is missing, not wrong")
        elif (bin_ := outcome.runs[run]) != passing:
            said, shown = found.said.get(run, ""), found.wrong.get(run)
            value = values.get(run, "") if shown is None else shown.value
            _add(case, "failure", bin_, f"{bin_}, scored {value}".rstrip(), *_answered(shown), said)
    _close(suite)


def _told(found: Found) -> Mapping[str, str]:
    outcome = found.outcome
    told = {
        "batch": outcome.batch,
        "plane": outcome.plane.value,
        "state": outcome.state,
        "runs": outcome.size,
        "snapshot_id": outcome.snapshot_id,
        "suite_digest": found.suite_digest,
        "pass_rate": outcome.pass_rate,
        "gate": outcome.gate.word.value,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _suite(
    root: ElementTree.Element, name: str, now: datetime, told: Mapping[str, str] | None = None
) -> ElementTree.Element:
    fields = {
        "id": str(len(root)),
        "package": "evalbus",
        "name": _text(name),
        "timestamp": f"{now:%Y-%m-%dT%H:%M:%S}",
        "hostname": "localhost",  # whose runs were done on many hosts
        "tests": "0",
        "failures": "0",
        "errors": "0",
        "time": "0",
    }
    suite = ElementTree.SubElement(root, "testsuite", fields)
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in (told or {}).items():
        ElementTree.SubElement(properties, "property", {"name": key, "value": _text(value)})
    return suite


def _close(suite: ElementTree.Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    ElementTree.SubElement(suite, "system-out")
    ElementTree.SubElement(suite, "system-err")


def _case(suite: ElementTree.Element, place: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", {"classname": place, "name": _text(name), "time": "0"})


def _answered(shown: Shown | None) -> list[str]:
    if shown is None:
        return []
    return [f"{what}: {text}" for what, text in shown.told().items() if text]


def _add(case: ElementTree.Element, kind: str, type_: str, message: str, *more: str) -> None:
    one = ElementTree.SubElement(case, kind, {"type": _text(type_), "message": _text(message)})
    one.text = "\n".join(_text(line) for line in more if line) or None


def _package(name: str) -> str:
    """A class's name, as servers make a tree of it: no dots or blanks that nobody meant."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name) or "batch"


def _text(text: str) -> str:
    """What XML can hold, and what a page that shows it as text shows unchanged."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", visible(text))
