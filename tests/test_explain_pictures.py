"""A story as text, Mermaid, SVG and HTML: nothing told by colour alone, nothing broken by what others call themselves.

A consumer's name, a tool's, a case's id: all of them are somebody else's text, in a picture that is opened in a browser
or printed to a terminal. The lines are by hand here: they hold what the server would not let in so easily.
"""

from __future__ import annotations

import io
import itertools
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from bus.export_format import Line
from tests.explained import arrows, line, only
from workers.explaining import mermaid, page, svg, terminal
from workers.explaining.steps import story_of
from workers.explaining.story import Look, Story
from workers.explaining.why import explained

RUN = "c#1"
EVIL = [
    "</title><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]>&amp;<!--",
    "a\nP->>B: forged; end\n%%{init: {}}%%",
    "\x1b[31mred\x07\u202egnp",
    "half \ud800 pair",
]
SVG = "{http://www.w3.org/2000/svg}"
HOLD: dict[str, Any] = {"run": RUN, "lease_id": "L1", "gen": 1, "conversation": 0}


def claimed(number: int = 1, consumer: str = "w1", lease: str = "L1", gen: int = 1) -> Line:
    """A claim that was granted."""
    made = line(number, "transcript.lease", run=RUN, lease_id=lease, entry="7-0", consumer=consumer, head=None)
    return Line(made.id, made.fence, made.op, made.verb, None, made.envelope, {}, {"gen": gen, "length": 0})


def appended(number: int, said: str = "commit") -> Line:
    """An event of the first holder."""
    return line(number, "transcript.append", said, **HOLD, events=1, receipts=0, seq=number)


def put(number: int, tool: str) -> Line:
    """A fan-out of one call."""
    args = {"intent_id": f"{RUN}~0.1.0", "tool": tool}
    return line(number, "outbox.put", args=args, **HOLD, window="w", window_cost=0, intents=1, step=f"{RUN}~0.1")


def every_look(name: str = "w1") -> Story:
    """One step of nearly each look, by parties of this name."""
    lines = [
        claimed(1, name),
        put(2, name),
        appended(3),
        appended(4, "reject forged_prefix"),
        appended(5, "duplicate"),
        claimed(6, "w2", "L2", 2),
        appended(7, "reject stale_gen"),
        line(8, "run.turn", "in_doubt in_flight", **HOLD, abandoned="x"),
        line(9, "histogram.abandon", run=RUN, lease_id="L2", gen=2, why=name, head=None),
    ]
    return story_of("b", RUN, lines)


def drawn(story: Story, width: int, *, ascii_only: bool = False) -> list[str]:
    """The terminal's lines."""
    return [text.plain for text in terminal.draw(story, width, ascii_only=ascii_only)]


# --- rare steps -------------------------------------------------------------------------------------------


def test_a_restart_of_the_server_takes_every_lease() -> None:
    """Nobody was silent: the next holder preempts nobody."""
    lines = [
        line(1, "judge.mint", args={"run": RUN, "epoch": 1}, cursor=0, command_id="x", candidate="c", judge="j"),
        claimed(2),
        line(3, "run.restarted", server="new", head=None),
        claimed(4, "w2", "L2", 2),
    ]
    story = story_of("b", RUN, lines)
    assert arrows(story)[2:] == [
        "B>B the server was restarted: every lease before is void",
        "B>W2 the same message again",
        "W2>B claims: generation 2",
    ]
    assert story.facts.holds[0].end == "its lease was made void by a restart of the server"


def test_a_swept_call_is_settled_and_named_only_by_its_place() -> None:
    """A sweep names places; whose they were is known from when they were taken."""
    opened: dict[str, Any] = {
        **HOLD,
        "step": f"{RUN}~0.1",
        "request_id": "r",
        "attempt": 1,
        "desk_lease": "place",
        "estimate": 90,
    }
    settled = {"step": f"{RUN}~0.1", "attempt": 1, "gateway_billed": 90}
    other = {"lease": "another run's"}
    lines = [
        claimed(1),
        line(2, "admission.acquire", args={"lease": "place"}, **opened),
        line(3, "admission.reclaim", args=other, desk="model", leases=2),
        line(3, "admission.reclaim", args={"lease": "place"}, part=2, desk="model", leases=2),
        line(3, "ledger.reconcile", args=settled, part=3, desk="model", leases=2),
    ]
    story = story_of("b", RUN, lines)
    assert only(story, "frees a place").notes == ("its call settled at 90 tokens",)
    assert "90 tokens in 1 request, 90 of them for answers that do not count" in "\n".join(explained(story))


