"""Does this transfer? Of a folder with several sizes of trunk, or several budgets, of the same comparison."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Finding, Opening, Section, Table
from experiments.rows.results import Results
from experiments.rows.row import metric_of
from experiments.rows.rungs import TRAINING, amount, rung_of
from experiments.statistics import transfer

TITLE = "Does this transfer?"
MULTIPLES = (1, 4)
"""Where quality is compared, in training lengths."""
WHERE = {1: "in range", 4: "at 4× the length"}
SAME = ["task", "at", "first", "second"]
"""What two comparisons share that differ in the length alone."""
FOR_EACH, IN_ALL = "tokens a parameter", "tokens"
"""Of what a budget is: sizes are compared that share the first, else those that share the second."""


def told(results: Results) -> Opening:
    """Compare the rungs of a folder; nothing is said of one size and budget, or of too few encoders."""
    rungs = of_runs(results)
    if rungs["task"].nunique() == 1:  # the settings of the page have its options
        rungs["task"] = rungs["task"].str.partition("(")[0]
    pairs = transfer.compared(rungs).assign(unit=rungs["unit"].iloc[0] if len(rungs) else "")
    if pairs.empty:
        return Opening()
    bits = [not metric_of(metric).higher_is_better for metric in rungs["metric"]]
    laws = transfer.laws(rungs[bits].query("unit == @FOR_EACH"))
    parts = [_pairs(pairs), *([_laws(laws)] if len(laws) else [])]
    heading, findings = _first(pairs)
    return Opening([Section(TITLE, _sentences(pairs), parts=list(parts))], heading, findings)


def _first(pairs: pd.DataFrame) -> tuple[str, list[Finding]]:
    """Return what a reader wants to know first: how many pairs that one size decides keep their order furthest up."""
    known = _ends(pairs).query("decided > 0").sort_values(["multiple", "second", "decided"], ascending=False)
    if known.empty:
        return "", []
    line, *others = known.to_dict("records")
    where = WHERE[line["multiple"]]
    which = f"All {line['decided']} pairs" if line["kept"] == line["decided"] else _kept(line)
    sizes = amount(line["first"]), amount(line["second"])
    heading = f"{which} that {sizes[0]} parameters tell apart keep their order at {sizes[1]}, {where}"
    text = f"of the rankings of {line['encoders']:.0f} encodings at {sizes[0]} and {sizes[1]} parameters, {where} "
    text += f"({line['task']}, {_value('budget', line['at'], line['unit'])})."
    small = [
        f"{WHERE[other['multiple']]} {_tau(other)}, {_kept(other)}".capitalize()
        for other in others
        if [other[key] for key in SAME] == [line[key] for key in SAME]
    ]
    seeds = "One seed at one of the sizes." if line["seeds"] == 1 else f"{line['seeds']:.0f} seeds."
    return heading, [
        Finding(f"Kendall's τ {_tau(line)}", text, " ".join([f"{'; '.join(small)}."] * bool(small) + [seeds]))
    ]


def _tau(line: Mapping[Any, Any]) -> str:
    return words.interval(line["tau"], line["tau_low"], line["tau_high"], ".2f")


def _kept(line: Mapping[Any, Any]) -> str:
    return f"{line['kept']} of {line['decided']} pairs"


def _ends(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons of each budget's smallest size with its largest."""
    sizes = pairs[pairs["axis"] == "size"]
    of_one = sizes.groupby(["task", "multiple", "at"])
    ends = (sizes["first"] == of_one["first"].transform("min")) & (sizes["second"] == of_one["second"].transform("max"))
    return sizes[ends]


