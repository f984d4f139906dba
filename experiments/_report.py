"""Rows -> one page: what is said, shown and tabulated about a folder of runs.

Longer than most files here: it is the one place where the words of the page are put together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from inspect import getdoc
from types import ModuleType
from typing import Any

import pandas as pd

from experiments import (
    _claims,
    _claims_page,
    _fair_page,
    _reach,
    _reach_page,
    _stats,
    _style,
    _tasks_page,
    _untrusted,
    _words,
    length_extrapolation,
    permutation_sensitivity,
)
from experiments._page import Page, Picture, Section, Table
from experiments._results import FINISHED, Results
from experiments._table import main_metric, metric_of

MEANS = "Mean over seeds ± half the 95 % t interval; a single seed has none. Every number is in the CSV file."


def build(results: Results, baselines: dict[str, str], claims: list[_claims.Claim]) -> Page:
    """Put the page together.

    Args:
        results: of `experiments._results.load`.
        baselines: of `find_baselines`.
        claims: of `experiments._claims.load`.
    """
    rows, runs = results.rows, results.runs
    title = f"{results.folder.resolve().name}: positional encoders compared"
    sections: list[Section] = []
    summary: list[str] = []
    if len(rows):
        decided = _claims.decide(claims, results)
        sections += _claims_page.sections(decided)
        rows = rows.assign(look=rows["label"].map(_style.looks(rows)))
        order = list(_style.looks(rows))
        side_by_side = _tasks_page.section(rows, order)
        sections += [side_by_side] if side_by_side else []
        many = rows["task"].nunique() >= _tasks_page.MANY
        summary += _tasks_page.said(rows, order) if many else []
        compared = _comparisons(rows, baselines)
        areas = _reach_page.compare(
            {task: _stats.main_quality(rows[rows["task"] == task]) for task in baselines}, baselines
        )
        for task in sorted(set(rows["task"])):
            of_task = _Task(task, rows[rows["task"] == task], results, compared[compared["task"] == task])
            of_task.areas = areas.get(task)
            of_task_sections = of_task.sections()
            (of_task_sections[0].paragraphs if many else summary).extend(of_task.summary())
            sections += of_task_sections
        summary += _claims_page.said(decided)
    else:
        summary.append("No run has finished with rows that can be read: there is nothing to compare yet.")
    sections.append(_runs_section(runs))
    sections.append(_provenance_section(runs, results.settings))
    return Page(
        title,
        summary + _marked(runs),
        _warnings(results),
        _method(rows) + _fair_page.method(runs, results.configs),
        sections,
    )


def find_baselines(results: Results, wanted: str | None = None) -> dict[str, str]:
    """Task -> the label that the others are compared with, for every task that was measured beyond its training length.

    Args:
        results: of `experiments._results.load`.
        wanted: a label, or an encoder that has only one; None: the encoder ``none``, or else the first label.

    Raises:
        ValueError: no task has what is wanted.
    """
    beyond = _beyond(results.rows)
    found, misses = {}, []
    for task in sorted(set(beyond["task"])):
        of_task = beyond[beyond["task"] == task]
        try:
            found[task] = _stats.default_baseline(of_task) if wanted is None else _stats.find_baseline(of_task, wanted)
        except ValueError as error:
            misses.append(error)
    if misses and not found:
        raise misses[0]
    return found


def _comparisons(rows: pd.DataFrame, baselines: dict[str, str]) -> pd.DataFrame:
    """Every comparison of the page, corrected together: all tasks, their main metric, beyond the training length."""
    beyond = _beyond(rows)
    lines = []
    for task, baseline in baselines.items():
        of_task = beyond[beyond["task"] == task]
        lines.append(_stats.compare(of_task, baseline).assign(task=task, metric=str(of_task["metric"].iloc[0])))
    lines = [table for table in lines if len(table)]
    if not lines:
        return pd.DataFrame(columns=["task", "metric", "label", "baseline", "verdict"])
    table = pd.concat(lines, ignore_index=True)
    table["p_holm"] = _stats.holm(list(table["p"]))
    table["verdict"] = [
        _stats.verdict(line["metric"], line["difference"], line["p_holm"]) if line["status"] == "ok" else line["status"]
        for line in table.to_dict("records")
    ]
    return table


def _beyond(rows: pd.DataFrame) -> pd.DataFrame:
    """Each task's main metric at the lengths it was not trained on."""
    quality = _stats.main_quality(rows)
    return quality[quality["eval_length"] > quality["train_length"]]


