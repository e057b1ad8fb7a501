"""The scripts as their files say them: the header, the code below it, the fields of the envelope that it takes."""

from __future__ import annotations

import re
from importlib.resources import files

from bus.scripts import Script


def source_of(one: Script) -> str:
    """A script's own file, without what it includes."""
    fence, op = one.name.split(".")
    return files("lua").joinpath(fence, "do_fence.lua" if op == "fence" else f"{op}.lua").read_text("utf-8")


def code_of(one: Script) -> str:
    """A script's own file below its header, without comments."""
    return re.sub(r"--.*", "", source_of(one).partition("]]")[2])


def kinds_of(one: Script) -> dict[str, str]:
    """The envelope's fields with their kinds, as they are given to `begin`: there, or in a table above it."""
    code = code_of(one)
    given = re.search(r"begin\([^{]*?(KINDS|\{.*?\})\)", code, re.DOTALL)
    assert given, one.name
    declared = given[1] if given[1] != "KINDS" else re.findall(r"local KINDS = (\{.*?\})", code, re.DOTALL)[0]
    return dict(re.findall(r"(\w+) = '(\w+\??)'", declared))
