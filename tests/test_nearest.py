"""What was probably meant by a name that is not known."""

from __future__ import annotations

import subprocess
import sys

from bus.nearest import nearest, several_nearest


def test_of_the_known_names_the_likest_was_meant_and_none_where_none_is_like_it() -> None:
    """A wrong guess is worse than none: the error then says what there is."""
    assert nearest("admision", ["outbox", "admission", "mission"]) == "admission"
    assert nearest("bakery", {"outbox": 1, "admission": 2}) is None


def test_of_several_each_is_like_it_or_begins_with_it() -> None:
    """A batch's name is often remembered by its beginning only; what is neither was not meant."""
    known = ["nightly-2026-01-04", "nightly-2026-01-05", "weekly", "nightly-smoke"]
    assert several_nearest("nightly", known, 2) == ["nightly-smoke", "nightly-2026-01-05"]
    assert nearest("nightly", ["nightly-2026-01-04"]) is None
    assert several_nearest("nightly", ["nightly-2026-01-04"], 2) == ["nightly-2026-01-04"]
    assert several_nearest("mails", ["mails-20260104-201500", "males"], 2) == ["males", "mails-20260104-201500"]
    assert several_nearest("nosuch", ["argscheck", "smoke"], 3) == []
    assert several_nearest("", ["argscheck"], 3) == []


def test_a_command_whose_names_are_right_does_not_load_what_compares_them() -> None:
    """Each process pays for what it imports, also those that a fleet starts by the hundred."""
    asked = "import sys, workers.role, workers.suite; sys.exit('difflib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0