def of_runs(results: Results) -> pd.DataFrame:
    """Return a line for each run and multiple of its training length, as `transfer.compared` takes them."""
    rows = results.quality
    rows = rows[(rows["status"] == "ok") & rows["run_id"].isin(results.configs)]
    rungs = {run: rung_of(results.configs[run]) for run in rows["run_id"].unique()}
    # As numbers, which a column without a line would not be.
    parameters, budget = (rows["run_id"].map({run: of[i] for run, of in rungs.items()}).astype(float) for i in (0, 1))
    tokens = {run: math.prod(float(results.configs[run].get(key, "nan")) for key in TRAINING) for run in rungs}
    totals = rows["run_id"].map(tokens).astype(float)
    numberings = rows["positions"].str.split("(").str[0]
    encoders = rows["encoder"] + (" · " + numberings).where(numberings != "sequential", "")
    sign = [-1.0 if metric_of(metric).higher_is_better else 1.0 for metric in rows["metric"]]
    found = rows[["task", "metric", "seed"]].assign(multiple=rows["eval_length"] / rows["train_length"])
    found = found.assign(parameters=parameters, budget=budget, encoder=encoders)
    found = found.assign(value=rows["value"] * sign, unit=FOR_EACH)
    of_budgets, of_totals = (found.groupby(["task", each])["parameters"].nunique() for each in ("budget", totals))
    if not (of_budgets > 1).any() and (of_totals > 1).any():
        found = found.assign(budget=totals, unit=IN_ALL)
    return found[found["multiple"].isin(MULTIPLES)].dropna(subset=["parameters", "budget", "value"])


def _sentences(pairs: pd.DataFrame) -> list[str]:
    """Return a sentence on each budget: its smallest size against its largest."""
    found = []
    for line in _ends(pairs).to_dict("records"):
        told = f"Of {line['decided']} pairs that the smaller size tells apart, {line['kept']} keep their order and "
        told += f"{line['reversed']} reverse it."
        found.append(
            f"{line['task']}, {WHERE[line['multiple']]}, {_value('budget', line['at'], line['unit'])}: "
            f"from {amount(line['first'])} to {amount(line['second'])} parameters the ranking of "
            f"{line['encoders']:.0f} encoders has Kendall's τ "
            f"{_tau(line)}. " + (told if line["decided"] else "The smaller size tells no pair apart.")
        )
    return found or ["Only training budgets differ here, not sizes: see the table."]


def _pairs(pairs: pd.DataFrame) -> Table:
    lines = [
        {
            "task": f"{line['task']}, {WHERE[line['multiple']]}",
            "from": _value(line["axis"], line["first"], line["unit"]),
            "to": _value(line["axis"], line["second"], line["unit"]),
            "both with": _value({"size": "budget", "budget": "size"}[line["axis"]], line["at"], line["unit"]),
            "encoders": f"{line['encoders']:.0f}",
            "seeds": f"{line['seeds']:.0f}",
            "Kendall's τ": _tau(line),
            f"share of the best {transfer.TOP}": words.interval(line["top"], line["top_low"], line["top_high"], ".2f"),
            "pairs kept": f"{line['kept']} of {line['decided']}",
        }
        for line in pairs.to_dict("records")
    ]
    note = (
        "Parameters are those of the layers, tokens those of a round of training. Intervals: 95 % of rankings "
        "by means drawn from the t distribution of their seeds. Pairs kept: of the pairs of encoders that the first "
        "rung tells apart (each at 95 %), those in the same order in the second."
    )
    return Table("transfer", "Rankings of two sizes or budgets", pd.DataFrame(lines), pairs, note)


def _laws(laws: pd.DataFrame) -> Table:
    lines = [
        {
            "task": f"{line['task']}, {WHERE[line['multiple']]}",
            "encoder": line["encoder"],
            "tokens for each parameter": f"{line['budget']:g}",
            "sizes": str(line["sizes"]),
            "exponent": words.interval(line["exponent"], line["low"], line["high"]),
            "bits at 1M parameters": f"{line['at_one_million']:.3f}",
        }
        for line in laws.to_dict("records")
    ]
    note = "Bits per byte = a · parameters^(−exponent), fitted for each seed; 95 % interval of the mean over seeds."
    return Table("scaling", "Power law of each encoder over sizes", pd.DataFrame(lines), laws, note)


def _value(axis: str, value: float, unit: str) -> str:
    if axis == "size":
        return f"{amount(value)} parameters"
    return f"{value:g} {unit}" if unit == FOR_EACH else f"{value:,.0f} {unit}"
