"""Headers whose values come from the environment of the process that makes a call."""

from __future__ import annotations

from collections.abc import Mapping

from bus.errors import InputError
from workers.secret_files import secret

__all__ = ["complaint", "headers_of"]


def complaint(headers_env: Mapping[str, str]) -> str | None:
    """Which variable is no header's value, in one line; None when all are. An empty one says nothing to anybody.

    `headers_env`: header → environment variable.
    """
    for variable in headers_env.values():
        try:
            value = secret(variable)
        except InputError as error:
            return str(error)
        if not value or not value.isascii() or not value.isprintable():
            return f"{variable}, set where the tool is called, is no header's value"
    return None


def headers_of(headers_env: Mapping[str, str]) -> dict[str, str]:
    """The headers, of which there was no complaint."""
    return {name: secret(variable) for name, variable in headers_env.items()}
