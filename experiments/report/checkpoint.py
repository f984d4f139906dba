"""The page of models from outside, of which each is one: how far they read, how sure that is, and the lines to type."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import AS_TRAINED, DROPPED, LIMITS, TEXTS
from experiments.measures.context_extension import NAME as EXTENDED
from experiments.measures.context_extension.answer import Answer, answer
from experiments.measures.context_extension.conditions import UNCHANGED, named
from experiments.measures.context_extension.ranking import Ranking, content, difference, level, number, times_of
from experiments.measures.retrieval.answer import MEASURES
from experiments.measures.retrieval.answer import Answer as Places
from experiments.measures.retrieval.answer import answer as answer_places
from experiments.report import drawing
from experiments.report.page import Block, Part, Picture, Section, Table
from experiments.rows.read import used_as
from experiments.rows.results import Results
from experiments.rows.row import OVER_LENGTHS, is_share, main_quality, metric_of

COLOURED = 6
"""Most methods with a colour and a name in the curves."""
NOTE = (
    "Best first. 95 % intervals: Student's t over {blocks} contiguous blocks of the text, the same for every method. "
    "Differences are paired, so that they are surer than the levels. p after Holm's correction over the methods. "
    "Intervals have no such correction, so that one may exclude 0 where p is above .05. "
)
SCOPE = "They say how the methods compare on text like this one, with this model; nothing of other models."
SAVED = (
    "At {trained}, as saved: the training length, read with the factor that a model saved for {length} has; "
    "everything else is measured with the factor of its own length. "
)
TIME = (
    "Reading time: of a few pieces, in turn with the unchanged model; median of six ratios, to one digit, on this "
    "machine; 1 where a method was faster in some readings and slower in others. "
)
DISTANT = (
    "Best first. Last quarter: bits per byte of the last quarter of each piece, which has the most text before it; "
    "intervals and p as above. A window attends to nothing further back than {window} tokens. A difference from it "
    "below 0 shows that distant text helps, by more than the method costs. "
)
CONTENT = (
    "Lost with other text there: bits per byte that the last tokens of each piece lose where the text further back is "
    "replaced by other text; measured of the three best methods, the window and the model unchanged; 95 % intervals "
    "with Bonferroni's correction over these. A model that reads such lengths badly may lose much. Layers of a "
    "window pass on what those below saw, so that some of it comes through. "
)
SEVERAL = {
    r" The same index is taken of the influence of each input place .* of the architecture itself\.": "",
    r" All encoders, [^.]* on top\.": "",
    r", mean over seeds| Mean over seeds[.;]| Thick: mean, thin: seeds\.| Small dots: seeds\.": "",
    r" Thick: mean, thin: seeds; shaded:": " Shaded:",
    r", the same for every encoder of a seed|, before training and after": "",
    r"Does an encoder that was trained on short sequences still work on long ones\?": (
        "Does the model still work on sequences longer than those that it was trained on?"
    ),
    r"Possible replacements are": "Replacements are",
    r"(?<=\(sliding\), where all tokens have about the same\. )": (
        "These windows are not those that other sections of this page read, so that their bits differ a little. "
    ),
}
"""Patterns of sentences on several models and seeds, and their wording for one model."""
OF_TRAINING = ("final loss", "converged", "encoder parameters", "train seconds", "tokens per second")
"""Columns of the table of runs that say nothing of a model that was not trained here."""


def of_one(section: Section) -> Section:
    """Return a section with what it says of seeds and of several encoders left out."""
    parts: list[Part] = []
    for part in section.parts:
        kept = replace(part, caption=_of_one(part.caption)) if isinstance(part, Picture) else part
        if isinstance(part, Table) and part.stem == "runs":
            kept = replace(part, cells=part.cells.drop(columns=list(OF_TRAINING), errors="ignore"), note="")
        parts.append(kept)
    return replace(section, paragraphs=list(map(_of_one, section.paragraphs)), parts=parts)


def _of_one(text: str) -> str:
    for several, one in SEVERAL.items():
        text = re.sub(several, one, text)
    return text


def _first_runs(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the first run of each model on a task, and its rows: one model has one answer."""
    for _, of_series in rows.groupby(["task", "series"], sort=False):
        first = of_series.sort_values("seed", kind="stable").iloc[0]
        yield str(first["run_id"]), of_series[of_series["run_id"] == first["run_id"]]


def answers(results: Results) -> list[Answer]:
    """Return the answer of each model and task that was measured beyond its length, with its own blocks."""
    records = {record["run_id"]: record for record in results.runs.to_dict("records")}
    found = []
    for run, measured in _first_runs(results.rows[results.rows["experiment"] == EXTENDED]):
        task = results.configs.get(run, {})
        text = next((f"{knob}={task[knob]}" for knob in TEXTS if task.get(knob, "null") != "null"), None)
        found.append(answer(measured, records[run], text))
    return [*filter(None, found)]


