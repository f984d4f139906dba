"""The example notebook runs from the first cell to the last, and shows what it says."""

from __future__ import annotations

import warnings
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "experiments" / "example.ipynb"


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the libraries that run notebooks
        from nbclient import NotebookClient

        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode, cell: str) -> nbformat.NotebookNode:
    (found,) = [cell_.outputs for cell_ in notebook.cells if cell_.id == cell]
    (output,) = found
    return output["data"]


def test_the_notebook_shows_what_it_says(executed: nbformat.NotebookNode) -> None:
    for table, column in (("rows", "eval_length"), ("runs", "final_loss"), ("summarise", "64"), ("own", "True")):
        assert f"<th>{column}</th>" in outputs(executed, table)["text/html"]
    assert "'copy_token_accuracy'" in outputs(executed, "plot")["text/plain"]
    assert "image/png" in outputs(executed, "show")


def test_it_is_kept_without_outputs() -> None:
    """They would be of the machine that it was last run on."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
