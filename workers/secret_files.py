"""Secrets from the environment, or from a file that it names: Docker, Kubernetes and systemd hand them over as files.

    OPENAI_API_KEY=sk-…                          the secret itself
    OPENAI_API_KEY_FILE=/run/secrets/openai      a file that holds it; line ends at its end do not count

It holds for `EVALBUS_URL`, `EVALBUS_BUNDLE_KEY`, `EVALBUS_TOKEN`, the keys of model and judge, and headers of tools.
A file is read when its secret is asked for: whoever starts now gets what was put in its place since then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bus.errors import InputError

__all__ = ["FILE", "glance", "secret"]

FILE: Final = "_FILE"
"""What is added to a variable's name."""

_LONGEST: Final = 65_536  # bytes; what is larger is the wrong file, and each of its lines would be searched for


def secret(name: str) -> str:
    """The secret that is called so, or an empty text when there is none.

    Raises `InputError` when both variables are set, and when the file cannot be read or holds nothing.
    """
    given, file = os.environ.get(name, ""), os.environ.get(name + FILE, "")
    if not file:
        return given
    if given:
        raise InputError(f"{name} and {name}{FILE} are both set", remedy="unset one of them")
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read for {name}{FILE}: {reason.lower()}", file=file) from None
    text = data.decode("utf-8", "surrogateescape").rstrip("\r\n")
    if not text.strip():
        remedy = f"write the secret into it, or unset {name}{FILE}"
        raise InputError(f"is empty, and {name}{FILE} names it", file=file, remedy=remedy)
    if len(data) > _LONGEST:
        raise InputError(f"is too large to be what {name}{FILE} should name", file=file)
    return text


def glance(name: str) -> str:
    """The same, where what is wrong with it is for somebody else to say: then it is empty."""
    try:
        return secret(name)
    except InputError:
        return ""