def test_lines_of_other_runs_are_no_part_of_the_story() -> None:
    """One whose id begins alike, and one whose step holds this one's name."""
    others: list[dict[str, Any]] = [{"run": "c#11"}, {"run": "xc#1"}, {"run": "c#1~0"}]
    lines = [line(n, "transcript.append", **{**HOLD, **other}, events=1, receipts=0) for n, other in enumerate(others)]
    assert story_of("b", RUN, lines).steps == ()


def test_a_command_of_a_later_release_is_shown_under_its_operations_name() -> None:
    """Better a plain arrow than a missing one."""
    story = story_of("b", RUN, [line(1, "teleport.begin_jump", run=RUN, lease_id="L", head=None, entry=None)])
    assert [step.text for step in story.steps] == ["teleport.begin jump"]


def test_a_clock_that_was_set_back_does_not_turn_the_story_round() -> None:
    """Entry ids grow all the same; but an archive of two servers may not."""
    lines = [claimed(500), appended(100)]
    assert [step.ms for step in story_of("b", RUN, lines).steps] == [0, 0]


# --- the terminal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """From a phone to a wall: lanes where there is room, a line a step where there is none."""
    lines = drawn(every_look(), width)
    assert max(len(text) for text in lines) <= width
    text = re.sub(r"[^\w:]+", "", "".join(re.sub(r"^\W*", "", each) for each in lines))
    assert "refused:forged_prefix" in text or width < 60


def test_every_step_has_an_arrow_between_its_own_lanes() -> None:
    """A refused one ends in a cross, one that ends the run in a ring, and what is sent again is broken."""
    story = every_look()
    arrows_drawn = [text[9:].split("  ")[0] + text[9:] for text in drawn(story, 120) if text.startswith("+")]
    assert len(arrows_drawn) == len(story.steps)
    marks = {Look.REFUSED: "✗╌", Look.HOLE: "○─", Look.REPEATED: "◀╌", Look.DELIVERED: "╌▶", Look.TAKEN: "─▶"}
    for step, text in zip(story.steps, arrows_drawn, strict=True):
        assert marks.get(step.look, "") in text, (step.look, text)


def test_a_terminal_that_knows_only_ascii_gets_only_ascii() -> None:
    """Also of what others call themselves."""
    text = "\n".join(drawn(every_look("wörker ✗"), 100, ascii_only=True))
    assert text.isascii()
    assert "x refused: stale_gen" in " ".join(text.split())


def test_colour_is_for_terminals_and_a_pipe_gets_none() -> None:
    """The same words both times."""
    shown = []
    for is_terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, force_terminal=is_terminal, width=90, _environ={"TERM": "xterm-256color"})
        terminal.show(every_look(), console)
        shown.append(out.getvalue())
    assert "\x1b[" in shown[0]
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown[0]) == shown[1]


# --- what others call themselves --------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVIL)
def test_nobodys_name_becomes_markup_or_a_terminals_command(name: str) -> None:
    """A consumer, a tool and a hole of that name: SVG and HTML have the elements that they have without."""
    story, plain_story = every_look(name), every_look()
    for console_line in drawn(story, 100):
        assert console_line.isprintable()
    tags = [element.tag for element in ET.fromstring(svg.draw(story)).iter()]  # noqa: S314 - our own file
    assert tags == [element.tag for element in ET.fromstring(svg.draw(plain_story)).iter()]  # noqa: S314 - likewise
    assert _tags(page.draw(story, explained(story))) == _tags(page.draw(plain_story, explained(plain_story)))
    page.draw(story, explained(story)).encode()


