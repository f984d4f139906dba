"""Each number in README, its translation, the guides and the log is that of a table that comes with the code."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from scipy import stats
from support import ROOT

from experiments.figures.words import fixed
from experiments.measures.answer_positions import MOVED
from experiments.rows.read import ARCHIVE, read_rows, run_folders

CHINESE = ROOT / "README.zh-CN.md"
RESULTS = ROOT / "results"
ANSWERS = {
    found[1]: (re.sub(r"\]\([^)]*\)", "", found[2]), found[3])
    for found in re.finditer(
        r"^\| \[(\w+)\]\(\S+\) \|.*?\| (.*?) \| (.*?) \| `", (RESULTS / "README.md").read_text("utf-8"), re.M
    )
}
"""Of the folders in the list of results: the answer, without where its links lead, and the runs."""
TASKS = "copy", "text", "associative_recall"
"""Those of README's board."""


def against_none(line: dict[str, str]) -> str:
    """What is kept, its difference from the baseline, seeds and verdict, as the log gives them."""
    if line["status"] != "ok":
        return line["status"]
    if not line["verdict"]:
        return f"{short(line['kept'])} · {line['seeds']}"
    if not line["difference"]:
        return f"{short(line['kept'])} · {line['seeds']} · {line['verdict']}"
    sign = "" if float(line["difference"]) < 0 else "+"
    return f"{short(line['kept'])} · {sign}{short(line['difference'])} · {line['seeds']} · {line['verdict']}"


def standings(folder: str) -> dict[tuple[str, str], dict[str, str]]:
    """The lines of a folder's standings, by task and by series without its knobs."""
    with (ROOT / "results" / folder / "report" / "tables" / "standings.csv").open(newline="") as table:
        return {(line["task"], line["series"].partition("(")[0].strip()): line for line in csv.DictReader(table)}


def bits_at_four_times() -> pd.DataFrame:
    """Bits per byte of text at four times the training length, by series without its knobs: all seeds."""
    table = read_table("decided_best", "text_bits_per_byte")
    table = table[table["eval_length"] == 512]
    return table.set_index(table["series"].str.partition("(")[0].str.strip())


def headline(line: dict[str, str]) -> str:
    """Area, interval and places, or why there is none, as README gives them."""
    if line["status"] != "ok":
        return line["status"]
    places = "–".join(dict.fromkeys(f"{float(line[name]):g}" for name in ("place_low", "place_high")))
    interval = f" [{short(line['low'])}, {short(line['high'])}]" if line["low"] else ""
    return f"{short(line['kept'])}{interval} · {places}"


