"""Results for other people's collections: ``python report.py results/<name> --export evaluations`` or ``dataset``.

``evaluations`` writes a JSON file for each series in the schema 0.3.0 of Every Eval Ever (2026, arXiv:2606.14516), and
``dataset`` a folder that ``datasets.load_dataset`` reads: Parquet and a card. Nothing is uploaded.
"""

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.figures import style
from experiments.rows.read import RECORD
from experiments.rows.results import Results, load
from experiments.rows.row import is_share, metric_of, write_json, write_whole
from experiments.rows.untrusted import stays_within
from experiments.statistics.intervals import CONFIDENCE, by_measurement

SCHEMA = "0.3.0"
PROJECT = "pe-zoo"
CARD = """\
---
license: mit
pretty_name: "pe-zoo: {name}"
tags: [positional-encoding, transformer, length-generalization]
configs:
- config_name: rows
  data_files: rows.parquet
  default: true
- config_name: runs
  data_files: runs.parquet
---

# pe-zoo: {name}

{rows:,} measurements of {runs:,} runs: what positional encodings do to a small Transformer, and how well it answers at
lengths it was not trained on. {encoders} encodings, {tasks} tasks, up to {seeds} seeds.

`rows` has one line for each measurement (`series`, `task`, `seed`, `metric`, `train_length`, `eval_length`, `value`,
`chance`, `status`, …), `runs` one for each run, with its command, versions and commit. `docs/rows.md` of pe-zoo is the
dictionary of columns and metrics. `status` other than `ok` says why there is no value; such rows are results too.
"""


def write(folder: Path, kind: str) -> Path:
    """Write ``<folder>/export/<kind>`` and return it.

    ValueError if the folder has no rows over lengths, or Parquet cannot be written here.
    """
    results = load(folder)
    target = folder / "export" / kind
    for place in (target.parent, target):
        stays_within(place, folder)
        place.mkdir(exist_ok=True)
    (_evaluations if kind == "evaluations" else _dataset)(results, target)
    return target


def _dataset(results: Results, target: Path) -> None:
    if find_spec("pyarrow") is None:
        raise ValueError("--export dataset needs pyarrow: pip install 'pe-zoo[datasets]'")
    rows = results.rows.assign(converged=results.rows["converged"].astype("boolean"))
    runs = results.runs.copy()
    for column in (name for name, kind in RECORD.items() if kind in (dict, list)):
        runs[column] = pd.array([json.dumps(cell) if cell else None for cell in runs[column]], dtype="string")
    for name, table in (("rows", rows), ("runs", runs)):
        content: bytes = table.to_parquet(None, index=False)
        write_whole(target / f"{name}.parquet", content)
    counts = {"encoders": rows["encoder"].nunique(), "tasks": rows["task"].nunique(), "seeds": rows["seed"].nunique()}
    name = results.folder.resolve().name
    card = CARD.format(name=style.slug(name), rows=len(rows), runs=len(results.runs), **counts)
    write_whole(target / "README.md", card)


def _evaluations(results: Results, target: Path) -> None:
    """Write one record for each series; the same results get the same names of files."""
    if results.quality.empty:
        raise ValueError(
            "nothing was measured over lengths: --export evaluations needs experiment=length_extrapolation"
        )
    for series, lines in by_measurement(results.quality, []).groupby("series"):
        record = _record(results, str(series), list(_scores(lines)))
        digest = hashlib.sha256(record["evaluation_id"].encode()).digest()
        place = target / "data" / PROJECT / PROJECT / style.slug(str(series))
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / f"{uuid.UUID(bytes=digest[:16], version=4)}.json", record)


def _record(results: Results, series: str, scores: list[dict[str, Any]]) -> dict[str, Any]:
    runs = results.runs[results.runs["series"] == series]
    first, ended = runs.iloc[0], runs["finished"].max()
    epoch = "unknown" if pd.isna(ended) else str(int(ended.timestamp()))
    model = f"{PROJECT}/{style.slug(series)}"
    told = {name: str(first[name]) for name in ("encoder", "positions", "layout", "model_parameters", "command")}
    source = {"source_name": PROJECT, "source_type": "evaluation_run", "evaluator_relationship": "first_party"}
    library = {"name": PROJECT, "version": str((first["packages"] or {}).get(PROJECT, "unknown"))}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"{PROJECT}/{results.folder.resolve().name}/{model}/{epoch}",
        "evaluation_timestamp": epoch,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": source | {"source_organization_name": f"The {PROJECT} authors"},
        "eval_library": library | {"additional_details": {"commit": str(first["commit"])}},
        "model_info": {
            "name": f"Transformer with {series}",
            "id": model,
            "developer": PROJECT,
            # The weights are not published: the command trains them again.
            "additional_details": told | {"deployment_type": "self_deployed", "model_availability": "closed_weights"},
        },
        "evaluation_results": scores,
    }


def _scores(lines: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a result for each task and length; those without a value are left out, since a score is a number."""
    for line in lines[lines["seeds"] > 0].to_dict("records"):
        interval = {"lower": line["low"], "upper": line["high"], "confidence_level": CONFIDENCE}
        interval |= {"method": "Student's t over seeds, on the scale of the metric"}
        uncertainty = {"confidence_interval": interval} if not math.isnan(line["low"]) else {}
        details = {name: str(line[name]) for name in ("train_length", "eval_length", "unsupported", "diverged")}
        task = str(line["task"])
        yield {
            "evaluation_name": f"pe_zoo.{task}.length_{line['eval_length']}",
            "source_data": {
                "dataset_name": f"{PROJECT}: {task}",
                "source_type": "other",
                "additional_details": {"generator": f"task={task}, drawn by the seed"},
            },
            "metric_config": _metric(line["metric"]) | {"additional_details": {"chance": str(line["chance"])}},
            "score_details": {
                "score": line["mean"],
                "details": details,
                "uncertainty": uncertainty | {"num_samples": line["seeds"]},
            },
        }


def _metric(name: str) -> dict[str, Any]:
    metric = metric_of(name)
    least, most = (bound if math.isfinite(bound) else f"{'-' * (bound < 0)}Infinity" for bound in metric.bounds)
    return {
        "metric_id": f"pe_zoo.{name}",
        "metric_name": metric.label,
        "metric_kind": "accuracy" if is_share(name) else name,
        "metric_unit": "proportion" if is_share(name) else metric.unit,
        "lower_is_better": metric.higher_is_better is False,
        "score_type": "continuous",
        "min_score": least,
        "max_score": most,
    }
