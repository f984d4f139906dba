"""Predictions of theory stand beside what was measured; what contradicts one is named."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from support import ROOT

from experiments.report.sections import predictions
from experiments.tasks import tasks


def measured(task: str, kept: list[float], causal: str = "true", **config: str) -> Any:
    """One task of a report, with runs of a model without an encoder."""
    names = [f"run{number}" for number in range(len(kept))]
    settings = {"encoder.name": "none", "positions.name": "sequential", "model.causal": causal} | config
    return SimpleNamespace(
        key=task,
        runs=pd.DataFrame({"run_id": names, "series": "none"}),
        configs=dict.fromkeys(names, settings),
        scores=pd.DataFrame({"series": "none", "kept_2": kept}),
    )


def test_a_measurement_that_contradicts_is_named() -> None:
    found = [measured("majority", [0.5, 0.7]), measured("copy", [1.0]), measured("sort(num_symbols=4)", [0.95, 0.95])]
    (section,) = predictions.sections(found)
    assert section.paragraphs[1].startswith("2 of 3 measurements contradict the prediction: majority with none; copy")
    cells = section.parts[0].cells  # type: ignore[union-attr]
    assert list(cells["kept at 2×, %"]) == ["60", "100", "95"]
    assert list(cells["verdict"]) == ["contradicted", "contradicted", "agrees"]


def test_what_theory_does_not_speak_of_is_left_out() -> None:
    """Bidirectional models, widened controls, tasks that are not classified, and runs that did not learn."""
    others = [
        measured("majority", [0.5], causal="false"),
        measured("majority", [0.5], **{"model.as_many_as": "learned"}),
        measured("passkey", [0.5]),
        measured("parity(scratchpad=True)", [0.5]),
        measured("majority", [float("nan")]),
    ]
    assert predictions.sections(others) == []


def test_options_that_change_a_task_change_its_prediction() -> None:
    assert (
        predictions.predicted("copy(num_symbols=32, unique=True)") == predictions.theory()["tasks"]["copy(unique=True)"]
    )
    assert predictions.predicted("copy(num_symbols=32)") == predictions.theory()["tasks"]["copy"]
    assert predictions.predicted("parity(scratchpad=True)") is None


def test_the_document_says_the_same() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(.+?)` \| (yes|no) \| (yes|no) \| (.+) \|$", text, flags=re.MULTILINE)
    assert {name: [one == "yes", other == "yes", source] for name, one, other, source in table} == (
        predictions.theory()["tasks"]
    )


@pytest.mark.parametrize("name", predictions.theory()["tasks"])
def test_predictions_are_of_tasks_that_there_are(name: str) -> None:
    assert name.partition("(")[0] in tasks.names()
