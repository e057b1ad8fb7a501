"""The short form's writer in Lua, put together for each command when its script is loaded.

Every command of every run writes an entry. So what could be asked of tables at each of them is decided here, once: the
fields of the command's envelope and of the parts that its script may have, which of them are texts, and which earlier
text each of these nearly always repeats. What comes out is one function without a loop over names. It compares a field
with those few texts, and joins the packed pieces. A field that repeats a text that was not expected says it once more:
that costs bytes, and is read all the same.

Of an envelope the fields are counted, since anybody may have written it. Arguments and answers of parts are made by the
scripts themselves. Their names are compared with the tables by a test (`tests/test_shorthand_lua.py`), except where a
script may add others (`OPEN`): there the function looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgpack

from bus.shorthand import BARE, COMMANDS, PARTS, Shape
from bus.shorthand_fields import LISTS, NO_EVENTS, OFTEN_BARE, OPEN, SAID_BY_ALL, SELDOM, Field, fields_of, likely

__all__ = ["kinds", "lua_writer"]

_ENTRY = "--#entry\n"
"""Where the function goes in the text of `lua/include/shorthand.lua`."""

_KIND = re.compile(r"\b(\w+) = '(str|bool|int1?)(\??)'")


def kinds(text: str) -> dict[str, tuple[str, bool]]:
    """What a script says of its envelope's fields: the kind of each, and whether it may be absent."""
    return {name: (kind, optional == "?") for name, kind, optional in _KIND.findall(text)}


def lua_writer(command: str, text: str, around: str) -> str:
    """The function `shorthand` of a command's script; nil where there is no short form of it.

    `text` is all that the script may call; `around` that of `lua/include/shorthand.lua`. Raises ValueError when the
    script does not say of what kind a field is.
    """
    own = {shape.name: shape for shape in COMMANDS}.get(command)  # the last line of a name is the one that is written
    if own is None:
        return "local shorthand\n"
    used = [shape for shape in {shape.name: shape for shape in PARTS}.values() if f"'{shape.name}'" in text]
    return around.replace(_ENTRY, _Writer(own, used, kinds(text)).text())


def _packed(number: int) -> str:
    return "'" + "".join(f"\\{byte:03}" for byte in msgpack.packb(number)) + "'"


@dataclass(frozen=True, slots=True)
class _Said:
    """A text that a later field may repeat: what holds it, and what refers to it."""

    value: str
    reference: str


