"""Experiments: what each encoder does to the sense of order, and to lengths never trained on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments._load import load
    from experiments._model import Transformer
    from experiments._train import make_train_step

__all__ = ["Transformer", "load", "make_train_step"]

_HOME = {
    "Transformer": "experiments._model",
    "load": "experiments._load",
    "make_train_step": "experiments._train",
}


def __getattr__(name: str) -> Any:
    # Looked up on first use: a report is made from rows alone and must not have to import torch.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
