"""How fairly runs were trained: learning rates, early ends, controls with as many parameters."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from experiments.figures import words
from experiments.report.page import Section, Table
from experiments.report.sections.task import TaskResults
from experiments.rows.read import FINISHED, TUNED
from experiments.rows.results import trained_runs
from experiments.rows.rungs import rung_of
from experiments.statistics import comparisons, transfer
from experiments.statistics.scores import by_rate

NOTEWORTHY = 0.05
"""Share of the trunk's parameters above which an encoder needs a control."""
OF_THE_TRUNK = ("train", "model", "positions", "layout", "task")
"""Parts of a configuration that a control shares with the run that it controls for."""
COMPARED = ["difference", "low", "high", "p", "p_holm"]
"""Numbers of a comparison with a control."""
LISTED = 6
"""Most series whose steps are told one by one."""


def method(runs: pd.DataFrame, configs: dict[str, dict[str, str]]) -> list[str]:
    """Return the sentences on how learning rates were chosen and which runs ended early."""
    trained = runs[runs["status"].isin(FINISHED) & runs["run_id"].isin(trained_runs(configs))]
    rates = Counter(rate for run in trained["run_id"] if (rate := configs[run].get("train.learning_rate")))
    sentences, tuned, total = [], rates.pop(TUNED, 0), words.count(len(trained), "run")
    if tuned:
        grids = {tuple(search["grid"]) for search in trained["tuning"].dropna()}
        grid, whose = words.listed(min(grids)) if len(grids) == 1 else "its list", f"{tuned} of {total}"
        sentences.append(
            f"The peak learning rate was tuned in {whose if rates else 'every run'}, for each seed separately: of "
            f"trainings with {grid}, the one with the lowest loss on held-out data of the training lengths was kept."
        )
    if rates:
        given, whose = words.listed(sorted(map(str, rates))), "the other runs" if tuned else "all runs"
        many = f"The peak learning rates of {whose}, {given}, were set by hand"
        one = f"One peak learning rate, {given}, was shared by {whose}"
        sentences.append(f"{one if len(rates) == 1 else many}, not tuned, which can decide a ranking of encoders.")
    steps = pd.to_numeric(trained["run_id"].map(lambda run: configs[run].get("train.steps")), errors="coerce")
    if longer := int((trained["steps"] > steps).sum()):
        repeated = Counter(trained.loc[trained["steps"] > steps, "series"])
        of_each = words.listed(f"{count} of {series}" for series, count in repeated.most_common())
        sentences.append(
            f"{longer} of {total} had not learned the task within the training length by the end of the learning-rate "
            f"schedule and repeated it, up to {(trained['steps'] / steps).max():.0f} times in all"
            f"{f': {of_each}' * (len(repeated) <= LISTED)}."
        )
    learned, cut = (trained[trained["stopped"] == why] for why in ("converged", "max_steps"))
    if len(learned):
        why = "as soon as the task counted as learned within the training length"
        means = trained.groupby("series")["steps"].mean().sort_values()
        each = [f"{steps:,.0f} with {series}" for series, steps in means.items()]
        told = words.listed(each) if len(each) <= LISTED else f"from {each[0]} to {each[-1]}"
        differ = f": on average over all runs {told}" * (len(means) > 1)
        sentences.append(f"{len(learned)} of {total} ended {why}, so steps and tokens differ{differ}.")
    if len(cut):
        planned = words.listed(sorted({configs[run].get("train.steps", "unknown") for run in cut["run_id"]}))
        why = f"at train.max_steps, before the {planned} steps of the learning-rate schedule"
        sentences.append(f"{len(cut)} of {total} ended {why}.")
    return sentences