class _Task:
    """What the page says of one task."""

    areas: pd.DataFrame | None = None
    """Comparisons of areas, see `_reach_page.compare`."""

    def __init__(self, task: str, rows: pd.DataFrame, results: Results, compared: pd.DataFrame) -> None:
        self.task, self.compared, self.configs = task, compared, results.configs
        self.runs = results.runs[(results.runs["task"] == task) & results.runs["status"].isin(FINISHED)]
        failing = rows[rows["converged"].map(lambda judged: judged is False)]
        self.not_converged = failing.groupby("label")["run_id"].nunique().to_dict()
        self.rows = rows
        self.drawn = rows.assign(label=rows["label"].map(self.name))
        for column in ("label", "encoder", "task", "positions", "condition", "run_id"):
            # What stands between two dollars is typeset, and refused where it cannot be.
            self.drawn[column] = self.drawn[column].str.replace("$", r"\$", regex=False)
        self.order = list(_style.looks(rows))
        self.seeds = rows.groupby("label")["seed"].nunique().to_dict()

    def name(self, label: Any) -> str:
        """The label as it is shown: marked if a run of it did not converge."""
        return f"{label}{_style.NOT_CONVERGED}" if label in self.not_converged else str(label)

    def of(self, experiment: str, *, drawn: bool = False) -> pd.DataFrame:
        rows = self.drawn if drawn else self.rows
        return rows[rows["experiment"] == experiment]

    def stem(self, name: str) -> str:
        return f"{_style.slug(self.task)}_{name}"

    def with_marks(self, summary: pd.DataFrame) -> pd.DataFrame:
        return summary.assign(not_converged=summary["label"].map(lambda label: self.not_converged.get(label, 0)))

    # ---- words ----------------------------------------------------------------------------------

    def summary(self) -> list[str]:
        quality = _stats.main_quality(self.rows)
        if quality.empty:
            return [f"On {self.task}, quality over lengths was not measured."]
        summary = length_extrapolation.summarise(quality)
        main = str(summary["metric"].iloc[0])
        metric = metric_of(main).label
        reach = _reach.reach(summary)
        low, high = min(self.seeds.values()), max(self.seeds.values())
        seeds = f"{low} to {high} seeds each" if low != high else f"{high} seed{'s' * (high > 1)} each"
        trained, longest = sorted(set(reach["train_length"])), int(reach["longest"].max())
        said = [
            f"On {self.task}, trained up to length {_words.listed(trained)} and measured up to {longest} "
            f"({longest / trained[0]:.3g} times that), with {_words.count(len(self.order), 'label')} of {seeds}."
        ]
        clauses = []
        for (multiple, held), group in reach.groupby(["multiple", "reach"], sort=True):
            names = _words.listed(self.name(label) for label in self.order if label in set(group["label"]))
            if multiple == 1:
                clauses.append(f"nowhere beyond it by {names}")
            else:
                ending = ", the longest measured" if held == longest else ""
                clauses.append(f"up to {multiple:.3g} times it (length {held:.0f}{ending}) by {names}")
        if longest <= trained[-1]:
            said.append("Lengths beyond the training length were not measured.")
        elif clauses:
            kept = f"At least {_reach.KEEPS:.0%} of the {metric} within the training length is kept"
            if not metric_of(main).higher_is_better:
                kept = f"No more than {1 / _reach.KEEPS:.2f} times the {metric} within the training length is reached"
            said.append(f"{kept} {'; '.join(reversed(clauses))}.")
        if unmeasured := reach.loc[reach["multiple"].isna(), "label"].tolist():
            said.append(
                f"Nothing within the training length was measured of {_words.listed(map(self.name, unmeasured))}."
            )
        said += _reach_page.said(quality, self.order, self.name)
        return [" ".join(said), *self._verdicts(metric)]

    def _verdicts(self, metric: str) -> list[str]:
        if self.compared.empty:
            return []
        baseline = str(self.compared["baseline"].iloc[0])
        parts = []
        for verdict in dict.fromkeys(["better", "worse", _stats.NOT_SEPARABLE, *self.compared["verdict"]]):
            labels = set(self.compared.loc[self.compared["verdict"] == verdict, "label"])
            if labels:
                names = _words.listed(self.name(label) for label in self.order if label in labels)
                parts.append(f"{names} {_words.said(verdict)}")
        said = f"On {self.task} beyond the training length, mean {metric} against {self.name(baseline)}: "
        said += f"{'; '.join(parts)}."
        if max(self.seeds.values()) < 2:
            said += " One seed gives no interval: nothing can be told apart by it."
        return [said]

    # ---- sections -------------------------------------------------------------------------------

    def sections(self) -> list[Section]:
        found = [Section(f"Task {self.task}")]
        parts: dict[str, Callable[[], Section]] = {
            "length_extrapolation": self._length_extrapolation,
            "permutation_sensitivity": self._permutation_sensitivity,
            "training": self._training,
            "tuning": self._tuning,
        }
        present = list(dict.fromkeys(self.rows["experiment"]))
        for experiment in [*parts, *sorted(set(present) - set(parts))]:
            if experiment in present:
                section = _attempt(experiment, parts.get(experiment, partial(self._other, experiment)))
                section.level = 3
                found.append(section)
        found.append(self._cost())
        return found

    def _length_extrapolation(self) -> Section:
        section = _opened("Length extrapolation", length_extrapolation)
        rows = self.of("length_extrapolation")
        summary = self.with_marks(length_extrapolation.summarise(rows))
        figures = length_extrapolation.plot(self.of("length_extrapolation", drawn=True))
        for metric in length_extrapolation.QUALITIES:
            of_metric = summary[(summary["metric"] == metric) & (summary["condition"] == "")]
            if of_metric.empty:
                continue
            stem, named = self.stem(metric), metric_of(metric).label
            how = "free-running" if metric.startswith(length_extrapolation.GENERATED) else "teacher-forced"
            caption = (
                f"{named.partition(',')[0].capitalize()} ({metric_of(metric).unit}) at each length, {how}. Lines: mean "
                "over seeds; bands: 95 % t interval, not cut to the axis. Dashed: the longest length trained on. "
                "Dotted: the best guess without reading the input."
            )
            section.parts.append(Picture(stem, caption, figures[stem]))
            section.parts.append(self._length_table(stem, named, of_metric))
            if metric == main_metric(summary["metric"]):
                quality, stem = _stats.main_quality(self.rows), self.stem("reach")
                section.parts.append(_reach_page.table(stem, self.task, quality, self.areas, self.order, self.name))
                if len(self.compared):
                    section.parts.append(self._comparison_table(named))
        stem = self.stem(length_extrapolation.POSITION_LOSS)
        if stem in figures:
            caption = (
                "Loss at each place of the scored part, teacher-forced, a panel a label and a line a length: where in "
                "a long sequence the answers go wrong. Means over seeds."
            )
            data = summary[summary["metric"] == length_extrapolation.POSITION_LOSS]
            section.parts.append(Picture(stem, caption, figures[stem], data))
        return section

    def _length_table(self, stem: str, named: str, summary: pd.DataFrame) -> Table:
        lengths = sorted(set(summary["eval_length"]))
        trained = set(summary["train_length"])
        found = {(line["label"], line["eval_length"]): line for line in summary.to_dict("records")}
        head = [f"{length} (trained)" if length in trained else str(length) for length in lengths]
        lines = []
        for label in self.order:
            if any((label, length) in found for length in lengths):
                cells = [_words.cell(found.get((label, length)), self.seeds[label]) for length in lengths]
                lines.append([self.name(label), str(self.seeds[label]), *cells])
        chance = summary.groupby("eval_length")["chance"].mean()
        if chance.notna().any():
            lines.append(["guessing without reading", "", *(_words.short(chance.loc[length]) for length in lengths)])
        note = "Mean over seeds ± half the 95 % t interval; a single seed has none."
        if (summary["unsupported"] > 0).any():
            note += " Unsupported: the encoder cannot be asked at that length, which is a result, not a gap."
        caption = f"{named.capitalize()} by length, {self.task}"
        return Table(stem, caption, pd.DataFrame(lines, columns=["label", "seeds", *head]), summary, note)

    def _comparison_table(self, named: str) -> Table:
        baseline = str(self.compared["baseline"].iloc[0])
        lines = []
        for label in self.order:
            for line in self.compared[self.compared["label"] == label].to_dict("records"):
                lengths, tested = line["lengths"], line["pairs"] > 1
                lines.append(
                    [
                        self.name(label),
                        f"{line['difference']:+.3f}" if line["pairs"] else "",
                        f"{line['low']:+.3f} to {line['high']:+.3f}" if tested else "",
                        f"{line['pairs']} of {max(self.seeds[label], self.seeds[baseline])}",
                        f"{lengths[0]} to {lengths[-1]} ({len(lengths)})" if lengths else "",
                        _words.p_value(line["p_holm"]),
                        _words.said(line["verdict"]),
                    ]
                )
        head = ["label", "difference", "95 % interval", "seeds paired", "lengths", "p (Holm)", "verdict"]
        note = (
            f"Difference of the mean {named} over the lengths beyond the training length, label minus baseline, paired "
            "by seed; t interval over seeds. The verdict goes by p below 0.05 after Holm's correction for all "
            "comparisons on this page; the interval is that of the single comparison."
        )
        data = self.compared.assign(lengths=[" ".join(map(str, lengths)) for lengths in self.compared["lengths"]])
        caption = f"Against {self.name(baseline)} beyond the training length, {self.task}"
        return Table(self.stem("comparison"), caption, pd.DataFrame(lines, columns=head), self.with_marks(data), note)

    def _permutation_sensitivity(self) -> Section:
        section = _opened("Permutation sensitivity", permutation_sensitivity)
        rows = self.of("permutation_sensitivity")
        summary = self.with_marks(permutation_sensitivity.summarise(rows))
        figures = permutation_sensitivity.plot(self.of("permutation_sensitivity", drawn=True))
        errors = summary[summary["metric"].isin(["initial_equivariance_error", "equivariance_error"])]
        slopes = summary[summary["metric"].isin(permutation_sensitivity.SLOPES.values())]
        for name, caption in permutation_sensitivity.CAPTIONS.items():
            if (stem := self.stem(name)) in figures:
                data = summary[summary["metric"].str.endswith(name)] if name == "representation_change" else None
                section.parts.append(Picture(stem, caption, figures[stem], data))
            if name == "quality_loss":
                section.parts += self._permutation_tables(rows, summary)
            if name == "sensitivity" and len(slopes):
                section.parts.append(self._sensitivity_table(slopes))
        if len(errors):
            section.parts.append(self._equivariance_table(errors))
        return section

    def _permutation_tables(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Table]:
        """Quality lost by permuted tokens, and by permuted positions where that was measured."""
        found = {(r["metric"], r["condition"], r["label"]): r for r in summary.to_dict("records")}
        distances = rows[rows["metric"].isin(permutation_sensitivity.DISTANCES)]
        moved = distances.groupby(["metric", "condition"])["value"].mean().to_dict()
        prefix = f"{permutation_sensitivity.POSITIONS}: "
        lines: dict[bool, list[list[str]]] = {False: [], True: []}
        for condition in permutation_sensitivity.order(rows):
            lost = [
                _words.cell(found.get(("quality_loss", condition, label)), self.seeds[label]) for label in self.order
            ]
            if any(cell != _words.NOT_MEASURED for cell in lost):
                far = [_words.short(moved.get((metric, condition))) for metric in permutation_sensitivity.DISTANCES]
                line = [condition.removeprefix(prefix), *far, *lost]
                lines[condition.startswith(prefix)].append(line)
        head = ["change of order", *(metric_of(m).label for m in permutation_sensitivity.DISTANCES)]
        head += map(self.name, self.order)
        metric = main_metric(summary["metric"])
        of_what = f" of {metric_of(metric).label}" if metric else ""
        note = (
            f"Quality lost{of_what} against the untouched input: positive is worse. Mean over seeds ± half the 95 % t "
            "interval. Index displacement: mean distance moved over the length. Neighbours lost: share of adjacent "
            "pairs that no longer follow one another."
        )
        stem, tokens = self.stem("permutation_sensitivity"), pd.DataFrame(lines[False], columns=head)
        tables = [Table(stem, f"Quality lost, {self.task}", tokens, summary, note)]
        if lines[True]:
            cells, caption = pd.DataFrame(lines[True], columns=head), f"Quality lost by permuted positions, {self.task}"
            data = summary[summary["condition"].str.startswith(prefix)]
            tables.append(Table(self.stem("permuted_positions"), caption, cells, data, note))
        return tables

    def _sensitivity_table(self, slopes: pd.DataFrame) -> Table:
        """The slopes, with their interval over seeds, or over inputs where there is one seed."""
        found = {(line["metric"], line["condition"], line["label"]): line for line in slopes.to_dict("records")}
        kinds = (permutation_sensitivity.TOKENS, permutation_sensitivity.POSITIONS)
        columns = [(metric, kind) for kind in kinds for metric in permutation_sensitivity.SLOPES.values()]
        lines = []
        for label in self.order:
            cells, over = [], set()
            for metric, kind in columns:
                line = found.get((metric, kind, label))
                cells.append(_words.cell(line, self.seeds[label]))
                if line is not None and line["interval_over"]:
                    over.add(line["interval_over"])
                    if line["interval_over"] == "inputs":
                        cells[-1] += f" ± {line['half_width']:.3f}"
            if any(cell != _words.NOT_MEASURED for cell in cells):
                lines.append([self.name(label), *cells, " and ".join(sorted(over))])
        head = ["label", *(f"{metric_of(metric).label}, {kind}" for metric, kind in columns), "interval over"]
        note = (
            "Quality lost per unit of distance ± half the 95 % t interval. Over seeds the interval holds for other "
            "trainings and other inputs; over inputs, eight parts of one seed's, it says nothing of other trainings."
        )
        cells_frame = pd.DataFrame(lines, columns=head)
        return Table(self.stem("order_sensitivity"), f"Sensitivity to order, {self.task}", cells_frame, slopes, note)

    def _equivariance_table(self, summary: pd.DataFrame) -> Table:
        found = {(line["metric"], line["condition"], line["label"]): line for line in summary.to_dict("records")}
        conditions = [name for name in permutation_sensitivity.LAYERED if name in set(summary["condition"])]
        stages = {"initial_equivariance_error": "at initialisation", "equivariance_error": "trained"}
        columns = [(metric, condition) for condition in conditions for metric in stages]
        lines = [
            [
                self.name(label),
                *(_words.cell(found.get((*column, label)), self.seeds[label], _words.short) for column in columns),
            ]
            for label in self.order
            if any((*column, label) in found for column in columns)
        ]
        note = (
            "Whether permuting the input's tokens merely permutes the outputs: about 1e-7 (rounding) where it does, "
            "which is a model that cannot see order. A causal mask sees order even without an encoder."
        )
        head = ["label", *(f"{condition}, {stages[metric]}" for metric, condition in columns)]
        cells = pd.DataFrame(lines, columns=head)
        return Table(self.stem("equivariance_error"), f"Equivariance error, {self.task}", cells, summary, note)

    def _training(self) -> Section:
        figures = _style.training_curves(self.of("training", drawn=True))
        caption = "Training loss (averaged since the point before) and accuracy on held-out data of training length."
        rows = self.of("training")
        data = self.with_marks(_stats.over_seeds(rows, ["task", "metric", "label", "condition"]))
        return Section("Training", parts=[Picture(stem, caption, figure, data) for stem, figure in figures.items()])

    def _other(self, experiment: str) -> Section:
        """An experiment that this file knows nothing of: what its own module draws, sums up and puts first."""
        rows = self.of(experiment)
        title = experiment.replace("_", " ").capitalize()
        stem, caption = self.stem(_style.slug(experiment)), f"{title}, {self.task}"
        module = _experiment(experiment)
        if module is None:
            summary = _stats.by_measurement(rows)
            cells = summary.map(lambda value: _words.short(value) if isinstance(value, float) else str(value))
            return Section(title, parts=[Table(stem, caption, cells, summary)])
        section = _opened(title, module)
        for drawn, figure in module.plot(self.of(experiment, drawn=True)).items():
            section.parts.append(Picture(drawn, module.CAPTIONS[drawn.removeprefix(self.stem(""))], figure))
        summary = self.with_marks(module.summarise(rows))
        section.parts.append(Table(stem, caption, self._by_head(module.shown(rows)), summary, MEANS))
        return section

    def _by_head(self, shown: pd.DataFrame) -> pd.DataFrame:
        """Labels down, the heads that an experiment gave its rows across."""
        heads = list(dict.fromkeys(shown["head"]))
        found = {
            (line["label"], line["head"]): line
            for line in _stats.over_seeds(shown, ["label", "head"]).to_dict("records")
        }
        lines = [
            [
                self.name(label),
                *(_words.cell(found.get((label, head)), self.seeds[label], _words.short) for head in heads),
            ]
            for label in self.order
            if any((label, head) in found for head in heads)
        ]
        return pd.DataFrame(lines, columns=["label", *heads])

    def _tuning(self) -> Section:
        return _fair_page.tuning(self.runs, self.order, self.name, self.stem("tuning"), self.task)

    def _cost(self) -> Section:
        columns = ["encoder_parameters", "model_parameters", "steps", "train_seconds", "tokens_per_second"]
        numbers = self.runs[["label"]].join(self.runs[columns].apply(pd.to_numeric, errors="coerce"))
        data = numbers.groupby("label")[columns].mean().reindex(self.order).reset_index()
        records = data.to_dict("records")
        lines = [[self.name(line["label"]), *(_words.number(line[column]) for column in columns)] for line in records]
        head = ["label", *(column.replace("_", " ") for column in columns)]
        note = "Means over seeds. Seconds and tokens per second are those of training, on the machine of the run."
        table = Table(
            self.stem("training_cost"), f"Training cost, {self.task}", pd.DataFrame(lines, columns=head), data, note
        )
        beyond, stem = _beyond(self.rows), self.stem("controls")
        said, controls = _fair_page.controls(self.runs, self.configs, beyond, self.order, self.name, stem, self.task)
        return Section("Training cost", said, [table, *controls], level=3)