def places(results: Results) -> dict[str, list[Places]]:
    """Return by task what each model's rows say of where it finds things."""
    found: dict[str, list[Places]] = {}
    for _, measured in _first_runs(results.rows[results.rows["experiment"].isin(MEASURES)]):
        if told := answer_places(measured):
            found.setdefault(str(measured["task"].iloc[0]), []).append(told)
    return found


def heading(results: Results, found: Sequence[Answer], placed: Sequence[Places]) -> str:
    """Return the heading of the folder's page."""
    if found:
        return found[0].heading
    models = words.listed(dict.fromkeys(map(str, results.finished["encoder"])))
    quality = main_quality(results.rows)
    quality = quality[quality["status"] == "ok"].sort_values("eval_length")
    if quality.empty:
        return placed[0].heading if placed else f"{models}, measured as it is"
    last, metric = quality.iloc[-1], str(quality["metric"].iloc[0])
    if quality["run_id"].nunique() > 1:
        ends = quality.drop_duplicates("series", keep="last")
        unit = "%" if is_share(metric) else metric_of(metric).label
        levels = {str(line["series"]): number(line["value"], metric) for line in ends.to_dict("records")}
        each = (f"{series} {told.removesuffix(unit).rstrip()}" for series, told in levels.items())
        return f"Models as they are, {unit} at {last['eval_length']}: {words.few(each)}"
    inside = quality[quality["eval_length"] == quality["train_length"]]["value"]
    held = next(
        (f", with {held} by pe_zoo.hf.use" for held in map(used_as, results.runs.to_dict("records")) if held), ""
    )
    text = f"{last['encoder']}{held}, trained to {last['train_length']}, as it is: "
    text += f"{number(inside.iloc[0], metric)} there, " if len(inside) else ""
    return f"{text}{number(last['value'], metric)} at {last['eval_length']}"


def sections(results: Results, found: Sequence[Answer], placed: Sequence[Places]) -> list[Section]:
    """Return the sections that answer: what to do, the lines to type, methods ranked, and where things are found."""
    made: list[Section] = []
    if not found and OVER_LENGTHS in set(results.rows["experiment"]):
        command = "python run.py checkpoint=… experiment=context_extension"
        text = f"No method to read a longer text was measured: add {EXTENDED} to experiment= ({command} …)."
        made.append(Section("What to do", [text]))
    for place, told in enumerate(found):
        title = "What to do" if place == 0 else told.heading
        parts: list[Part] = [Block("code", told.code)] if told.code else []
        if told.command:
            parts.append(Block("code", [f"# {told.next}", told.command]))
        made.append(Section(title, told.advice, parts))
        if told.evidence:
            made.append(Section("The evidence", told.evidence))
            if place == 0 and told.rankings:
                made[-1].parts += [Block("curves", each) for each in _curves(results, told)]
        for ranking in told.rankings:
            at = f"The methods at {ranking.length}, {ranking.multiple:g} times the training length"
            made.append(Section(at, parts=[_table(told, ranking, place), *_distant(told, ranking, place)]))
    for place, where in enumerate(placed):
        made.append(Section(where.heading if place else "Where in the context it finds things", where.sentences))
    return made


def _table(told: Answer, ranking: Ranking, place: int) -> Table:
    cells, unit = _methods(told, ranking), metric_of(told.metric).label
    cells[unit + ", %" * is_share(told.metric)] = _each(ranking, lambda line: level(line, told.metric))
    for prefix, title in (("trained_", f"difference from {UNCHANGED}"), ("best_", "difference from the best")):
        _compare(cells, ranking, prefix, title, told.metric)
    more, saved = "", ranking.known("saved")
    if saved:
        title = f"at {told.train_length}, as saved"
        cells[title] = _each(ranking, lambda line: number(line["saved"], told.metric).removesuffix(f" {unit}"), saved)
        more += SAVED.format(trained=told.train_length, length=ranking.length)
    if timed := ranking.known("time"):
        cells["reading time"] = _each(ranking, lambda line: f"about {times_of(line)}×" if times_of(line) else "", timed)
        more += TIME
    note = NOTE.format(blocks=ranking.blocks) + more + SCOPE
    factors = ranking.table["factor"].dropna()
    note += f" Methods with a factor have {factors.iloc[0]:g}." if factors.nunique() == 1 else ""
    stem = f"methods_at_{ranking.length}" + (f"_{place + 1}" if place else "")
    data = ranking.table.reset_index().rename(columns={"index": "condition"})
    return Table(stem, f"{told.heading.partition(',')[0].partition(':')[0]}, {_read(ranking)}", cells, data, note)


