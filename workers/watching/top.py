"""`evalbus top`: the batches, one batch, one run, in the terminal.

Three screens on a stack. Each asks for itself, and only while it is the one that is seen. What somebody else wrote goes
to the screen as `Text`, in which brackets are brackets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import DataTable, Footer, Static

from bus.errors import EvalbusError
from bus.types import BatchId
from workers.explaining.reading import read_server
from workers.explaining.why import explained
from workers.watching.looking import Watcher
from workers.watching.terminal import (
    AMBER,
    GLYPHS,
    RED,
    Row,
    about,
    brief_row,
    facts,
    flow,
    head,
    headline,
    hold_rows,
    latest,
    legend,
    reasons,
    refusal_rows,
    verdict,
)  # fmt: skip
from workers.watching.view import Share

__all__ = ["Top"]

_EVERY: Final = 1.0  # seconds between two looks
_AGAIN: Final = 2.0  # after one that failed
_ENDED: Final = 5.0  # at a batch that has ended

_LIST: Final = (
    "batch", "state", "ended", "", "left", "running", "scoring", "holes", "refused", "runs/min", "declared",
)  # fmt: skip
"""What matters first is first: a narrow terminal cuts the others off."""

_HELP: Final = """\
[b]↑ ↓[/b]      another row           [b]tab[/b]  another table
[b]enter[/b]    open the batch, or explain the run
[b]esc[/b]      back                  [b]q[/b]    quit
[b]t[/b]        light or dark         [b]?[/b]    this

Counts of an open batch are progress. A pass rate there is when it has closed.
[b]gen[/b] is the generation of a worker, or the epoch of a scorer; [b]silent[/b] is the time
since its last sign of life. Times are UTC, by the data server's clock.

[b]█[/b] scored  [b]▚[/b] hole  [b]▓[/b] being scored  [b]▒[/b] sealed  [b]░[/b] running  [b]·[/b] waits for a worker"""


class Rows(DataTable[Text]):
    """A table whose rows are replaced again and again, under a cursor that stays where it is."""

    def __init__(self, columns: Sequence[str], name: str) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=False)
        self._titles = columns
        self._shown: list[Row] = []

    def on_mount(self) -> None:
        """Columns once."""
        for title in self._titles:
            self.add_column(title, key=title)

    def show(self, rows: Sequence[Row]) -> None:
        """These rows, and no others."""
        if list(rows) == self._shown:
            return
        if [row.key for row in rows] == [row.key for row in self._shown]:
            for row, before in zip(rows, self._shown, strict=True):
                for title, cell, old in zip(self._titles, row.cells, before.cells, strict=True):
                    if cell != old:
                        self.update_cell(row.key, title, cell, update_width=True)
        else:
            at = self._shown[self.cursor_row].key if self.cursor_row < len(self._shown) else ""
            self.clear()
            for row in rows:
                self.add_row(*row.cells, key=row.key)
            places = {row.key: place for place, row in enumerate(rows)}
            if at in places:
                self.move_cursor(row=places[at], animate=False)
        self._shown = list(rows)


class Stack(Widget):
    """The runs of a batch as one bar, as wide as there is room."""

    def __init__(self) -> None:
        super().__init__()
        self._shares: tuple[Share, ...] = ()

    def show(self, shares: Sequence[Share]) -> None:
        """These counts."""
        self._shares = tuple(shares)
        self.refresh()

    def render(self) -> Text:
        """The bar; what there is at all gets a cell at least."""
        width, whole = self.size.width, sum(share.count for share in self._shares)
        bar, at, seen = Text(), 0, 0
        for share in self._shares:
            seen += share.count
            until = round(width * seen / whole) if whole else 0
            if share.count and until <= at:
                until = at + 1
            glyph, style = GLYPHS[share.kind]
            bar.append(glyph * max(0, min(until, width) - at), style=style)
            at = max(at, min(until, width))
        return bar


class Flow(Static):
    """Short facts one behind the other, in as many lines as they take where they are."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._items: list[Text] = []

    def show(self, items: Sequence[Text]) -> None:
        """These facts."""
        self._items = list(items)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as they take."""
        return len(flow(self._items, width))

    def render(self) -> Text:
        """The lines."""
        return Text("\n").join(flow(self._items, self.size.width))


class Looking(Screen[None]):
    """A screen that looks again and again while it is the one that is seen, and says so when it cannot."""

    async def look(self) -> float:
        """Read and show; how many seconds to leave it alone afterwards."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Begin."""
        self.run_worker(self._looking(), exclusive=True)

    async def _looking(self) -> None:
        while True:
            pause = _EVERY
            if self.is_current:
                try:
                    pause = await self.look()
                    self.trouble("")
                except EvalbusError as error:
                    pause = _AGAIN
                    self.trouble(str(error))
            await asyncio.sleep(pause)

    def trouble(self, text: str) -> None:
        """A line above all, or none."""
        line = self.query_one("#trouble", Static)
        line.update(Text(text))
        line.display = bool(text)