def advice(unlearned: Iterable[str], configs: Mapping[str, Mapping[str, str]]) -> str:
    """Say how long runs that did not learn were trained, and which options give them what they did not have.

    ``configs`` are those of all runs: where models of several sizes have as many tokens for each parameter, that number
    is what to raise.
    """
    given = [configs[run] for run in unlearned]
    alike = Counter(rung.budget for rung in {rung_of(config) for config in configs.values()})
    if most := max((budget for config in given if alike[budget := rung_of(config).budget] > 1), default=0.0):
        return f"They had {most:g} tokens a parameter: try train.tokens_per_parameter={4 * most:g}"
    options: set[str] = set()
    rounds = longest = doubled = 0
    for config in given:
        steps, most, last = (_whole(config.get(f"train.{name}")) for name in ("steps", "rounds", "max_steps"))
        rounds, longest = max(rounds, most), max(longest, last or steps)
        if last:
            options.add("train.max_steps=null")
        elif most > 1 or config.get("train.drop_encoder_after", "null") != "null":
            doubled = max(doubled, 2 * steps)
        else:
            options.add("train.rounds=4")
        if config.get("train.learning_rate") != TUNED and config.get("train.stop_at_convergence") != "true":
            options.add("tune=true")
    options |= {f"train.steps={doubled}"} if doubled else set()
    had = f"up to {rounds} rounds" if rounds > 1 else "1 round"
    return f"They had {had} of {longest:,} steps: try {' or '.join(sorted(options))}"


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def tuning(task: TaskResults) -> Section:
    """Make the section of the learning rates that were tried and chosen, and of what is kept at each."""
    rows = task.rows[(task.rows["experiment"] == "tuning") & task.rows["metric"].isin(task.quality["metric"])]
    kept = by_rate(rows)
    known = kept.groupby(["series", "learning_rate", "seed"])["kept"].first()
    lines, data = [], list[dict[str, Any]]()
    tuned = task.runs[task.runs["tuning"].notna()]
    for series in (series for series in task.order if series in set(tuned["series"])):
        runs = tuned[tuned["series"] == series].to_dict("records")
        searches = [run["tuning"] for run in runs]
        counts = Counter(search["chosen"] for search in searches)
        diverged, at_edge = counts.pop(None, 0), sum(search["at_edge"] for search in searches)
        chosen = [f"{rate} ({words.count(count, 'seed')})" for rate, count in sorted(counts.items())]
        chosen += [f"none ({words.count(diverged, 'seed')}, all diverged)"] * bool(diverged)
        lines.append(
            {
                "series": task.display(series),
                "chosen": ", ".join(chosen),
                "tried": ", ".join(map(str, searches[0]["grid"])),
                **{
                    f"kept at {rate:g}, %": _kept([known.get((series, rate, run["seed"]), math.nan) for run in runs])
                    for rate in sorted(kept["learning_rate"].unique())
                },
                "seconds of the search": words.number(sum(search["seconds"] for search in searches) / len(runs)),
                "of them in the chosen training": words.number(sum(run["train_seconds"] for run in runs) / len(runs)),
                "remark": f"at the edge in {at_edge} of {words.count(len(runs), 'seed')}" if at_edge else "",
            }
        )
        data += [
            {"series": series, "seed": run["seed"], "learning_rate": rate, "validation_loss": loss}
            | {"kept": known.get((series, rate, run["seed"]), math.nan)}
            | {"chosen": rate == run["tuning"]["chosen"], "search_seconds": run["tuning"]["seconds"]}
            for run in runs
            for rate, loss in zip(run["tuning"]["grid"], run["tuning"]["losses"], strict=True)
        ]
    note = (
        "Chosen: the rate with the lowest loss in range. Kept: of quality beyond the training length, a mean of the "
        "seeds that learned the task at that rate, which are counted where not all did. Seconds are means over seeds. "
        "At the edge: the lowest or highest rate tried, so a wider list may hold better."
    )
    caption = f"Learning rates, {task.key}"
    table = Table(task.stem("tuning"), caption, pd.DataFrame(lines), pd.DataFrame(data), note)
    return Section("Tuning", parts=[table, *_orders(task, kept)])


def _kept(seeds: list[float]) -> str:
    """Return the mean in percent of what the seeds that learned keep, and how many these are if not all."""
    learned = [seed for seed in seeds if not math.isnan(seed)]
    if not learned:
        return "–"
    of = f" ({len(learned)} of {len(seeds)})" * (len(learned) < len(seeds))
    return f"{words.fixed(100 * sum(learned) / len(learned), '.0f')}{of}"


