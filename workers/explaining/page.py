"""A story as one HTML page: the words, the picture, and the picture as a table. It fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from workers.explaining import svg
from workers.explaining.story import Story

__all__ = ["draw"]

_CSS = """
:root{color-scheme:light dark}
body{font:16px/1.5 ui-sans-serif,system-ui,sans-serif;margin:0 auto;padding:1rem;max-width:110rem}
main>p{max-width:70rem}
pre{white-space:pre-wrap;font:inherit;max-width:70rem}
.picture{overflow:auto;border:1px solid #8888}
table{border-collapse:collapse;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8884}
td:first-child{font-variant-numeric:tabular-nums;white-space:nowrap}
"""


def draw(story: Story, words: Sequence[str]) -> str:
    """The page. `words`: what `why` says."""
    title, *rest = words
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_CSS}{svg.CSS}</style></head>\n<body><main>\n<h1>{escape(title)}</h1>\n"
        f"<pre>{escape(chr(10).join(rest))}</pre>\n"
        '<h2 id="picture">Who said what to whom</h2>\n'
        '<div class="picture" role="region" aria-labelledby="picture" tabindex="0">'
        f"{svg.draw(story, styled=False)}</div>\n"
        f"<h2>Step by step</h2>\n{''.join(_table(story))}</main></body></html>\n"
    )


def _table(story: Story) -> Iterator[str]:
    yield '<table><thead><tr><th scope="col">time</th><th scope="col">from</th><th scope="col">to</th>'
    yield '<th scope="col">what</th><th scope="col">became of it</th><th scope="col">entry</th></tr></thead><tbody>\n'
    for step in story.steps:
        cells = (
            f"+{step.ms / 1000:,.3f} s", step.source.title, step.target.title, step.label, step.look.value, step.entry,
        )  # fmt: skip
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"
    yield "</tbody></table>\n"
