"""Experiments: what each encoder does to the sense of order, and to lengths never trained on."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.pipeline import run
    from experiments.plan.request import RunConfig
    from experiments.rows.results import load
    from experiments.training.step import make_train_step

if find_spec("hydra") is None:
    raise SystemExit(
        "error: this Python lacks what the bench needs. Installed before? source .venv/bin/activate. "
        "Else: pip install -c constraints.txt -e '.[bench]'"
    )

__all__ = ["RunConfig", "Transformer", "load", "make_train_step", "run"]

_HOME = {
    "Transformer": "experiments.model.transformer",
    "RunConfig": "experiments.plan.request",
    "load": "experiments.rows.results",
    "run": "experiments.pipeline",
    "make_train_step": "experiments.training.step",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use: a report is made from rows alone and must not have to import torch.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
