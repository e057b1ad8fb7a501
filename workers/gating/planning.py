"""`evalbus plan`: what a batch of a suite could tell, and what it would cost, before anything is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bus.errors import InputError
from workers.declaration import Suite
from workers.explaining.telling import many
from workers.gating.baseline import results_of
from workers.gating.gate import MILLION
from workers.gating.rules import GateRules
from workers.gating.sources import Found
from workers.gating.visible import visible
from workers.results import numbers
from workers.statistics.clusters import Cluster, alikeness
from workers.statistics.power import Design, chance_no_worse, chance_to_pass

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Plan", "PlanOptions", "plan_of", "show"]

_UNKNOWN_RATE = 0.5  # where a rate is least certain: nothing is promised that another rate would not hold
_LABEL = 11


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the command line was given; None where it was not."""

    cases: int | None = None
    trials: int | None = None
    rate: float | None = None
    delta: float | None = None
    alpha: float = 0.05
    power: float = 0.8
    correlation: float | None = None
    tokens: float | None = None
    """Of a run."""
    price: float | None = None
    """Of a million tokens."""

    def check(self) -> None:
        """Raises InputError."""
        shares = {"--baseline-rate": self.rate, "--correlation": self.correlation}
        for name, value in shares.items():
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name} is {value:g}", remedy="a number from 0 to 1")
        inside = {"--alpha": self.alpha, "--power": self.power, "--delta": self.delta}
        for name, value in inside.items():
            if value is not None and not 0 < value < 1:
                raise InputError(f"{name} is {value:g}", remedy="a number between 0 and 1")
        if self.power <= self.alpha:
            raise InputError(f"--power is {self.power:g}, not above --alpha {self.alpha:g}")
        for name, value in {"--tokens": self.tokens, "--price": self.price}.items():
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"{name} is {value:g}", remedy="a number, 0 or more")


@dataclass(frozen=True, slots=True)
class Plan:
    """The figures, and where those that were not computed come from."""

    suite: str
    cases: int
    trials: int
    quorum: int
    rate: float
    rate_from: str
    correlation: float
    correlation_from: str
    alpha: float
    power: float
    detectable: float | None
    """The smallest drop that is found; None when not even a drop to nothing is."""
    delta: float | None
    power_at_delta: float | None
    cases_for_delta: int | None
    gate: dict[str, dict[str, float | None]]
    """Rule to the chance that it is met: `same` at the assumed rate, `worse` at delta below it."""
    tokens_a_run: float | None
    tokens_from: str
    budget: int | None
    price: float | None

    @property
    def runs(self) -> int:
        """In all."""
        return self.cases * self.trials

    @property
    def tokens(self) -> float | None:
        """Of all of them."""
        return None if self.tokens_a_run is None else self.tokens_a_run * self.runs

    @property
    def cost(self) -> float | None:
        """Of all of them, in the currency of the price."""
        return None if self.tokens is None or self.price is None else self.tokens * self.price / MILLION

    @property
    def most_cost(self) -> float | None:
        """What the budget allows to be spent at most."""
        return None if self.budget is None or self.price is None else self.budget * self.price / MILLION

    @property
    def interval(self) -> numbers.Interval:
        """Wilson's, had the assumed share passed."""
        return numbers.wilson(round(self.rate * self.runs), self.runs)

    def as_json(self) -> dict[str, Any]:
        """What `--json` writes."""
        interval = self.interval
        return {
            "suite": self.suite,
            "cases": self.cases,
            "trials": self.trials,
            "runs": self.runs,
            "quorum": self.quorum,
            "rate": self.rate,
            "correlation": self.correlation,
            "alpha": self.alpha,
            "power": self.power,
            "interval": [interval.low, interval.high],
            "detectable": self.detectable,
            "delta": self.delta,
            "power_at_delta": self.power_at_delta,
            "cases_for_delta": self.cases_for_delta,
            "gate": self.gate,
            "tokens_a_run": self.tokens_a_run,
            "tokens": self.tokens,
            "budget": self.budget,
            "price": self.price,
            "cost": self.cost,
            "most_cost": self.most_cost,
        }


def plan_of(suite: Suite, like: Found | None, options: PlanOptions) -> Plan:
    """`like`: a batch that was like it. Raises InputError for one without a number."""
    options.check()
    if like is not None and like.outcome.pass_rate is None:
        raise InputError(f"{like.name} is {like.outcome.state}, and has no number to plan by")
    cases = options.cases or len(suite.cases)
    trials = options.trials or suite.trials
    rate, rate_from = _rate(like, options)
    correlation, correlation_from = _correlation(like, options)
    design = Design(cases, trials, correlation, options.alpha)
    delta = options.delta
    other = None if delta is None else rate - delta
    if other is not None and other < 0:
        raise InputError(f"--delta {delta:g} is more than the rate to drop from, {rate:g}")
    rules = GateRules.from_mapping(suite.gate_rules)
    tokens, tokens_from = _tokens(like, options)
    resized = (options.cases, options.trials) != (None, None)
    return Plan(
        suite=suite.name,
        cases=cases,
        trials=trials,
        quorum=max(1, math.ceil(suite.quorum_runs * cases * trials / suite.intended)) if resized else suite.quorum_runs,
        rate=rate,
        rate_from=rate_from,
        correlation=correlation,
        correlation_from=correlation_from,
        alpha=options.alpha,
        power=options.power,
        detectable=design.drop(rate, options.power),
        delta=delta,
        power_at_delta=None if other is None else design.power(rate, other),
        cases_for_delta=None if other is None else design.cases_for(rate, other, options.power),
        gate=_gate(rules, design, rate, other),
        tokens_a_run=tokens,
        tokens_from=tokens_from,
        budget=suite.budget,
        price=options.price if options.price is not None else rules.price,
    )


