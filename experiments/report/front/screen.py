"""The first screen: a finding with its numbers, one curve, three sentences, the board, and what is left open."""

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from experiments.figures import words
from experiments.report import board, drawing
from experiments.report.board import at, written
from experiments.report.front import asked, findings, headings
from experiments.report.front.tasks import counted, main_block, shown
from experiments.report.page import Finding, Front
from experiments.report.sections.curves import legend
from experiments.report.sections.likeness import CONTROL
from experiments.report.sections.statements import Told
from experiments.report.sections.task import TaskResults
from experiments.rows.read import TUNED
from experiments.rows.results import Results, training_time


def first_screen(
    tasks: Sequence[TaskResults],
    results: Results,
    claims: Sequence[Told] = (),
    first: Sequence[Finding] = (),
    about: str = "",
) -> tuple[str, Front | None]:
    """Return the heading of a report and its first screen; None where nothing was measured over lengths.

    ``claims`` are published statements that the runs test; ``first`` are findings that stand before all others;
    ``about`` is the task to show, if not one or several are to be chosen.
    """
    named = [task for task in tasks if task.key == about]
    task = shown(named or counted(tasks) or tasks)
    if task is None:
        return f"{results.folder.resolve().name}: no quality over lengths was measured", None
    several = [] if named else main_block(tasks)
    questions = sorted((one for one in tasks if one.asked), key=lambda one: one not in (several or [task]))
    seeking = [one for one in ([task] if named else tasks) if one.possibly_best]
    seeking.sort(key=lambda one: len(one.possibly_best))
    compared = [findings.of_the_best(one) for one in seeking] or asked.findings(questions)
    heading, top = headings.of_task(task, claims), None
    # What is kept is not what a heading given from elsewhere is about.
    found = findings.fall(task) if named else findings.of_task(task, () if compared else claims)
    if task.asked and len(task.against) and len(task.ranked):
        heading = f"{task.label}: {headings.verdicts(task)}"
    if len(several) > 1:
        heading, top = headings.across(questions or several), board.over_tasks(several)
        found = [*findings.nobody(tasks), *found]
    if seeking:
        heading = headings.of_the_best(seeking)
    found = [*first, *(compared or (findings.over(several) if top else [])), *found]
    return heading, Front(
        setting=setting(tasks, results),
        caption=task.caption,
        legend=legend(task.curves),
        families=board.families(task),
        curves=curve(task),
        findings=found[:3] or [Finding(task.label, "No comparison could be made: see its page.")],
        board=top or board.of_task(task),
        limits=limits(tasks, results),
        task=(task.label, task.path),
    )


def curve(task: TaskResults) -> Markup:
    """Return the curves of a task, with what they show in words."""
    axes, means = task.axes, at(task, 2)
    said = f"{task.caption}, {axes.lengths[0]} to {axes.lengths[-1]}. Trained to {axes.trained}. "
    found = [f"{line.name} {written(means[line.name], task.metric)}" for line in task.curves if line.name in means]
    return drawing.curves(task.curves, axes, said + f"At {2 * axes.trained}: {words.few(found)}." * bool(found))


def setting(tasks: Sequence[TaskResults], results: Results) -> str:
    """Return what was run, in one line."""
    runs = pd.concat([task.runs[task.runs["run_id"].isin(task.quality["run_id"])] for task in tasks])
    seeds = runs.groupby(["task", "series"])["seed"].nunique()
    each = words.count(int(seeds.max()), "seed") if seeds.min() == seeds.max() else f"{seeds.min()}–{seeds.max()} seeds"
    bases = {task.key.partition("(")[0] for task in tasks}
    several = f"{len(tasks)} settings of {min(bases)}" if len(bases) == 1 else f"{len(tasks)} tasks"
    parts = [tasks[0].described if len(tasks) == 1 else several]
    controls = {series for task in tasks for series, mark in task.marks.items() if mark == CONTROL}
    also = f" and {words.count(len(controls), 'control')}" * bool(controls)
    parts.append(f"{words.count(len(set(runs['series']) - controls), 'encoding')}{also} × {each}")
    judged, learned = int(runs["converged"].notna().sum()), int(runs["converged"].eq(True).sum())
    if results.waiting:
        parts.insert(0, f"unfinished: {len(results.finished)} of {len(results.runs) + len(results.missing)} runs")
    if judged:
        parts.append(f"all {judged} runs learned" if learned == judged else f"{learned} of {judged} runs learned")
    steps = pd.to_numeric(runs["steps"], errors="coerce").dropna()
    if steps.nunique() > 1:
        parts.append(f"{steps.min():,.0f}–{steps.max():,.0f} steps of training")
    sizes = pd.to_numeric(runs["model_parameters"], errors="coerce").dropna() / 1e6
    if len(sizes):
        low, high = f"{sizes.min():.2g}", f"{sizes.max():.2g}"
        parts.append(f"{low if low == high else f'{low}–{high}'} M parameters with embeddings, beside the encoding's")
    if len(tasks) == 1 and len(quality := tasks[0].quality):
        parts.append(
            f"trained to {int(quality['train_length'].max())}, measured to {int(quality['eval_length'].max())}"
        )
    spent = training_time(runs) + pd.to_numeric(runs["measure_seconds"], errors="coerce").sum()
    if spent:
        long = f"{spent / 3600:.1f} hours" if spent > 7200 else f"{spent / 60:.1f} minutes"
        parts.append(f"{long}, all runs added up")
    return " · ".join(parts)


def limits(tasks: Sequence[TaskResults], results: Results) -> list[str]:
    """Return what these runs leave open."""
    runs = pd.concat([task.runs for task in tasks])
    sizes = pd.to_numeric(runs["model_parameters"], errors="coerce").dropna() / 1e6
    rates = {results.configs[run].get("train.learning_rate") for run in runs["run_id"]} - {None}
    seeds = runs.groupby(["task", "series"])["seed"].nunique().max()
    found = [f"models above {sizes.max():.2g} M parameters"] if len(sizes) else []
    found.append(f"tasks other than {tasks[0].label}" if len(tasks) == 1 else "natural tasks at scale")
    if runs["steps"].nunique() > 1:
        found.append("models that all train for as many steps")
    if len(rates) == 1 and TUNED not in rates:
        found.append(f"learning rates other than {min(map(str, rates))}")
    return [*found, f"differences that need more than {words.count(int(seeds), 'seed')}"]
