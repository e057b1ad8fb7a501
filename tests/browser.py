"""A real browser for tests of pages: headless Chromium, which may fetch nothing but what a test lets it.

async with browsing() as browser, opened(browser, file) as visit:
    await visit.page.click("text=Runs")
# at the end: no error in the console, no request but for the page itself
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Request, Route, async_playwright, expect

from tests.waiting import PATIENCE

__all__ = ["Visit", "browsing", "needs_chromium", "opened"]

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(_CHROMIUM is None, reason="chromium is not installed")
"""For each test that opens a page."""

expect.set_options(timeout=PATIENCE * 1_000)  # five seconds, as it is by itself, are few on a busy machine


@dataclass(slots=True)
class Visit:
    """A page that is open, and what it has done."""

    page: Page
    problems: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions that nobody caught."""
    requests: list[str] = field(default_factory=list)
    """What it asked for, the page itself included."""


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """One Chromium for several pages. It lets root start it as well, as in a container."""
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=_CHROMIUM, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def opened(
    browser: Browser,
    file: Path,
    at: str = "",
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    still: bool = True,
    scripts: bool = True,
) -> AsyncIterator[Visit]:
    """A file in a fresh browser profile; `at` is what follows it in the address, as `#runs`.

    Everything else that the page asks for is refused and noted. When the block ends well, nothing must have been asked
    for, and nothing said in the console.
    """
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    motion: Literal["reduce", "no-preference"] = "reduce" if still else "no-preference"
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion=motion,
        java_script_enabled=scripts,
    )
    address = file.as_uri()
    try:
        visit = Visit(await context.new_page())

        async def let(route: Route, request: Request) -> None:
            visit.requests.append(request.url)
            await (route.continue_() if request.url.split("#")[0] == address else route.abort())

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                visit.problems.append(message.text)

        await context.route("**/*", let)
        visit.page.on("console", heard)
        visit.page.on("pageerror", lambda error: visit.problems.append(str(error)))
        await visit.page.goto(address + at)
        yield visit
        assert visit.problems == []
        assert {url.split("#")[0] for url in visit.requests} == {address}
    finally:
        await context.close()