# ---- what is said of the folder as a whole --------------------------------------------------------


def _method(rows: pd.DataFrame) -> list[str]:
    said = [
        "Every encoder was trained in the same model, on the same data in the same order for a seed, and measured "
        "teacher-forced, one length a batch.",
        "Intervals are 95 % Student's t intervals of the mean over seeds, not cut to the range of the metric; "
        "comparisons are paired by seed and corrected by Holm's method for all that were made.",
    ]
    if (rows["metric"] == "exact_match").any():
        said.insert(
            1,
            "Exact match is the same teacher-forced as free-running: up to the first wrong token both have read the "
            "same, and the first wrong token decides.",
        )
    if (rows["metric"] == "bits_per_byte").any():
        said.insert(
            1,
            "Text is scored in separate windows, every byte given the true bytes before it in its window, unless a "
            "section says otherwise.",
        )
    return said


def _marked(runs: pd.DataFrame) -> list[str]:
    said = []
    failing = runs[runs["converged"].map(lambda judged: judged is False)]
    if len(failing):
        said.append(
            f"{_words.count(len(failing), 'run')} did not learn the task within the training length, marked †: "
            f"{_words.few(failing['run_id'])}. What they do beyond it says little about their encoder."
        )
    diverged = runs[runs["status"] == "diverged"]
    if len(diverged):
        said.append(f"{_words.count(len(diverged), 'run')} diverged: {_words.few(diverged['run_id'])}.")
    without = runs[~runs["status"].isin(FINISHED)]
    if len(without):
        named = [f"{run} ({status})" for run, status in zip(without["run_id"], without["status"], strict=True)]
        counted = _words.count(len(without), "run")
        said.append(f"{counted} without rows, and so in no number here, see Runs: {_words.few(named)}.")
    return said


