"""The notebooks run from the first cell to the last, and show what they say."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from support import ROOT

EXAMPLE = ROOT / "experiments" / "example.ipynb"
SWAP = ROOT / "experiments" / "hugging_face.ipynb"
TUTORIAL = ROOT / "experiments" / "tutorial.ipynb"
LESS = "train.steps=700", "train.steps=50 train.rounds=1"
AGAIN = "another output than the one kept: jupyter execute --inplace experiments/tutorial.ipynb, and look at it"


def execute(path: Path, *shorter: tuple[str, str]) -> nbformat.NotebookNode:
    """Run a notebook, with less training where told: what is learned is of the machine."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for long, short in shorter:
            cell.source = cell.source.replace(long, short)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the libraries that run notebooks
        from nbclient import NotebookClient

        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    return notebook


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    return execute(EXAMPLE, LESS)


def outputs(notebook: nbformat.NotebookNode, cell: str) -> nbformat.NotebookNode:
    (found,) = [cell_.outputs for cell_ in notebook.cells if cell_.id == cell]
    (output,) = found
    return output["data"]


def shown(notebook: nbformat.NotebookNode, cell: str) -> str:
    return outputs(notebook, cell)["text/plain"]


def test_the_notebook_shows_what_it_says(executed: nbformat.NotebookNode) -> None:
    for table, column in (("rows", "eval_length"), ("runs", "final_loss"), ("summarise", "64"), ("own", "True")):
        assert f"<th>{column}</th>" in outputs(executed, table)["text/html"]
    assert "'copy_token_accuracy'" in outputs(executed, "plot")["text/plain"]
    assert "image/png" in outputs(executed, "show")


def test_the_example_is_kept_with_its_outputs(executed: nbformat.NotebookNode) -> None:
    """Its numbers are of the machine that it was last run on."""
    for cell, run in kept_and_run(EXAMPLE, executed):
        assert cell.execution_count
        assert [output.output_type for output in cell.outputs] == [output.output_type for output in run.outputs]
    names_no_place_of_a_machine(nbformat.read(EXAMPLE, as_version=4))


def test_the_swap_shows_what_it_says() -> None:
    """Its numbers are of the machine that it was last run on; what it says of them holds."""
    swap = execute(SWAP, ("train(model, 400)", "train(model, 60)"), ("train(swapped, 200", "train(swapped, 20"))
    for cell, run in kept_and_run(SWAP, swap):
        assert cell.execution_count
        assert [output.output_type for output in cell.outputs] == [output.output_type for output in run.outputs]
    assert shown(swap, "same") == "True"
    kept = nbformat.read(SWAP, as_version=4)
    bits = {
        name: [float(value) for value in values.split()]
        for name, values in re.findall(r"^(alibi|fox|its own|none) +([\d. ]+)$", shown(kept, "table"), re.MULTILINE)
    }
    assert bits["its own"][-1] > 1.3 * bits["its own"][0], "rotary falls apart"
    assert max(bits["alibi"][-1] / bits["alibi"][0], bits["fox"][-1] / bits["fox"][0]) < 1.05, "these do not"
    names_no_place_of_a_machine(kept)


def test_the_tutorial_shows_what_it_says() -> None:
    """In one test, so that the notebook is executed once, however many workers there are."""
    tutorial = execute(TUTORIAL, LESS)
    has_the_numbers_it_speaks_of(tutorial)
    has_an_encoder_that_keeps_its_promises_and_one_that_does_not(tutorial)
    for cell in ("structure", "waves", "wavelengths-drawn", "kernels", "compared"):
        assert len(outputs(tutorial, cell)["image/png"]) > 10_000
    names_no_place_of_a_machine(tutorial)
    is_kept_as_it_runs(tutorial)


def has_the_numbers_it_speaks_of(tutorial: nbformat.NotebookNode) -> None:
    lines = re.findall(r"^(\w+) +([\d.]+) +([\d.]+)$", shown(tutorial, "why"), re.MULTILINE)
    orders = {name: [float(without), float(causal)] for name, without, causal in lines}
    assert orders["none"][0] == 0
    assert min(orders["none"][1], *orders["sinusoidal"], *orders["rope"]) > 0.01
    # As it is printed where this is taught.
    assert re.search(r"^9 +0\.4121 +-0\.9111 +0\.0899 +0\.9960$", shown(tutorial, "table"), re.MULTILINE)
    assert (shown(tutorial, "table-checked"), shown(tutorial, "rope")) == ("True", "True")
    assert shown(tutorial, "shift-expected") == "(True, True)"
    wavelengths = dict(re.findall(r"^(\d+) +([\d.]+)$", shown(tutorial, "wavelengths"), re.MULTILINE))
    assert float(wavelengths["0"]) == 6.28
    assert float(wavelengths["126"]) == pytest.approx(2 * math.pi * 10000 ** (126 / 128), abs=0.01)
    residuals = dict(re.findall(r"^(\w+) +([\d.]+)$", shown(tutorial, "shift-compared"), re.MULTILINE))
    assert float(residuals["sinusoidal"]) == 0 < 0.5 < float(residuals["learned"])
    products = re.findall(r"^\d+ +(\S+) +(\S+)$", shown(tutorial, "products"), re.MULTILINE)
    assert len(products) == 8
    assert all(smallest == largest for smallest, largest in products)
    assert "positions 0 to 15" in shown(tutorial, "learned")


def has_an_encoder_that_keeps_its_promises_and_one_that_does_not(tutorial: nbformat.NotebookNode) -> None:
    assert re.search(r"root_distance: \d+ promises hold, 0 fail", shown(tutorial, "check"))
    mistake = " ".join(shown(tutorial, "mistake").split())
    assert "FAILS" in mistake
    assert "take distances from `site.distance`" in mistake
    for column in ("alibi", "root_distance", "sinusoidal"):
        assert re.search(rf"^{column}.*( [01]\.\d+)", shown(tutorial, "compared-numbers"), re.MULTILINE)


def kept_and_run(
    path: Path, run: nbformat.NotebookNode
) -> Iterator[tuple[nbformat.NotebookNode, nbformat.NotebookNode]]:
    """Return the code cells of a notebook as it is kept, each with the one that was run now."""
    kept, now = (
        [cell for cell in each.cells if cell.cell_type == "code"] for each in (nbformat.read(path, as_version=4), run)
    )
    return zip(kept, now, strict=True)


def is_kept_as_it_runs(tutorial: nbformat.NotebookNode) -> None:
    """Its outputs are what a run gives, but for what a model learned on another machine."""
    for cell, run in kept_and_run(TUTORIAL, tutorial):
        assert cell.execution_count, AGAIN
        assert [output.output_type for output in cell.outputs] == [output.output_type for output in run.outputs], AGAIN
        for kept, new in zip(cell.outputs, run.outputs, strict=True):
            assert kept.get("name") != "stderr"
            if not cell.id.startswith("compared"):
                assert kept.get("text") == new.get("text"), AGAIN
                assert kept.get("data", {}).get("text/plain") == new.get("data", {}).get("text/plain"), AGAIN


def names_no_place_of_a_machine(tutorial: nbformat.NotebookNode) -> None:
    said = "".join(str(cell.get("outputs", "")) for cell in tutorial.cells)
    assert not re.search(r"/tmp|/home|/root|/var|/Users", re.sub(r"'image/png': '[^']*'", "", said))
