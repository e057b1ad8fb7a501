"""Fence 9: a verdict attaches to the tree that it tested."""

from __future__ import annotations

from dataclasses import dataclass

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Workspace"]


@dataclass(slots=True)
class _Tree:
    gen: int
    tree_hash: str
    verdict: str | None = None


class Workspace(Fence):
    """What is looked at: the recorded tree of each step, and every verdict that was attached to it."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """The known kinds of verdicts are declared."""
        super().__init__()
        self._schemas = setting.schemas
        self._trees: dict[str, _Tree] = {}
        self._p1 = board.add(
            "workspace.P1", "each verdict is on the tree that is recorded, at its generation", "verdicts"
        )
        self._p2 = board.add("workspace.P2", "a tree has one verdict, of a known kind", "verdicts")
        self._p3 = board.add("workspace.P3", "a step's generations grow", "trees recorded")
        self.on = {"record": self._record, "attach": self._attach, "supersede": self._supersede}

    def _record(self, said: Said) -> None:
        args, at = said.args, self._trees.get(said.args["step"])
        self._p3.see(at is None or args["gen"] > at.gen, said, "it is at generation {}", at and at.gen)
        self._trees[args["step"]] = _Tree(args["gen"], args["tree_hash"])

    def _supersede(self, said: Said) -> None:
        args, at = said.args, self._trees.get(said.args["step"])
        grows = at is not None and at.gen == args["gen"] and said.answer["gen"] == args["gen"] + 1
        self._p3.see(grows, said, "it is at generation {}", at and at.gen)
        self._trees[args["step"]] = _Tree(said.answer["gen"], args["tree_hash"])

    def _attach(self, said: Said) -> None:
        args, at = said.args, self._trees.get(said.args["step"])
        is_tested = at is not None and (at.gen, at.tree_hash) == (args["gen"], args["tree_hash"])
        self._p1.see(is_tested, said, "recorded is {}", at and at.tree_hash)
        is_first = at is not None and at.verdict is None
        self._p2.see(is_first and args["schema"] in self._schemas, said, "it has {}", at and at.verdict)
        if at is not None:
            at.verdict = args["verdict"]
