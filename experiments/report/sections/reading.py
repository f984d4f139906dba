"""What reads texts longer than in training with the fewest bits, over sizes: trained models as they are and changed."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.measures.context_extension import AS_TRAINED, DROPPED, NAME, REPLACED, WINDOW
from experiments.report.page import Finding, Opening, Section, Table
from experiments.rows.results import Results
from experiments.rows.row import not_in_parts
from experiments.rows.rungs import Rung, amount, rung_of
from experiments.statistics.intervals import half_width
from experiments.statistics.rule import FEWEST

ALIKE = 1e-6
"""Bits per byte by which a change that changes nothing differs from the model as trained."""
LIMITED = "with a window"
NOTE = (
    "Means over seeds. “With” names how a trained model is read; only what is fine-tuned has trained so. Behind each: "
    "its difference from the first line, paired by seed, with the 95 % interval of that mean, each by itself, where "
    f"there are {FEWEST} seeds. Seeds hold other files out, so that levels vary between them. "
    "Changes that change nothing are left out."
)


def told(results: Results) -> Opening:
    """Compare the ways to read the largest multiple of the training length that all sizes, and all encoders, have.

    Else nothing is said. ``results`` are those of `experiments.rows.rungs.apart`. The others are compared with a window
    on the model that can be extended, which every such model can have.
    """
    rows = _bits(results)
    sizes = sorted(set(rows["rung"]))
    read = results.quality["eval_length"] / results.quality["train_length"]
    found = [set(rows.loc[rows["rung"] == rung, "multiple"]) - {1.0} for rung in sizes]
    multiple = max(set(read).intersection(*found), default=0.0) if len(found) > 1 else 0.0
    rows = rows[rows["multiple"] == multiple]
    extended = rows.loc[~rows["condition"].isin(["", AS_TRAINED, WINDOW]), "series"].unique()
    of_size = {rung: rows[rows["rung"] == rung] for rung in sizes}
    tables = {rung: part.pivot_table(index="seed", columns="way", values="value") for rung, part in of_size.items()}
    limited = (f"{series} {LIMITED}" for series in extended)
    ways = [way for way in limited if all(way in table for table in tables.values())]
    if not ways:
        return Opening()
    last = tables[sizes[-1]]
    # Of an encoder as it is, without options, the one with most to gain.
    plain = max(ways, key=lambda way: ("(" not in way, last[way.removesuffix(f" {LIMITED}")].mean()))
    lines = compared(tables, plain)
    length, times = int(rows["eval_length"].max()), f"{multiple:g}× the length"
    heading, finding = _first(lines, plain, times)
    shown = Table("reading", f"Bits per byte at {length}, {times}", _cells(lines, plain), lines, NOTE, pasted=True)
    section = Section("What reads longer texts with the fewest bits?", [f"{finding.head} {finding.text}"], [shown])
    of_surest = rows["rung"] == _rungs(lines)[_surest(lines)].max()
    return Opening([section], heading, [finding], str(rows.loc[of_surest, "task"].iloc[0]))


def compared(tables: dict[Rung, pd.DataFrame], reference: str) -> pd.DataFrame:
    """Return how each way differs from one of them, paired by seed.

    Args:
        tables: of each size, the smallest first: a line for each seed, a column for each way, of which more is worse.
        reference: the way that others are compared with.

    Returns:
        ``parameters``, ``budget``, ``way``, ``seeds``, ``mean``, ``difference`` from the reference with ``low`` and
        ``high`` (NaN below `FEWEST` seeds), and ``fewer`` (seeds in which it needs fewer bits). The best of the largest
        size with the most seeds first.
    """
    found = []
    for rung, table in tables.items():
        for way in map(str, table):
            unchanged = table[way.partition(" with ")[0]]
            if way not in (reference, unchanged.name) and (table[way] - unchanged).abs().max() < ALIKE:
                continue
            less = (table[way] - table[reference]).dropna()
            mean, half = float(less.mean()), half_width(less) if len(less) >= FEWEST else math.nan
            line = {**rung._asdict(), "way": way, "seeds": len(less), "mean": table[way].mean(), "difference": mean}
            found.append(line | {"low": mean - half, "high": mean + half, "fewer": int((less < 0).sum())})
    lines = pd.DataFrame(found)
    by = ["sure", "parameters", "mean"]
    order = lines.assign(sure=_surest(lines)).sort_values(by, ascending=[False, False, True])
    place = {way: at for at, way in enumerate(order["way"].unique())}
    return lines.sort_values("way", key=lambda ways: ways.map(place), kind="stable", ignore_index=True)


def _first(lines: pd.DataFrame, reference: str, times: str) -> tuple[str, Finding]:
    """Return the heading and a finding, of the largest size with the most seeds."""
    here = lines[_surest(lines)]
    best, own = here.iloc[0], here[here["way"] == reference].iloc[0]
    size, seeds = f"{amount(best['parameters'])} parameters", words.count(int(best["seeds"]), "seed")
    heading = f"At {times} and {size} {best['way']} needs {best['mean']:.2f} bits per byte"
    if best["way"] != reference:
        heading += f", {reference} {own['mean']:.2f}" + f"; undecided after {seeds}" * (not best["high"] < 0)
    trained = [line for line in here.to_dict("records") if " with " not in line["way"]]
    text = "; ".join(f"{line['way']} {_less(line)}" for line in trained)
    return heading, Finding(f"As trained, less {reference}:", f"{text} bits per byte ({seeds} of {size}).")


def _surest(lines: pd.DataFrame) -> "pd.Series[bool]":
    most, rungs = lines["seeds"] == lines["seeds"].max(), _rungs(lines)
    return most & (rungs == rungs[most].max())


def _rungs(lines: pd.DataFrame) -> "pd.Series[Any]":
    return pd.Series([Rung(*each) for each in zip(lines["parameters"], lines["budget"], strict=True)], lines.index)


def _less(line: Mapping[Any, Any]) -> str:
    return words.signed(line["difference"], line["low"], line["high"], 3)


def _cells(lines: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Return a line for each way, the reference first, and a column for each size."""
    rungs = _rungs(lines)
    several, heads = lines["budget"].nunique() > 1, {}
    for rung in sorted(set(rungs)):
        seeds = words.count(int(lines["seeds"][rungs == rung].max()), "seed")
        heads[rung] = f"{rung if several else amount(rung.parameters)}, {seeds}"
    cells = {way: {"read by": way} | dict.fromkeys(heads.values(), "") for way in (reference, *lines["way"])}
    for rung, line in zip(rungs, lines.to_dict("records"), strict=True):
        less = f" ({_less(line)})" * (line["way"] != reference)
        cells[line["way"]][heads[rung]] = f"{line['mean']:.3f}{less}"
    return pd.DataFrame(list(cells.values()))


def _bits(results: Results) -> pd.DataFrame:
    rows = results.rows[(results.rows["experiment"] == NAME) & (results.rows["status"] == "ok")]
    rows = not_in_parts(rows[rows["metric"] == "bits_per_byte"])
    rows = rows[rows["run_id"].isin(results.configs) & ~rows["condition"].isin([DROPPED, REPLACED])]
    rungs = {run: rung_of(results.configs[run]) for run in rows["run_id"].unique()}
    rows = rows.assign(
        rung=rows["run_id"].map(rungs),
        multiple=rows["eval_length"] / rows["train_length"],
        way=[_way(*each) for each in zip(rows["series"], rows["condition"], strict=True)],
    )
    return rows[rows["rung"].map(lambda rung: not math.isnan(rung.budget)).astype(bool)]


def _way(series: str, condition: str) -> str:
    if condition in ("", AS_TRAINED):
        return series
    return f"{series} {LIMITED if condition == WINDOW else f'with {condition}'}"