def _orders(task: TaskResults, kept: pd.DataFrame) -> list[Table]:
    """Compare the order of the series by what they keep at two rates."""
    pairs = transfer.of_rates(kept)
    lines = [
        {
            "learning rates": f"{line['first']:g} and {line['second']:g}",
            "series": f"{line['encoders']:.0f}",
            "seeds": f"{line['seeds']:.0f}",
            "Kendall's τ": words.interval(line["tau"], line["tau_low"], line["tau_high"], ".2f"),
            "same order, of pairs that differ at the first": f"{line['kept']} of {line['decided']}",
            "of pairs that differ at the second": f"{line['kept_back']} of {line['decided_back']}",
        }
        for line in pairs.to_dict("records")
    ]
    note = (
        "By what is kept beyond the training length. τ: 1 where all pairs are in the same order, 0: nothing in common; "
        "its interval: 95 % of rankings by means drawn from the t distribution of their seeds. Pairs that "
        "differ: each by itself at 95 %; with one seed none does."
    )
    caption = f"Orders at two learning rates, {task.key}"
    return [Table(task.stem("rates"), caption, pd.DataFrame(lines), pairs, note)] if lines else []


def controls(task: TaskResults) -> list[Table]:
    """Compare encoders that add more than `NOTEWORTHY` parameters with a trunk widened by as many."""
    first = {str(run["series"]): run for run in reversed(task.trained.to_dict("records"))}
    known = {series: _size(first[series], task) for series in task.order if series in first}
    pairs: list[tuple[str, str | None]] = []
    for series, one in known.items():
        if one["trunk"] and one["added"] / one["trunk"] > NOTEWORTHY:
            pairs += [(series, other) for other in known if _controls(known[other], one)] or [(series, None)]
    if not pairs:
        return []
    found = []
    for series, control in pairs:
        line: dict[str, Any] = {"series": series, "encoder_parameters": known[series]["added"], "control": control}
        both = task.scores[task.scores["series"].isin([series, control])]
        if control and both["series"].nunique() == 2:
            (compared,) = comparisons.against(both, comparisons.family(both, control), control).to_dict("records")
            line |= {name: compared[name] for name in COMPARED}
        found.append(line | {"model_parameters": known[series]["trunk"]})
    data = pd.DataFrame(found, columns=["series", "encoder_parameters", "model_parameters", "control", *COMPARED])
    data["p_holm"] = comparisons.holm(data["p"])
    lines = [
        {
            "series": task.display(line["series"]),
            "parameters added": words.number(line["encoder_parameters"]),
            "of the trunk's": f"{100 * line['encoder_parameters'] / line['model_parameters']:.1f} %",
            "control": task.display(line["control"]) if isinstance(line["control"], str) else "not in this folder",
            "difference in quality kept": words.interval(line["difference"], line["low"], line["high"], "+.3f"),
            "p (Holm)": words.p_value(line["p_holm"]),
        }
        for line in data.to_dict("records")
    ]
    note = (
        f"Encoders that add more than {NOTEWORTHY:.0%} to the trunk's parameters. Control: the same trunk with wider "
        "feed-forward blocks and as many parameters in all; the encoder's command with encoder=none "
        "model.as_many_as=<encoder> makes a missing one. Difference: see Standings; p of Welch's "
        "test after Holm's correction for this table."
    )
    caption = f"Controls with as many parameters, {task.key}"
    return [Table(task.stem("controls"), caption, pd.DataFrame(lines), data, note)]


def _size(run: dict[Any, Any], task: TaskResults) -> dict[str, Any]:
    """Return what decides which series controls for which: names, parameters, those of one hidden unit, settings."""
    config = task.configs[run["run_id"]]
    setting = {key: value for key, value in config.items() if key.partition(".")[0] in OF_THE_TRUNK}
    dim, layers = (float(config.get(f"model.{name}", "nan")) for name in ("model_dim", "num_layers"))
    added, trunk = (float(pd.to_numeric(run[f"{of}_parameters"])) for of in ("encoder", "model"))
    found = {"encoder": config.get("encoder.name", ""), "as_many_as": setting.pop("model.as_many_as", "null")}
    return found | {"added": added, "trunk": trunk, "unit": 2 * dim * layers, "setting": setting}


def _controls(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether it has as many parameters as the other, within one hidden unit a layer, in the same trunk."""
    more = one["added"] + one["trunk"] - other["added"] - other["trunk"]
    alike = one["as_many_as"] == other["encoder"] and one["setting"] == other["setting"]
    return alike and bool(0 <= more < one["unit"])