def _distant(told: Answer, ranking: Ranking, place: int) -> Iterator[Table]:
    """Yield the table of what text further back than the training length is worth, where that was measured."""
    ended, distant = ranking.known("end"), ranking.known("content")
    if not ended:
        return
    cells = _methods(told, ranking)
    cells["last quarter"] = _each(ranking, lambda line: level(line, told.metric, "end"), ended)
    if ranking.known("window_difference"):
        _compare(cells, ranking, "window_", f"difference from {named(ranking.limit, told.window)}", told.metric)
    if distant:
        cells["lost with other text there"] = _each(ranking, content, distant)
    order = ranking.table.reset_index(drop=True)["end"].sort_values(kind="stable").index
    columns = [column for column in ranking.table if str(column).startswith(("end", "window_", "content"))]
    data = ranking.table[columns].reset_index().rename(columns={"index": "condition"})
    stem = f"distant_text_at_{ranking.length}" + (f"_{place + 1}" if place else "")
    note = DISTANT.format(window=told.window) + CONTENT * bool(distant)
    title = f"Does text further back than {told.window} tokens help? {_read(ranking)}"
    yield Table(stem, title, cells.loc[order].reset_index(drop=True), data, note)


def _methods(told: Answer, ranking: Ranking) -> pd.DataFrame:
    return pd.DataFrame({"method": [named(str(name), told.window) for name in ranking.table.index]})


def _each(
    ranking: Ranking, written: Callable[[Mapping[str, float]], str], known: Iterable[str] | None = None
) -> list[str]:
    """Return a cell for each condition, blank where nothing is known of it."""
    names = map(str, ranking.table.index)
    return [written(ranking.line(name)) if known is None or name in known else "" for name in names]


def _compare(cells: pd.DataFrame, ranking: Ranking, prefix: str, title: str, metric: str) -> None:
    """Add the columns of a difference and of its p value."""
    compared = ranking.known(f"{prefix}difference")
    found = _each(ranking, lambda line: difference(line, prefix, metric), compared)
    cells[title] = [cell or "–" for cell in found]
    cells[f"p, {title.removeprefix('difference ')}"] = _each(ranking, lambda row: words.p_value(row[f"{prefix}p_holm"]))


def _read(ranking: Ranking) -> str:
    return f"{ranking.windows} pieces of {ranking.length}" if ranking.windows else f"length {ranking.length}"


def _curves(results: Results, told: Answer) -> Iterator[dict[str, Any]]:
    rows = results.rows[(results.rows["experiment"] == EXTENDED) & (results.rows["status"] == "ok")]
    rows = rows[rows["run_id"] == rows["run_id"].iloc[0]]
    rows = rows[(rows["metric"] == told.metric) & rows["part"].isna() & (rows["condition"] != DROPPED)]
    if rows["eval_length"].nunique() < 2:
        return
    scale = 100 if is_share(told.metric) else 1
    order = [str(name) for name in told.rankings[0].table.index if name in set(rows["condition"])]
    shown = list(dict.fromkeys([AS_TRAINED, *[name for name in LIMITS if name in order], *order]))[:COLOURED]
    saved = told.rankings[0].table["saved"]
    of_rotation = [name for name in order if name not in (AS_TRAINED, *LIMITS)]
    lines = []
    for name in order:
        line = rows[rows["condition"] == name].drop_duplicates("eval_length").set_index("eval_length")["value"]
        if saved[name] == saved[name]:
            line[told.train_length] = saved[name]
        points = [(int(length), value * scale) for length, value in line.sort_index().items()]
        kind = "" if name == AS_TRAINED else "score bias" if name in LIMITS else "rotation"
        dash = of_rotation.index(name) if name in of_rotation else 0
        lines.append(drawing.Line(named(name, told.window), kind, points, dash=dash, coloured=name in shown))
    values = rows["value"] * scale
    low, high = math.floor(10 * values.min()) / 10, math.ceil(10 * values.max()) / 10
    step = next(step for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, math.inf) if (high - low) / step <= 6)
    low = math.floor(low / step) * step
    ticks = [round(low + step * place, 6) for place in range(math.ceil((high - low) / step) + 1)]
    axes = drawing.Axes(sorted(int(length) for length in rows["eval_length"].unique()), told.train_length, ticks)
    unit = metric_of(told.metric).label + (", %" if scale == 100 else "")
    grey = len(order) > len(shown)
    at_short = f"at {told.train_length} as saved for {told.rankings[0].length}"
    at_short += ", elsewhere with the length's own factor" * (len(told.rankings) > 1)
    yield {
        "caption": f"{unit[0].upper()}{unit[1:]} by length",
        "said": "; ".join(["grey: the other methods"] * grey + [at_short] * bool(saved.notna().any())),
        "curves": drawing.curves(lines, axes, told.heading),
    }
