"""Structured logs on standard error: a line an event, JSON unless a person is looking."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TextIO, cast

import structlog

from bus.errors import InputError
from workers.redaction import guard_streams
from workers.terminals import can_redraw, colors_for

__all__ = ["configure"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FORMS = ("json", "console")


class _Lossy:
    """A stream that loses what cannot be written. A full disk costs lines of a log; it must not cost a heartbeat."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure(default: str = "info", **fields: str) -> None:
    """Set up logging for this process; `fields` stand on every line.

    `EVALBUS_LOG` names another level, `EVALBUS_LOG_FORMAT` the form: `json`, or `console` for people. Raises
    InputError.
    """
    level = os.environ.get("EVALBUS_LOG", default).lower()
    if level not in _LEVELS:
        raise InputError(f"EVALBUS_LOG={level!r} is no level", remedy=f"one of {', '.join(_LEVELS)}")
    guard_streams()
    form = os.environ.get("EVALBUS_LOG_FORMAT", "console" if sys.stderr.isatty() else "json").lower()
    if form not in _FORMS:
        raise InputError(f"EVALBUS_LOG_FORMAT={form!r} is no form", remedy=f"one of {', '.join(_FORMS)}")
    person = form == "console"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if not person else _keep,
            _for_people() if person else structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Lossy(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**fields)


def _for_people() -> structlog.dev.ConsoleRenderer:
    """A plain traceback: structlog's own, where rich is installed, has colours of its own, and every local variable."""
    colors = can_redraw(sys.stderr) and colors_for(sys.stderr) is not None
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _keep(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return event
