"""The opening paragraph of a task: which encoder is best, how sure that is, and whether the task was learned."""

from __future__ import annotations

import pandas as pd

from experiments.figures import words
from experiments.report.sections.task import TaskResults
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import metric_of


def summary(task: TaskResults, standing: pd.DataFrame | None) -> str:
    """Return the paragraph; ``standing`` is the task's ranking, if there is one."""
    if task.quality.empty:
        return f"On {task.key}, quality over lengths was not measured."
    sentences = []
    if len(task.runs) and task.runs["converged"].eq(False).all():
        why = "its results say little about the encoders"
        sentences.append(f"No run learned {task.key} within the training length: {why}.")
    trained, longest = sorted(set(task.quality["train_length"])), int(task.quality["eval_length"].max())
    counts = task.seeds[OVER_LENGTHS].values()
    seeds = words.count(max(counts), "seed") if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} seeds"
    sentences.append(
        f"On {task.key}, {len(counts)} series with {seeds} each were trained up to length "
        f"{words.listed(trained)} and evaluated up to {longest} ({longest / trained[0]:.3g} times that)."
    )
    ranked = standing[standing["status"] == "ok"] if standing is not None else task.rows.iloc[:0]
    if len(ranked) < 2:
        return " ".join(sentences)
    best = ranked.iloc[0]
    mean = words.interval(best["mean"], best["low"], best["high"])
    metric = metric_of(str(best["metric"])).label
    sentences.append(
        f"Best beyond the training length: {task.display(best['series'])}, with a mean {metric} of {mean}."
    )
    tied = [bool(set(group) & set(best["group"])) for group in ranked["group"]]
    names = [task.display(series) for series in ranked.loc[tied, "series"] if series != best["series"]]
    others = f"from {words.count(len(ranked) - 1 - len(names), 'other')}"
    if not best["group"]:
        sentences.append("With so few seeds, no difference can be tested.")
    elif not names:
        sentences.append(f"It differs significantly {others}.")
    else:
        rest = f"; it does {others}" if len(names) < len(ranked) - 1 else ""
        sentences.append(f"It does not differ significantly from {words.few(names)}{rest}.")
    return " ".join(sentences)
