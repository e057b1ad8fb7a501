"""Splitting one line of comma-separated values, with quoted fields."""

from __future__ import annotations


def split_line(line: str, separator: str = ",") -> list[str]:
    """Return the fields of `line`.

    A field in double quotes may contain the separator; a doubled quote inside it stands for one quote.
    Raises ValueError if a quoted field is not closed.
    """
    fields: list[str] = []
    field = ""
    quoted = False
    position = 0
    while position < len(line):
        character = line[position]
        if quoted and line.startswith('""', position):
            field += '"'
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            fields.append(field)
            field = ""
        else:
            field += character
        position += 1
    if quoted:
        raise ValueError("a quoted field is not closed")
    fields.append(field)
    return fields
