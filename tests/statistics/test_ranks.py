"""Scores, ranks and places over many tasks, against scipy, scikit-posthocs and numbers worked by hand."""

from __future__ import annotations

import io
import math

import numpy as np
import pandas as pd
import pytest
from scikit_posthocs import posthoc_nemenyi_friedman
from scipy import stats as scipy_stats
from support import rows_of

from experiments.figures import ranks as _rank_figures
from experiments.statistics import bootstrap
from experiments.statistics.groups import ranking
from experiments.statistics.ranks import aggregate, by_metric, friedman, over_tasks, ranks
from experiments.statistics.scores import normalised

LABELS = ("alibi", "t5", "none", "rope")


def made(tasks: int = 6, seeds: int = 3, spread: float = 0.05, metric: str = "token_accuracy") -> pd.DataFrame:
    """Four series, a step of 0.15 apart, on tasks that differ in how hard they are."""
    source = np.random.default_rng(0)
    parts = []
    for task in range(tasks):
        values: dict[str, dict[int, list[float | None]]] = {
            label: {32: list(source.normal(0.8 - 0.15 * place - 0.03 * task, spread, seeds))}
            for place, label in enumerate(LABELS)
        }
        parts.append(rows_of(values, metric).assign(task=f"task {task}"))
    return pd.concat(parts, ignore_index=True)


def test_scores_are_zero_at_chance_and_one_at_best() -> None:
    shares = rows_of({"none": {32: [0.1, 1.0, 0.55]}})
    assert list(normalised(shares)) == pytest.approx([0, 1, 0.5])
    bits = rows_of({"none": {32: [8.0, 0.0, 2.0]}}, "bits_per_byte").assign(chance=8.0)
    assert list(normalised(bits)) == pytest.approx([0, 1, 0.75])


def test_aggregate_is_scipys_interquartile_mean_of_all_runs() -> None:
    rows = made()
    table = aggregate(rows, "none").set_index("series")
    assert list(table.index) == list(LABELS)
    for label, of_label in rows.groupby("series"):
        values = (of_label["value"] - 0.1) / 0.9
        assert table.loc[label, "iqm"] == pytest.approx(scipy_stats.trim_mean(values, 0.25))
        assert table.loc[label, "median"] == pytest.approx(values.median())
    assert table.loc["none", "improvement"] == 0.5
    u = [
        scipy_stats.mannwhitneyu(part.loc[part["series"] == "t5", "value"], part.loc[part["series"] == "none", "value"])
        for _, part in rows.groupby("task")
    ]
    assert table.loc["t5", "improvement"] == pytest.approx(np.mean([found.statistic / 9 for found in u]))


def test_interval_of_one_task_is_about_students() -> None:
    # With three runs the interquartile mean is the mean, so the t interval is what there is to be met.
    values = np.array([0.4, 0.5, 0.45])
    low, high = bootstrap.over_seeds({"copy": values}, {"copy": np.arange(3.0)})
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval()
    assert (low, high) == pytest.approx(tuple(expected), abs=0.01)


def test_interquartile_mean_knows_gaps() -> None:
    values = np.random.default_rng(0).normal(size=(3, 11))
    values[1, 4:] = np.nan
    expected = [scipy_stats.trim_mean(line[~np.isnan(line)], 0.25) for line in values]
    assert list(bootstrap.interquartile_mean(values)) == pytest.approx(expected)


def test_intervals_ignore_row_order_and_other_series() -> None:
    rows = made()
    found = aggregate(rows).set_index("series")
    shuffled = aggregate(rows.sample(frac=1, random_state=2)).set_index("series")
    pd.testing.assert_frame_equal(found, shuffled)
    fewer = aggregate(rows[rows["series"] != "rope"]).set_index("series")
    pd.testing.assert_frame_equal(found.drop("rope"), fewer)


def test_one_seed_has_scores_and_no_interval() -> None:
    table = aggregate(made(seeds=1))
    assert table["iqm"].notna().all()
    assert table[["low", "high"]].isna().all(axis=None)


def test_few_tasks_have_no_interval_over_tasks() -> None:
    table = aggregate(made(tasks=4))
    assert table["low"].notna().all()
    assert table[["tasks_low", "tasks_high"]].isna().all(axis=None)
    assert over_tasks(made(tasks=4))[["place_low", "first"]].isna().all(axis=None)


