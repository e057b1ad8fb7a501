"""The user asked to stop."""

from __future__ import annotations

__all__ = ["Interrupted"]


class Interrupted(Exception):
    """The job was told to stop. The message says how to resume."""
