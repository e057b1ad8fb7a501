"""Settings from lines of the form `name = value`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_line(line: str) -> tuple[str, str] | None:
    """Return name and value without the blanks around them; None for a comment or a blank line."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    name, separator, value = text.partition("=")
    name = name.lstrip()
    if not separator or not name:
        raise ValueError(f"not a setting: {text}")
    return name, value.strip()


def parse(lines: Iterable[str]) -> dict[str, str]:
    """Return all settings; of a name that is set twice, the later value counts."""
    settings: dict[str, str] = {}
    for line in lines:
        setting = parse_line(line)
        if setting is not None:
            name, value = setting
            settings[name] = value
    return settings
