"""A task in plain sentences: which encoder is better, by how much, how sure that is, and what it would take to know."""

from __future__ import annotations

import pandas as pd

from experiments.figures import words
from experiments.report.sections import reach as _reach_page
from experiments.report.sections.task import LINES, OfTask
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import metric_of
from experiments.statistics import intervals
from experiments.statistics import reach as _reach

NAMED = 8
"""Labels of one verdict that are named with their difference; more are counted."""


def said(of: OfTask, standing: pd.DataFrame | None) -> list[str]:
    """Paragraphs on one task.

    Args:
        of: the task.
        standing: its lines of `_groups.ranking`, if there is a ranking.
    """
    if of.quality.empty:
        return [f"On {of.task}, quality over lengths was not measured."]
    return [*_unlearned(of), *_leading(of, standing), " ".join(_how_far(of)), *_against(of)]


def _unlearned(of: OfTask) -> list[str]:
    if of.runs["converged"].empty or not of.runs["converged"].eq(False).all():
        return []
    return [
        f"No run learned {of.task} within the training length: what follows on it says little about the encoders, and "
        "longer training or a larger model may turn it round."
    ]


def _leading(of: OfTask, standing: pd.DataFrame | None) -> list[str]:
    """Who is first, and who cannot be told apart from it."""
    if standing is None:
        return []
    ranked = standing[standing["status"] == "ok"]
    if len(ranked) < 2:
        return []
    best = ranked.iloc[0]
    metric = metric_of(str(best["metric"]))
    opening = (
        f"Best on {of.task} beyond the training length: {of.name(best['label'])}, with a mean {metric.label} of "
        f"{words.interval(best['mean'], best['low'], best['high'])}."
    )
    if not best["group"]:
        return [f"{opening} With so few seeds nobody can say whether that is more than chance."]
    shares = [
        of.name(label)
        for label, group in zip(ranked["label"][1:], ranked["group"][1:], strict=True)
        if set(group) & set(best["group"])
    ]
    rest = len(ranked) - 1 - len(shares)
    if not shares:
        return [f"{opening} These seeds tell it apart from {'the other' if rest == 1 else f'all {rest} others'}."]
    sure = f"; they do tell it apart from the other {words.count(rest, 'label')}" if rest else ""
    return [f"{opening} These seeds cannot tell it apart from {words.few(shares)}{sure}."]


def _how_far(of: OfTask) -> list[str]:
    """Lengths and seeds, up to which length each label holds, and the areas."""
    main = str(of.quality["metric"].iloc[0])
    metric = metric_of(main).label
    reach = of.reach
    seeds_of = of.seeds[OVER_LENGTHS]
    low, high = min(seeds_of.values()), max(seeds_of.values())
    seeds = f"{low} to {high} seeds each" if low != high else f"{high} seed{'s' * (high > 1)} each"
    trained, longest = sorted(set(reach["train_length"])), int(reach["longest"].max())
    told = [
        f"On {of.task}, trained up to length {words.listed(trained)} and measured up to {longest} "
        f"({longest / trained[0]:.3g} times that), with {words.count(len(seeds_of), 'label')} of {seeds}."
    ]
    clauses = []
    learned = reach[~reach["label"].isin(of.not_converged)]
    for (multiple, held), group in learned.groupby(["multiple", "reach"], sort=True):
        names = words.few(of.name(label) for label in of.order if label in set(group["label"]))
        if multiple == 1:
            clauses.append(f"not up to the next length measured by {names}")
        else:
            ending = ", the longest measured" if held == longest else ""
            clauses.append(f"up to {multiple:.3g} times it (length {held:.0f}{ending}) by {names}")
    if longest <= trained[-1]:
        told.append("Lengths beyond the training length were not measured.")
    elif clauses:
        kept = f"At least {_reach.KEEPS:.0%} of the {metric} within the training length is kept"
        if not metric_of(main).higher_is_better:
            kept = f"No more than {1 / _reach.KEEPS:.2f} times the {metric} within the training length is reached"
        told.append(f"{kept} {'; '.join(reversed(clauses))}.")
    if len(learned) < len(reach) and longest > trained[-1]:
        names = words.few(of.name(label) for label in of.order if label in of.not_converged)
        told.append(f"How far is not said of what not every seed learned within the training length: {names}.")
    if unmeasured := reach.loc[reach["multiple"].isna(), "label"].tolist():
        told.append(f"Nothing within the training length was measured of {words.few(map(of.name, unmeasured))}.")
    if len(of.order) <= LINES:
        told += _reach_page.said(of.quality, of.reach, of.order, of.name)
    return told


def _against(of: OfTask) -> list[str]:
    """The verdicts against the baseline, with amounts, and what would decide those that are open."""
    if of.compared.empty:
        return []
    metric = metric_of(str(of.compared["metric"].iloc[0])).label
    baseline = str(of.compared["baseline"].iloc[0])
    parts = []
    for verdict in dict.fromkeys(["better", "worse", intervals.NOT_SEPARABLE, *of.compared["verdict"]]):
        lines = of.compared[of.compared["verdict"] == verdict].set_index("label")
        labels = [label for label in of.order if label in lines.index]
        if labels:
            parts.append(f"{words.few(map(of.name, labels))} {words.said(verdict)}{_amounts(of, lines, labels)}")
    told = f"On {of.task} beyond the training length, mean {metric} against {of.name(baseline)}: {'; '.join(parts)}."
    if max(of.seeds[OVER_LENGTHS].values()) < 2:
        return [f"{told} One seed gives no interval: nothing can be told apart by it."]
    return [told, *_surer(of)]


def _amounts(of: OfTask, lines: pd.DataFrame, labels: list[str]) -> str:
    """Differences of those that are better or worse, by how much and how surely."""
    found = lines[lines["pairs"] > 1].to_dict("index")
    told = [(label, found[label]) for label in labels if label in found]
    if lines["verdict"].iloc[0] not in ("better", "worse", "higher", "lower") or not told or len(told) > NAMED:
        return ""
    amounts = [
        f"{of.name(label)} by {words.amount(line['difference'], line['low'], line['high'])}" for label, line in told
    ]
    return f" ({', '.join(amounts)})"


def _surer(of: OfTask) -> list[str]:
    """How many more seeds would decide what is open."""
    waiting = of.compared[of.compared["more_seeds"].notna()].sort_values("more_seeds")
    if waiting.empty:
        return []
    told = [
        f"{of.name(label)}: {intervals.in_words(intervals.NOT_SEPARABLE, more).partition('; ')[2]}"
        for label, more in waiting[["label", "more_seeds"]].head(NAMED).itertuples(index=False)
    ]
    left = len(waiting) - len(told)
    more = f"; {words.count(left, 'further label')} no fewer than the last of these" if left else ""
    return [
        f"How many more seeds would tell apart what these cannot, if the truth is as it seems: {'; '.join(told)}{more}."
    ]
