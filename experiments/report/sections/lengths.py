"""Quality over lengths: the summary of a task, curves, tables, comparisons with the baseline."""

import pandas as pd

from experiments.figures import words
from experiments.measures.length_extrapolation import GENERATED, POSITION_LOSS
from experiments.measures.length_extrapolation import report as length_extrapolation
from experiments.report.page import Picture, Section, Table
from experiments.report.sections import reach
from experiments.report.sections.task import LINES, MEANS, TaskResults, opening
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import among, main_metric, metric_of


def section(task: TaskResults) -> Section:
    """Make the section: curves and tables of every metric, reach and comparisons of the main one, loss by position."""
    section = opening("Length extrapolation", OVER_LENGTHS)
    summary = task.with_marks(task.lengths)
    main = main_metric(summary["metric"].unique())
    if len(task.drawn) > LINES:
        section.paragraphs.append(f"Figures of this section show {LINES} series; choose others under Curves.")
    drawn = task.rows_of(OVER_LENGTHS, drawn=LINES)
    figures = length_extrapolation.plot(drawn[drawn["metric"] == main] if task.first_figure_only else drawn)
    for metric in among(length_extrapolation.QUALITIES, summary["metric"]):
        stem, named = task.stem(metric), metric_of(metric)
        if stem in figures:
            how = "free-running" if metric.startswith(GENERATED) else "teacher-forced"
            caption = (
                f"{named.label.partition(',')[0].capitalize()} ({named.unit}) at each length, {how}: mean and 95 % t "
                "interval over seeds. Dashed: longest training length. Dotted: best guess without reading the input."
            )
            section.parts.append(Picture(stem, caption, figures[stem]))
        section.parts.append(_length_table(task, stem, named.label, summary[summary["metric"] == metric]))
        if metric == main:
            section.parts.append(reach.table(task))
            if len(task.compared):
                section.parts.append(_comparison_table(task, named.label))
    if (stem := task.stem(POSITION_LOSS)) in figures:
        caption = "Teacher-forced loss at each scored position, mean over seeds; a panel a series, a line a length."
        data = summary[summary["metric"] == POSITION_LOSS]
        section.parts.append(Picture(stem, caption, figures[stem], data))
    return section


def _length_table(task: TaskResults, stem: str, named: str, summary: pd.DataFrame) -> Table:
    trained, lengths = set(summary["train_length"]), sorted(set(summary["eval_length"]))
    heads = {length: f"{length} (trained)" if length in trained else str(length) for length in lengths}
    cells = task.grid(summary, ["eval_length"], heads, OVER_LENGTHS)
    seeds = {task.display(series): str(count) for series, count in task.seeds[OVER_LENGTHS].items()}
    cells.insert(1, "seeds", cells["series"].map(seeds))
    chance = summary.groupby("eval_length")["chance"].mean()
    if chance.notna().any():
        cells.loc[len(cells)] = ["guessing without reading", "", *map(words.short, chance[lengths])]
    refused = " Unsupported: the encoder refuses that length; this is a result, not a gap."
    note = MEANS + refused * bool((summary["unsupported"] > 0).any())
    return Table(stem, f"{named.capitalize()} by length, {task.key}", cells, summary, note)


def _comparison_table(task: TaskResults, named: str) -> Table:
    baseline, seeds = str(task.baseline), task.seeds[OVER_LENGTHS]
    lines = []
    for line in sorted(task.compared.to_dict("records"), key=lambda line: task.order.index(line["series"])):
        lengths, cells = line["lengths"], task.comparison(line)
        cells["seeds paired"] += f" of {max(seeds[line['series']], seeds[baseline])}"
        cells["lengths"] = f"{lengths[0]} to {lengths[-1]} ({len(lengths)})" if lengths else ""
        lines.append({"series": task.display(line["series"])} | cells)
    head = ["series", "difference", "95 % interval", "seeds paired", "lengths", "p (Holm)", "verdict"]
    note = (
        f"Difference in mean {named} over the lengths beyond the training length, paired by seed, with its t interval. "
        "The verdict rests on p < 0.05 after Holm's correction for all comparisons on this page."
    )
    data = task.compared.assign(lengths=[" ".join(map(str, lengths)) for lengths in task.compared["lengths"]])
    caption = f"Against {task.display(baseline)} beyond the training length, {task.key}"
    return Table(task.stem("comparison"), caption, pd.DataFrame(lines, columns=head), task.with_marks(data), note)


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