class _Writer:
    """Writes the function of one command.

    In it `n` is how many texts the entry has said; `e_…` are texts of the envelope and `h_…` how they begin; `s_…` is a
    text that may be repeated and `r_…` minus its number; `p…` are a part's. `H` begins a text of a length, and refers
    to one by its number below 0; `N` packs a number or a boolean.
    """

    def __init__(self, own: Shape, parts: Sequence[Shape], known: Mapping[str, tuple[str, bool]]) -> None:
        if unknown := [name for name in own.args if name not in known]:
            raise ValueError(f"{own.name} does not say of what kind {', '.join(unknown)} is")
        self._own, self._parts, self._kinds = own, parts, known
        self._lines: list[str] = []
        every = list(SAID_BY_ALL) if own.args[0] == "run" else [NO_EVENTS]
        self._count: int | None = len(every)  # None: known when it runs
        self._said = {name: _Said(SAID_BY_ALL[name], _packed(-2 - position)) for position, name in enumerate(every)}
        of_parts = [field for part in parts for field in fields_of(part) if field.is_text]
        self._wanted = {one for field in of_parts for one in likely(field.path, field.name)}
        self._wanted |= {one for name in own.args for one in likely("", name)}
        # What parts say and later ones repeat; the envelope's text of that name comes first, where it has one.
        texts = {name for name in own.args if known[name][0] == "str"}
        names = {field.name for field in of_parts}
        self._kept = {name for name in names if f"+{name}" in self._wanted or name in self._wanted - texts}

    def text(self) -> str:
        """The function, with the locals that it needs beside it in `lua/include/shorthand.lua`."""
        pieces = [_packed(self._own.number), "N[env.schema]", "life", *self._envelope()]
        self._count_at_run()
        self._write(f"local width, text, full = {3 + len(self._own.args)}, ''")
        for name in sorted(self._kept):
            self._write(f"local s_{name}, r_{name}")
            said = _Said(f"s_{name}", f"H[r_{name}]")
            self._said[f"+{name}"] = said
            self._said.setdefault(name, said)
        self._write("for i = 1, #parts, 3 do", "local by, args, answer = parts[i], parts[i + 1], parts[i + 2]")
        for position, part in enumerate(self._parts):
            self._write(f"{'else' if position else ''}if by == '{part.name}' then")
            self._part(part)
        if self._parts:
            self._write("else")
        self._write("width = width + 1", "text = text .. pack(args and {by, 'commit', '', args, answer} or by)")
        if self._parts:
            self._write("end")
        self._write("if #text > ENOUGH then full, text = set_aside(full, text), '' end", "end")
        self._write("if full then text = table.concat(full) .. text end")
        self._write(f"return {' .. '.join(['L[width]', *pieces, 'text'])}")
        return "\n".join(self._lines) + "\n"

    def _write(self, *lines: str) -> None:
        self._lines += lines

    def _say(self) -> None:
        """One text more."""
        if self._count is None:
            self._write("n = n + 1")
        else:
            self._count += 1

    def _count_at_run(self) -> None:
        """From here on not every entry of this command has said as many texts."""
        if self._count is not None:
            self._write(f"local n = {self._count}")
            self._count = None

    def _envelope(self) -> list[str]:
        """Looks at the envelope's fields and counts them. Returns what is to be joined for them."""
        pieces = []
        optional = [name for name in self._own.args if self._kinds[name][1]]
        self._write(f"fields = fields + {len(self._own.args) - len(optional)}")
        for name in self._own.args:
            kind, is_optional = self._kinds[name]
            if kind != "str":
                pieces.append(f"N[{f'e_{name}' if is_optional else f'env.{name}'}]")
                if is_optional:
                    self._write(f"local e_{name} = env.{name}", f"if e_{name} ~= nil then fields = fields + 1 end")
                continue
            pieces += self._text_of_envelope(name, is_optional)
        # As its packed form begins: one that names a field twice has fewer than it says.
        self._write("if byte(packed) ~= 128 + fields and not is_long(packed, fields) then return nil end")
        return pieces

    def _text_of_envelope(self, name: str, is_optional: bool) -> list[str]:
        like = [self._said[one] for one in likely("", name) if one in self._said]
        value, is_wanted = f"e_{name}", name in self._wanted
        if not is_optional and not like:
            self._write(f"local {value} = env.{name}")
            self._say()
            if is_wanted and self._count is None:
                self._write(f"local r_{name} = -n")
            if is_wanted:
                self._said[name] = _Said(value, f"H[r_{name}]" if self._count is None else _packed(-1 - self._count))
            return [f"H[#{value}]", value]
        self._count_at_run()
        self._write(f"local {value}, h_{name} = env.{name}, {_packed(-1)}")
        if is_wanted:
            self._write(f"local s_{name}, r_{name}")
        if is_optional:
            self._write(f"if {value} then", "fields = fields + 1")
        for one in like:
            self._write(f"if {value} == {one.value} then {value}, h_{name} = '', {one.reference} else")
        self._say()
        if is_wanted:
            self._write(f"s_{name}, r_{name} = {value}, -n")
            self._said[name] = _Said(f"s_{name}", f"H[r_{name}]")
        self._write(f"h_{name} = H[#{value}]", *["end" for _ in like])
        if is_optional:
            self._write(f"else {value} = '' end")
        return [f"h_{name}", value]

    def _part(self, part: Shape) -> None:
        fields = fields_of(part)
        args, answers = fields[: len(part.args)], fields[len(part.args) :]
        if part.name in OPEN:
            others = " and ".join(f"name ~= '{name}'" for name in part.args)
            self._write("for name in pairs(args) do", f"if {others} then return nil end", "end")
        if part.name in OFTEN_BARE:
            is_bare = " and ".join(f"{one.source} == nil" for one in reversed(args))
            self._write(f"if args == NOTHING or {is_bare} then")
            self._join(part.number + BARE, answers)
            self._write("else")
            self._join(part.number, fields)
            self._write("end")
        else:
            self._join(part.number if args else part.number + BARE, fields)

    def _join(self, number: int, fields: Iterable[Field]) -> None:
        fields = list(fields)
        pieces = [piece for position, field in enumerate(fields) for piece in self._field(f"p{position}", field)]
        self._write(f"width = width + {1 + len(fields)}", f"text = {' .. '.join(['text', _packed(number), *pieces])}")

    def _field(self, value: str, field: Field) -> Iterator[str]:
        if field.path in LISTS:
            yield f"(#{field.source} == 0 and '\\144' or pack({field.source}))"
        elif not field.is_text:
            yield f"N[{field.source}]"
        else:
            yield from self._text_of_part(value, field)

    def _text_of_part(self, value: str, field: Field) -> Iterator[str]:
        self._write(f"local {value} = {field.source}")
        like = [self._said[one] for one in likely(field.path, field.name) if one in self._said]
        say = ["n = n + 1"]
        if field.name in self._kept:
            say.append(f"s_{field.name}, r_{field.name} = {value}, -n")
        if not like and field.name not in SELDOM:
            self._write(*say)
            yield from (f"H[#{value}]", value)
            return
        for position, one in enumerate(like):
            self._write(f"{'else' if position else ''}if {value} == {one.value} then {value} = {one.reference}")
        self._write(f"{'else' if like else ''}if {value} then", *say, f"{value} = H[#{value}] .. {value}")
        self._write(f"else {value} = {_packed(-1)} end")
        yield value
