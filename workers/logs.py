"""Structured logs on standard error: a line an event, JSON unless a person is looking."""

from __future__ import annotations

import logging
import os
import sys

import structlog

from bus.errors import InputError
from workers.redaction import guard_streams

__all__ = ["configure"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(default: str = "info", **fields: str) -> None:
    """Set up logging for this process; `fields` stand on every line. `EVALBUS_LOG` names another level."""
    level = os.environ.get("EVALBUS_LOG", default).lower()
    if level not in _LEVELS:
        raise InputError(f"EVALBUS_LOG={level!r} is no level", remedy=f"one of {', '.join(_LEVELS)}")
    guard_streams()
    person = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if not person else _keep,
            structlog.dev.ConsoleRenderer() if person else structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**fields)


def _keep(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return event