def _warnings(results: Results) -> list[str]:
    """That something is lacking yet, and where runs that are put side by side were not made alike."""
    finished = results.runs[results.runs["status"].isin(FINISHED)]
    said = _unfinished(results)
    for column in ("torch", "python", "device", "precision", "threads", "commit"):
        said += _differing(column, finished["label"], finished[column])
    packages = [value if isinstance(value, dict) else {} for value in finished["packages"]]
    for name in sorted({name for versions in packages for name in versions}):
        said += _differing(name, finished["label"], [versions.get(name) for versions in packages])
    configs = [results.configs[run] for run in finished["run_id"]]
    plugins = [config.get("plugin", "null") for config in configs]
    said += _differing("plugin (sha256)", finished["label"], [None if p == "null" else p[:12] for p in plugins])
    tasks = finished["task"].map(str)
    corpora = [_corpus(value) or None for value in finished["corpus"]]
    said += _differing("their corpus", finished["label"], corpora, tasks)
    for key in sorted({key for config in configs for key in config if key.startswith("train.")}):
        said += _differing(key, finished["label"], [config.get(key) for config in configs], tasks)
    return said


def _unfinished(results: Results) -> list[str]:
    """That runs are missing or have not ended, for their numbers may change what is said here."""
    waiting = results.runs["status"].isin(("running", "interrupted", "unfinished")).sum() + len(results.missing)
    if not waiting:
        return []
    asked = len(results.runs) + len(results.missing)
    ended = results.runs["status"].isin(FINISHED).sum()
    return [
        f"Unfinished: {ended} of {asked} runs have ended with rows, {waiting} have not ended or not begun. What is "
        "said here rests on the former alone; report.py --status tells which, and how to complete them."
    ]


