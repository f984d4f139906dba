"""One task of a report: its rows, the names and order of its series, and the tables that several sections share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.figures import style, words
from experiments.report import documented
from experiments.report.drawing import Axes, Line
from experiments.report.page import Section
from experiments.report.sections import curves, likeness
from experiments.rows.results import Results, from_outside, trained_runs
from experiments.rows.row import OVER_LENGTHS, is_share, metric_of, not_in_parts, whole
from experiments.statistics import comparisons, intervals, sequential
from experiments.statistics.comparisons import WORSE
from experiments.statistics.rule import BEST, Rule
from experiments.statistics.scores import UNLEARNED, scores
from pe_zoo._catalogue import Entry

PICTURED = 10
"""Most tasks that have all their figures; with more tasks, each section shows only its first figure."""
FREE_RUNNING = "generated_token_accuracy"
MEANS = (
    "Mean over seeds [95 % interval, no narrower than the noise of the evaluation, though all seeds agree; none from "
    "one, nor where seeds form two groups]. A series marked † has runs in it "
    "that did not learn."
)
ONE_MODEL = "One model, measured as it is: there are no seeds."


@dataclass
class TaskResults:
    """The results of one task, from which its sections are made.

    Args:
        key: the task as it is named in the rows.
        rows: its rows, with ``series``, ``converged`` and ``look``.
        results: the whole folder.
        baseline: the series that others are compared with; None where nothing was measured beyond training.
        tasks: how many tasks the report has; of more than `PICTURED`, each section shows only its first figure.
        rule: by which seeds were added, and the first of them; None: their number was fixed.
        wanted: whether a reader asked for this baseline.
    """

    key: str
    rows: pd.DataFrame
    results: Results
    baseline: str | None
    tasks: int
    rule: tuple[Rule, int] | None = None
    wanted: bool = False

    def __post_init__(self) -> None:
        self.configs, self.order = self.results.configs, list(style.looks(self.rows))
        self.first_figure_only = self.tasks > PICTURED
        self.runs = self.results.finished[self.results.finished["task"] == self.key]
        self.trained = self.runs[self.runs["run_id"].isin(trained_runs(self.configs))]
        unlearned = self.rows[self.rows["converged"].eq(False)]
        self.not_converged = unlearned.groupby("series")["run_id"].nunique().to_dict()
        self.quality = self.results.quality[self.results.quality["task"] == self.key]
        if self.rule and self.seeks_best and self.asked:  # a reader asks of one series
            self.rule = replace(self.rule[0], question=str(self.baseline)), self.rule[1]
        self.marks, self.relatives = likeness.marks(self.rows, self.configs), likeness.relatives(self.rows)
        self.outside = from_outside(self.runs, self.configs)
        self.means = ONE_MODEL if self.outside and self.runs["seed"].nunique() < 2 else MEANS

    @property
    def label(self) -> str:
        """Its name among the folder's tasks: without its settings, unless another task has the same name."""
        name = self.key.partition("(")[0]
        alike = [key for key in self.results.rows["task"].unique() if str(key).partition("(")[0] == name]
        return name if len(alike) == 1 else self.key

    @property
    def caption(self) -> str:
        """The title of its curve."""
        return f"{self.key}: {metric_of(self.metric).label}{', %,' if is_share(self.metric) else ''} by length"

    @property
    def metric(self) -> str:
        """Its main metric; blank where nothing was measured over lengths."""
        return str(self.quality["metric"].iloc[0]) if len(self.quality) else ""

    @cached_property
    def extensions(self) -> pd.DataFrame:
        """Quality of trained models with a method that extends them; a rule that adds seeds knows none of these."""
        return likeness.extensions(self.rows if self.rule is None else self.rows.head(0), self.quality)

    @cached_property
    def on_other_texts(self) -> list[str]:
        """The methods that could be ranked beside the series, had they read the same texts."""
        return likeness.on_other_texts(self.rows, self.quality) if self.rule is None else []

    @cached_property
    def scores(self) -> pd.DataFrame:
        """What each run keeps of its quality, teacher-forced, see `experiments.statistics.scores`."""
        return scores(pd.concat([self.quality, self.extensions]) if len(self.extensions) else self.quality)

    @cached_property
    def family(self) -> comparisons.Family:
        """The verdict on each pair of series."""
        return self._family(self.scores)

    @cached_property
    def standing(self) -> pd.DataFrame:
        """What each series keeps and its places, best first."""
        return comparisons.standings(self.scores, self.family)

    @cached_property
    def ranked(self) -> pd.DataFrame:
        """Those of the standing that learned the task, which alone have places."""
        return self.standing[self.standing["status"] == "ok"]

    @cached_property
    def free_running(self) -> "pd.Series[float]":
        """What each series keeps free-running; empty where the task generates nothing."""
        rows = whole(self.rows_of(OVER_LENGTHS))
        free = scores(rows[rows["metric"] == FREE_RUNNING])
        return comparisons.standings(free, self._family(free)).set_index("series")["kept"]

    @cached_property
    def against(self) -> pd.DataFrame:
        """Comparisons with the baseline, corrected within the task."""
        return comparisons.against(self.scores, self.family, self.baseline or "")

    @property
    def asked(self) -> bool:
        """Whether how the others compare with the baseline is what the report was asked, by a sweep or a reader."""
        return self.baseline is not None and (self.declared or self.wanted)

    @property
    def seeks_best(self) -> bool:
        """Whether seeds were added to find the best, so that no pair of series has a verdict of its own."""
        return self.rule is not None and self.rule[0].question == BEST

    @property
    def asks_of_each(self) -> bool:
        """Whether something was asked of each series: how it compares with one, or whether it may be the best."""
        return self.asked or self.seeks_best

    @cached_property
    def rivals(self) -> pd.DataFrame:
        """Each series that learned, with its strongest rival, see `sequential.decide`, where the rule seeks the best.

        Empty where fewer than two learned: then nothing was compared.
        """
        if self.rule is None or not self.seeks_best or self.scores.empty:
            return pd.DataFrame(columns=sequential.COLUMNS).set_index("series")
        found = sequential.decide(self.scores, *self.rule).set_index("series")
        learned = found[found["verdict"] != UNLEARNED]
        return learned if len(learned) > 1 else learned.head(0)

    @property
    def possibly_best(self) -> list[str]:
        """The series that may be the best, those that keep most first: with 95 % confidence the best is among them."""
        left = set(self.rivals.index[self.rivals["verdict"] != WORSE])
        return [str(series) for series in self.standing["series"] if series in left]

    @property
    def placed(self) -> bool:
        """Whether verdicts give places: not where the rule asks of one series, or for the best."""
        return not self.declared and not self.seeks_best

    @property
    def about_own(self) -> bool:
        """Whether it was asked how others compare with an encoder of the user's."""
        return self.asked and self.is_own(self.baseline)

    @cached_property
    def waiting(self) -> bool:
        """Whether more of its runs were asked for."""
        return self.results.waits_for(self.key)

    @property
    def declared(self) -> bool:
        """Whether the rule by which seeds were added tests comparisons with one series alone."""
        return self.rule is not None and self.rule[0].of_one_series

    def _family(self, table: pd.DataFrame) -> comparisons.Family:
        return sequential.verdicts(table, self.rule, self.baseline, waiting=self.waiting)

    @cached_property
    def lengths(self) -> pd.DataFrame:
        """Everything measured over lengths when training had ended, summarised over seeds."""
        rows = not_in_parts(self.rows_of(OVER_LENGTHS))
        return intervals.by_measurement(rows[rows["step"].isna()])

    @cached_property
    def seeds(self) -> dict[str, dict[Any, int]]:
        """Experiment -> series -> number of seeds; measures that need no training often have fewer."""
        counts = self.rows.groupby(["experiment", "series"])["seed"].nunique()
        return {str(name): of_experiment.droplevel(0).to_dict() for name, of_experiment in counts.groupby(level=0)}

    def named(self, series: Any) -> str:
        """Return the name of a series with what it is: a control, or an extension that extends nothing."""
        return f"{series}{self.marks.get(series, '')}"

    def display(self, series: Any) -> str:
        """Return the name that readers see: marked if a run of it did not converge."""
        return self.named(series) + style.NOT_CONVERGED * (series in self.not_converged)

    def rows_of(self, experiment: str, *, drawn: bool = False) -> pd.DataFrame:
        """Return the rows of an experiment; those to be ``drawn`` have the display name of their series."""
        rows = self.rows[self.rows["experiment"] == experiment]
        return rows.assign(series=rows["series"].map(self.display)) if drawn else rows

    def kind_of(self, series: Any) -> str:
        """Return the family of a series' encoder, or of the method that extends it; blank if that is unknown or own."""
        if self.is_own(series):
            return ""
        entry = self.catalogue.get(self.encoders.get(series, str(series).partition("(")[0].strip()))
        return str(entry.declared.get("family", "")) if entry else ""

    def is_own(self, series: Any) -> bool:
        """Whether the encoder of a series came from a file of the user's."""
        entry = self.catalogue.get(self.encoders.get(series, ""))
        return bool(entry and entry.declared.get("file"))

    def page_of(self, series: Any) -> str:
        """Return the path of the page of a series' encoder; blank for one that has none."""
        return page_of("encoders", self.encoders[series], self.results) if series in self.encoders else ""

    @cached_property
    def catalogue(self) -> dict[str, Entry]:
        """The encoders as documented, also those from outside."""
        return documented.encoders(self.results.runs)

    @property
    def described(self) -> str:
        """The task's name and its first sentence."""
        entry = documented.tasks(self.results.runs).get(self.key.partition("(")[0])
        return f"Task {self.key}: {entry.sentence.replace('``', '')}" if entry else f"Task {self.key}"

    @cached_property
    def encoders(self) -> dict[str, str]:
        """Series -> its encoder, without a remark behind its name, or the method that extends it."""
        named = self.rows.drop_duplicates("series").set_index("series")["encoder"]
        found = {str(series): str(encoder).partition("(")[0] for series, encoder in named.items()}
        if len(self.extensions):
            found |= {str(name): str(of) for name, of in self.extensions.groupby("series")["method"].first().items()}
        return found

    @cached_property
    def measured(self) -> pd.DataFrame:
        """The main metric over lengths, with that of methods which extend a trained model."""
        parts = [part for part in (self.quality, self.extensions) if len(part)]
        rows = pd.concat(parts) if parts else self.quality
        return rows[rows["status"] == "ok"]

    @cached_property
    def coloured(self) -> list[str]:
        """The series with a colour and a name in pictures."""
        ranked = [str(series) for series in self.standing["series"]] or self.order
        kinds = {series: self.kind_of(series) for series in ranked}
        first = [*filter(self.is_own, ranked), *ranked] if self.about_own else []  # its variants, then the best
        return curves.coloured(ranked, self.baseline, kinds, first)

    @cached_property
    def curves(self) -> list[Line]:
        """The curve of each series, best first."""
        order = list(dict.fromkeys([*map(str, self.standing["series"]), *self.order]))
        kinds = {series: self.kind_of(series) for series in order}
        return curves.lines(self.measured, order, self.coloured, kinds)

    @cached_property
    def axes(self) -> Axes:
        """The axes of the curves."""
        return curves.axes(self.measured)

    @property
    def path(self) -> str:
        """The path of the task's page."""
        return page_of("tasks", self.key, self.results)

    def stem(self, name: str) -> str:
        """Return the name of a file of this task."""
        return f"{style.slug(self.key)}_{name}"

    def with_marks(self, summary: pd.DataFrame) -> pd.DataFrame:
        """Add the number of runs of each series that did not converge."""
        return summary.assign(not_converged=summary["series"].map(lambda series: self.not_converged.get(series, 0)))

    def grid(
        self,
        summary: pd.DataFrame,
        keys: Sequence[str],
        heads: Mapping[Any, str],
        experiment: str,
        written: Callable[[float], str] = "{:.3f}".format,
    ) -> pd.DataFrame:
        """Return a table with one line for each series and one column for each of the values of ``keys``.

        ``heads`` maps the key, or the tuple of several, to the head of its column; the summary is of
        `intervals.over_seeds`, by series and ``keys``. Seeds that the experiment has elsewhere are named as missing.
        """
        at = summary.set_index(["series", *keys]).index.to_flat_index()
        found = dict(zip(at, summary.to_dict("records"), strict=True))
        seeds = self.seeds.get(experiment, {})
        lines = []
        for series in self.order:
            places = [(series, *(key if isinstance(key, tuple) else (key,))) for key in heads]
            if any(place in found for place in places):
                cells = (words.cell(found.get(place), seeds.get(series, 0), written) for place in places)
                lines.append([self.display(series), *cells])
        return pd.DataFrame(lines, columns=["series", *heads.values()])


def page_of(kind: str, name: str, results: Results) -> str:
    """Return the path of the page of one of the ``tasks`` or ``encoders`` of a folder, different for each."""
    names = {str(one) for one in results.runs[kind.removesuffix("s")].dropna()} | {name}
    names = {one.partition("(")[0] for one in names} if kind == "encoders" else names
    alike = [one for one in sorted(names) if style.slug(one).lower() == style.slug(name).lower()]
    number = alike.index(name) + 1
    return f"{kind}/{style.slug(name)}{f'-{number}' * (number > 1)}.html"


def opening(title: str, experiment: str, results: Results) -> Section:
    """Start a section with the question that an experiment asks and how it measures."""
    entry = documented.measures(results.runs).get(experiment)
    return Section(title, [text.replace("``", "") for text in (entry.summary, *entry.paragraphs)] if entry else [])
