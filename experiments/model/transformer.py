"""One Transformer. It asks its encoder what to do and never knows which one it has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.model.layout import ALL, SKIPPING, Layout, visible
from experiments.model.precision import fused_pays, linear
from experiments.model.temperature import LAWS, LLAMA4, Temperature
from pe_zoo import Encoder, Geometry, Site, Unsupported, raw_scores
from pe_zoo._knobs import one_of, whole

PAIRS_AT_ONCE = 2**20
"""Pairs of a query and a key, over a batch, that are handled at once where gradients are not needed."""
PLAIN = "plain"
FUSED = "fused"


class Transformer(nn.Module):
    """Pre-norm Transformer, causal or bidirectional; all positional signal comes from the encoder and the mask.

    Args:
        vocab_size: number of tokens.
        geometry: the sizes; the encoder must have been built with the same.
        encoder: the positional encoder.
        causal: whether a query sees only itself and what came before.
        layout: which layers carry the encoder, and what each layer and head sees.
        temperature: law by which queries that see more keys are sharpened, one of ``LAWS``; None: none.
        temperature_floor: of the law ``llama4``, keys to a step; None: the training length.
        temperature_on: which layers have it: ``all``, or ``skipping`` (those that go without the encoder).
        ffn_multiple: hidden width of the feed-forward block, in multiples of model_dim.
        ffn_extra: hidden units of each layer's feed-forward block beyond that.
        query_block: queries handled at once where gradients are not needed, at most; of long sequences fewer, so
            that memory grows with the length and not with its square.
        attention: ``fused`` takes a fused kernel wherever the encoder's hooks allow it, ``plain`` never.
    """

    def __init__(
        self,
        vocab_size: int,
        geometry: Geometry,
        encoder: Encoder,
        *,
        causal: bool = True,
        layout: Layout | None = None,
        temperature: str | None = None,
        temperature_floor: int | None = None,
        temperature_on: str = ALL,
        ffn_multiple: int = 4,
        ffn_extra: int = 0,
        query_block: int = 1024,
        attention: str = FUSED,
    ) -> None:
        super().__init__()
        if encoder.geometry != geometry:
            raise ValueError(f"the encoder was built for {encoder.geometry}, the model is {geometry}")
        if encoder.causal_only and not causal:
            raise ValueError(f"{encoder.name} means nothing without a causal mask: set model.causal=true")
        (layout := layout or Layout()).check(geometry.num_layers, geometry.num_heads)
        check_temperature(temperature, temperature_floor, temperature_on, layout)
        one_of("attention", attention, (FUSED, PLAIN))
        whole("query_block", query_block, at_least=1)
        self.vocab_size = vocab_size
        self.geometry = geometry
        self.causal = causal
        self.layout = layout
        self.encoder = encoder
        self.encoder_dropped = False
        self._bare = (Encoder(geometry),)  # identity hooks, for layers that go without; in a tuple: no submodule
        self.token_embedding = nn.Embedding(vocab_size, geometry.model_dim)
        self.layers = nn.ModuleList(
            Layer(
                geometry,
                layer,
                causal=causal,
                windows=layout.windows(layer, geometry),
                temperature=(
                    Temperature(temperature, geometry, floor=temperature_floor)
                    if temperature and not (temperature_on == SKIPPING and layout.carries(layer))
                    else None
                ),
                ffn_dim=ffn_multiple * geometry.model_dim + ffn_extra,
                query_block=query_block,
                attention=attention,
            )
            for layer in range(geometry.num_layers)
        )
        self.norm = nn.LayerNorm(geometry.model_dim, bias=False)
        self.unembedding = nn.Linear(geometry.model_dim, vocab_size, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        # Token embeddings of unit variance, as Vaswani et al. have them at the input (their √model_dim
        # times N(0, 1/model_dim)): the scale every encoder that adds vectors is compared at.
        nn.init.normal_(self.token_embedding.weight, std=1.0)
        residual = (2 * self.geometry.num_layers) ** -0.5
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for out in (layer.attention_out, layer.ffn_out):
                out.weight.data.mul_(residual)
        nn.init.normal_(self.unembedding.weight, std=self.geometry.model_dim**-0.5)

    def drop_encoder(self) -> None:
        """Go without the encoder from now on, in training and evaluation; its parameters stay, and rest."""
        self.encoder_dropped = True

    def trunk_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Everything but the encoder's own parameters, by name."""
        return [(name, p) for name, p in self.named_parameters() if not name.startswith("encoder.")]

    def num_parameters(self) -> tuple[int, int]:
        """How many numbers are learned: the encoder's, and all others."""
        return sum(p.numel() for p in self.encoder.parameters()), sum(p.numel() for _, p in self.trunk_parameters())

    def train_in(self, dtype: torch.dtype | None) -> None:
        """Multiply the layers' matrices in this dtype in training mode; None: as they are, and in evaluation always."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.training_dtype = dtype

    def forward(self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None) -> Tensor:
        """Next-token (causal) or same-place (bidirectional) logits.

        Args:
            tokens: ``(batch, length)`` int64.
            positions: of all places up to the last token's, ``(length,)`` or ``(batch, length)``; 0, 1, 2, … if None.
            pasts: of each layer, keys and values of the places before these tokens; they gain the new ones.

        Returns:
            ``(batch, length, vocab)``.
        """
        return self.unembedding(self.norm(self.hidden(tokens, positions, pasts)[-1]))

    def hidden(
        self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None
    ) -> list[Tensor]:
        """The residual stream before the first layer and after each: ``num_layers + 1`` of ``(batch, length, dim)``."""
        batch_size, new = tokens.shape
        places = new + (pasts[0].length if pasts else 0)
        if positions is None:
            positions = torch.arange(places, dtype=torch.float32, device=tokens.device)
        if tuple(positions.shape) not in ((places,), (batch_size, places)):
            raise ValueError(
                f"positions of shape {tuple(positions.shape)} for tokens of shape {tuple(tokens.shape)}: "
                f"give (length,) or (batch, length)"
            )
        encoder = self._bare[0] if self.encoder_dropped else self.encoder
        stream = [encoder.embed(self.token_embedding(tokens), positions[..., places - new :])]
        kept: Sequence[Past | None] = pasts or [None] * len(self.layers)
        for index, (layer, past) in enumerate(zip(self.layers, kept, strict=True)):
            stream.append(layer(stream[-1], positions, self._encoder_in(index), past))
        return stream

    def attention(self, tokens: Tensor, positions: Tensor | None = None) -> list[Tensor]:
        """What each layer's queries attend to: ``num_layers`` of ``(batch, heads, query, key)``."""
        stream = self.hidden(tokens, positions)
        if positions is None:
            positions = torch.arange(tokens.shape[-1], dtype=torch.float32, device=tokens.device)
        return [
            layer.weights(x, positions, self._encoder_in(index))
            for index, (layer, x) in enumerate(zip(self.layers, stream, strict=False))
            if isinstance(layer, Layer)
        ]

    def _encoder_in(self, layer: int) -> Encoder:
        return self.encoder if self.layout.carries(layer) and not self.encoder_dropped else self._bare[0]