@pytest.mark.parametrize("name", EVIL)
def test_mermaid_gets_one_statement_a_line_whatever_is_in_it(name: str) -> None:
    """No semicolon, comment, directive or arrow but the own ones: all else is written as a code."""
    text = mermaid.draw(every_look(name))
    first, *rest = text.splitlines()
    assert first == "sequenceDiagram"
    words = r"(?:[\w .,:'_+=/()…✗○-]|#\d+;)*"
    arrow = r"[A-Z]\w*(?:->>|--x|--\)|-->>|-\)|-x)[A-Z]\w*: "
    for statement in rest:
        assert re.fullmatch(rf"    (?:accTitle: |accDescr: |participant \w+ as |{arrow}){words}", statement), statement
    assert len(rest) == len(mermaid.draw(every_look()).splitlines()) - 1


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"{tag} {sorted(name for name, _ in attrs)}")


def _tags(text: str) -> list[str]:
    parser = _Tags()
    parser.feed(text)
    return parser.found


# --- pictures ---------------------------------------------------------------------------------------------


def test_an_svg_says_in_words_what_it_shows() -> None:
    """Title, description, and a whole sentence for each step: who, to whom, what became of it."""
    story = every_look()
    root = ET.fromstring(svg.draw(story))  # noqa: S314 - our own file
    assert root.findtext(f"{SVG}title") == "Run c#1 of batch b"
    assert f"{len(story.steps)} steps, 2 refused" in (root.findtext(f"{SVG}desc") or "")
    labelled = {root.find(f"{SVG}title").get("id"), root.find(f"{SVG}desc").get("id")}  # type: ignore[union-attr]
    assert set(root.attrib["aria-labelledby"].split()) == labelled
    steps = root.findall(f"{SVG}g")
    assert len(steps) == len(story.steps)
    refused = [step for step in steps if step.get("class") == "ev-refused"]
    assert [step.get("aria-label") for step in refused] == [step.findtext(f"{SVG}title") for step in refused]
    assert "worker w1, generation 1 to bus and history: appends 1 event ✗ refused: stale_gen" in str(
        refused[1].get("aria-label")
    )


def test_every_look_has_a_line_of_its_own_and_both_themes_have_all_colours() -> None:
    """Whoever sees no colour sees the dashes, the cross, the ring; whoever reads in the dark has colours for it."""
    light, dark = re.findall(r"\.ev\{(--[^}]*)\}", svg.CSS)
    assert set(re.findall(r"--(\w+):", light)) == set(re.findall(r"--(\w+):", dark))
    assert "prefers-color-scheme:dark" in svg.CSS
    assert set(re.findall(r"var\(--(\w+)\)", svg.CSS)) <= set(re.findall(r"--(\w+):", light))
    broken = re.findall(r"\.ev-(\w+) \.ev-arrow\{stroke-dasharray:([^}]*)\}", svg.CSS)
    assert {look for look, _ in broken} == {"refused", "doubt", "repeated", "delivered"}
    assert len({dashes for _, dashes in broken}) == 4


def test_a_page_is_whole_in_itself() -> None:
    """It fetches nothing and runs nothing; and its words are those of `why`."""
    story = every_look()
    text = page.draw(story, explained(story))
    assert "default-src 'none'" in text
    for fetches in ("<script", "<link", "<img", "@import", "url(", " href", " src"):
        assert fetches not in text
    assert text.count("<tr>") == len(story.steps) + 1
    assert "What ended it: worker w2, generation 2 ended it." in text


def test_a_run_of_five_hundred_steps_is_drawn_whole() -> None:
    """Nothing is left out, nothing lies on something else."""
    story = story_of("b", RUN, [claimed(0), *(appended(number) for number in range(1, 500))])
    assert len(story.steps) == 500
    root = ET.fromstring(svg.draw(story))  # noqa: S314 - our own file
    heights = [float(step.find(f"{SVG}text").get("y", "0")) for step in root.findall(f"{SVG}g")]  # type: ignore[union-attr]
    assert len(heights) == 500
    assert min(later - sooner for sooner, later in itertools.pairwise(heights)) > 20
    assert heights[-1] < float(root.attrib["height"])
    assert sum(text.startswith("+") for text in drawn(story, 80)) == 500
    assert len(mermaid.draw(story).splitlines()) == 500 + 3 + len(story.lanes)
