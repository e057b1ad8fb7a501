"""The rows of a call (`lua/include/row.lua`) against plain dictionaries: random commands that read and write them.

A command may be granted, refused or break, alone or among others, on a run of its own or on one that another command of
the call is about too. Whatever became of those before it, it must read what they left, and so must the server.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from bus.scripts import expand
from bus.target import Target
from bus.wire import Wire
from tests.soak import times

SESSIONS, CALLS = times(500), 3
NUMBERS, TEXTS = ["n1", "n2", "n3"], ["a", "b", "c"]
NAMES = ["read", "more", *["put", "add", "get"] * 2, "put_number", "drop", "keep", "keep_gone", "int", "all"]

# A command's argument is a list of what it does: a name, the place of the key, a field or fields, and a value.
SCRIPT = """#!lua
local KEYS, ARGV = KEYS, ARGV
--#include "include/many.lua"
local function text(v)
  if type(v) == 'number' then return number_text(v) end
  return v or 'none'
end
local acts = {
  put = put, drop = drop, keep = keep,
  add = function(row, field, n) add(row, field, tonumber(n)) end,
  put_number = function(row, field, n) put(row, field, tonumber(n)) end,
  keep_gone = function(row, field) if row.data[field] then keep(row, field, false) end end,
  get = function(row, field) return text(row.data[field]) end,
  int = function(row, field) return number_text(int(row, field)) end,
  all = function(row)
    local found = {}
    for field, value in pairs(open_row(row.key).data) do
      if value then found[#found + 1] = field .. '=' .. text(value) end
    end
    table.sort(found)
    return table.concat(found, ' ')
  end,
}
local ends = {grant = write_rows, refuse = write_kept, ['break'] = function() error('ERR broken') end}
local function one()
  local said = {}
  for _, step in ipairs(cjson.decode(ARGV[1])) do
    local name, key, field, value = step[1], KEYS[step[2]], step[3], step[4]
    if name == 'read' then open_row(key, field)
    elseif name == 'more' then read_more(open_row(key, {}), field)
    elseif ends[name] then ends[name]()
    else said[#said + 1] = acts[name](opened[key] or open_row(key, {}), field, value) end
  end
  return said
end
local function ahead(packed, runs)
  for i = 1, #packed do
    local first = cjson.decode(packed[i])[1]
    if first[1] == 'read' then open_row(runs[i], first[3]) end
  end
end
return many(one, ARGV[2] and {2}, ahead)
"""

Step = list[Any]
Rows = dict[str, dict[str, str]]


def drawn(rng: random.Random) -> list[Step]:
    """What one command does."""
    steps: list[Step] = [["read", 2, rng.sample(NUMBERS + TEXTS, rng.randint(0, 3))]] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 8)):
        name = rng.choice(NAMES)
        key, number, field = rng.choice([1, 2, 2]), rng.choice(NUMBERS), rng.choice(NUMBERS + TEXTS)
        match name:
            case "read" | "more":
                steps.append([name, key, rng.sample(NUMBERS + TEXTS, rng.randint(1, 3))])
            case "put_number" | "add" | "int":
                steps.append([name, key, number, str(rng.choice([-1, 1, 1, 2]))])
            case _:
                value = str(rng.randint(0, 9)) if field in NUMBERS else rng.choice(["x", "", "y" * 70])
                steps.append([name, key, field, value])
    return [*steps, [rng.choice(["grant", "grant", "refuse", "break"]), 1], ["get", 2, rng.choice(TEXTS)]]


def decided(rows: Rows, keys: Sequence[str], steps: Sequence[Step]) -> list[str] | None:
    """What a command that did this says, or None where it broke; `rows` is what it leaves."""
    before, said = {key: dict(row) for key, row in rows.items()}, []
    kept: list[tuple[dict[str, str], str, str | None]] = []
    for name, key, *rest in steps:
        row, field, value = rows.setdefault(keys[key - 1], {}), *(*rest, None, None)[:2]
        match name:
            case "put" | "put_number":
                row[field] = value
            case "add":
                row[field] = str(int(row.get(field, "0")) + int(value))
            case "keep":
                row[field] = value
                kept.append((row, field, value))
            case "keep_gone" if field in row:
                del row[field]
                kept.append((row, field, None))
            case "drop":
                row.pop(field, None)
            case "get":
                said.append(row.get(field, "none"))
            case "int":
                said.append(str(int(row.get(field, "0"))))
            case "all":
                said.append(" ".join(sorted(f"{one}={text}" for one, text in row.items())))
            case "refuse" | "break":
                take_back(rows, before, kept if name == "refuse" else [])
                if name == "break":
                    return None
    return said


def take_back(rows: Rows, before: Rows, kept: Sequence[tuple[dict[str, str], str, str | None]]) -> None:
    """All that a command changed, except what its refusal keeps."""
    for key, row in rows.items():
        row.clear()
        row.update(before.get(key, {}))
    for row, field, value in kept:
        if value is None:
            row.pop(field, None)
        else:
            row[field] = value


async def test_commands_of_a_call_read_and_leave_what_they_would_one_after_another(server: Target) -> None:
    """See the module's text."""
    wire = await Wire.open(server.address())
    sha = await wire.call("SCRIPT", "LOAD", expand(SCRIPT))
    for seed in range(SESSIONS):
        rng, rows = random.Random(seed), dict[str, dict[str, str]]()
        runs = [f"{seed}:{number}" for number in range(rng.randint(1, 4))]
        for _ in range(CALLS):
            keys = rng.choices(runs, k=rng.choice([1, 2, 3, 6]))
            commands = [drawn(rng) for _ in keys]
            batch = f"{seed}:batch"
            words = [" ".join(["1"] * len(keys)), *map(json.dumps, commands)]
            told = await wire.call("EVALSHA", sha, 1 + len(keys), batch, *keys, *words)
            wanted = [decided(rows, [batch, key], command) for key, command in zip(keys, commands, strict=True)]
            said = [None if isinstance(one, Exception) else [text.decode() for text in one] for one in told]
            assert said == wanted, (seed, keys, commands)
            for key, row in rows.items():
                flat = [text.decode() for text in await wire.call("HGETALL", key)]
                assert dict(zip(flat[::2], flat[1::2], strict=True)) == row, (seed, keys, commands)
    wire.close()