def test_a_series_of_few_tasks_is_left_out_and_says_so() -> None:
    rows = made()
    rows = rows[(rows["series"] != "t5") | (rows["task"] == "task 0")]
    table = aggregate(rows).set_index("series")
    assert table.loc["t5", "status"] == "measured in 1 of 6 tasks"
    assert math.isnan(table.loc["t5", "iqm"])
    found = ranks(rows)
    assert "t5" not in found.index
    assert found.attrs["left_out"] == {"t5": "measured in 1 of 6 tasks"}


def test_a_task_that_one_series_lacks_is_left_out() -> None:
    rows = made()
    rows.loc[(rows["series"] == "t5") & (rows["task"] == "task 0"), ["value", "status"]] = [math.nan, "unsupported"]
    found = ranks(rows)
    assert list(found.columns) == [f"task {number}" for number in range(1, 6)]
    assert found.attrs["left_out"] == {"task 0": "not measured of t5"}


def test_ranks_share_ties_and_know_which_way_is_good() -> None:
    rows = rows_of({"none": {32: [0.5, 0.7]}, "rope": {32: [0.6, 0.6]}, "t5": {32: [0.9, 0.9]}})
    bits = rows_of({"none": {32: [1.0]}, "rope": {32: [2.0]}, "t5": {32: [3.0]}}, "bits_per_byte").assign(task="text")
    found = ranks(pd.concat([rows, bits]))
    assert found["copy"].to_dict() == {"t5": 1, "none": 2.5, "rope": 2.5}
    assert found["text"].to_dict() == {"none": 1, "rope": 2, "t5": 3}


def test_critical_difference_is_demsars() -> None:
    # Demšar (2006), section 3.2.2: 4 algorithms on 14 data sets; q is 2.569, CD 1.25.
    table = pd.DataFrame(np.random.default_rng(0).permuted(np.tile(np.arange(1.0, 5), (14, 1)), axis=1).T)
    assert friedman(table)["critical_difference"] == pytest.approx(1.25, abs=0.005)


def test_friedman_and_nemenyi_are_scikit_posthocs() -> None:
    table = ranks(made(tasks=8, spread=0.3))
    test = friedman(table)
    assert test["p"] == pytest.approx(scipy_stats.friedmanchisquare(*table.to_numpy()).pvalue)
    theirs = posthoc_nemenyi_friedman(-table.to_numpy().T).to_numpy()
    means = table.mean(axis=1).to_numpy()
    apart = np.abs(means[:, None] - means[None, :]) > test["critical_difference"]
    assert (apart == (theirs < 0.05)).all()
    assert apart.any()
    assert not apart.all()


def test_places_are_firm_where_tasks_agree() -> None:
    found = over_tasks(made(tasks=10, spread=0.001)).set_index("series")
    assert found["place"].to_dict() == {"alibi": 1, "t5": 2, "none": 3, "rope": 4}
    assert (found["place_low"] == found["place"]).all()
    assert (found["place_high"] == found["place"]).all()
    assert (found.loc["alibi", "first"], found.loc["t5", "first"], found.loc["none", "top_three"]) == (1, 0, 1)
    assert found.loc["alibi", "group"] != found.loc["rope", "group"]


def test_places_are_loose_where_tasks_disagree() -> None:
    # Two series, each first in half of six tasks: one is first alone unless all draws are even.
    rows = made(spread=0.0001)
    swapped = rows["series"].replace({"alibi": "t5", "t5": "alibi"}).where(rows["task"] < "task 3", rows["series"])
    found = over_tasks(rows.assign(series=swapped)).set_index("series")
    assert found.loc["alibi", "place"] == found.loc["t5", "place"] == 1
    even = scipy_stats.binom.pmf(3, 6, 0.5)
    for label in ("alibi", "t5"):
        assert found.loc[label, "first"] == pytest.approx((1 + even) / 2, abs=4 * math.sqrt(0.25 / 2000))
        assert (found.loc[label, "place_low"], found.loc[label, "place_high"]) == (1, 2)