def cells_of(text: str) -> list[list[str]]:
    """The cells of each line of a table whose first column has code in it."""
    return [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| `.*$", text, re.M)]


def short(number: str) -> str:
    return f"{float(number):.2f}".replace("0.", ".", 1).replace("-", "−")


def read_table(folder: str, name: str, metric: str | None = None) -> pd.DataFrame:
    """A table that comes with a folder's report; of a metric, its rows alone."""
    rows = pd.read_csv(RESULTS / folder / "report" / "tables" / f"{name}.csv")
    return rows if metric is None else rows[rows["metric"] == metric]


def packed(folder: str, metric: str, of_task: str = "") -> pd.DataFrame:
    """The rows of a metric of the runs that come with a folder: of a task, or all."""
    with tarfile.open(RESULTS / folder / ARCHIVE) as archive:
        names = (name for name in archive.getnames() if name.endswith("/rows.csv") and of_task in name)
        return pd.concat(rows[rows["metric"] == metric] for rows in map(pd.read_csv, map(archive.extractfile, names)))


def extended(folder: str, task: str, metric: str) -> pd.Series[float]:
    """What each way to read longer texts has, by series, way and length."""
    rows = read_table(folder, f"{task}_context_extension", metric)
    return rows.set_index(["series", "condition", "eval_length"])["mean"]


def two_statements(folder: str) -> tuple[list[pd.DataFrame], list[pd.Series[Any]]]:
    """What was measured for each of the two statements of a file, by contestant, and its first comparison."""
    tables = [read_table(folder, f"statement_{folder}{end}").set_index("contestant") for end in ("", "-2")]
    return tables, [read_table(folder, f"comparisons_{folder}{end}").iloc[0] for end in ("", "-2")]


def more_best() -> list[str]:
    """What the best two keep of reverse, and how many may be the best on the other tasks."""
    every = standings("decided_more_best")
    kept = [f"{100 * float(every['reverse', series]['kept']):.0f}" for series in ("path", "dape_v2")]
    counted = Counter(task.partition("(")[0] for (task, _), line in every.items() if line["possibly_best"] == "True")
    return [*kept, *(str(counted[task]) for task in ("flip_flop", "selective_copy", "indirect_indexing"))]


def test_the_list_of_results_counts_their_runs() -> None:
    counted = {}
    for folder in ANSWERS:
        with tarfile.open(RESULTS / folder / ARCHIVE) as archive:
            counted[folder] = sum(name.endswith("/rows.csv") for name in archive.getnames())
    said = {folder: sum(map(int, re.findall(r"\d+", runs))) for folder, (_, runs) in ANSWERS.items()}
    assert said == counted


def test_the_looks_that_are_left_are_those_that_the_sweep_asks_for() -> None:
    with tarfile.open(RESULTS / "decided_more" / ARCHIVE) as archive:
        names = archive.getnames()
        asked = [json.load(archive.extractfile(name))["runs"] for name in names if name.startswith("sweeps/")]
    ended = {name.split("/")[1] for name in names if name.endswith("/rows.csv")}
    done, left = (Counter(run.split("-")[-3] for run in runs) for runs in (ended, {*itertools.chain(*asked)} - ended))
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("on four more tasks, begun\n")[2]
    said = " ".join(log.partition("\n- ")[0].split())
    assert [*map(int, re.findall(r"(\d+) runs", said))][-1] == sum(left.values())
    assert {task: int(count) for count, task in re.findall(r"(\d+) of `(\w+)`", said)} == left
    assert f"{done['flip_flop']} and {done['selective_copy']} runs" in said
    for task in ("reverse", "indirect_indexing"):
        assert re.search(rf"`{task}` .*?: {done[task]} runs", said), task


def test_the_rows_that_come_with_the_code_stay_small() -> None:
    assert sum(place.stat().st_size for place in RESULTS.glob(f"*/{ARCHIVE}")) < 20e6


def test_the_answers_of_the_list_of_results_are_those_of_their_tables() -> None:
    def percent(folder: str, series: str, length: int) -> str:
        right = read_table(folder, "copy_token_accuracy").set_index(["series", "eval_length"])["mean"]
        return f"{100 * right[series, length]:.0f}"

    def verdicts(folder: str) -> list[str]:
        counted = Counter(line["verdict"] for line in standings(folder).values())
        better, worse, undecided = (counted[verdict] for verdict in ("better", "worse", "undecided"))
        return [str(count) for count in (better, better + worse + undecided, worse, undecided)]

    def far_of(folder: str, of: str, metric: str, *ways: tuple[str, str]) -> list[str]:
        far = extended(folder, of, metric)
        return [f"{far[*way, 512]:.2f}" if metric == "bits_per_byte" else f"{100 * far[*way, 512]:.0f}" for way in ways]

    claims = read_table("claims", "statements").drop_duplicates("statement")["verdict"]
    pairs = read_table("sizes", "transfer").query("multiple == 4")
    ladder = read_table("ladder", "transfer").query("first == 147456 and second == 9830400").set_index("multiple")
    possible = Counter(task for (task, _), line in standings("decided_best").items() if line["possibly_best"] == "True")
    told_apart = read_table("bidirectional", "over_tasks").set_index("series")
    own, window, untouched = (("rope", way) for way in ("as trained", "window", "yarn"))
    llama, command = ((name, "as trained") for name in ("llama4", "command_a"))
    of_text = "text-tokenizer=bpe-vocabulary=8192-source=installed"
    facts = (llama, command, ("rope", "self_extend"), untouched, own, window)
    found = far_of("shortlist_needles", "needles-num_needles=1", "token_accuracy", *facts)
    assert found[0] == found[1]
    tuned = [("rope", way) for way in ("yarn fine-tuned", "yarn")]
    chunked = [("rope · chunked(limit=600)", "as trained"), ("rope", "as trained"), window]
    small = [*((name, "as trained") for name in ("sandwich", "fox", "dynamic_bias")), window]
    expected = {
        "classic": [percent("classic", *of) for of in (("alibi", 32), ("sinusoidal", 32), ("alibi", 128))],
        "numberings": [percent("numberings", "sinusoidal · randomized(limit=300)", 32)],
        "renumbered": [renumbered()["rope", 32, True], "32", renumbered()["rope", 32, False]],
        "claims": [
            f"{(claims == 'holds').sum()}",
            f"{(claims == 'fails').sum()}",
            f"{claims.str.startswith('holds ').sum()}",
        ],
        "decided": verdicts("decided"),
        "decided_rope": verdicts("decided_rope"),
        "decided_best": [str(possible[task]) for task in TASKS],
        "decided_more_best": more_best(),
        "sizes": [str(decided) for decided in pairs["decided"].sort_values()],
        "small_text": far_of("small_text", "text", "bits_per_byte", *small),
        "chunked_text": [*far_of("chunked_text", "text", "bits_per_byte", *chunked), "20"],
        "shortlist": ["3.5", *far_of("shortlist", "text-3.5M-5-tokens-a-parameter", "bits_per_byte", llama, window)],
        "shortlist_rates": far_of("shortlist_rates", of_text, "bits_per_byte", command, window, own),
        "shortlist_needles": found[1:],
        "fine_tuned_needles": far_of("fine_tuned_needles", "needles-num_needles=1", "token_accuracy", *tuned),
        "ladder": [str(ladder["decided"][4]), str(ladder["kept"][1]), str(ladder["decided"][1]), "9.8"],
        "bidirectional": [
            "24",
            "27",
            *(str(told_apart[of]["rerope"]) for of in ("wins", "compared")),
            *(str(told_apart[of]["rope"]) for of in ("losses", "compared")),
        ],
    }
    said = {folder: re.findall(r"(?<![\w.])\d*\.?\d+", ANSWERS[folder][0]) for folder in expected}
    assert said == expected
    assert set(pairs["reversed"]) == {0}
    assert ladder["reversed"][4] == 0
    every = Counter(name for (_, name), line in standings("shipped").items() if line["verdict"] == "better")
    best = {name for name, tasks in every.items() if tasks == len(TASKS)} - {"alibi"}
    assert set(re.findall(r"`(\w+)`", ANSWERS["shipped"][0])) == best


def test_where_each_encoding_finds_a_key_is_as_its_rows_say() -> None:
    rows = packed("retrieval", "effective_length")
    reach = rows.groupby(["task", "encoder"])["value"].mean()
    whole = (reach >= rows["value"].max()).groupby("task").sum()
    said = re.findall(r"\d+", ANSWERS["retrieval"][0])
    assert said == [str(whole["associative_recall"]), str(whole["passkey"])]
    far = packed("retrieval", "token_accuracy", "-passkey-").query("eval_length == 128 and depth == depth")
    found = far.pivot_table(index="encoder", columns="depth", values="value")
    blind = found[(found[0.125] < found[[0.0, 0.25]].min(axis=1) - 0.095) & (found.idxmin(axis=1) == 0.125)]
    log = (ROOT / "docs/log/2026-11-26.md").read_text("utf-8").partition("**Many rotations have a blind spot.**")[2]
    assert set(re.findall(r"`(\w+)`", log.partition("(Five")[0])) - {"passkey"} == {
        *blind.index.str.partition("(").get_level_values(0)
    }
    assert len(blind) == 10


def test_which_grids_are_kept_is_as_their_rows_say() -> None:
    kept = read_table("grid", "standings").pivot_table(index="series", columns="task", values="kept_2")
    kept.index = kept.index.str.partition(" ").get_level_values(0)
    more, finer = kept["above(min_length=4)"], kept["digits"]
    *whole, most = re.findall(r"`(\w+)`", ANSWERS["grid"][0])
    assert (set(whole), most) == (set(more.index[more > 0.9]), finer.idxmax())
    assert re.findall(r"\.\d+", ANSWERS["grid"][0]) == [short(finer.max())]
    assert finer.max() < 0.9, "none keeps all"


def test_how_many_causal_tasks_are_kept_is_as_their_rows_say() -> None:
    kept = read_table("tasks", "standings").pivot_table(index="task", columns="series", values="kept_2")
    most = ((kept > 0.9).sum(axis=1) > kept.shape[1] / 2).sum()
    hard = (kept.max(axis=1) < 0.6).sum()
    words = ["no", "one", "two", "three", "four", "five", "six", "seven"]
    assert (
        f"Most encodings keep {words[most]} of them at twice the length, and of {words[hard]} nobody keeps 60 %"
        in (ANSWERS["tasks"][0])
    )


def test_what_the_encodings_do_inside_is_as_measured() -> None:
    tables = ROOT / "results" / "measures" / "report" / "tables"

    def mean(table: str, **asked: Any) -> pd.DataFrame:
        rows = pd.read_csv(tables / f"{table}.csv")
        for column, value in asked.items():
            rows = rows[rows[column].isna() if value is None else rows[column] == value]
        rows["share"] = rows["mean"] / rows["chance"]
        return rows.groupby(rows["series"].str.split(r"[(,]").str[0].str.strip())[["mean", "share"]].mean()

    def probed(task: str) -> pd.Series[float]:
        return mean(f"{task}_position_probe", metric="probe_error", condition=None, layer=3)["share"]

    def right(task: str, length: int) -> list[pd.Series[float]]:
        asked = {"metric": "token_accuracy", "eval_length": length}
        return [100 * mean(f"{task}_answer_positions", **asked, condition=each)["mean"] for each in (None, MOVED)]

    measured = standings("measures")
    bits = mean("text_bits_per_byte", eval_length=512)["mean"]
    distance = mean("text_attention_pattern", metric="mean_distance")["mean"]
    sides = {(task, length): right(task, length) for task, length in (("copy", 32), ("reverse", 24))}
    guide = (ROOT / "docs" / "results.md").read_text("utf-8")
    section = guide.partition("do inside\n")[2].partition("\n## ")[0]
    lines = cells_of(section)
    assert [series for series, *_ in lines] == list(bits.sort_values().index)
    for series, *cells in lines:
        assert cells == [
            f"{bits[series]:.2f}",
            f"{distance[series]:.1f}",
            *(short(str(probed(task)[series])) for task in ("text", "copy")),
            headline(measured["reverse", series]).partition(" · ")[0].replace("−.00", ".00"),
            *(f"{own[series]:.0f} · {moved[series]:.0f}" for own, moved in sides.values()),
        ]
    in_range = mean("text_bits_per_byte", eval_length=128)["mean"]
    kept = pd.Series({series: float(measured["text", series]["kept"]) for series in bits.index})
    encodings = bits.index.drop("short_convolution")
    near, far, of_kept = (stats.spearmanr(distance[encodings], of[encodings]) for of in (in_range, bits, kept))
    assert of_kept.pvalue > 0.05
    told = [short(str(found.statistic)) for found in (near, far, of_kept)]
    log = (ROOT / "docs" / "log" / "2026-11-28.md").read_text("utf-8").partition("do inside\n")[2]
    assert re.findall(r"(?<=[ (])−?\.\d+", section.split("\n\n")[-2]) == told[:2]
    (said,) = re.findall(r"Spearman's(.*?)not significant", " ".join(log.split()))
    assert re.findall(r"−?\.\d+", said) == told
    lost = pd.read_csv(tables / "copy_shift_sensitivity.csv")
    lost = 100 * lost[lost["metric"] == "quality_loss"].groupby("series")["mean"].max()
    assert re.findall(r"up to (\d+) and (\d+) points", section) == [
        (f"{lost['learned']:.0f}", f"{lost['sinusoidal']:.0f}")
    ]
    assert lost.drop(["learned", "sinusoidal"]).max() < 0.5


@pytest.mark.parametrize("path", [ROOT / "README.md", CHINESE], ids=lambda path: path.name)
def test_the_first_picture_s_numbers_are_those_of_its_tables(path: Path) -> None:
    first = path.read_text(encoding="utf-8").partition("answer.svg)")[2].partition("\n- ")[0]
    first = re.sub(r"\s+", " ", first)
    tables = ROOT / "results" / "classic" / "report" / "tables"
    with (tables / "copy_token_accuracy.csv").open(newline="") as file:
        at_twice = {line["series"]: line["mean"] for line in csv.DictReader(file) if line["eval_length"] == "32"}
    named = dict(re.findall(r"`(\w+)` (\d+)", first))
    assert named == {series: f"{100 * float(mean):.0f}" for series, mean in at_twice.items()}
    far = pd.read_csv(tables / "copy_token_accuracy.csv").set_index(["series", "eval_length"])["mean"]
    told = re.findall(r"128 (?:symbols|个符号).*? (\d+) %\D+(\d+)\D+(\d+)", first)
    others = 100 * far.xs(128, level=1).drop("alibi").dropna()
    assert told == [tuple(f"{value:.0f}" for value in (100 * far["alibi", 128], others.min(), others.max()))]
    drawn = read_table("numberings", "copy_token_accuracy")
    drawn = drawn.set_index(["series", "eval_length"])["mean"]
    text = path.read_text(encoding="utf-8")
    told = {f"{100 * drawn[series, 32]:.0f}" for series in ("sinusoidal", "sinusoidal · coupled")}
    told_of = re.split(r"share\s+a\s+position|共用一个位置", text)[1].partition("[")[0]
    assert {*re.findall(r"\d+", told_of)} == {*told, "32"}


@pytest.mark.parametrize("encoder", ["sinusoidal", "alibi"])
def test_the_guide_s_two_runs_are_those_that_come_with_the_code(encoder: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "results" / "classic" / "runs.tar.xz", tmp_path)
    (run,) = (place for place in run_folders(tmp_path) if place.name.startswith(f"{encoder}-copy-seed0"))
    table = read_rows(run / "rows.csv", tmp_path, run.name)
    right = [
        f"{100 * float(value):.0f}"
        for experiment, metric, value in zip(table["experiment"], table["metric"], table["value"], strict=True)
        if (experiment, metric) == ("length_extrapolation", "token_accuracy")
    ]
    (line,) = re.findall(rf"^{encoder} right, %(.*)$", (ROOT / "docs" / "see_one_fail.md").read_text("utf-8"), re.M)
    assert re.findall(r"\d+", line) == right


def test_the_guide_s_numberings_are_those_of_their_rows() -> None:
    table = read_table("numberings", "copy_token_accuracy")
    means = {str(name): part.set_index("eval_length")["mean"] for name, part in table.groupby("series")}
    guide = (ROOT / "docs" / "see_one_fail.md").read_text("utf-8")
    shuffled = read_table("numberings", "copy_permuted_positions")
    shuffled = shuffled[(shuffled["metric"] == "token_accuracy") & (shuffled["condition"] == "positions: shuffle")]
    blind = shuffled.set_index("series")["mean"]
    (section,) = re.findall(r"^\| numbering in training.*\n\|[-|]+\n((?:\|.*\n)+)", guide, re.M)
    lines = [[cell.strip() for cell in row.split("|")[1:-1]] for row in section.splitlines()]
    assert len(lines) == len(means) == 6
    for name, _, *told in lines:
        encoder, *numbering = re.findall(r"`(\w+)`", name)
        (series,) = (each for each in means if each.partition("(")[0] == " · ".join([encoder, *numbering]))
        values = [*(means[series][length] for length in (16, 32, 64, 128)), blind[series]]
        assert told == [f"{100 * value:.0f}" for value in values], series


def renumbered() -> dict[tuple[str, int, bool], str]:
    """Percent right by series, length, and whether the answers are numbered as in training."""
    table = read_table("renumbered", "copy_answer_positions")
    table = table[table["metric"] == "token_accuracy"]
    keys = zip(table["series"], table["eval_length"], table["condition"].notna(), strict=True)
    return dict(zip(keys, (f"{100 * mean:.0f}" for mean in table["mean"]), strict=True))


@pytest.mark.parametrize("path", [ROOT / "README.md", CHINESE], ids=lambda path: path.name)
def test_why_is_answered_with_what_was_measured(path: Path) -> None:
    text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
    (said,) = re.findall(r"(?:trained no further|不再训练)(.*?)(?:the formula|公式)", text)
    right, asked = renumbered(), [("sinusoidal", 20), ("learned", 20), ("rope", 20), ("rope", 32)]
    wanted = [right[series, length, moved] for series, length in asked for moved in (False, True)]
    assert Counter(re.findall(r"\d+", said)) == Counter([*wanted, "32"])


def test_the_guide_s_renumbered_words_are_those_of_their_rows() -> None:
    guide, right = (ROOT / "docs" / "see_one_fail.md").read_text("utf-8"), renumbered()
    (section,) = re.findall(r"^\| right, %, of words of.*\n\|[-|]+\n((?:\|.*\n)+)", guide, re.M)
    lines = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in section.splitlines()]
    assert {series for series, *_ in lines} == {series for series, *_ in right}
    for series, *told in lines:
        assert told == [right[series, length, moved] for length in (20, 24, 32) for moved in (False, True)], series


def test_the_log_s_verdicts_are_those_of_its_rows() -> None:
    measured = standings("decided")
    log = (ROOT / "docs" / "log" / "2026-11-26.md").read_text(encoding="utf-8")
    told = {"## Every encoder against none": ("copy", "text"), "## Recall, against none": ("associative_recall",)}
    for title, tasks in told.items():
        section = log.partition(title)[2].partition("\n## ")[0]
        lines = cells_of(section)
        assert len(lines) == sum(of in tasks for of, _ in measured) / len(tasks)
        for series, *cells in lines:
            for task, cell in zip(tasks, cells, strict=True):
                assert cell == against_none(measured[task, series.partition("(")[0]]), (task, series)
    counted = Counter((task, line["verdict"]) for (task, _), line in measured.items())
    numbers = [counted["copy", "better"], counted["copy", "worse"], counted["text", "better"], counted["text", "worse"]]
    (told_of,) = re.findall(r"Of 56 encodings (.*?)\. Rows", " ".join(log.split()))
    assert [int(number) for number in re.findall(r"\d+", told_of)] == numbers
    every = standings("decided_best")
    kept = [f"{100 * float(every[task, name]['kept']):.0f}" for task in TASKS for name in ("none", "rope")]
    for file in ("README.md", "README.zh-CN.md"):
        (line,) = re.findall(r"^- \*\*(?:No encoding|不用编码)(?:.*\n)+?(?=- )", (ROOT / file).read_text("utf-8"), re.M)
        assert re.findall(r"\d+", line)[:6] == kept, file


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_board_s_first_lines_are_those_of_its_rows(file: str) -> None:
    """All seeds, which are in the search for the best; verdicts and places are those of the comparisons with none."""
    measured, against = (standings(folder) for folder in ("decided_best", "decided"))
    kept: dict[str, list[float]] = {}
    for (_, series), line in measured.items():
        kept.setdefault(series, []).extend([float(line["kept"])] if line["kept"] else [])
    ranked = sorted((series for series in kept if len(kept[series]) == len(TASKS)), key=lambda each: -sum(kept[each]))
    control = "short_convolution"
    ranked.remove(control)
    times = read_table("decided", "cost_and_quality")
    times = times.set_index(times["series"].str.partition("(")[0].str.strip())["relative_inference_time"]
    bits = bits_at_four_times()
    head = r"^\| \w+ \| `copy` \| \w+ \| `associative_recall` .*\n\|[-|]+\n((?:\|.*\n)+)"
    board = re.search(head, (ROOT / file).read_text("utf-8"), re.M)
    assert board
    lines = cells_of(board[1])
    told = [series for series, *_ in lines]
    assert told[:10] == ranked[:10]
    known = ("alibi", "t5", "none", "rope", "learned", "sinusoidal")
    assert told[10:] == [*(series for series in ranked if series in known), control]
    for series, copied, own, recalled, told_bits, time in lines:
        for task, cell in (("copy", copied), ("associative_recall", recalled)):
            assert cell == headline(measured[task, series]).partition(" · ")[0], series
        assert own == short(measured["copy", series]["free_running_kept"]), series
        mean, low, high = bits.loc[series, ["mean", "low", "high"]]
        assert told_bits == f"{mean:.2f} [{low:.2f}, {high:.2f}]", series
        assert time == f"{times[series]:.2g}", series
    assert {against[task, series]["verdict"] for task in TASKS for series in ranked[:10]} == {"better"}
    (case,) = re.findall(r"^\| (?:must copy|要在更长).*$", (ROOT / file).read_text("utf-8"), re.M)
    first = sorted(ranked[:10], key=lambda series: -float(measured["copy", series]["free_running_kept"]))[:3]
    assert set(re.findall(r"`(\w+)`", case.split("|")[2])) == set(first), "those that copy best after their own answers"
    places = {series: [headline(against[task, series]).partition(" · ")[2] for task in TASKS] for series in told[:-1]}
    (first,) = {tuple(places.pop(series)) for series in told[:12]}
    named = dict.fromkeys(tuple(places[name]) for name in known[2:])
    (said,) = re.findall(
        r"^- \*\*(?:Decided: the first|已判定：前)(?:.*\n)+?(?=- )", (ROOT / file).read_text("utf-8"), re.M
    )
    (told_of,) = re.findall(
        r"^## Places on the board\n((?:(?!## ).*\n)+)", (ROOT / "docs/results.md").read_text("utf-8"), re.M
    )
    every = [*first, *(place for each in named for place in each)]
    assert re.findall(r"\d+–\d+", told_of) == every
    assert re.findall(r"(?<!\.)\b\d+–\d+(?!\.?\d)", (ROOT / file).read_text("utf-8")) == every[:-3]
    others = sum(all(against[task, series]["verdict"] == "better" for task in TASKS) for series in ranked[10:])
    assert {13: ("thirteen more", "十三种")}[others][file != "README.md"] in " ".join(said.split())


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/log/2026-11-28.md"])
def test_which_may_be_the_best_is_as_the_tests_say(file: str) -> None:
    measured = standings("decided_best")
    left: dict[str, set[str]] = {task: set() for task in TASKS}
    for (task, series), line in measured.items():
        left[task] |= {series} if line["possibly_best"] == "True" else set()
    text = (ROOT / file).read_text("utf-8")
    if file.startswith("README"):
        (said,) = re.findall(
            r"(?:Open: which keeps most|未定：哪一种保持得最多)(.*?)\]\(docs/log", " ".join(text.split())
        )
        assert re.findall(r"\b\d+\b", said)[1:] == [str(len(left[task])) for task in TASKS]
        assert not set.intersection(*left.values())
        named = set(re.findall(r"`(\w+)`", said)) - set(TASKS)
        assert named == (left["copy"] & left["associative_recall"]) - {"short_convolution"}
        return
    section = text.partition("## Which may be the best?")[2].partition("\n## ")[0]
    rows = cells_of(section)
    assert {series for series, *_ in rows} == set.union(*left.values())
    for series, *cells in rows:
        for task, cell in zip(TASKS, cells, strict=True):
            line = measured.get((task, series))
            value = short(line["kept"]) if line and line["status"] == "ok" else "–"
            assert cell == (f"**{value}**" if series in left[task] else value), (task, series)


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_first_finding_is_that_of_its_rows(file: str) -> None:
    kept = {key: float(line["kept"] or "nan") for key, line in standings("decided_best").items()}
    (told,) = re.findall(
        r"^- \*\*(?:Longer than trained|输入比训练时更长)(?:.*\n)+?(?=- )", (ROOT / file).read_text("utf-8"), re.M
    )
    assert kept["text", "alibi"] > 1
    named = [("text", series) for series in ("t5", "none", "rope", "sinusoidal")]
    named += [("copy", series) for series in ("dape", "dynamic_bias", "alibi", "rope", "sinusoidal", "rerope")]
    numbers = re.findall(r"\d+", re.sub(r"[(（]0\.6.*?[)）]", "", told.partition("T5")[2].removeprefix("'s")))
    claims = read_table("claims", "statements").set_index("tested")
    (gain,) = claims.loc[claims.index.str.startswith("the same bytes scored with four"), "measured"]
    assert numbers == [*(f"{100 * kept[key]:.0f}" for key in named), f"{gain:.3f}".removeprefix("0.")]


def test_the_log_s_grids_are_those_of_its_rows() -> None:
    with (ROOT / "results" / "grid" / "report" / "tables" / "standings.csv").open(newline="") as file:
        measured = {(line["task"].partition("(")[0], line["series"]): line for line in csv.DictReader(file)}
    text = (ROOT / "docs" / "log" / "2026-11-26.md").read_text(encoding="utf-8")
    log = text.partition("\n## Rows and columns")[2].partition("\n## ")[0]
    lines = cells_of(log)
    assert len(lines) == len(measured) / 2 == 14
    for series, *cells in lines:
        for task, cell in zip(("above", "digits"), cells, strict=True):
            line = measured[task, series]
            if line["status"] != "ok":
                assert cell == f"{line['status']}, {100 * float(line['in_range']):.0f}"
                continue
            trained, _, twice, _, places = cell.split(" · ")
            assert trained == f"{100 * float(line['in_range']):.0f}"
            assert places == "–".join(dict.fromkeys(f"{float(line[end]):g}" for end in ("place_low", "place_high")))
            guess = 10 if task == "above" else 12  # of digits, the most frequent one
            assert int(twice) == pytest.approx(guess + float(line["kept"]) * (int(trained) - guess), abs=2)


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/results.md"])
def test_the_verdict_that_depends_on_the_runs_has_its_rows(file: str) -> None:
    told = read_table("claims", "statements")
    ntk = told[told["tested"] == "NTK-aware, zero-shot"].iloc[0]
    text = (ROOT / file).read_text(encoding="utf-8")
    assert ntk["outcome"] == "holds"
    assert f"{ntk['measured']:.2f}" in text
    smaller = read_table("small_text", "statements").set_index("tested").loc["NTK-aware, zero-shot"]
    assert smaller["outcome"] == "fails"
    assert f"{smaller['measured']:.2f}" in text
    if file.startswith("README"):
        assert f"[{ntk['low']:.2f}, {ntk['high']:.2f}]" in text


def test_the_guide_calls_decided_what_is_decided() -> None:
    guide = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    verdicts = {key: line["verdict"] for key, line in standings("decided").items()}
    lines = {
        case: next(line for line in guide.splitlines() if line.startswith(f"| {case}")) for case in ("text", "exact")
    }
    for case, task in (("text", "text"), ("exact", "copy")):
        named = re.findall(r"`(\w+)`", lines[case].split("|")[2])
        assert len(named) == 3
        assert {verdicts[task, name] for name in named} == {"better"}, named
    for task in ("copy", "text"):
        assert {verdicts[task, name] for name in ("rope", "learned", "sinusoidal")} == {"worse"}
        assert verdicts[task, "alibi"] == "better"
    told = read_table("claims", "statements").set_index("tested")
    for tested in (
        "YaRN, zero-shot",
        "control: Llama 3's scaling, zero-shot",
        "NTK-aware, zero-shot",
        "YaRN, fine-tuned",
    ):
        assert told.loc[tested, "outcome"] == "holds"
    yarn, llama, untouched = (
        "{measured:.2f} [{low:.2f}, {high:.2f}]".format(**told.loc[tested])
        for tested in ("YaRN, zero-shot", "control: Llama 3's scaling, zero-shot", "control: rope as trained")
    )
    evidence = " ".join((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    assert f"(20 seeds: {yarn} and {llama}; unchanged {untouched})" in evidence
    assert f"{told.loc['NTK-aware, zero-shot', 'measured']:.2f} at 0.6 M" in evidence


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/results.md", "docs/log/2026-11-28.md"])
def test_who_is_better_than_rope_is_as_its_rows_say(file: str) -> None:
    measured = standings("decided_rope")
    verdicts = Counter(line["verdict"] for line in measured.values() if line["verdict"])
    better = Counter(series for (_, series), line in measured.items() if line["verdict"] == "better")
    ahead = {series for series, count in better.items() if count == len(TASKS)} - {"short_convolution"}
    text = " ".join((ROOT / file).read_text("utf-8").split())
    if file.startswith("README"):
        start, middle = r"(\d+) (?:keep more than `rope`|种在三个任务上都比 `rope`)", r"(?:Of all|的全部) (\d+)[^)）]+"
        pattern = start + ".*?" + middle + r"\D*(\d+)\D+(\d+) (?:worse|个更差)"
        (told,) = re.findall(pattern, text)
        tested = sum(verdicts[verdict] for verdict in ("better", "worse", "undecided"))
        counted = (len(ahead), tested, verdicts["better"], verdicts["worse"])
        assert tuple(map(int, told)) == counted
        assert {"alibi", "t5"} <= ahead
    elif "log" not in file:
        assert f"(log/2026-11-28.md#every-encoder-against-rope) {len(ahead)} are" in text
    else:
        assert f"**{len(ahead)} encodings keep more than `rope` on all three tasks**" in text
        section = (ROOT / file).read_text("utf-8").partition("## Every encoder against RoPE")[2].partition("\n## ")[0]
        rows = cells_of(section)
        assert {series for series, *_ in rows} == {series for _, series in measured}
        for series, *cells in rows:
            for task, cell in zip(TASKS, cells, strict=True):
                line = measured.get((task, series))
                assert cell == (against_none(line) if line else "–"), (task, series)


def test_who_is_better_than_rope_on_more_tasks_is_as_its_rows_say() -> None:
    measured = {(task.partition("(")[0], series): line for (task, series), line in standings("decided_more").items()}
    section = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Every encoder against RoPE on four")[2]
    section = section.partition("\n## ")[0]
    (head,) = re.findall(r"^\| encoder \| (.*) \|$", section, re.M)
    tasks, rows = re.findall(r"`(\w+)`", head), cells_of(section)
    assert set(tasks) == {task for task, _ in measured}
    assert {series for series, *_ in rows} == {series for _, series in measured}
    for series, *cells in rows:
        assert cells == [against_none(measured[task, series]) for task in tasks], series
    counted = {task: Counter(line["verdict"] for (of, _), line in measured.items() if of == task) for task in tasks}
    better = counted["selective_copy"]["better"] - 1  # the control
    assert f"**On `selective_copy` {better} encodings and the control are better" in section
    assert f"on `selective_copy` {better} and the control are" in ANSWERS["decided_more"][0]
    assert [counted["reverse"][verdict] for verdict in ("better", "worse", "open")] == [10, 8, 36], "with the control"
    for text in (section, " ".join((ROOT / "docs/results.md").read_text("utf-8").split())):
        (said,) = re.findall(r"`selective_rope` \(53.*?\)(?= are better|\. Worse)", " ".join(text.split()))
        told = dict(re.findall(r"(?:`(?=\w)|the )(\w+)`? \((\d+)", said))
        assert told == {
            name.replace("short_convolution", "control"): f"{100 * float(line['kept']):.0f}"
            for (of, name), line in measured.items()
            if of == "reverse" and line["verdict"] == "better" and name != "path"
        }
    flipped = {
        verdict: {
            name: float(line["kept"])
            for (of, name), line in measured.items()
            if of == "flip_flop" and line["verdict"] == verdict
        }
        for verdict in ("better", "worse", "undecided")
    }
    assert list(map(len, flipped.values())) == [21, 7, 23]
    best = sorted(flipped["better"].values(), reverse=True)
    assert [best[14] > 0.965, *(f"{100 * best[place]:.0f}" for place in (15, 20))] == [True, "91", "86"]
    (bullet,) = re.findall(r"^- \*\*On `flip_flop` 21 .*\n(?:  .*\n)+", section, re.M)
    assert set(re.findall(r"`(\w+)`", bullet)) - {"flip_flop", "rope"} >= {*flipped["better"], *flipped["worse"]}
    rows = packed("decided_more", "token_accuracy", "-flip_flop-").query("experiment == 'length_extrapolation'")
    right = 100 * rows[rows["eval_length"] == 64].pivot_table(index="seed", columns="encoder", values="value")
    ends = "the twenty have {:.0f} to {:.0f} %".format(*right["rope"].agg(["min", "max"]))
    worst = right[["stick_breaking", "path", "fox", "dape"]].min().min()
    assert re.search(f"{ends} of the answers right.*`dape` has {worst:.1f}", " ".join(bullet.split()))
    indexed = [counted[tasks[-1]][verdict] for verdict in ("better", "worse", "open")]
    assert indexed == [19, 8, 25], "with the control"
    results = " ".join((ROOT / "docs/results.md").read_text("utf-8").split())
    for text in (section, ANSWERS["decided_more"][0], results):
        assert f"{indexed[0] - 1} encodings and the control" in text or f"{indexed[0] - 1} and the control are" in text
    left = {
        name: f"{100 * float(line['kept']):.0f}"
        for (of, name), line in measured.items()
        if of == tasks[-1] and line["kept"]
    }
    flip, copied, without = (
        f"{100 * float(measured[key]['kept']):.0f}"
        for key in (("flip_flop", "rope"), ("selective_copy", "rope"), ("selective_copy", "none"))
    )
    assert f"`rope` keeps {flip} % at 2 and 4 times" in " ".join(bullet.split())
    assert f"`rope` keeps {flip} %, fifteen 97 or more" in results
    assert f"keeps {copied} % at 2 and 4 times the length;" in " ".join(section.split())
    assert f"`none` keeps {without} %, `rope` {copied}." in results
    told = "`rope` {rope} %, `none` {none}, `sinusoidal` {sinusoidal} and `learned` {learned}".format(**left)
    assert told in results
    assert f"`pope` keeps .{left['pope']} at twice the length, RoPE .{left['rope']}, open" in results
    assert measured[tasks[-1], "pope"]["verdict"] == "open"


def test_which_may_be_the_best_on_more_tasks_is_as_the_rows_say() -> None:
    every, best = standings("decided_more_best"), {}
    for (task, series), line in every.items():
        best.setdefault(task.partition("(")[0], set()).update([series] * (line["possibly_best"] == "True"))
    assert set.intersection(*best.values()) == {"path"}
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Which may be the best on these tasks")[2]
    said = " ".join(log.partition("\n## ")[0].split())
    learned = Counter(task.partition("(")[0] for (task, _), line in every.items() if line["status"] == "ok")
    flipped, indexed, copied = (
        f"{len(best[task])} of {learned[task]}" for task in ("flip_flop", "indirect_indexing", "selective_copy")
    )
    assert (
        f"one of {flipped} on `flip_flop`, of {indexed} in indirect indexing, of {copied} on `selective_copy`" in said
    )
    path = every["reverse", "path"]
    assert re.findall(r"(?<!\d)\.\d\d", said) == [
        *(short(path[each]) for each in ("kept", "low", "high", "kept_2")),
        *(
            short(every["reverse", each]["kept"])
            for each in ("dape_v2", "selective_rope", "rerope", "short_convolution")
        ),
        *(short(every["reverse", each]["free_running_kept"]) for each in ("path", "selective_rope")),
    ]
    report = (RESULTS / "decided_more_best" / "report" / "report.md").read_text("utf-8")
    assert report.startswith("# Possibly the best, with 95 % confidence on each task: path on reverse, ")
    (ends,) = re.findall(r"nearest to that: dape_v2 \(beside path −([\d.]+) \\\[−([\d.]+), −([\d.]+)", report)
    less, most, least = (f"{float(end):.0f}" for end in ends)
    assert f"{less} points less [{least}, {most}]" in said


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/choose.md"])
def test_who_reverses_longer_words_is_as_the_rows_say(file: str) -> None:
    every = standings("decided_more_best")
    lines = {series: line for (task, series), line in every.items() if task == "reverse"}
    kept = {series: float(line["kept"] or "nan") for series, line in lines.items()}
    first, second = sorted((each for each in kept if kept[each] == kept[each]), key=lambda each: -kept[each])[:2]
    assert [series for series, line in lines.items() if line["possibly_best"] == "True"] == ["path"] == [first]
    assert (lines["path"]["seeds"], sum(line["status"] == "ok" for line in lines.values())) == ("20", 55)
    free = [short(lines[each]["free_running_kept"]) for each in ("path", "selective_rope")]
    control = ["short_convolution"] * file.startswith("README")
    told = [short(lines[each]["kept"]) for each in ("path", second, *control, "rope")]
    own = short(standings("decided_best")["copy", "path"]["kept"])
    text = " ".join((ROOT / file).read_text("utf-8").split())
    _, marker, said = re.split(r"(Reversing a longer word|倒转更长的词|reversing what is longer)", text)
    cost = read_table("decided", "cost_and_quality").set_index("series").loc["path"]
    train, read = (f"{cost[f'relative_{what}_time']:.1f}" for what in ("train", "inference"))
    assert file.startswith("README") or f"{train} times the time to train of `none`, {read} to read" in text
    wanted = [*told, *free, own]
    assert re.findall(r"(?<!\d)\.\d\d", said)[: len(wanted)] == wanted, marker


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/log/2026-11-28.md"])
def test_what_is_kept_at_each_learning_rate_is_as_its_rows_say(file: str) -> None:
    kept: dict[tuple[str, str, str], list[str]] = {}
    for task in TASKS:
        with (ROOT / f"results/tuned/report/tables/{task}_tuning.csv").open(newline="") as table:
            for line in csv.DictReader(table):
                kept.setdefault((task, line["series"].partition("(")[0], line["learning_rate"]), []).append(
                    line["kept"]
                )

    def told(task: str, series: str, rate: str) -> str:
        known = [float(each) for each in kept[task, series, rate] if each]
        of = f" ({len(known)} of {len(kept[task, series, rate])})" * (len(known) < len(kept[task, series, rate]))
        return f"{short(str(sum(known) / len(known)))}{of}" if known else "–"

    rates = ("0.001", "0.003", "0.01")
    if file.startswith("README"):
        pattern = r"`dynamic_bias`\D+\.003\D*(\.\d+)\D+\.01\D*(\.\d+)"
        assert re.findall(pattern, (ROOT / file).read_text("utf-8")) == [
            tuple(told("copy", "dynamic_bias", rate) for rate in rates[1:])
        ]
        return
    section = (ROOT / file).read_text("utf-8").partition("come from its learning rate?")[2].partition("\n## ")[0]
    rows = cells_of(section)
    assert {series for series, *_ in rows} == {series for _, series, _ in kept}
    for series, *cells in rows:
        assert cells == [told(task, series, rate) for task in TASKS for rate in rates], series


def test_how_many_pairs_keep_their_order_at_another_learning_rate_is_as_the_rows_say() -> None:
    found = []
    for task, rates in (("copy", (0.001, 0.01)), ("text", (0.001, 0.01)), ("associative_recall", (0.001,))):
        kept = read_table("tuned", f"{task}_tuning").pivot_table(index="series", columns="learning_rate", values="kept")
        for rate in rates:
            both = kept[[0.003, rate]].dropna()
            leads = [both.loc[one] - both.loc[other] for one, other in itertools.combinations(both.index, 2)]
            apart = [lead for lead in leads if abs(lead[0.003]) > 0.1]
            found.append((sum(lead.prod() > 0 for lead in apart), len(apart)))
    of_text = found.pop(2)
    assert of_text == found[2], "text at both rates"
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("mostly keep their order")[2]
    told = re.findall(r"(\d+) of (\d+)", log.partition("\n- ")[0])
    assert [tuple(map(int, pair)) for pair in told] == found


def test_who_has_learned_at_a_context_of_1024_is_as_the_rows_say() -> None:
    with tarfile.open(RESULTS / "ladder_1024" / ARCHIVE) as archive:
        records = [json.load(archive.extractfile(name)) for name in archive.getnames() if name.endswith("/run.json")]
    learned = [record["run_id"] for record in records if record["converged"]]
    answer = ANSWERS["ladder_1024"][0]
    assert (len(records) - len(learned), len(records)) == (8, 14)
    assert "eight of 14 runs did not learn" in answer
    rows = packed("ladder_1024", "bits_per_byte").query("run_id in @learned and eval_length == 2048")
    bits = rows[rows["experiment"] == "length_extrapolation"].set_index("encoder")["value"]
    assert re.findall(r"` (\d\.\d\d)", answer) == [f"{bits[name]:.2f}" for name in ("alibi", "sinusoidal")]


