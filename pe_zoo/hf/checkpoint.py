"""A saved model, opened to be measured: its logits, stream and weights, and its rotation if that is one of ours."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar

from pe_zoo import Encoder, Geometry, Unsupported
from pe_zoo.hf.families import REFUSED, tried
from pe_zoo.hf.listen import attending_by, family, read, tokens_for
from pe_zoo.hf.order import table_of
from pe_zoo.hf.own import Partial, configured, own_rotation, rotates
from pe_zoo.hf.saved import load
from pe_zoo.hf.seat import Seat, seat_of
from pe_zoo.hf.swap import USED, chosen, noted_length, put, restore, use

TAKEN = "give a causal language model, such as Llama or GPT-2"
BEFORE = "original_max_position_embeddings"


@dataclass
class Opened:
    """A model in evaluation mode, and ``encoder``, if the zoo has what tells it order, or the reason why not."""

    model: PreTrainedModel
    geometry: Geometry
    encoder: Encoder | None
    reason: str = ""
    positions: int | None = None
    """How many positions a table of the model has; None: it has no table."""
    still: Encoder | None = None
    """What stands in layers in which nothing tells order, beside others that have ``encoder``."""

    def logits(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """``(batch, length)`` tokens and positions, or None for its own, to ``(batch, length, vocab)``."""
        return self.model(input_ids=tokens, use_cache=False, **self._numbered(tokens, positions)).logits

    def hidden(self, tokens: Tensor, positions: Tensor) -> list[Tensor]:
        """The stream before the first layer and after each, the last behind the final norm."""
        given = self._numbered(tokens, positions)
        return list(self.model(input_ids=tokens, use_cache=False, output_hidden_states=True, **given).hidden_states)

    def last_outputs(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and the last outputs, behind the final norm, of which gradients can be taken."""
        embedded = self.model.get_input_embeddings()(tokens).detach().requires_grad_()
        given = self._numbered(tokens, positions) | {"use_cache": False, "output_hidden_states": True}
        return embedded, self.model(inputs_embeds=embedded, **given).hidden_states[-1][:, -1]

    def attention(self, tokens: Tensor, positions: Tensor) -> list[Tensor]:
        """The weights of each layer, ``(batch, heads, query, key)``; Unsupported if the model does not tell them."""
        given = self._numbered(tokens, positions) | {"use_cache": False, "output_attentions": True}
        with attending_by(self.model, self.model.config._attn_implementation if _seats(self.model) else "eager"):
            found = self.model(input_ids=tokens, **given).attentions
        if not found or found[0] is None:
            raise Unsupported(f"{self.model.config.model_type} does not tell its attention weights")
        return list(found)

    @property
    def window(self) -> int | None:
        """The keys that each query sees by what `use` was told; None: all that the model lets it see."""
        return next((seat.window for seat in _seats(self.model)), None)

    @property
    def first(self) -> int:
        """The first keys that each query sees beside its window."""
        return next((seat.first for seat in _seats(self.model)), 0)

    def replace(self, encoder: Encoder | None, window: int | None, first: int = 0) -> None:
        """Put another encoder (None: none) into every layer.

        Queries see a window of keys (None: all), and the first ones beside it.
        """
        for seat in _seats(self.model):
            seat.window, seat.first = window, first
            if seat.encoder is not self.still:
                seat.encoder = encoder or Encoder(self.geometry)

    @property
    def rotating(self) -> tuple[list[int], list[int]] | None:
        """The layers that have ``encoder``, and those in which nothing tells order; None: all have it."""
        if self.still is None:
            return None
        having, without = (list(spec["layers"]) for spec in getattr(self.model.config, USED))
        return having, without

    def _numbered(self, tokens: Tensor, positions: Tensor | None) -> dict[str, Tensor]:
        if self.positions is not None:
            table = f"{family(self.model)} has a table of {self.positions} positions and"
            if tokens.shape[-1] > self.positions:
                remedy = "pe_zoo.hf.use(model, 'alibi') replaces the table, then train on"
                raise Unsupported(f"{table} cannot read {tokens.shape[-1]} tokens; {remedy}")
            if positions is not None and positions.max() >= self.positions:
                raise Unsupported(f"{table} none from {self.positions} on")
        if positions is None:
            return {}
        if bool((positions != positions.round()).any()):
            raise Unsupported("a saved model takes whole positions")
        return {"position_ids": positions.long().expand(len(tokens), -1)}

    def num_parameters(self) -> tuple[int, int]:
        """Of the encoder, and of all else."""
        own = sum(p.numel() for p in self.encoder.parameters()) if self.encoder else 0
        return own, sum(p.numel() for p in self.model.parameters()) - own