def test_where_all_are_equal_nothing_is_told_apart() -> None:
    rows = made().assign(value=0.5)
    found = over_tasks(rows)
    assert set(found["group"]) == {""}
    assert set(found["place"]) == {1}
    assert friedman(ranks(rows))["p"] == 1


def test_metrics_that_disagree_say_so() -> None:
    accuracy = made()
    exact = accuracy.assign(metric="exact_match", value=1 - accuracy["value"])
    found = by_metric(pd.concat([accuracy, exact]))
    agreement = found.drop_duplicates(["metric", "lengths"]).set_index(["metric", "lengths"])["agreement"]
    assert agreement.to_dict() == {
        ("main", "beyond"): 1,
        ("main", "twice"): 1,
        ("exact_match", "beyond"): pytest.approx(-1),
        ("exact_match", "twice"): pytest.approx(-1),
    }
    assert list(found.loc[found["metric"] == "exact_match", "series"].head(4)) == list(reversed(LABELS))


@pytest.mark.parametrize("rows", [made().iloc[:0], made(tasks=1), made()[lambda table: table["series"] == "none"]])
def test_too_little_makes_no_claim(rows: pd.DataFrame) -> None:
    table = ranks(rows)
    assert math.isnan(friedman(table)["p"])
    assert set(over_tasks(rows)["group"]) <= {""}
    assert (aggregate(rows)["status"] == "ok").all()


def texts(figure: object) -> list[str]:
    source = io.StringIO()
    figure.savefig(source, format="svg", metadata={"Date": None})  # type: ignore[attr-defined]
    return [text.get_text() for axes in figure.axes for text in [*axes.get_yticklabels(), *axes.texts]]  # type: ignore[attr-defined]


def test_figures_name_every_series() -> None:
    rows = made(tasks=8)
    long = "rope(base=500000.0, original_length=4096) · randomized"
    rows["series"] = rows["series"].replace("rope", long)
    shown = [_rank_figures.critical_difference(ranks(rows)), _rank_figures.places(over_tasks(rows))]
    for figure in shown:
        said = texts(figure)
        assert {"alibi", "t5", "none"} <= set(said)
        (cut,) = (text for text in said if text.startswith("rope"))
        assert len(cut) == _rank_figures.LONGEST
        assert cut.endswith("randomized")
    assert "100 %" in texts(shown[1])


def test_the_ranking_figure_says_what_the_table_does() -> None:
    table = ranking(made(tasks=3))
    figure = _rank_figures.ranking(table, {"task 1": ["t5"]})
    said = texts(figure)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert set(labels) == set(table["series"])
    for axes, (task, lines) in zip(figure.axes, table.groupby("task"), strict=True):
        assert axes.get_title() == task
        drawn = {}
        for line in axes.lines:
            hollow = line.get_markerfacecolor() == "white"
            drawn |= {labels[int(y)]: (x, hollow) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)}  # type: ignore[call-overload, arg-type]
        assert drawn == {
            line["series"]: (line["mean"], (task, line["series"]) == ("task 1", "t5"))
            for line in lines.to_dict("records")
        }
        assert all(_rank_figures.short_group(group) in said for group in lines["group"])
    assert labels == list(table.groupby("series")["rank"].mean().sort_values(kind="stable").index), "the best on top"
    with pytest.raises(ValueError, match="no ranking to draw"):
        _rank_figures.ranking(table.iloc[:0], {})


@pytest.mark.parametrize(
    ("letters", "short"), [("", ""), ("ab", "ab"), ("abc", "a–c"), ("abde", "abde"), ("ace", "ace"), ("ayzAB", "ay–B")]
)
def test_groups_in_short(letters: str, short: str) -> None:
    assert _rank_figures.short_group(letters) == short


def test_bars_join_what_is_within_the_critical_difference() -> None:
    means = np.array([1.0, 1.5, 2.4, 4.0])
    assert _rank_figures._bars(means, 1.0) == [(0, 1), (1, 2)]
    assert _rank_figures._levels([(0, 1), (1, 2), (2, 3), (3, 4)]) == [0, 1, 0, 1]


def test_no_ranks_are_no_figure() -> None:
    with pytest.raises(ValueError, match="no ranks to draw"):
        _rank_figures.critical_difference(ranks(made().iloc[:0]))