class ListScreen(Looking):
    """Every batch of the plane."""

    def __init__(self, watcher: Watcher, server: str) -> None:
        super().__init__()
        self._watcher, self._server = watcher, server

    def compose(self) -> ComposeResult:
        """A head, a table, the keys."""
        yield Static(head(self._watcher.bus.plane.value, self._server), classes="head")
        yield Static(id="trouble")
        yield Static("Looking …", id="none")
        yield Rows(_LIST, "batches")
        yield Footer()

    async def look(self) -> float:
        """Every line anew."""
        lines = await self._watcher.briefs()
        self.query_one("#batches", Rows).show([brief_row(line) for line in lines])
        none = self.query_one("#none", Static)
        none.update("No batches on this server yet. One appears here when `evalbus run SUITE` has begun.")
        none.display = not lines
        return _EVERY

    @on(DataTable.RowSelected, "#batches")
    def opened(self, event: DataTable.RowSelected) -> None:
        """Enter on a batch."""
        self.app.push_screen(BatchScreen(self._watcher, BatchId(str(event.row_key.value)), self._server))


class BatchScreen(Looking):
    """One batch."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, watcher: Watcher, batch: BatchId, server: str) -> None:
        super().__init__()
        self._watcher, self._batch, self._server = watcher, batch, server

    def compose(self) -> ComposeResult:
        """Head, bar, numbers; who holds what beside what is missing; the latest refusals."""
        yield Static(head(self._watcher.bus.plane.value, self._server), classes="head")
        yield Static(id="trouble")
        with VerticalScroll(id="page", can_focus=False):
            yield Static(Text(f"{self._batch}", style="bold"), id="about")
            yield Static(id="headline")
            yield Stack()
            yield Flow(id="legend")
            yield Flow(id="facts")
            yield Static(id="verdict")
            yield Static(id="notices")
            with Container(id="middle"):
                with Container(id="crowd"):
                    yield Static("Who holds what", classes="title")
                    yield Rows(("who", "run", "gen", "delivery", "silent"), "holds")
                with Container(id="side"):
                    yield Static(id="reasons")
            yield Static("Latest refusals", classes="title", id="latest-title")
            yield Rows(("UTC", "run", "who", "step", "refused because"), "latest")
        yield Footer()

    async def look(self) -> float:
        """The whole view anew."""
        view = await self._watcher.view(self._batch)
        self.query_one("#about", Static).update(about(view))
        self.query_one("#headline", Static).update(headline(view))
        self.query_one(Stack).show(view.shares)
        self.query_one("#legend", Flow).show(legend(view.shares))
        self.query_one("#facts", Flow).show(facts(view))
        self.query_one("#verdict", Static).update(verdict(view))
        self.query_one("#verdict").display = view.outcome is not None
        notices = self.query_one("#notices", Static)
        notices.update(Text("\n".join(f"! {notice}" for notice in view.notices), style=AMBER))
        notices.display = bool(view.notices)
        self.query_one("#crowd").display = view.outcome is None
        self.query_one("#holds", Rows).show(hold_rows(view))
        self.query_one("#reasons", Static).update(reasons(view))
        self.query_one("#latest", Rows).show(refusal_rows(view))
        self.query_one("#latest-title", Static).update(latest(view))
        for shown in ("#latest", "#latest-title"):
            self.query_one(shown).display = bool(view.refusals)
        return _EVERY if view.outcome is None else _ENDED

    @on(DataTable.RowSelected)
    def explain(self, event: DataTable.RowSelected) -> None:
        """Enter on a row that is about a run."""
        run = str(event.row_key.value).partition("\n")[0]
        if run:
            self.app.push_screen(RunScreen(self._watcher, self._batch, run))

    def action_leave(self) -> None:
        """Back to the list, also when there was none before."""
        if isinstance(self.app.screen_stack[-2], ListScreen):
            self.app.pop_screen()
        else:
            self.app.switch_screen(ListScreen(self._watcher, self._server))


class RunScreen(Screen[None]):
    """Why a run stands as it does, in words. Read once: it takes the batch's whole history."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, watcher: Watcher, batch: BatchId, run: str) -> None:
        super().__init__()
        self._watcher, self._batch, self._run = watcher, batch, run

    def compose(self) -> ComposeResult:
        """The words, and the keys."""
        with VerticalScroll():
            yield Static(Text("Reading the history …", style="dim"), id="words")
        yield Footer()

    def on_mount(self) -> None:
        """Read beside the screen: it can be left at once."""
        self.run_worker(self._read())

    async def _read(self) -> None:
        try:
            told = await read_server(self._watcher.bus, self._batch, self._run, self._watcher.archive)
            title, *lines = explained(told.story, told.detail)
            text = Text(title, style="bold").append("\n\n" + "\n".join(lines), style="not bold")
        except EvalbusError as error:
            text = Text(str(error), style=RED)
        self.query_one("#words", Static).update(text)


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "app.pop_screen", "Close")]

    def compose(self) -> ComposeResult:
        """One box."""
        yield Static(_HELP, id="help")