def lengths(place: str) -> tuple[int | None, int | None]:
    """The tokens that a saved model was trained on, and the positions that it reaches, as far as it says so.

    Where its rotation is scaled, the first is Transformers' ``original_max_position_embeddings``, "used during
    pretraining". Of a model that an encoder was put into both are what `use` noted: its configuration may have more.

    Raises:
        ValueError: it is no causal language model.
    """
    try:
        config = AutoConfig.from_pretrained(place, local_files_only=True)
    except OSError as error:
        raise ValueError(f"checkpoint={place!r} has no config.json that can be read: {error}") from error
    made = config.architectures or []
    if config.is_encoder_decoder or (made and not {*made} & {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()}):
        raise ValueError(f"checkpoint={place!r} is a {' or '.join(made) or config.model_type}; {TAKEN}")
    if (noted := noted_length(config)) is not None:
        return noted, noted
    reach = getattr(config.get_text_config(), "max_position_embeddings", None)
    before = [kind[BEFORE] for kind in configured(config) if kind.get("rope_type") != "default" and kind.get(BEFORE)]
    return min(before, default=reach), reach


def refused(place: str) -> str:
    """Why no encoder can be put into a saved model's family, as far as a small one of it shows; empty if one can."""
    found = tried(AutoConfig.from_pretrained(place, local_files_only=True).model_type)
    return found.reason if found.outcome == REFUSED else ""


def open_model(place: str, train_length: int, device: torch.device) -> Opened:
    """Open a folder or a name on the hub: in bfloat16 on a GPU, in float32 elsewhere.

    Its rotation becomes an encoder of the zoo if it can be taken out and put back without a change of its logits.
    """
    disable_progress_bar()
    config = AutoConfig.from_pretrained(place, local_files_only=True)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    how: dict[str, Any] = {"dtype": dtype, "local_files_only": True}
    opened = load if getattr(config, USED, None) else AutoModelForCausalLM.from_pretrained
    model = opened(place, **how).eval().to(device).requires_grad_(False)
    if _sees_later(model):
        raise ValueError(f"{family(model)} sees later tokens; {TAKEN}")
    own = getattr(model.base_model, USED, None)
    encoder, still, reason = None, None, "encoders of pe_zoo are in use in some of its layers"
    if own is None:
        encoder, still, reason = _rotation(model, train_length)
    elif len(own) == 1 and own.specs[0]["layers"] is None:
        encoder = own[0]
    geometry = encoder.geometry if encoder and still is None else _sizes(model, train_length)
    return Opened(model, geometry, encoder, "" if encoder else reason, table_of(model), still)


def _seats(model: PreTrainedModel) -> list[Seat]:
    return [seat for module in model.modules() if (seat := seat_of(module))]


def _sees_later(model: PreTrainedModel) -> bool:
    """Whether an output depends on a later token: a bidirectional model would read its answers."""
    tokens = tokens_for(model, 12)
    other = torch.cat([tokens[:, :-1], tokens[:, :1]], -1)
    before, after = (read(model, each)[:, :-1].float() for each in (tokens, other))
    near = 1e-3 if model.dtype == torch.float32 else 0.05
    return bool((after - before).abs().max() > near * before.std())


def _rotation(model: PreTrainedModel, train_length: int) -> tuple[Encoder | None, Encoder | None, str]:
    """Let our rotation take the place of the model's, if that changes nothing; otherwise say why it cannot.

    Where some layers do not rotate, the second is what stands in those.
    """
    try:
        heard = chosen(model, None)
        if not rotates(heard):
            raise Unsupported(f"{family(model)} has no rotation")
        try:
            own_rotation(model, heard)
        except Partial as part:
            others = [one for one in heard if one.layer not in part.layers]
            encoder = use(model, "rope", layers=part.layers, train_length=train_length)
            given: dict[str, Any] = {"layers": [one.layer for one in others], "train_length": train_length}
            return encoder, put(model, others, "none", **given), ""
        return use(model, "rope", train_length=train_length), None, ""
    except (Unsupported, ValueError) as reason:
        restore(model)
        return None, None, str(reason)


def _sizes(model: PreTrainedModel, train_length: int) -> Geometry:
    text = model.config.get_text_config()
    return Geometry(
        model_dim=text.hidden_size,
        num_heads=text.num_attention_heads,
        num_layers=text.num_hidden_layers,
        train_length=train_length,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
    )