def _differing(
    what: str, labels: Iterable[Any], values: Iterable[Any], tasks: Iterable[str] = itertools.repeat("")
) -> list[str]:
    """What differs, and which labels have which value; within each task where ``tasks`` are given."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for label, value, task in zip(labels, values, tasks, strict=False):  # without tasks, as many blanks as it takes
        if value is not None:
            found.setdefault(task, {}).setdefault(str(value), {})[str(label)] = None
    said: dict[str, list[str]] = {}
    for task, by_value in found.items():
        if len(by_value) > 1:
            parts = [f"{value} ({_words.few(by_value[value])})" for value in sorted(by_value)]
            said.setdefault(_words.few(parts), []).append(task)
    whose = {parts: f" of {_words.few(tasks)}" if tasks != [""] else "" for parts, tasks in said.items()}
    return [f"The runs{whose[parts]} differ in {what}: {parts}." for parts in said]


def _corpus(value: Any) -> str:
    return str(value.get("sha256") or "")[:12] if isinstance(value, dict) else ""


def _runs_section(runs: pd.DataFrame) -> Section:
    judged = {True: "yes", False: "no †"}
    lines = []
    ordered = runs.sort_values(["task", "label", "seed", "run_id"], key=lambda column: column.map(str))
    for run in ordered.to_dict("records"):
        status = f"{run['status']}: {run['message']}" if run["message"] else str(run["status"])
        numbers = ("in_range", "final_loss")
        counts = ("encoder_parameters", "model_parameters", "train_seconds", "measure_seconds", "tokens_per_second")
        lines.append(
            [
                *(_words.text(run[key]) for key in ("run_id", "label", "task", "seed")),
                status,
                *(_words.short(run[key]) for key in numbers),
                judged.get(run["converged"], "not judged"),
                *(_words.number(run[key]) for key in counts),
            ]
        )
    head = ["run", "label", "task", "seed", "status", "in range", "final loss", "converged"]
    head += ["encoder parameters", "model parameters", "train seconds", "measure seconds", "tokens per second"]
    note = "In range: the task's main metric at the training length. Final loss: nats per token."
    cells = pd.DataFrame(lines, columns=head)
    data = runs.drop(columns=["corpus", "tuning", "packages"])
    return Section("Runs", parts=[Table("runs", "Every run of the folder", cells, data, note)])


def _provenance_section(runs: pd.DataFrame, settings: dict[str, dict[str, str]]) -> Section:
    section = Section("Provenance")
    lines = []
    for column in ("torch", "python", "device", "precision", "threads", "commit"):
        values = sorted({str(value) for value in runs[column] if value is not None})
        lines.append([column, ", ".join(values) or "unknown"])
    packages = [value for value in runs["packages"] if isinstance(value, dict)]
    for name in sorted({name for versions in packages for name in versions}):
        lines.append([name, ", ".join(sorted({str(versions[name]) for versions in packages if name in versions}))])
    corpora = sorted({f"{_corpus(v)}… ({v.get('bytes')} bytes)" for v in runs["corpus"] if isinstance(v, dict)})
    if corpora:
        lines.append(["corpus (sha256)", ", ".join(corpora)])
    for word, column, pick in (("first run started", "started", min), ("last run finished", "finished", max)):
        times = [str(value) for value in runs[column] if value is not None]
        lines.append([word, pick(times) if times else "unknown"])
    commands = sorted({str(value) for value in runs["command"] if value is not None})
    section.paragraphs += [f"Made by: {command}" for command in commands[:3]]
    if len(commands) > 3:
        section.paragraphs.append(f"and {_words.count(len(commands) - 3, 'more command')}, listed in tables/runs.csv.")
    cells = pd.DataFrame(lines, columns=["what", "value"])
    section.parts.append(Table("provenance", "What the numbers were made with", cells, cells))
    shared = [[task, key, value] for task, keys in settings.items() for key, value in keys.items()]
    if shared:
        cells = pd.DataFrame(shared, columns=["task", "setting", "value"])
        note = "What varies among the runs of a task is part of their labels."
        section.parts.append(Table("settings", "Settings that all runs of a task share", cells, cells, note))
    return section


def _experiment(name: str) -> ModuleType | None:
    """The experiment's module, if there is one by that name that can draw and sum up."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    try:
        module = import_module(f"experiments.{name}")
    except ModuleNotFoundError:
        return None
    return module if hasattr(module, "plot") and hasattr(module, "summarise") else None


def _attempt(experiment: str, make: Callable[[], Section]) -> Section:
    """What an experiment's rows show, or why they cannot be shown: nonsense in one does not take the page along."""
    try:
        return make()
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        said = _untrusted.name_of(" ".join(str(error).split()))
        return Section(experiment, [f"The rows of {experiment} cannot be shown: {type(error).__name__}: {said}"])


def _opened(title: str, module: ModuleType) -> Section:
    """A section that opens with the question its experiment asks and how it goes about it."""
    return Section(title, [" ".join(part.split()) for part in (getdoc(module) or "").split("\n\n") if part.strip()])
