"""A story as Mermaid text: for an issue or a page that draws it.

Mermaid has no way to quote. What is not a letter, a digit or plainly harmless is written as its code, so that no id can
end a statement, begin a comment or a directive, or become markup in the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from workers.explaining.story import Look, Step, Story

__all__ = ["draw"]

_PLAIN = frozenset(" .,:'_-+=/()…✗○")

_ARROWS = {
    Look.GRANTED: "->>",
    Look.REFUSED: "--x",
    Look.DOUBT: "--)",
    Look.REPEATED: "-->>",
    Look.TAKEN: "-)",
    Look.DELIVERED: "-->>",
    Look.HOLE: "-x",
}


def draw(story: Story) -> str:
    """The whole text, newline at the end."""
    return "\n".join(_lines(story)) + "\n"


def _lines(story: Story) -> Iterator[str]:
    names = {lane: key.replace("?", "x") for lane, key in story.keys.items()}
    yield "sequenceDiagram"
    yield f"    accTitle: {_escaped(f'Run {story.run} of batch {story.batch}')}"
    yield f"    accDescr: {_escaped(f'{len(story.steps)} steps, {len(story.refusals)} refused')}"
    for lane, name in names.items():
        yield f"    participant {name} as {_escaped(lane.title)}"
    for step in story.steps:
        yield f"    {names[step.source]}{_ARROWS[step.look]}{names[step.target]}: {_escaped(_label(step))}"


def _label(step: Step) -> str:
    return f"+{step.ms / 1000:.3f} s {step.label}"


def _escaped(text: str) -> str:
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)