class Past:
    """What a layer keeps of the places it has read: input, keys and values, in memory taken once.

    Args:
        longest: places there will be at most.
    """

    def __init__(self, longest: int) -> None:
        self.longest, self.length = longest, 0
        self._kept: list[Tensor] = []

    def and_now(self, *new: Tensor) -> list[Tensor]:
        """What was kept with what is new behind it, ``(..., length, dim)`` each; the new is kept."""
        if not self._kept:
            self._kept = [part.new_empty(*part.shape[:-2], self.longest, part.shape[-1]) for part in new]
        start, self.length = self.length, self.length + new[0].shape[-2]
        for kept, part in zip(self._kept, new, strict=True):
            kept[..., start : self.length, :] = part
        return [kept[..., : self.length, :] for kept in self._kept]


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the stream. No biases, no dropout."""

    def __init__(
        self,
        geometry: Geometry,
        index: int,
        *,
        causal: bool,
        windows: tuple[int | None, ...],
        temperature: Temperature | None,
        ffn_dim: int,
        query_block: int,
        attention: str,
    ) -> None:
        super().__init__()
        dim = geometry.model_dim
        self.index, self.causal, self.windows = index, causal, windows
        self.num_heads = geometry.num_heads
        self.query_block, self.attention = query_block, attention
        self.temperature = temperature
        self.training_dtype: torch.dtype | None = None
        self.attention_norm = nn.LayerNorm(dim, bias=False)
        self.attention_in = nn.Linear(dim, 3 * dim, bias=False)
        self.attention_out = nn.Linear(dim, dim, bias=False)
        self.ffn_norm = nn.LayerNorm(dim, bias=False)
        self.ffn_in = nn.Linear(dim, ffn_dim, bias=False)
        self.ffn_out = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, stream: Tensor, positions: Tensor, encoder: Encoder, past: Past | None = None) -> Tensor:
        dtype = self.training_dtype if self.training else None
        heads = self._heads(encoder, stream, positions, past, dtype)
        if self._flows(encoder, heads):
            behind = self.causal and heads.new > 1  # a single query is the last: it sees every key
            scale = encoder.geometry.head_dim**-0.5
            mixed = functional.scaled_dot_product_attention(heads.q, heads.k, heads.v, is_causal=behind, scale=scale)
        elif self._slides(encoder, heads):
            mixed = self._sliding(encoder, heads)
        else:
            parts = [attend(encoder, *block, self.attention, turned=heads.turned) for block in self._blocks(heads)]
            mixed = parts[0] if len(parts) == 1 else torch.cat(parts, -2)
        stream = stream + linear(mixed.transpose(1, 2).flatten(-2), self.attention_out, dtype)
        hidden = functional.gelu(linear(self.ffn_norm(stream), self.ffn_in, dtype))
        return stream + linear(hidden, self.ffn_out, dtype)

    def weights(self, stream: Tensor, positions: Tensor, encoder: Encoder) -> Tensor:
        """What each query attends to: ``(batch, heads, query, key)``."""
        heads = self._heads(encoder, stream, positions)
        parts = []
        for q, k, _, site in self._blocks(heads):
            part = weights(encoder, _scores(encoder, q, k, site, turned=heads.turned), site)
            parts.append(functional.pad(part, (0, heads.places - part.shape[-1])))
        return torch.cat(parts, -2)

    def _heads(
        self,
        encoder: Encoder,
        stream: Tensor,
        positions: Tensor,
        past: Past | None = None,
        dtype: torch.dtype | None = None,
    ) -> Heads:
        """Queries of the places in the stream, keys and values of those and all that are past; what is past grows."""
        x = self.attention_norm(stream)
        # Whatever they were multiplied in, queries and keys are turned and scored in the stream's precision.
        projected = linear(x, self.attention_in, dtype).to(x.dtype)
        q, k, v = projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            x, k, v = past.and_now(x, k, v)
        heads = Heads(q, k, v, x, positions, turned=not encoder.overrides("rotate"))
        # A temperature scales queries by what each sees, and comes before ``rotate``: block by block.
        if not heads.turned and not encoder.blockwise_rotation and self.temperature is None:
            everywhere = torch.ones(1, 1, dtype=torch.bool, device=x.device)
            q, k = encoder.rotate(q, k, self._site(heads, slice(heads.places - heads.new, heads.places), everywhere))
            return Heads(q, k, v, x, positions, turned=True)
        return heads

    def _flows(self, encoder: Encoder, heads: Heads) -> bool:
        """Whether the fused kernel can be told in a word which keys are seen, and nothing is left to do to scores."""
        return (
            self._fuses(encoder, heads)
            and set(self.windows) == {None}
            and (not self.causal or heads.new in (1, heads.places))
            and not encoder.overrides("score")
        )

    def _slides(self, encoder: Encoder, heads: Heads) -> bool:
        """Whether what the last query sees and is given, moved along, is what every other does."""
        return (
            self._fuses(encoder, heads)
            and heads.q.device.type == "cpu"
            and not torch.is_grad_enabled()
            and self.causal
            and (not encoder.overrides("score") or (encoder.distance_bias and evenly_spaced(heads.positions)))
        )

    def _fuses(self, encoder: Encoder, heads: Heads) -> bool:
        return (
            self.attention == FUSED
            and heads.q.shape[-1] == heads.v.shape[-1]  # widened, torch goes by matrices as large as the square
            and heads.turned
            and self.temperature is None
            and not encoder.overrides("mix")
            and fused_pays(heads.q, heads.k)
        )

    def _sliding(self, encoder: Encoder, heads: Heads) -> Tensor:
        """Attention with one row of a bias by distance, the last query's, in place of all rows.

        Queries, the last one first, see that row one key further on each: a view of it, however many they are.
        """
        last = slice(heads.places - 1, heads.places)
        back = heads.places - 1 - torch.arange(heads.places, device=heads.x.device)
        seen = visible(back.unsqueeze(0), self.windows, self.causal)
        row = heads.q.new_zeros(1, 1, *seen.shape[-2:]).masked_fill(~seen, -torch.inf)
        if encoder.overrides("score"):
            row = encoder.score(row, heads.q[:, :, -1:], heads.k, self._site(heads, last, seen))
        parts = []
        for start in range(heads.places - heads.new, heads.places, self.query_block):
            stop = min(heads.places, start + self.query_block)
            ahead = row.new_full((*row.shape[:2], stop - start - 1), -torch.inf)
            bias = torch.cat([row[:, :, 0, heads.places - stop :], ahead], -1).unfold(-1, stop, 1)
            queries = slice(start - heads.places + heads.new, stop - heads.places + heads.new)
            mixed = functional.scaled_dot_product_attention(
                heads.q[:, :, queries].flip(-2),
                heads.k[:, :, :stop],
                heads.v[:, :, :stop],
                attn_mask=bias,
                scale=encoder.geometry.head_dim**-0.5,
            )
            parts.append(mixed.flip(-2))
        return torch.cat(parts, -2)

    def _blocks(self, heads: Heads) -> Iterator[tuple[Tensor, Tensor, Tensor, Site]]:
        """Some queries, ``(batch, heads, query, head_dim)``, keys and values, and where they stand.

        Keys end where the last of the queries stands, in a causal model: no later one decides anything, as the contract
        tests hold of every encoder.
        """
        start = heads.places - heads.new
        while start < heads.places:
            stop = heads.places if torch.is_grad_enabled() else min(heads.places, start + self._at_once(heads, start))
            rows, seen = slice(start, stop), heads.upto(stop) if self.causal else heads
            place = torch.arange(seen.places, device=seen.x.device)  # what may be seen goes by place, not by position
            site = self._site(seen, rows, visible(place[rows, None] - place, self.windows, self.causal))
            q = heads.q[:, :, start - heads.places + heads.new : stop - heads.places + heads.new]
            if self.temperature is not None:
                q = q * self.temperature(site.mask).to(q.dtype)
            yield q, seen.k, seen.v, site
            start = stop

    def _at_once(self, heads: Heads, start: int) -> int:
        """How many queries from a place on: as many as have ``PAIRS_AT_ONCE`` pairs with the keys up to them."""
        pairs = PAIRS_AT_ONCE // len(heads.x)
        most = (math.isqrt(start**2 + 4 * pairs) - start) // 2 if self.causal else pairs // heads.places
        return max(1, min(self.query_block, most))

    def _site(self, heads: Heads, rows: slice, mask: Tensor) -> Site:
        return Site(
            layer=self.index,
            query_positions=heads.positions[..., rows],
            key_positions=heads.positions,
            rows=rows,
            mask=mask,
            causal=self.causal,
            x=heads.x,
        )


@dataclass(frozen=True, eq=False)
class Heads:
    """What a layer attends with.

    Args:
        q: of the last places, ``(batch, heads, query, head_dim)``.
        k: of all places, as ``v``: ``(batch, heads, key, head_dim)``.
        x: the normalised input of all places, ``(batch, key, model_dim)``.
        positions: of all places, ``(key,)`` or ``(batch, key)``.
        turned: whether the encoder's ``rotate`` has nothing left to do.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    positions: Tensor
    turned: bool

    @property
    def new(self) -> int:
        """How many of the places ask."""
        return self.q.shape[-2]

    @property
    def places(self) -> int:
        return self.k.shape[-2]

    def upto(self, stop: int) -> Heads:
        """With the keys before a place, and no others."""
        keys, values = self.k[:, :, :stop], self.v[:, :, :stop]
        return replace(self, k=keys, v=values, x=self.x[:, :stop], positions=self.positions[..., :stop])


