"""Experiments: what each encoder does to the sense of order, and to lengths never trained on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.model.transformer import Transformer
    from experiments.rows.load import load
    from experiments.training.loop import make_train_step

__all__ = ["Transformer", "load", "make_train_step"]

_HOME = {
    "Transformer": "experiments.model.transformer",
    "load": "experiments.rows.load",
    "make_train_step": "experiments.training.loop",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use: a report is made from rows alone and must not have to import torch.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