def test_who_learns_without_a_mask_is_as_the_rows_say() -> None:
    tables = ROOT / "results/bidirectional/report/tables"
    told = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Without a causal mask")[2]
    lines = re.findall(r"^\| `(\w+)`(, random positions)? \| (\d+) \| (\d+) \| (\d+) \|$", told, re.M)
    said = {name + " · randomized" * bool(drawn): tuple(map(int, counts)) for name, drawn, *counts in lines}
    learned = pd.read_csv(tables / "standings.csv").groupby("series")["seeds_learned"]
    expected = {name: (seeds.sum(), (seeds > 0).sum(), (seeds == 3).sum()) for name, seeds in learned}
    assert said == expected
    over = pd.read_csv(tables / "over_tasks.csv").set_index("series")
    section = " ".join((ROOT / "docs/results.md").read_text("utf-8").split())
    wins, losses, compared = (over[column] for column in ("wins", "losses", "compared"))
    assert f"`rerope` wins {wins['rerope']} comparisons of {compared['rerope']} and loses none" in section
    assert f"`dynamic_bias` wins {wins['dynamic_bias']} of {compared['dynamic_bias']} and loses none" in section
    assert f"`rope` wins none of {compared['rope']} and loses {losses['rope']};" in section
    assert (losses["rerope"], losses["dynamic_bias"], wins["rope"]) == (0, 0, 0)
    assert f"of all {wins.sum()} comparisons that are decided" in section
    table = pd.read_csv(tables / "standings.csv").pivot_table(index="series", columns="task", values="seeds_learned")
    ordered = table.loc[:, table.loc["none"] == 0]
    assert ordered.shape[1] == 9
    counts = ordered.sum(axis=1).astype(int)
    assert {counts[name] for name in ("deberta", "rope", "learned")} == {24}
    assert (
        f"learn in 24 of 27 runs, `dynamic_bias` in {counts['dynamic_bias']}, `rerope` in {counts['rerope']}."
        in section
    )


