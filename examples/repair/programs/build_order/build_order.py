"""Ordering of build targets: everything a target needs is built before it."""

from __future__ import annotations


class CycleError(ValueError):
    """Targets that need each other can't be built."""


def build_order(needs: dict[str, list[str]]) -> list[str]:
    """Return every target named in `needs`, each once and after all the targets that it needs.

    Targets come in the order in which `needs` names them, as far as their needs allow. Raises CycleError
    if a target needs itself, directly or through others.
    """
    order: list[str] = []
    done: set[str] = set()
    open_targets: set[str] = set()

    def visit(target: str) -> None:
        if target in done:
            return
        if target in open_targets:
            raise CycleError(f"{target} needs itself")
        open_targets.add(target)
        order.append(target)
        for needed in needs.get(target, []):
            visit(needed)
        open_targets.discard(target)
        done.add(target)

    for target in needs:
        visit(target)
    return order
