"""The opening paragraph of a task: which encoder is best, how sure that is, and whether the task was learned."""

from __future__ import annotations

import pandas as pd

from experiments.figures import words
from experiments.report.sections.task import TaskResults
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import metric_of


def summary_sentences(task: TaskResults, standing: pd.DataFrame | None) -> list[str]:
    """Return the paragraph; ``standing`` is the task's ranking, if there is one."""
    if task.quality.empty:
        return [f"On {task.key}, quality over lengths was not measured."]
    sentences = []
    if len(task.runs) and task.runs["converged"].eq(False).all():
        sentences.append(
            f"No run learned {task.key} within the training length: its results say little about the encoders."
        )
    trained, longest = sorted(set(task.quality["train_length"])), int(task.quality["eval_length"].max())
    counts = task.seeds[OVER_LENGTHS].values()
    seeds = words.count(max(counts), "seed") if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} seeds"
    sentences.append(
        f"On {task.key}, {len(counts)} series with {seeds} each were trained up to length "
        f"{words.listed(trained)} and evaluated up to {longest} ({longest / trained[0]:.3g} times that)."
    )
    if standing is not None:
        sentences += _best(task, standing[standing["status"] == "ok"])
    return [" ".join(sentences)]


def _best(task: TaskResults, ranked: pd.DataFrame) -> list[str]:
    """Name the best series, and those from which it does not differ significantly."""
    if len(ranked) < 2:
        return []
    best = ranked.iloc[0]
    sentence = (
        f"Best beyond the training length: {task.display(best['series'])}, with a mean "
        f"{metric_of(str(best['metric'])).label} of {words.interval(best['mean'], best['low'], best['high'])}."
    )
    if not best["group"]:
        return [sentence, "With so few seeds, no difference can be tested."]
    tied = [group != "" and bool(set(group) & set(best["group"])) for group in ranked["group"]]
    names = [task.display(series) for series in ranked.loc[tied, "series"] if series != best["series"]]
    apart = len(ranked) - 1 - len(names)
    others = f"from {words.count(apart, 'other')}"
    if not names:
        return [sentence, f"It differs significantly {others}."]
    rest = f"; it does {others}" if apart else ""
    return [sentence, f"It does not differ significantly from {words.few(names)}{rest}."]