def evenly_spaced(positions: Tensor) -> bool:
    """Whether each position is as far from the next as any other: equal distances, then, are equally many places."""
    steps = positions.diff()
    return positions.ndim == 1 and bool((steps == steps[:1]).all())


def check_temperature(law: str | None, floor: int | None, on: str, layout: Layout) -> None:
    """Refuse a temperature that is none, and options of it that could not show."""
    one_of("model.temperature_on", on, (ALL, SKIPPING))
    if law is not None:
        one_of("model.temperature", law, LAWS)
    if floor is not None and whole("model.temperature_floor", floor, at_least=1) and law != LLAMA4:
        raise ValueError(f"model.temperature_floor={floor} changes nothing without model.temperature={LLAMA4}")
    if on == SKIPPING and (law is None or layout.skip_every is None):
        raise ValueError(
            f"model.temperature_on={SKIPPING} changes nothing without a temperature and layers that are skipped; "
            f"set model.temperature and layout.skip_every, or model.temperature_on={ALL}"
        )


def attend(
    encoder: Encoder, q: Tensor, k: Tensor, v: Tensor, site: Site, attention: str = FUSED, *, turned: bool = False
) -> Tensor:
    """Attention as the encoder wants it: ``(batch, heads, query, head_dim)``.

    The plain path is the definition. The fused kernel stands in for it where the encoder leaves the
    softmax alone and changes scores, if at all, by a bias that is there before them, and where it is faster.
    ``turned``: q and k come from the encoder's ``rotate``.
    """
    changes_scores = encoder.overrides("score")
    may_fuse = not encoder.overrides("mix") and (encoder.static_bias or not changes_scores)
    if attention == FUSED and may_fuse and fused_pays(q, k):
        if not turned:
            q, k = encoder.rotate(q, k, site)
        mask = site.mask
        if changes_scores:
            nothing = torch.zeros(1, 1, *site.mask.shape[-2:], dtype=q.dtype, device=q.device)
            mask = encoder.score(nothing, q, k, site).masked_fill(~site.mask, -torch.inf)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=encoder.geometry.head_dim**-0.5)
    scores = _scores(encoder, q, k, site, turned=turned)
    scores = scores + scores.new_zeros(site.mask.shape).masked_fill(~site.mask, -torch.inf)
    return encoder.mix(scores, v, site)