def _rate(like: Found | None, options: PlanOptions) -> tuple[float, str]:
    if options.rate is not None:
        return options.rate, "as given"
    if like is not None and like.outcome.pass_rate is not None:
        return like.outcome.pass_rate, f"as in {like.name}{_part(like)}"
    return _UNKNOWN_RATE, "where a rate is least certain: give --baseline-rate or --like"


def _part(like: Found) -> str:
    """Where it was made of some of a suite's cases: a rate of theirs need not be the others'."""
    return "" if like.outcome.first_of is None else f", {like.outcome.size}"


def _correlation(like: Found | None, options: PlanOptions) -> tuple[float, str]:
    if options.correlation is not None:
        return options.correlation, "as given"
    if like is not None:
        cases = results_of(like.outcome).cases.values()
        found = alikeness(Cluster(one.passed, one.scored) for one in cases)
        if found is not None:
            return found, f"as of the trials in {like.name}"
    return 0.0, "two runs of a case have nothing in common: give --correlation"


def _tokens(like: Found | None, options: PlanOptions) -> tuple[float | None, str]:
    if options.tokens is not None:
        return options.tokens, "as given"
    if like is None:
        return None, "give --tokens, those of a run, or --like, a batch that was like it"
    outcome = like.outcome
    return outcome.tokens.spent / (outcome.accepted + outcome.hole_count), f"as in {like.name}, retries included"


def _gate(rules: GateRules, design: Design, rate: float, other: float | None) -> dict[str, dict[str, float | None]]:
    """The chance that each rule is met, for those that have one."""
    found: dict[str, dict[str, float | None]] = {}

    def both(chance: Any) -> dict[str, float | None]:  # noqa: ANN401 - a function of a rate
        return {"same": chance(rate), "worse": None if other is None else chance(other)}

    if (least := rules.min_pass_rate) is not None:
        found[f"pass_rate >= {least}"] = both(
            lambda true: chance_to_pass(true, least, design.cases, design.trials, design.correlation)
        )
    if rules.no_worse_than is not None:
        found[f"difference {rules.least_difference}"] = both(lambda true: _no_worse(rules, design, rate, true))
    return found


def _no_worse(rules: GateRules, design: Design, rate: float, true: float) -> float:
    error = design.spread(rate, true)
    return chance_no_worse(true - rate, error, design.cases, rules.margin or 0.0, rules.confidence)


def show(plan: Plan, console: Console) -> None:
    """Print it."""
    for label, text in _lines(plan):
        console.print(f"{label:<{_LABEL}}{visible(text)}", soft_wrap=True, markup=False)


def _lines(plan: Plan) -> list[tuple[str, str]]:
    runs = f"{many(plan.cases, 'case')} x {many(plan.trials, 'trial')}: {many(plan.runs, 'run')}"
    interval = plan.interval
    found = "none: not even a drop to 0 would be found"
    if plan.detectable is not None:
        found = f"a drop of {plan.detectable:.4f} from a baseline with the same cases"
    lines = [
        ("suite", f"{plan.suite}   {runs}, quorum {plan.quorum:,}"),
        ("pass rate", f"{plan.rate:.4f}   assumed, {plan.rate_from}"),
        ("alike", f"{plan.correlation:.4f}   assumed, {plan.correlation_from}"),
        ("interval", f"{interval.low:.4f} to {interval.high:.4f}   Wilson, 95%"),
        ("detectable", f"{found}   alpha {plan.alpha:g}, power {plan.power:g}"),
    ]
    if plan.delta is not None and plan.power_at_delta is not None:
        needed = f"{plan.cases_for_delta:,} cases would have power {plan.power:g}"
        lines.append(("delta", f"a drop of {plan.delta:g} has power {plan.power_at_delta:.4f}   {needed}"))
    for rule, chances in plan.gate.items():
        worse = "" if chances["worse"] is None else f", {chances['worse']:.4f} at {plan.delta:g} below it"
        lines.append(("gate", f"{rule}   met with chance {chances['same']:.4f} at the assumed rate{worse}"))
    budget = "no budget is set" if plan.budget is None else f"the budget is {plan.budget:,}"
    if plan.tokens is None or plan.tokens_a_run is None:
        lines.append(("tokens", f"unknown   {plan.tokens_from}; {budget}"))
    else:
        lines.append(("tokens", f"{plan.tokens:,.0f}   {plan.tokens_a_run:,.0f} a run, {plan.tokens_from}; {budget}"))
        if plan.budget is not None and plan.tokens > plan.budget:
            enough = plan.budget / plan.tokens_a_run
            lines.append(("", f"the budget is enough for about {enough:,.0f} runs; the others would be over_budget"))
    at = "" if plan.price is None else f"at {plan.price:g} a million tokens"
    if plan.cost is not None:
        lines.append(("cost", f"{plan.cost:,.2f}   {at}"))
    if plan.most_cost is not None:
        lines.append(("at most", f"{plan.most_cost:,.2f}   the whole budget, {at}"))
    return lines
