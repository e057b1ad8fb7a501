"""The checker stands alone: what judges the fences, the models and the roles shares no code with them."""

from __future__ import annotations

import pytest

from tests.sources import ROOT, below, imports, modules

ALLOWED = ("bus.checker", "bus.errors")


def test_the_checker_imports_nothing_of_what_it_checks() -> None:
    """An error in the rules would be found by nobody who believes in the same rules."""
    strangers = {
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules("bus/checker")
        for name in imports(module) - {"bus"}
        if not any(below(name, allowed) for allowed in ALLOWED)
    }
    assert strangers == set()


@pytest.mark.parametrize("fence", ["bus.models", "bus.fences", "bus.replay", "bus.acceptance", "bus.contracts"])
def test_nothing_that_is_checked_imports_the_checker(fence: str) -> None:
    """Nor may it lean on the checker: then the checker's own slip would hide there."""
    folder = fence.replace(".", "/")
    assert [name for module in modules(folder) for name in imports(module) if below(name, "bus.checker")] == []