def _scores(encoder: Encoder, q: Tensor, k: Tensor, site: Site, *, turned: bool) -> Tensor:
    if not turned:
        return raw_scores(encoder, q, k, site)
    return encoder.score(q * encoder.geometry.head_dim**-0.5 @ k.mT, q, k, site)


def weights(encoder: Encoder, scores: Tensor, site: Site) -> Tensor:
    """What an encoder's ``mix`` makes of scores: how much each query takes of each key.

    An encoder may mix as it likes, as long as outputs are affine in the values: the weights are what it makes of unit
    vectors, less what it makes of zeros.

    Args:
        encoder: any.
        scores: not yet masked, ``(batch, heads, query, key)``.
        site: where they stand.

    Returns:
        ``(batch, heads, query, key)``.

    Raises:
        Unsupported: outputs are not affine in the values.
    """
    scores = scores.masked_fill(~site.mask, -torch.inf)
    if not encoder.overrides("mix"):
        return scores.softmax(-1)
    num_keys, head_dim = scores.shape[-1], encoder.geometry.head_dim
    units = torch.eye(num_keys, dtype=scores.dtype, device=scores.device).expand(*scores.shape[:2], -1, -1)
    nothing = encoder.mix(scores, scores.new_zeros(*scores.shape[:2], num_keys, head_dim), site)
    columns = []
    for part in units.split(head_dim, -1):
        padded = functional.pad(part, (0, head_dim - part.shape[-1]))
        columns.append((encoder.mix(scores, padded, site) - nothing)[..., : part.shape[-1]])
    found = torch.cat(columns, -1)
    _check_affine(encoder, scores, found, nothing, site)
    return found


def _check_affine(encoder: Encoder, scores: Tensor, found: Tensor, nothing: Tensor, site: Site) -> None:
    """Refuse weights that do not say what an encoder makes of values: one set for all dimensions, and nothing else."""
    num_keys, head_dim = scores.shape[-1], encoder.geometry.head_dim
    values = torch.arange(num_keys * head_dim, device=scores.device).cos().to(scores.dtype).view(num_keys, head_dim)
    mixed = encoder.mix(scores, values.expand(*scores.shape[:2], -1, -1), site)
    near = 4 * torch.finfo(scores.dtype).eps ** 0.5
    if not torch.allclose(mixed, found @ values + nothing, rtol=near, atol=near):
        raise Unsupported(f"{type(encoder).__name__}: there are no weights, its outputs are no weighted sums of values")