def test_what_is_kept_of_the_causal_tasks_is_as_the_rows_say() -> None:
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8")
    told = log.partition("## Thirteen more causal tasks")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in re.findall(r"^\|[^-\n].*\|$", told, re.M)]
    names = [name.replace("`", "").replace(", random", " · randomized") for name in lines[0][1:]]
    standings = read_table("tasks", "standings")
    standings["task"] = standings["task"].str.partition("(")[0]
    kept = standings.pivot_table(index="task", columns="series", values="kept_2", dropna=False)
    assert len(lines) == len(kept) + 1 == 14
    for task, *cells in lines[1:]:
        said = [float("nan") if cell == "–" else float(cell.replace("−", "-")) for cell in cells]
        assert said == pytest.approx(list(kept.loc[task.strip("`"), names]), abs=0.005 + 1e-9, nan_ok=True)


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_count_of_verdicts_is_that_of_the_claims_report(file: str) -> None:
    told = read_table("claims", "statements")
    verdicts = told.drop_duplicates("statement")["verdict"].str.partition(" ")[0].value_counts()
    partly = int(told.drop_duplicates("statement")["verdict"].str.startswith("holds ").sum())
    text = " ".join((ROOT / file).read_text(encoding="utf-8").split())
    ((*said, trained),) = re.findall(
        r"(?:28 published claims|28 条已发表的说法).*?\*\*\D*(\d+)\D+(\d+)\D+(\d+).*?(Ten.*?some|十条.*?某些)", text
    )
    assert told["statement"].nunique() == 28
    assert list(map(int, said)) == [verdicts["holds"] - partly, verdicts["fails"], partly]

    def of_a_trained_model(case: dict[str, Any]) -> bool:
        untrained = case["metric"].startswith("initial_") or "num_rows" in case.get("encoder", "")
        return case["experiment"] != "structure" and not untrained

    files = [ROOT / "configs" / "statements" / f"{name}.yaml" for name in ("length", "encoding", "order")]
    asked = [each for path in files for each in yaml.safe_load(path.read_text("utf-8"))["statements"]]
    of_models = {each["statement"] for each in asked if of_a_trained_model(each["tests"][0]["rows"])}
    verdict = told[told["statement"].isin(of_models)].drop_duplicates("statement")["verdict"]
    counted = [int((verdict == "holds").sum()), int((verdict == "fails").sum())]
    assert len(verdict) == 10
    assert re.findall(r"\d+", trained) == [*map(str, counted), str(10 - sum(counted))]


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_the_count_of_published_findings_is_that_of_their_reports(file: str) -> None:
    section = (RESULTS / "README.md").read_text("utf-8").partition("## Published findings")[2]
    told = dict(re.findall(r"^\| \[(\w+)\]\(.*\| (\w+)[^|]*\|$", section, re.M))
    counted = Counter[str]()
    for folder, verdict in told.items():
        head = (RESULTS / folder / "report" / "report.md").read_text("utf-8").partition("\n")[0]
        assert head.endswith(f": {verdict}"), folder
        counted[verdict] += 2 if folder in ("wu_place", "urrutia_roles") else 1
    text = " ".join((ROOT / file).read_text("utf-8").split())
    said = re.findall(r"(?:until each is decided:|直到判定：)\D*(\d+)\D+(\d+)\D+(\d+)\D+(\d+)", text)
    assert said == [tuple(str(counted[verdict]) for verdict in ("holds", "fails", "equal", "undecided"))]
    assert (len(told), counted.total()) == (18, 20)


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_what_readme_says_of_larger_models_is_that_of_the_ladder(file: str) -> None:
    text = " ".join((ROOT / file).read_text("utf-8").split())
    pairs = read_table("ladder", "transfer").query("multiple == 4")
    far = pairs.query("first == 147456 and second == 9830400").iloc[0]
    number = int(far["encoders"])
    told = re.findall(r"(?:tell|区分) (\d+) (?:of|对中的) (\d+)\D+0\.15|(?:区分 (\d+) 对中的 (\d+))", text)
    assert [tuple(filter(None, each)) for each in told] in (
        [(str(far["decided"]), str(number * (number - 1) // 2))],
        [(str(number * (number - 1) // 2), str(far["decided"]))],
    )
    assert far["kept"] == far["decided"]
    more = pairs.query("axis != 'size' and at == 2654208 and second == 20").iloc[0]
    words = {2: ("two", "两"), 14: ("fourteen", "十四")}
    turned, compared = (words[int(more[column])][file != "README.md"] for column in ("reversed", "decided"))
    assert f"{turned} of {compared} pairs turn" in text or f"{compared}对中有{turned}对颠倒" in text
    bits = read_table("ladder", "text-9.8M-5-tokens-a-parameter_bits_per_byte").set_index(["eval_length", "series"])
    in_range = bits["mean"][128]
    assert 0.02 < in_range.max() / in_range.min() - 1 < 0.03
    assert len(re.findall(r"within 3 %|differ by 3 %|3 % 以内", text)) == 2
    of_both = tuple(f"{bits['mean'][512, series]:.2f}" for series in ("rope", "none"))
    assert of_both in re.findall(r"(\d\.\d\d) (?:against|对) (\d\.\d\d)", text)
    longer = read_table("ladder", "text-2.7M-20-tokens-a-parameter_bits_per_byte").set_index(["eval_length", "series"])
    rope, none = (longer["mean"][512, series] for series in ("rope", "none"))
    assert rope > none
    assert re.search(rf"[(（]{rope:.2f}\D+{none:.2f}\b", text)


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md"])
def test_what_did_not_learn_and_what_a_guess_gets_is_as_the_rows_say(file: str) -> None:
    text = " ".join((ROOT / file).read_text("utf-8").split())
    measured = standings("decided_best")
    few = {"one": "一", "two": "两", "twelve": "十二", "twenty": "二十"}
    names = {1: "one", 2: "two", 12: "twelve", 20: "twenty"}
    for of in (("associative_recall", "kerple_power"), ("copy", "short_convolution")):
        seeds, learned = (int(measured[of][column]) for column in ("seeds", "seeds_learned"))
        lost, whole = names[seeds - learned], names[seeds]
        assert f"{lost} of {whole}" in text or f"{few[whole]}个中有{few[lost]}个" in text, of
    shown = {name for name, *_ in cells_of((ROOT / file).read_text("utf-8"))}
    lost = [key for key, line in measured.items() if key[1] in shown and line["seeds"] != line["seeds_learned"]]
    assert len(lost) == 2, "no others of the board"
    guess = packed("shortlist_needles", "token_accuracy")["chance"].dropna().unique()
    assert [f"{100 * each:.0f}" for each in guess] == re.findall(r"(?:a guess gets|猜测得) (\d+) %", text)


def test_the_claims_shown_have_the_numbers_of_their_report() -> None:
    head = "| statement | verdict | measured |\n|---|---|---|\n"
    shown, every = (
        (ROOT / file).read_text("utf-8").partition(head)[2].partition("\n\n")[0].splitlines()
        for file in ("README.md", "docs/results.md")
    )
    assert set(shown) < set(every)
    claims = read_table("claims", "statements")
    begins = dict.fromkeys(("Sinusoidal", "PE(pos", "A shift", "ALiBi gains", "Rescaling extends", "NoPE"))
    begins |= {"Attention without": "Self-attention without", "A model without": "A causal model without"}
    for begin, of_report in begins.items():
        (line,) = (line for line in every if line.startswith(f"| {begin}"))
        values = claims[claims["statement"].str.startswith(of_report or begin)]["measured"]
        measured = {f"{value:{form}}".removeprefix("0") for value in values for form in (".2f", ".3f", ".0e")}
        told = re.sub(r"\(needed.*?\)", "", line.split("|")[3]).replace("e-7", "e-07")
        assert set(re.findall(r"\d*\.\d+|\de-\d+", told)) <= measured, begin


def test_the_ladder_is_that_of_its_rows() -> None:
    """At four times the length, the ranking of 0.15M with 5 tokens a parameter against that of each other rung.

    And last, those of 0.6M and 2.7M with as few tokens against those with more.
    """
    with (ROOT / "results" / "ladder" / "report" / "tables" / "transfer.csv").open(newline="") as table:
        pairs = list(csv.DictReader(table))
    expected = []
    for line in (line for line in pairs if float(line["multiple"]) == 4):
        first, second, at = (float(line[key]) for key in ("first", "second", "at"))
        rung = (second, at) if line["axis"] == "size" else (at, second)
        if (first, at) in ((147456, 5), (5, 147456)):
            kept = f"{line['kept']}/{line['decided']}"
            expected.append(
                [f"{rung[0] / 1e6:.2g}M", f"{rung[1]:g}", f"{float(line['encoders']):g}", short(line["tau"]), kept]
            )
    text = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    lines = re.findall(r"^\| ([\d.]+M)(?:\D* [\d.]+M \D* 5)?" + r" \| ([\d./]+)" * 4 + r" \|$", text, re.M)
    last = [
        [size, "20", f"{float(more['encoders']):g}", short(more["tau"]), f"{more['kept']}/{more['decided']}"]
        for size, at in (("0.6M", 602112), ("2.7M", 2654208))
        for more in pairs
        if [float(more[key]) for key in ("multiple", "at", "second")] == [4, at, 20]
    ]
    assert list(map(list, lines)) == [*sorted(expected, key=lambda line: (float(line[1]), float(line[0][:-1]))), *last]
    (far,) = (
        line for line in pairs if [float(line[key]) for key in ("multiple", "first", "second")] == [1, 147456, 9830400]
    )
    kept, decided = far["kept"], far["decided"]
    for file, said in (
        ("README.md", f"{kept} of {decided} do"),
        ("README.zh-CN.md", f"{decided} 对中有 {kept} 对不变"),
    ):
        assert said in " ".join((ROOT / file).read_text("utf-8").split())


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/choose.md"])
def test_what_is_said_of_text_from_scratch_is_measured(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    (told,) = re.findall(r"^\| (?:text, up|will train a small|将训练一个小的文本).*", text, re.M)
    bits, named = bits_at_four_times(), re.findall(r"`(\w+)`", told.split("|")[2])
    for name in (*named, "alibi", "none", "rope", "dape_v2") * file.startswith("docs"):
        assert f"{bits['mean'][name]:.2f}" in told, name
    table = extended("small_text", "text", "bits_per_byte")
    ways = [*((name, "as trained") for name in named), ("rope", "window"), ("rope", "yarn")]
    alike = [f"{table[(*way, 512)]:.2f}" for way in ways]
    (seen,) = re.findall(r"(?:the same five|同样的五个)(?:.*\n)*?.*?`yarn` \d\.\d\d", text)
    assert re.findall(r"\d\.\d\d", seen) == alike
    assert set(read_table("small_text", "statement_small_text")["verdict"]) == {"holds"}


def test_the_picks_for_text_need_fewer_bits_than_alibi_in_every_seed() -> None:
    rows = pd.concat(
        packed(folder, "bits_per_byte", "-text-") for folder in ("decided", "decided_rope", "decided_best")
    )
    rows = rows[(rows["experiment"] == "length_extrapolation") & (rows["eval_length"] == 512)]
    bits = rows.pivot_table(index="seed", columns="encoder", values="value")
    lead = bits[["sandwich", "fox", "dynamic_bias"]].rsub(bits["alibi"], axis=0)
    seeds = "{}, {} and {}".format(*lead.count())
    means = " to ".join(short(end) for end in (lead.mean().min(), lead.mean().max()))
    told = f"in each of {seeds} seeds, by {short(lead.min().min())} bits or more, {means} on average"
    assert told in " ".join((ROOT / "docs" / "evidence.md").read_text("utf-8").split())


def test_the_evidence_s_ways_to_extend_rope_are_those_of_their_rows() -> None:
    bits = extended("small_text", "text", "bits_per_byte")["rope"]
    (row,) = re.findall(r"^\| by configuration \|.*", (ROOT / "docs" / "evidence.md").read_text("utf-8"), re.M)
    told = {name.strip("`"): ratio for name, ratio in re.findall(r"(`\w+`|unchanged|window) (\d\.\d\d)", row)}
    told["as trained"] = told.pop("unchanged")
    assert len(told) == 8
    assert told == {way: f"{bits[way, 512] / bits['as trained', 128]:.2f}" for way in told}


def test_the_evidence_s_ladder_is_that_of_its_rows() -> None:
    guide = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    large = read_table("ladder", "text-9.8M-5-tokens-a-parameter_bits_per_byte")
    in_range = large[large["eval_length"] == large["train_length"]].set_index("series")["mean"]
    (told,) = re.findall(r"^- \*\*The order in range(?:.*\n)+?(?=- )", guide, re.M)
    assert all(f"{mean:.3f}" in told for mean in in_range)
    assert in_range.idxmin() == "rope"
    head, *lines = [
        [cell.strip(" `") for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^ *(\| (?:parameters \| `|[\d.]+ M \|).*)$", guide, re.M)
    ]
    assert [line[0] for line in lines] == ["0.15 M", "9.8 M"]
    for size, *told in lines:
        name = f"text-{size.replace(' ', '')}-5-tokens-a-parameter_bits_per_byte.csv"
        rows = pd.read_csv(ROOT / "results" / "ladder" / "report" / "tables" / name)
        bits = rows[rows["eval_length"] == 4 * rows["train_length"]].set_index("series")["mean"]
        assert dict(zip(head[1:], told, strict=True)) == {series: f"{mean:.2f}" for series, mean in bits.items()}


def numbered() -> list[list[str]]:
    """Of each numbering: what is kept of copying and of text, and bits at four times the length, by encoding."""
    lines, measured = dict[str, list[str]](), standings("all_numberings")
    bits = read_table("all_numberings", "text_bits_per_byte").query("eval_length == 512")
    bits = bits.set_index(bits["series"].str.partition("(")[0])["mean"]
    for task in ("copy", "text"):
        for place, encoder in enumerate(("rope", "sinusoidal", "learned")):
            asked = {
                series: line for (of, series), line in measured.items() if (of, series.split(" ")[0]) == (task, encoder)
            }
            for series, line in asked.items():
                cells = lines.setdefault(series.partition(" · ")[2] or "sequential", ["–"] * 6)
                cell = short(line["kept"]) if line["status"] == "ok" else line["status"]
                few = f" ({line['seeds_learned']} of {line['seeds']})" * (line["seeds_learned"] != line["seeds"])
                cells[place + 3 * (task == "text")] = (
                    cell + few * (line["status"] == "ok") + (f" · {bits[series]:.2f}" if task == "text" else "")
                )
    return [[f"`{name}`", *cells] for name, cells in lines.items()]


def test_what_each_numbering_keeps_is_as_the_rows_say() -> None:
    section = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Every way to number positions")[2]
    rows = re.findall(r"^\| (`.*) \|$", section.partition("\n## ")[0], re.M)
    told = {name: cells for name, *cells in (row.split(" | ") for row in rows)}
    of = {name: cells for name, *cells in numbered()}
    assert told == of
    found = [of["`randomized`"][0], of["`sequential`"][0]]
    found += [of[f"`{name}`"][3].partition(" · ")[2] for name in ("chunked", "sequential")]
    assert re.findall(r"\d?\.\d\d", ANSWERS["all_numberings"][0]) == found
    paragraph = (ROOT / "docs/results.md").read_text("utf-8").partition("## Every way to number positions")[2]
    assert re.findall(r"(?<!\d)\d?\.\d\d(?! million)", paragraph.partition("\n## ")[0])[:4] == found
    report = (RESULTS / "all_numberings" / "report" / "report.md").read_text("utf-8")
    (line,) = re.findall(r"^\| \S+ \| rope · randomized.*", report, re.M)
    assert "rope" in re.split(r", | and ", line.split("|")[8].strip()), "decided"


def test_what_chunked_numbers_need_is_as_the_rows_say() -> None:
    folder, bits = "chunked_text", extended("chunked_text", "text", "bits_per_byte")
    tables, compared = two_statements(folder)
    assert [line["verdict"] for line in compared] == ["holds", "undecided"]

    def within(line: pd.Series[Any], name: str, digits: int = 2) -> list[str]:
        return [f"{line[each]:.{digits}f}" for each in (name, "low", "high")]

    wanted = [*within(tables[0].loc["chunked"], "measured"), *within(tables[0].loc["in order"], "measured")]
    wanted += [short(compared[0][each]) for each in ("difference", "low", "high")]
    wanted += within(tables[1].loc["in order with a window"], "measured")
    wanted += [short(-compared[1][each]) for each in ("difference", "high", "low")]
    wanted += [f"{bits[series, 'as trained', 128]:.2f}" for series in ("rope · chunked(limit=600)", "rope")]
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Chunked positions in training")[2]
    said = log.partition("\n## ")[0].partition("- **It holds**")[2]
    most = max(abs(compared[1][each]) for each in ("low", "high"))
    assert re.findall(r"(?<!\d)−?\d?\.\d\d", said) == [*wanted[:9], short(most), *wanted[9:]]
    results = (ROOT / "docs/results.md").read_text("utf-8").partition("+statements=chunked_text")[2]
    assert re.findall(r"\d\.\d\d", results.partition("\n## ")[0]) == [wanted[0], wanted[3], wanted[9]]


def test_what_a_fine_tuning_finds_is_as_the_rows_say() -> None:
    folder, right = "fine_tuned_needles", extended("fine_tuned_needles", "needles-num_needles=1", "token_accuracy")
    tables, compared = two_statements(folder)
    assert [(line["verdict"], line["seeds"]) for line in compared] == [("holds", 20), ("equal", 12)]

    def points(line: pd.Series[Any], *names: str) -> list[str]:
        return [re.sub(r"^(−?)0\.", r"\1.", fixed(100 * line[name], ".1f")) for name in names]

    sides = [tables[0].loc[side] for side in ("fine-tuned", "without")]
    wanted = [number for side in sides for number in points(side, "measured", "low", "high")]
    wanted += [number for line in compared for number in points(line, "difference", "low", "high")]
    wanted += points(right["rope"].unstack()[128], "yarn fine-tuned", "as trained")
    log = (ROOT / "docs/log/2026-11-28.md").read_text("utf-8").partition("## Distant facts after a fine-tuning")[2]
    said = log.partition("\n## ")[0].partition("- **It holds**")[2]
    assert re.findall(r"−?\d*\.\d", said) == wanted
    seeds = packed(folder, "token_accuracy").query("experiment == 'context_extension' and eval_length == 512")
    by_seed = seeds.pivot_table(index="seed", columns="condition", values="value")
    assert (by_seed["yarn fine-tuned"] > by_seed["yarn"]).all()
    evidence = " ".join((ROOT / "docs/evidence.md").read_text("utf-8").split())
    ends = [[f"{100 * side[name]:.0f}" for name in ("measured", "low", "high")] for side in sides]
    told = "{} % [{}, {}], without one {} [{}, {}]".format(*ends[0], *ends[1])
    assert told in evidence.partition("on texts of 512 tokens")[2]
    lost = right["rope", "as trained", 128] - right["rope", "yarn fine-tuned", 128]
    assert f"It costs {fixed(100 * lost, '.1f')[1:]} points at 128 tokens" in evidence


def test_what_disagrees_with_papers_is_as_the_rows_say() -> None:
    text = (ROOT / "docs" / "results.md").read_text("utf-8").partition("## Where this disagrees with papers")[2]
    here = {row.split("|")[1]: row.split("|")[2] for row in re.findall(r"^\|.*\|$", text, re.M)}

    def told(begins: str) -> str:
        (cell,) = (cell for claim, cell in here.items() if claim.startswith(f" {begins}"))
        return cell

    verdicts = {key: line["verdict"] for key, line in standings("decided_rope").items()}
    of = {name: [verdicts[task, name] for task in TASKS] for name in ("p_rope", "clipped_rope", "liere", "grape_m")}
    assert of["p_rope"] == of["clipped_rope"] == ["undecided"] * 3
    assert of["liere"] == of["grape_m"] == ["worse"] * 3
    assert [verdicts[task, "resonance_rope"] for task in TASKS] == ["undecided", "undecided", "worse"]
    ladder = [read_table("ladder", f"text-{size}-5-tokens-a-parameter_bits_per_byte") for size in ("0.15M", "9.8M")]
    bits = [table[table["eval_length"] == 512].set_index("series")["mean"] for table in ladder]
    named, best = ("fire", "alibi", "kerple_log"), standings("decided_best")
    wanted = [
        *(f"{table[name]:.2f}" for table in bits for name in named),
        *(best["copy", name]["kept"] for name in named),
    ]
    found = re.findall(r"(?<!\d)\d?\.\d\d(?! M)", told("FIRE"))
    assert found == [*wanted[:6], *map(short, wanted[6:])]
    shipped = {name: line for (task, name), line in standings("shipped").items() if task == "text"}
    assert shipped["smollm3"]["verdict"] == "worse"
    assert min(float(shipped[name]["kept"]) for name in ("command_a", "llama4")) > 1
    assert re.findall(r"\.\d\d", told("Layers")) == [short(shipped[name]["kept"]) for name in ("rope", "smollm3")]
    mqar = read_table("tasks", "standings").query("task == 'mqar'").set_index("series")
    assert mqar["seeds_learned"][mqar["seeds_learned"] > 0].to_dict() == {"t5": 2}
    others = mqar["in_range"].drop("t5")
    assert re.findall(r"\.\d\d", told("Attention recalls")) == [short(str(end)) for end in (others.min(), others.max())]
    rope = extended("shortlist", "text-9.8M-5-tokens-a-parameter", "bits_per_byte")["rope"]
    wanted = [f"{rope[way, 512]:.2f}" for way in ("window", "as trained")]
    assert re.findall(r"\d\.\d\d", told("Trained models")) == wanted


def test_the_log_s_learning_rates_are_those_of_their_rows() -> None:
    (section,) = re.findall(
        r"^## The learning rate that each size wants\n((?:(?!## ).*\n)+)",
        (ROOT / "docs/log/2026-11-27.md").read_text("utf-8"),
        re.M,
    )
    told = [
        [cell.strip() for cell in row.split("|")[2:-1]] for row in re.findall(r"^\| \d+ \|.*$", section, flags=re.M)
    ]
    assert len(told) == 10
    for place, size in enumerate(("0.15", "0.6", "2.7", "9.8")):
        name = f"text-{size}M-5-tokens-a-parameter_bits_per_byte.csv"
        table = pd.read_csv(ROOT / "results" / "ladder_rates" / "report" / "tables" / name)
        table[["encoder", "rate"]] = table["series"].str.split(" · train.learning_rate=", expand=True)
        table["rate"] = table["rate"].astype(float)
        bits = table.set_index(["encoder", "rate", "eval_length"])["mean"]
        rates = sorted(table["rate"].unique())
        for first, length in ((0, 128), (5, 512)):
            measured = [" · ".join(f"{bits[name, rate, length]:.3f}" for name in ("rope", "alibi")) for rate in rates]
            assert [line[place] for line in told[first : first + len(rates)]] == measured, (size, length)
        rope, alibi = ([bits[name, rate, 128] for rate in rates] for name in ("rope", "alibi"))
        assert min(rope) == pytest.approx(rope[2], abs=0.001), "results/README: four times that of the ladder"
        assert min(alibi) < alibi[2], "results/README: eight times and more"


@pytest.mark.parametrize("file", ["docs/evidence.md", "docs/log/2026-11-27.md"])
def test_what_is_said_of_distant_facts_is_measured(file: str) -> None:
    table = extended("shortlist_needles", "needles-num_needles=1", "token_accuracy")
    text = (ROOT / file).read_text("utf-8")
    (rows,) = re.findall(r"^ *\| layers \| 128 \| 256 \| 512 \|.*\n *\|[-|]+\n((?: *\|.*\n)+)", text, re.M)
    lines = [[cell.strip() for cell in row.strip().split("|")[1:-1]] for row in rows.splitlines()]
    assert len(lines) == 7
    for name, *told, _ in lines:
        series, *how = re.findall(r"`(\w+)`", name)
        way = how[0] if how else "window" if "window" in name else "as trained"
        assert told == [f"{100 * table[series, way, length]:.0f}" for length in (128, 256, 512)], name


def test_the_evidence_s_shortlist_is_that_of_its_rows() -> None:
    evidence = (ROOT / "docs" / "evidence.md").read_text("utf-8")
    (section,) = re.findall(r"^## Side by side\n(?:(?!## ).*\n)+", evidence, re.M)
    rows = re.findall(r"^\| `(\w+)`(.*)\|$", section, re.M)
    lines = [[name, *(cell.strip() for cell in cells.split("|"))] for name, cells in rows]
    assert len(lines) == 8
    for place, size in enumerate(("0.2", "0.6", "3.5", "9.8"), start=2):
        bits = extended("shortlist", f"text-{size}M-5-tokens-a-parameter", "bits_per_byte")
        for line in lines:
            how = {"": "as trained", "as trained": "as trained", "with a window": "window"}.get(line[1])
            measured = bits.get((line[0], how or line[1].split("`")[1], 512))
            assert line[place] == ("" if measured is None else f"{measured:.3f}"), line


def test_the_guide_s_tables_are_those_of_the_evidence() -> None:
    """What a reader is told to try first has the bits of the largest model and the facts of five seeds."""
    bits = extended("shortlist", "text-9.8M-5-tokens-a-parameter", "bits_per_byte")
    facts = extended("shortlist_needles", "needles-num_needles=1", "token_accuracy")
    tuned = ("rope", "yarn fine-tuned", 512)
    facts[tuned] = extended("fine_tuned_needles", "needles-num_needles=1", "token_accuracy")[tuned]
    guide = (ROOT / "docs" / "choose.md").read_text("utf-8")
    ways = {"unchanged": "as trained", "`yarn`": "yarn", "`self_extend`": "self_extend", "a window": "window"}
    ways |= {"`yarn`, and a fine-tuning": "yarn fine-tuned"}
    for name, way in ways.items():
        (cells,) = re.findall(rf"^\| {name} \| .* \| (\d\.\d\d) \| (\d+)", guide, re.M)
        assert cells == (f"{bits['rope', way, 512]:.2f}", f"{100 * facts['rope', way, 512]:.0f}"), name
    for readme in ("README.md", "README.zh-CN.md"):
        text = (ROOT / readme).read_text("utf-8")
        (rows,) = re.findall(r"^\| (?:layers|各层) .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
        told = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows.splitlines()]
        asked_of = [("rope", way) for way in ("as trained", "window", "yarn", "yarn fine-tuned", "self_extend")]
        for key, (of_text, of_facts) in zip([*asked_of, ("command_a", "as trained")], told, strict=True):
            assert of_text == f"{bits[*key, 512]:.2f}", (readme, key)
            assert of_facts == f"{100 * facts[*key, 512]:.0f}", (readme, key)
        in_range = f"{bits['rope', 'as trained', 128]:.2f}"
        assert in_range in text.partition(rows)[0].rpartition("\n**")[2]
    asked = {
        "never [|]": [("rope", "as trained", 128), ("command_a", "as trained", 128)],
        "yes, after": [("rope", "yarn fine-tuned", 512), ("command_a", "yarn fine-tuned", 512)],
        "yes, untouched": [("rope", "yarn", 512), ("command_a", "as trained", 512)],
    }
    for case, keys in asked.items():
        (line,) = re.findall(rf"^\| {case}.*", guide, re.M)
        assert re.findall(r"\d\.\d\d", line) == [f"{bits[key]:.2f}" for key in keys], case


@pytest.mark.parametrize("file", ["README.md", "README.zh-CN.md", "docs/evidence.md", "docs/log/2026-11-28.md"])
def test_the_board_s_order_at_four_times_the_size_is_that_of_its_rows(file: str) -> None:
    tables = ROOT / "results" / "sizes" / "report" / "tables"
    pairs = pd.read_csv(tables / "transfer.csv").query("multiple == 4").set_index("task")
    kept = [pairs.loc[task, "kept"] for task in ("copy", "associative_recall")]
    assert kept == [pairs.loc[task, "decided"] for task in ("copy", "associative_recall")]
    text = " ".join((ROOT / file).read_text("utf-8").split())
    assert re.search(rf"{kept[0]} (?:and|对和|of {kept[0]} on `copy`,) {kept[1]}", text)
    if "log" not in file:
        return
    standings = pd.read_csv(tables / "standings.csv").set_index(["task", "series"])["kept"]
    section = (ROOT / file).read_text("utf-8").partition("## Every encoder against RoPE")[0]
    lines = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.M)
    assert len(lines) == 12
    for series, cells in lines:
        known = {task: value for (task, name), value in standings.items() if name == series}
        order = [
            next(task for task in known if task.startswith(f"{of}({size}"))
            for of in ("copy", "associative_recall")
            for size in ("0.15M", "0.59M")
        ]
        assert cells.split(" | ") == [short(known[task]) for task in order], series
