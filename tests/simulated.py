"""What the tests of simulations share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """The roles log nothing: it would be about a world that is not there."""
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults() if before is None else structlog.configure(**before)
