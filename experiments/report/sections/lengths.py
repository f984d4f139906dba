"""What the page says of quality over lengths: curves, tables, comparisons with the baseline."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.length_extrapolation import measure as length_extrapolation
from experiments.report.page import Picture, Section, Table
from experiments.report.sections import reach
from experiments.report.sections.task import LINES, OfTask, opened
from experiments.rows.quality import OVER_LENGTHS
from experiments.rows.row import main_metric, metric_of


def section(of: OfTask) -> Section:
    """Curves, tables and comparisons of every metric over lengths, and where within a sequence the loss lies."""
    section = opened("Length extrapolation", "length_extrapolation")
    summary = of.with_marks(of.lengths)
    if len(of.drawn) > LINES:
        section.paragraphs.append(f"Figures of this section show {LINES} labels; choose others under Curves.")
    drawn = of.rows_of("length_extrapolation", drawn=LINES)
    if of.in_short:
        drawn = drawn[drawn["metric"] == main_metric(summary["metric"].unique())]
    figures = length_extrapolation.plot(drawn)
    for metric in length_extrapolation.QUALITIES:
        of_metric = summary[summary["metric"] == metric]
        if of_metric.empty:
            continue
        stem, named = of.stem(metric), metric_of(metric).label
        how = "free-running" if metric.startswith(length_extrapolation.GENERATED) else "teacher-forced"
        caption = (
            f"{named.partition(',')[0].capitalize()} ({metric_of(metric).unit}) at each length, {how}. Lines: mean "
            "over seeds; bands: 95 % t interval, not cut to the axis. Dashed: the longest length trained on. "
            "Dotted: the best guess without reading the input."
        )
        if stem in figures:
            section.parts.append(Picture(stem, caption, figures[stem]))
        section.parts.append(_length_table(of, stem, named, of_metric))
        if metric == main_metric(summary["metric"].unique()):
            stem = of.stem("reach")
            section.parts.append(reach.table(stem, of.task, of.quality, of.reach, of.areas, of.order, of.name))
            if len(of.compared):
                section.parts.append(_comparison_table(of, named))
    stem = of.stem(length_extrapolation.POSITION_LOSS)
    if stem in figures:
        caption = (
            "Loss at each place of the scored part, teacher-forced, a panel a label and a line a length: where in "
            "a long sequence the answers go wrong. Means over seeds."
        )
        data = summary[summary["metric"] == length_extrapolation.POSITION_LOSS]
        section.parts.append(Picture(stem, caption, figures[stem], data))
    return section


def _length_table(of: OfTask, stem: str, named: str, summary: pd.DataFrame) -> Table:
    lengths = sorted(set(summary["eval_length"]))
    trained = set(summary["train_length"])
    found = {(line["label"], line["eval_length"]): line for line in summary.to_dict("records")}
    head = [f"{length} (trained)" if length in trained else str(length) for length in lengths]
    lines, seeds = [], of.seeds[OVER_LENGTHS]
    for label in of.order:
        if any((label, length) in found for length in lengths):
            cells = [words.cell(found.get((label, length)), seeds[label]) for length in lengths]
            lines.append([of.name(label), str(seeds[label]), *cells])
    chance = summary.groupby("eval_length")["chance"].mean()
    if chance.notna().any():
        lines.append(["guessing without reading", "", *(words.short(chance.loc[length]) for length in lengths)])
    note = "Mean over seeds ± half the 95 % t interval; a single seed has none."
    if (summary["unsupported"] > 0).any():
        note += " Unsupported: the encoder cannot be asked at that length, which is a result, not a gap."
    caption = f"{named.capitalize()} by length, {of.task}"
    return Table(stem, caption, pd.DataFrame(lines, columns=["label", "seeds", *head]), summary, note)


def _comparison_table(of: OfTask, named: str) -> Table:
    baseline, seeds = str(of.compared["baseline"].iloc[0]), of.seeds[OVER_LENGTHS]
    lines = []
    by_label: dict[str, list[Any]] = {}
    for line in of.compared.to_dict("records"):
        by_label.setdefault(line["label"], []).append(line)
    for label in of.order:
        for line in by_label.get(label, []):
            lengths, tested = line["lengths"], line["pairs"] > 1
            lines.append(
                [
                    of.name(label),
                    f"{line['difference']:+.3f}" if line["pairs"] else "",
                    f"{line['low']:+.3f} to {line['high']:+.3f}" if tested else "",
                    f"{line['pairs']} of {max(seeds[label], seeds[baseline])}",
                    f"{lengths[0]} to {lengths[-1]} ({len(lengths)})" if lengths else "",
                    words.p_value(line["p_holm"]),
                    words.said(line["verdict"]),
                ]
            )
    head = ["label", "difference", "95 % interval", "seeds paired", "lengths", "p (Holm)", "verdict"]
    note = (
        f"Difference of the mean {named} over the lengths beyond the training length, label minus baseline, paired "
        "by seed; t interval over seeds. The verdict goes by p below 0.05 after Holm's correction for all "
        "comparisons on this page; the interval is that of the single comparison."
    )
    data = of.compared.assign(lengths=[" ".join(map(str, lengths)) for lengths in of.compared["lengths"]])
    caption = f"Against {of.name(baseline)} beyond the training length, {of.task}"
    return Table(of.stem("comparison"), caption, pd.DataFrame(lines, columns=head), of.with_marks(data), note)
