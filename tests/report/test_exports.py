"""What a paper takes along: looks that stay, tables, figures of column width, and a document that compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from support import HOSTILE, write_run, write_sweep

import report
from experiments.figures import style
from experiments.figures.panels import chart
from experiments.report.paper import bibliography, exports, methods
from experiments.report.paper import latex as _latex
from experiments.rows import results as _results
from experiments.rows.row import Row

# ---- tables -----------------------------------------------------------------------------------------


NAMES = {
    **HOSTILE,
    "accents": "naïve Łódź Čapek Ångström ø œ",
    "chinese": "强大的外推能力",
    "signs": 'a ± b − c × d · e … † § “quoted” ‘so’ – — "x" `y` <z> α Ω ϵ ≤ ∞',
    "numbers": "-0.25 to +0.75",
    "blank": "",
}


def test_the_main_table_has_caption_label_and_the_best_in_bold(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "alibi", "mine_1"), 3, rows=of_lengths)
    assert report.main([str(tmp_path), "--paper"]) == 0
    lines = (tmp_path / "report/paper/table.tex").read_text().splitlines()
    assert lines[0] == r"\begin{table*}[t]"
    assert any(line.startswith(r"\caption{copy, trained to length 16") for line in lines)
    assert r"\label{tab:copy}" in lines
    assert r"Encoder & In range & 2$\times$ & 4$\times$ & 8$\times$ & Kept & $\Delta$ kept & $p$ \\" in lines, "no cost"
    rows = {line.split(" & ")[0]: line for line in lines if line.count(" & ") == 7}
    assert set(rows) == {"Encoder", "none", "alibi", r"mine\_1"}
    standing = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    best = _latex.escape(standing["kept"].idxmax())
    assert rf"\textbf{{{100 * standing['kept'].max():.1f} [" in rows[best]
    assert rows["none"].endswith(r" & -- & -- \\"), "the baseline is not compared with itself"
    *_, difference, p = rows["alibi"].removesuffix(r" \\").split(" & ")
    assert difference.startswith(f"${100 * standing['difference']['alibi']:+.1f}$ [")
    assert p == (r"$<$ 0.001" if standing["p_holm"]["alibi"] < 0.001 else f"{standing['p_holm']['alibi']:.3f}")


def test_the_main_table_has_free_running_and_who_learned(tmp_path: Path) -> None:
    def generated(rows: list[Row]) -> list[Row]:
        free = (replace(row, metric="generated_token_accuracy") for row in rows if row.metric == "token_accuracy")
        return [*rows, *(replace(row, value=0.5 * row.value) if row.eval_length > 16 else row for row in free)]

    write_sweep(tmp_path, ("none", "alibi"), 3, rows=lambda rows: generated(of_lengths(rows)))
    write_run(tmp_path, "alibi", 3, rows=lambda rows: generated(of_lengths(rows)), record={"converged": False})
    assert report.main([str(tmp_path), "--paper"]) == 0
    lines = (tmp_path / "report/paper/table.tex").read_text().splitlines()
    assert r"Encoder & In range & 2$\times$ & 4$\times$ & 8$\times$ & Kept & $\Delta$ kept & $p$ & Free \\" in lines
    rows = {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ") for line in lines if line.count(" & ") == 8}
    assert set(rows) == {"Encoder", "none", "alibi (3 of 4 learned)"}
    standing = pd.read_csv(tmp_path / "report/tables/standings.csv").set_index("series")
    assert f"{100 * standing['free_running_kept']['none']:.1f}" in rows["none"][-1]


@pytest.mark.parametrize("kind", NAMES)
def test_latex_gets_latin_letters_and_no_command(kind: str) -> None:
    written = _latex.escape(NAMES[kind][:500])
    assert all(sign.isascii() or unicodedata.name(sign).startswith("LATIN") for sign in written)
    bare = written
    for known in re.findall(r"\\[A-Za-z]+", "".join(_latex.SIGNS.values())):
        bare = bare.replace(known, "")
    assert not set(re.findall(r"\\([A-Za-z]+)", bare)) - {"fbox", "tiny", "alpha", "Omega"}
    assert written.count("{") - written.count(r"\{") == written.count("}") - written.count(r"\}")
    assert "&" not in written.replace(r"\&", "")


def test_a_sign_that_cannot_be_set_is_not_lost_in_silence() -> None:
    assert _latex.escape("强") == r"\fbox{\tiny 5F3A}"
    assert _latex.escape("β = 0.98") == r"$\beta$ = 0.98"
    assert _latex.escape("Č") == "Č"


# ---- figures ----------------------------------------------------------------------------------------


SUFFIXES = ("svg", "pdf", "png")


def a_figure() -> Figure:
    with style.theme():
        figure, panels = chart("What is found", "What is drawn.", ["left", "right"], x="length", y="share of tokens")
        for axes in panels:
            axes.plot([1, 2, 3, 4], [0.1, 0.5, 0.2, 0.9])
            axes.set_xlabel("a long name of what is on the axis, with its unit behind it, and so on")
            axes.annotate("small", (1, 0.2), fontsize=4)
    return figure


@pytest.mark.drawn
@pytest.mark.parametrize("width", [3.3, 6.9])
def test_figures_are_drawn_at_the_width_of_a_column(tmp_path: Path, width: float) -> None:
    with style.sized(width, scale=0.72):
        figure = a_figure()
        exports.fit(figure)
        again = a_figure()
        exports.fit(again)
        repeated = {suffix: style.render(again, suffix) for suffix in SUFFIXES}
        assert repeated == {suffix: style.render(figure, suffix) for suffix in SUFFIXES}
    svg, pdf = repeated["svg"], repeated["pdf"]
    (tmp_path / "figure.png").write_bytes(repeated["png"])
    size = re.search(rb'width="([\d.]+)pt"', svg)
    assert size
    assert float(size[1]) == pytest.approx(72 * width, abs=0.01)
    with Image.open(tmp_path / "figure.png") as image:
        assert image.size[0] / image.info["dpi"][0] == pytest.approx(width, rel=0.005)
    boxes = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)
    assert float(boxes[-1]) == pytest.approx(72 * width, abs=0.01)
    assert b"/Type3" not in pdf


def test_type_is_readable_in_a_single_column() -> None:
    with style.sized(*exports.COLUMN):
        figure = a_figure()
        exports.fit(figure)
    assert figure.get_figwidth() == pytest.approx(3.3)
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    assert min(float(text.get_fontsize()) for text in texts) >= exports.SMALLEST
    assert max(float(text.get_fontsize()) for text in texts) < 9
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.xaxis.label.get_window_extent().width < 1.3 * axes.get_window_extent().width
    assert a_figure().get_figwidth() == style.PAGE_WIDTH


def test_no_name_is_cut_where_type_was_enlarged() -> None:
    with style.sized(*exports.COLUMN):
        figure = a_figure()
        figure.axes[0].set_yticks([0.2, 0.8], ["a name that is far too long", "short"])
        exports.fit(figure)
    with style.theme():
        figure.draw_without_rendering()
    left = min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels())
    assert left > -0.5
    assert figure.axes[1].get_position().x1 == pytest.approx(a_figure().axes[1].get_position().x1, abs=0.05)


# ---- the whole --------------------------------------------------------------------------------------


def of_lengths(rows: list[Row]) -> list[Row]:
    """As few figures as will do: most of the time goes there."""
    return [row for row in rows if row.experiment == "length_extrapolation" and row.metric != "exact_match"]


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory, rendering: Callable[[str], AbstractContextManager[None]]) -> Path:
    """A report with everything for a paper, of a folder with a name that means something to LaTeX."""
    folder = tmp_path_factory.mktemp("results") / "50%_of_{it}"
    write_sweep(folder, ("none", "mine$_1"), seeds=2, task="count & sort", rows=of_lengths)
    with rendering("pdf"):
        assert report.main([str(folder), "--paper"]) == 0
    return folder / "report"


def test_the_main_table_and_every_figure_are_there_once(paper: Path) -> None:
    figures = {path.stem for path in (paper / "figures").glob("*.svg")} - {"answer"}
    assert {path.name for path in (paper / "paper").iterdir()} == {"table.tex", *(f"{stem}.pdf" for stem in figures)}
    document = (paper / "report.tex").read_text(encoding="utf-8")
    assert set(re.findall(r"\{paper/(.*)\.pdf", document)) == figures
    assert r"\input{paper/table}" in document


def test_the_document_compiles(paper: Path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("no pdflatex here (Debian: texlive-latex-base and texlive-latex-recommended)")
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "report"]
    for command in (latex, ["bibtex", "report"], latex, latex):
        done = subprocess.run(command, cwd=paper, capture_output=True, text=True, errors="replace", check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    log = (paper / "report.log").read_text(encoding="utf-8", errors="replace")
    assert "undefined" not in log
    assert "LaTeX Error" not in log
    assert not re.findall(r"Overfull .hbox.*alignment", log), "the table is no wider than the page"


def test_a_report_without_it_keeps_it_up_with_the_page(paper: Path, tmp_path: Path) -> None:
    again = Path(shutil.copytree(paper.parent, tmp_path / "again")) / "report"
    (again / "paper" / "table.tex").write_text("of an earlier report")
    assert report.main([str(tmp_path / "again")]) == 0
    assert {"methods.txt", "methods.tex", "references.bib", "report.md"} <= {path.name for path in again.iterdir()}
    assert (again / "report.tex").read_bytes() == (paper / "report.tex").read_bytes()
    assert (again / "paper" / "table.tex").read_bytes() == (paper / "paper" / "table.tex").read_bytes()


# ---- the methods ------------------------------------------------------------------------------------


def test_the_encoders_parameters_come_on_top_of_the_trunks(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "learned"), seeds=1)
    said = " ".join(methods.paragraph(_results.read(tmp_path), [])[0])
    assert "with 412,345 parameters, to which the encoder adds 0 to 2,048 (most: learned)." in said


def test_the_paragraph_has_the_settings_of_the_runs(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), seeds=2)
    for place in (tmp_path / "runs").iterdir():
        (place / "config.yaml").write_text((place / "config.yaml").read_text() + "learning: 1\n")
    said = " ".join(methods.paragraph(_results.read(tmp_path), ["Compared by Holm's method."])[0])
    for part in ("2 positional encoders (none and rope) on 1 task (copy), with 2 seeds each: 4 runs", "2 layers"):
        assert part in said
    assert "64 dimensions" in said
    assert "2000 steps" in said
    assert "lengths up to 16 were trained on" in said
    assert "Compared by Holm's method." in said
    assert "PyTorch 2.13.0" in said
    assert "412,345 parameters" in said
    assert "differ" not in said


@pytest.mark.parametrize(
    ("lengths", "read", "interpolated"),
    [
        ((16, 32, 64, 128), "its mean at 2, 4 and 8 training lengths; other lengths do not count.", False),
        ((16, 20, 32, 64), "its mean at 2 and 4 training lengths; other lengths do not count.", False),
        ((16, 32, 128), "its mean at 2, 4 and 8 training lengths; other lengths do not count.", True),
        ((8, 16), "", False),
    ],
)
def test_the_paragraph_says_how_quality_was_read_where_it_was(
    tmp_path: Path, lengths: tuple[int, ...], read: str, interpolated: bool
) -> None:
    write_run(tmp_path, "rope", rows=lambda rows: [row for row in of_lengths(rows) if row.eval_length in lengths])
    assert report.main([str(tmp_path)]) == 0
    text = (tmp_path / "report/methods.txt").read_text()
    assert (read in text, "what a run keeps" in text) == (True, bool(read))
    assert ("where one of these was not measured, it is interpolated" in text.lower()) == interpolated


def test_what_differs_is_named(tmp_path: Path) -> None:
    for encoder, steps in (("none", 100), ("rope", 200)):
        write_run(tmp_path, encoder, config={"train": {"steps": steps}, "model": {"num_layers": 2, "odd": steps}})
    write_run(tmp_path, "none", task="sort", run_id="s", config={"train": {"steps": 100}, "model": {"num_layers": 3}})
    said = " ".join(methods.paragraph(_results.read(tmp_path), [])[0])
    assert "2 and 3 layers" in said
    assert "for 100 and 200 steps" in said
    assert "The runs differ in model.num_layers, model.odd and train.steps" in said


def test_of_many_tasks_a_table_says_how_each_was_set(tmp_path: Path) -> None:
    tasks = [f"task{number}" for number in range(methods.TABULATED)]
    for number, task in enumerate(tasks):
        trunk = {"model": {"num_layers": 2, "causal": number > 0}, "train": {"steps": 100 * (number + 1)}}
        write_run(tmp_path, "none", task=task, run_id=task, config=trunk)
    sentences, table = methods.paragraph(_results.read(tmp_path), [])
    said = " ".join(sentences)
    assert table is not None
    assert f"on {len(tasks)} tasks (see the table of tasks)" in said
    assert "(bidirectional and causal, 2 layers" in said
    assert f"for 100 to {100 * len(tasks)} steps" in said
    assert "were trained on" not in said
    cells = table.cells.set_index("task")
    assert list(cells.index) == tasks
    assert list(cells["model"]) == ["bidirectional"] + ["causal"] * (len(tasks) - 1)
    assert cells.loc["task3", "steps"] == "400"
    assert set(cells["trained on up to"]) == {"16"}
    assert set(cells["measured at"]) == {"8, 16, 20, 24, 32, 48, 64, 96, 128"}
    data = table.data.set_index("task")
    assert set(data["measured"]) == {"8 16 20 24 32 48 64 96 128"}
    (tmp_path / "runs" / tasks[0] / "rows.csv").unlink()
    few, none = methods.paragraph(_results.read(tmp_path), [])
    assert none is None
    assert "lengths up to 16 were trained on" in " ".join(few)


def test_it_cites_what_it_names(tmp_path: Path) -> None:
    write_sweep(tmp_path, ("none", "rope"), seeds=1)
    results = _results.read(tmp_path)
    sentences, _ = methods.paragraph(results, ["Compared by Holm's method."])
    cited = bibliography.cited(results, " ".join(sentences))
    written = methods.latex(sentences, cited)
    assert r"rope~\cite{su2021roformer}" in written
    assert r"Holm's method~\cite{holm1979simple}." in written
    assert {key for keys in re.findall(r"\\cite\{(.*?)\}", written) for key in keys.split(",")} <= set(cited.entries)
