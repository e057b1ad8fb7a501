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
    """The envelope's fields as `begin` declares them."""
    declared = re.search(r"begin\([^{]*\{(.*?)\}\)", code_of(one), re.DOTALL)
    assert declared, one.name
    return dict(re.findall(r"([a-z_]+) = '([a-z0-9]+\??)'", declared.group(1)))
