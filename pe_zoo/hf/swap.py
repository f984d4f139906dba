"""Put encoders into a model of Transformers, and take them out again."""

import warnings
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PretrainedConfig, PreTrainedModel

import pe_zoo
from pe_zoo import Encoder, Geometry, Unsupported
from pe_zoo._knobs import check_knobs, whole
from pe_zoo.hf import order
from pe_zoo.hf.attention import NAME
from pe_zoo.hf.listen import Heard, check, family, listen
from pe_zoo.hf.own import start, warn_of_pairs
from pe_zoo.hf.seat import Seat, leave, reads_input, seat_of, sit

USED = "pe_zoo"
"""In a model: its encoders. In its config: their names, layers, lengths and knobs."""

OPTIONS = ("layers", "train_length", "sliding_window", "first_tokens")
"""What `use` takes with every encoder, beside its knobs."""


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
    sliding_window: int | None = None,
    first_tokens: int = 0,
    **knobs: Any,
) -> Encoder:
    """Put an encoder into a language model in place of what tells it order now; return the encoder.

    The model is changed, and keeps its weights, which were trained without the encoder: train on. Where they come from
    a folder or the hub, a warning says so.

    ``rope`` and the encoders that extend it (``yarn``, ``self_extend``, …) start from the model's own rotation where
    `rope` computes the same: they take its base, its share of the head and its pairs of dimensions. ``rope`` then
    changes nothing, and the others need no training. They are new encoders, to be trained, in a model that does not
    rotate, and where ``base`` or ``pairing`` is given. Where the model's rotation is scaled already they are refused
    without these. Where it differs between layers, or is not that of `rope`, the encoders that extend it are refused,
    and ``rope`` is a new one.

    Args:
        model: a decoder of Transformers.
        name: the encoder's.
        layers: attention layers that get it, from 0; the others keep what they have. None: all.
        train_length: tokens in the longest training sequence; None: what an earlier `use` noted, else the model's
            ``max_position_embeddings``, which may have been raised since.
        sliding_window: keys that each query sees, its own included; None: all that the model lets it see.
        first_tokens: first keys of a text that each query sees beside its window. Large models put much of their
            attention there, and fail without (Xiao et al. 2023, arXiv:2309.17453). With ``rerope`` and a ``window`` of
            the same size they count as being at its end: LM-Infinite (Han et al. 2023, arXiv:2308.16137).
        knobs: the encoder's.

    Raises:
        Unsupported: the encoder is for grids or segments, or the model has something that would be lost, a sense of
            order that cannot be switched off, or a rotation that the encoder cannot start from.
        ValueError: an unknown encoder, knob or layer, or a value out of range.
        TypeError: the model is not of Transformers.
    """
    if (cls := pe_zoo.get(name)).axes > 1:
        plane = {"grid": "grids"}.get(cls.plane, cls.plane)
        raise Unsupported(
            f"{name} is for {plane}, positions of {cls.axes} axes; a language model reads a sequence: give one "
            "that python -m pe_zoo lists for sequences"
        )
    check_knobs(name, [*pe_zoo.knobs(cls), *OPTIONS], knobs)
    heard = chosen(model, layers)
    own, halves = start(model, heard, name, knobs)
    given: dict[str, Any] = {"layers": layers, "train_length": train_length, "halves": halves}
    given |= {"sliding_window": sliding_window, "first_tokens": first_tokens}
    encoder = put(model, heard, name, **given, **own | knobs)
    if "base" in knobs and "pairing" not in knobs:
        warn_of_pairs(model, heard, name)
    elif not own and model.name_or_path:
        warnings.warn(
            f"{name} is new to these weights, which were trained with another sense of order: {family(model)} reads "
            "worse than before, at every length, until it is trained; pe_zoo.hf.restore(model) undoes it",
            stacklevel=2,
        )
    return encoder


def put(
    model: PreTrainedModel,
    heard: list[Heard],
    name: str,
    *,
    layers: Sequence[int] | None,
    train_length: int | None,
    sliding_window: int | None = None,
    first_tokens: int = 0,
    halves: int = 0,
    **knobs: Any,
) -> Encoder:
    """Put an encoder into attention modules as told, as `use` does once it has asked for the model's rotation."""
    if sliding_window is not None:
        whole("sliding_window", sliding_window, at_least=1)
    whole("first_tokens", first_tokens, at_least=0)
    if first_tokens and sliding_window is None:
        raise ValueError(f"first_tokens={first_tokens} keeps these beside a window: give sliding_window=, too")
    text = model.config.get_text_config()
    geometry = Geometry(
        model_dim=text.hidden_size,
        num_heads=heard[0].query[1],
        num_layers=len(heard),
        train_length=train_length or noted_length(model.config) or text.max_position_embeddings,
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
    seats = [Seat(Encoder(geometry), layer, causal, flexes=flexes, halves=halves) for layer in range(len(heard))]
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
        seat.encoder, seat.reads_input, seat.window, seat.first = encoder, reads, sliding_window, first_tokens
    used.append(encoder)
    spec = {"name": name, "layers": layers and sorted(layers), "train_length": geometry.train_length}
    if factor := pe_zoo.knobs(type(encoder)).get("factor"):  # though a default: a reader of the file wants to know it
        spec["factor"] = factor.default
    spec |= knobs
    more = {"sliding_window": sliding_window, "first_tokens": first_tokens or None, "halves": halves or None}
    used.specs.append(spec | {word: told for word, told in more.items() if told is not None})
    used.keep({taken.encoder for module in model.modules() if (taken := seat_of(module))})
    setattr(model.config, USED, used.specs)
    return encoder


def noted_length(config: PretrainedConfig) -> int | None:
    """The tokens that a model was trained on, if `use` noted them."""
    specs = getattr(config, USED, None)
    return int(specs[0]["train_length"]) if specs else None


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


def chosen(model: PreTrainedModel, layers: Sequence[int] | None) -> list[Heard]:
    """The attention modules that get an encoder, each once; Unsupported if something would be lost in them."""
    by_layer = {one.layer: one for one in reversed(listen(model))}
    if unknown := sorted({*(layers or ())} - by_layer.keys()):
        known = ", ".join(map(str, sorted(by_layer)))
        raise ValueError(
            f"layers={list(layers or ())}: {family(model)} has no attention in layer {unknown[0]}; here: {known}"
        )
    if layers is not None and not layers:
        raise ValueError("layers=[] names no layer; leave it out for all")
    heard = [by_layer[layer] for layer in sorted(by_layer if layers is None else {*layers})]
    check(model, heard)
    return heard
