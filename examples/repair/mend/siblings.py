"""Names that programmers take for one another: methods, functions, attributes, operators.

None of this knows a program under repair. It is what the standard library's reference shows side by side.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_GROUPS = """
lower casefold upper title capitalize
strip lstrip rstrip
append extend insert
append appendleft
add update
pop popleft popitem
remove discard
min max
any all
sorted list set tuple reversed
list sorted dict.fromkeys
split rsplit splitlines
partition rpartition
find rfind index rindex
startswith endswith
isdigit isdecimal isnumeric isalnum isalpha
isspace isalnum
removeprefix lstrip
removesuffix rstrip
ljust rjust center
keys values items
floor ceil trunc
floor round int
sum len max
bisect_left bisect_right bisect
insort_left insort_right
union intersection difference symmetric_difference
issubset issuperset
seconds total_seconds days
weekday isoweekday
year month day
hour minute second
date datetime
heappush heappop heappushpop heapreplace
nlargest nsmallest
permutations combinations combinations_with_replacement product
match search fullmatch
sub subn
copy deepcopy
setdefault get
read readline readlines
update setdefault
fdiv floordiv truediv
isinstance issubclass
start stop
start end
left right
first last
width height
x y
row col
low high
lo hi
begin finish
key value
src dst
ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN ROUND_UP ROUND_FLOOR ROUND_CEILING
ValueError KeyError TypeError IndexError LookupError
NFC NFKC NFD NFKD
"""


def _neighbours(groups: Iterable[list[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for group in groups:
        for name in group:
            found.setdefault(name, []).extend(each for each in group if each != name)
    return {name: tuple(dict.fromkeys(others)) for name, others in found.items()}


SIBLINGS = _neighbours(line.split() for line in _GROUPS.split("\n") if line)
"""Each name with those it is taken for, likely ones first."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE, ast.Is, ast.In),
    ast.NotEq: (ast.Eq, ast.Lt, ast.Gt, ast.IsNot, ast.NotIn),
    ast.Is: (ast.Eq, ast.IsNot),
    ast.IsNot: (ast.NotEq, ast.Is),
    ast.In: (ast.NotIn, ast.Eq),
    ast.NotIn: (ast.In, ast.NotEq),
}

ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Pow, ast.Div),
    ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.BitXor: (ast.BitOr, ast.BitAnd),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
}
