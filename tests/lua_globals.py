"""Which global names a Lua chunk reads and writes, anywhere in it.

A run finds a forgotten `local` only on the branch that it takes. The server's own compiler has seen all branches: its
bytecode (Lua 5.1, as `string.dump` gives it) names every global in two instructions.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

__all__ = ["DUMP", "Globals", "globals_of"]

DUMP = "return string.dump(loadstring(ARGV[1]))"
"""To be evaluated on a server, with the chunk as its only argument."""

_GETGLOBAL, _SETGLOBAL = 5, 7
_HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"  # 5.1, little-endian, 64 bits
_NIL, _BOOL, _NUMBER, _STRING = 0, 1, 3, 4


@dataclass(slots=True)
class Globals:
    """The names."""

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


def globals_of(bytecode: bytes) -> Globals:
    """Read a dumped chunk. Raises ValueError for bytecode of another Lua."""
    if not bytecode.startswith(_HEADER):
        raise ValueError("not the bytecode of a 64-bit Lua 5.1")
    found = Globals()
    _Reader(bytecode, len(_HEADER)).function(found)
    return found


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int

    def function(self, found: Globals) -> None:
        self.text()
        self.skip(2 * 4 + 4)  # the lines; upvalues, parameters, varargs, stack
        code = [self.number("<I") for _ in range(self.number("<i"))]
        constants = [self.constant() for _ in range(self.number("<i"))]
        for _ in range(self.number("<i")):
            self.function(found)
        self.skip(4 * self.number("<i"))
        for _ in range(self.number("<i")):
            self.text()
            self.skip(2 * 4)
        for _ in range(self.number("<i")):
            self.text()
        for instruction in code:
            names = {_GETGLOBAL: found.read, _SETGLOBAL: found.written}.get(instruction & 0x3F)
            if names is not None:
                names.add(constants[instruction >> 14])

    def constant(self) -> str:
        kind = self.number("<B")
        if kind == _STRING:
            return self.text()
        self.skip({_NIL: 0, _BOOL: 1, _NUMBER: 8}[kind])
        return ""

    def text(self) -> str:
        size = self.number("<Q")
        self.skip(size)
        return self.data[self.at - size : self.at - 1].decode("latin-1") if size else ""

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self.data, self.at)[0]
        self.skip(struct.calcsize(form))
        return value

    def skip(self, size: int) -> None:
        self.at += size
