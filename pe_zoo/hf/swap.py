"""Put encoders into a model of Transformers, take them out again, and load a model that was saved with some."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.hub import cached_file
from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

import pe_zoo
from pe_zoo import Encoder, Geometry, Unsupported
from pe_zoo.hf import order
from pe_zoo.hf.attention import NAME
from pe_zoo.hf.listen import Heard, check, family, listen
from pe_zoo.hf.seat import Seat, leave, reads_input, seat_of, sit

USED = "pe_zoo"
"""In a model: its encoders. In its config: their names, layers, lengths and knobs."""


class Encoders(nn.ModuleList):
    """The encoders in use in a model, and what it takes to be rid of them."""

    def __init__(self, attended_by: str) -> None:
        super().__init__()
        self.attended_by = attended_by
        self.specs: list[dict[str, Any]] = []
        self.handles: list[RemovableHandle] = []

    def keep(self, seated: set[Encoder]) -> None:
        """Drop encoders that have lost every layer to others."""
        pairs = [(encoder, spec) for encoder, spec in zip(self, self.specs, strict=True) if encoder in seated]
        super().__init__()
        self.extend(encoder for encoder, _ in pairs)
        self.specs = [spec for _, spec in pairs]


def use(
    model: PreTrainedModel,
    name: str,
    *,
    layers: Sequence[int] | None = None,
    train_length: int | None = None,
    **knobs: Any,
) -> Encoder:
    """Put an encoder into a language model in place of what tells it order now; return the encoder.

    The model is changed, and keeps its weights. The encoder's parameters are new: train on.

    Args:
        model: a decoder of Transformers.
        name: the encoder's.
        layers: attention layers that get it, from 0; the others keep what they have. None: all.
        train_length: tokens in the longest training sequence; None: the model's ``max_position_embeddings``.
        knobs: the encoder's.

    Raises:
        Unsupported: the model has something that would be lost, or a sense of order that cannot be switched off.
        ValueError: an unknown encoder, knob or layer, or a value out of range.
        TypeError: the model is not of Transformers.
    """
    pe_zoo.get(name)
    heard = _chosen(model, listen(model), layers)
    check(model, heard)
    text = model.config.get_text_config()
    geometry = Geometry(
        model_dim=text.hidden_size,
        num_heads=heard[0].query[1],
        num_layers=len(heard),
        train_length=train_length or text.max_position_embeddings,
        head_dim=heard[0].query[-1],
    )
    encoder = pe_zoo.build(name, geometry, **knobs).to(model.device, model.dtype)
    causal = bool(getattr(heard[0].module, "is_causal", True))
    if encoder.causal_only and not causal:
        raise Unsupported(f"{name} needs a causal model; {family(model)} is none")
    if layers is None:
        restore(model)
    elif encoder.overrides("embed"):
        raise ValueError(f"{name} acts on the embeddings, before all layers: leave layers= out")
    if not hasattr(model.base_model, USED):
        model.base_model.add_module(USED, Encoders(model.config._attn_implementation))
    used: Encoders = getattr(model.base_model, USED)
    model.set_attn_implementation(NAME)
    flexes = used.attended_by == "flex_attention"
    seats = [Seat(Encoder(geometry), layer, causal, flexes=flexes) for layer in range(len(heard))]
    for one, seat in zip(heard, seats, strict=True):
        leave(one.module)
        sit(one.module, seat)
    if layers is None:
        try:
            used.handles += order.silence(model)
        except Unsupported:
            restore(model)
            raise
        used.handles += order.embed(model, heard[0].module, encoder)
    reads = reads_input(encoder)
    for seat in seats:
        seat.encoder, seat.reads_input = encoder, reads
    used.append(encoder)
    spec = {"name": name, "layers": layers and sorted(layers), "train_length": geometry.train_length, **knobs}
    used.specs.append(spec)
    used.keep({taken.encoder for module in model.modules() if (taken := seat_of(module))})
    setattr(model.config, USED, used.specs)
    return encoder


def restore(model: PreTrainedModel) -> None:
    """Undo every `use`: the model attends and tells order as it did before; its weights stay as they are."""
    used = getattr(model.base_model, USED, None)
    if used is None:
        return
    for handle in used.handles:
        handle.remove()
    for module in model.modules():
        leave(module)
    delattr(model.base_model, USED)
    if hasattr(model.config, USED):
        delattr(model.config, USED)
    model.set_attn_implementation(used.attended_by)


def load(path: str, auto: Any = AutoModelForCausalLM, **options: Any) -> PreTrainedModel:
    """Load a model that ``save_pretrained`` wrote while encoders were in use, with them.

    Args:
        path: a folder or a name on the hub.
        auto: class whose ``from_pretrained`` makes the model.
        options: of ``from_pretrained``.

    Raises:
        ValueError: the model was saved without an encoder of pe_zoo.
    """
    loud = get_verbosity()
    set_verbosity_error()  # it would call the encoders' parameters unexpected
    try:
        model: PreTrainedModel = auto.from_pretrained(path, **options)
    finally:
        set_verbosity(loud)
    specs = getattr(model.config, USED, None)
    if not specs:
        raise ValueError(f"{path} was saved without an encoder of pe_zoo: load it with {auto.__name__}.from_pretrained")
    delattr(model.config, USED)
    for spec in specs:
        use(model, **spec)
    getattr(model.base_model, USED).load_state_dict(_saved(path))
    return model


def _chosen(model: PreTrainedModel, heard: list[Heard], layers: Sequence[int] | None) -> list[Heard]:
    """The attention modules that get an encoder, each once."""
    by_layer = {one.layer: one for one in reversed(heard)}
    if layers is None:
        return [by_layer[layer] for layer in sorted(by_layer)]
    if unknown := sorted({*layers} - by_layer.keys()):
        known = ", ".join(map(str, sorted(by_layer)))
        raise ValueError(
            f"layers={list(layers)}: {family(model)} has no attention in layer {unknown[0]}; here: {known}"
        )
    if not layers:
        raise ValueError("layers=[] names no layer; leave it out for all")
    return [by_layer[layer] for layer in sorted({*layers})]


def _saved(path: str) -> dict[str, Any]:
    """The saved state of a model's encoders."""
    found = {}
    for file in _files(path):
        with safe_open(file, "pt") as tensors:
            for key in filter(lambda key: f"{USED}." in key, tensors.keys()):
                found[key.partition(f"{USED}.")[2]] = tensors.get_tensor(key)
    return found


def _files(path: str) -> list[str]:
    if index := cached_file(path, SAFE_WEIGHTS_INDEX_NAME, _raise_exceptions_for_missing_entries=False):
        parts = json.loads(Path(index).read_text())["weight_map"]
        names = sorted({file for key, file in parts.items() if f"{USED}." in key})
    else:
        names = [SAFE_WEIGHTS_NAME]
    return [file for name in names if (file := cached_file(path, name))]