class Top(App[None]):
    """The terminal's application."""

    TITLE = "evalbus top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as the base class declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("t", "light", "Light/dark", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]
    CSS = """
    Screen { background: $background; }
    .head { background: $panel; color: $text-muted; padding: 0 1; height: 1; }
    #trouble { background: $error; color: $text; padding: 0 1; display: none; }
    #none { padding: 1; color: $text-muted; }
    Rows { height: auto; background: $background; }
    Rows:focus { background-tint: transparent; }
    Rows, VerticalScroll {
        scrollbar-size-vertical: 1; scrollbar-color: $panel-lighten-2; scrollbar-background: $background;
    }
    Rows > .datatable--header { background: $background; color: $text-muted; text-style: none; }
    #batches { height: 1fr; padding: 0 1; }
    #page { padding: 0 1; }
    #about { margin-top: 1; }
    #headline { margin: 1 0 0 0; }
    Stack { height: 1; background: $panel; }
    #facts { margin: 1 0 0 0; }
    #notices { margin: 1 0 0 0; display: none; }
    #middle { layout: horizontal; height: auto; margin: 1 0 0 0; }
    #crowd { width: 3fr; height: auto; padding-right: 2; }
    #holds { max-height: 14; }
    #side { width: 2fr; height: auto; }
    .-narrow #middle { layout: vertical; }
    .-narrow #crowd, .-narrow #side { width: 100%; padding-right: 0; }
    .-narrow #side { margin-top: 1; }
    #reasons { text-wrap: nowrap; text-overflow: ellipsis; }
    .title { text-style: bold; }
    #latest-title { margin-top: 1; }
    #latest { max-height: 14; }
    #words { padding: 1 2; }
    Help { align: center middle; background: $background 70%; }
    #help { width: auto; height: auto; padding: 1 2; background: $surface; border: round $primary; }
    """

    def __init__(self, watcher: Watcher, *, batch: BatchId | None = None, server: str = "") -> None:
        """`batch`: the one to begin with; None: the list. `server` is for the head."""
        super().__init__()
        self._watcher, self._batch, self._server = watcher, batch, server

    def on_mount(self) -> None:
        """The first screen."""
        if self._batch is None:
            self.push_screen(ListScreen(self._watcher, self._server))
        else:
            self.push_screen(BatchScreen(self._watcher, self._batch, self._server))

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Help())

    def action_light(self) -> None:
        """The other theme."""
        self.theme = "textual-light" if self.theme == "textual-dark" else "textual-dark"
