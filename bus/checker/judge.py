"""Fence 6: the critic that was bound signs the score.

What is looked at: the token of each run, and that each row equals the one that stood when it was signed.
"""

from __future__ import annotations

from typing import NamedTuple

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Judge"]


class _Token(NamedTuple):
    candidate: str
    judge: str
    epoch: int


class Judge(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """Policy and its budget are declared with the batch."""
        super().__init__()
        self._replays_left: int = setting.policy["replay_budget"]
        self._policy: str = setting.policy["judge_policy"]
        self._tokens: dict[str, _Token] = {}
        self._signed: set[str] = set()
        self._replayed: set[tuple[str, int]] = set()
        self._p1 = board.add("judge.P1", "each signed row equals the token that was bound", "rows signed")
        self._p2 = board.add("judge.P2", "a run is bound once, and later only anew", "bindings")
        self._p3 = board.add("judge.P3", "a score is signed once", "rows signed")
        self._p4 = board.add("judge.P4", "who is bound anew was unscored, and the epoch before is gone", "rebindings")
        self._p5 = board.add("judge.P5", "who was refused as another was another", "refusals as another")
        self._p6 = board.add("judge.P6", "no more replays than the suite allows", "replays")
        self.on = {"mint": self._mint, "rebind": self._rebind, "commit": self._commit}
        self.also = {f"commit {verb}": self._mismatch for verb in ("reject", "replay", "in_doubt")}

    def _mint(self, said: Said) -> None:
        args = said.args
        self._p2.see(args["run"] not in self._tokens, said, "{} was bound before", args["run"])
        self._tokens[args["run"]] = _Token(args["candidate"], args["judge"], args["epoch"])

    def _rebind(self, said: Said) -> None:
        run, args = said.args["run"], said.args
        token = self._tokens.get(run)
        is_next = token is not None and token.epoch == args["epoch"] and said.answer["epoch"] == args["epoch"] + 1
        self._p4.see(is_next and run not in self._signed, said, "it stood at epoch {}", token and token.epoch)
        self._tokens[run] = _Token(args["candidate"], args["judge"], said.answer["epoch"])

    def _commit(self, said: Said) -> None:
        run = said.args["run"]
        self._p1.see(_observed(said) == self._tokens.get(run), said, "bound is {}", self._tokens.get(run))
        self._p3.see(run not in self._signed, said, "{} was signed before", run)
        self._signed.add(run)

    def _mismatch(self, said: Said) -> None:
        if said.reason not in ("judge_mismatch", "candidate_mismatch"):
            return
        run, token = said.args["run"], self._tokens.get(said.args["run"])
        self._p5.see(token is not None and _observed(said) != token, said, "bound is {}", token)
        if said.verb == "replay" and (run, said.args["epoch"]) not in self._replayed:
            self._replayed.add((run, said.args["epoch"]))
            fits = self._policy == "replay" and len(self._replayed) <= self._replays_left
            self._p6.see(fits, said, "the replay number {}", len(self._replayed))


def _observed(said: Said) -> _Token:
    return _Token(said.args["observed_candidate"], said.args["observed_judge"], said.args["epoch"])
