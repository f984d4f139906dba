"""One Transformer. It calls the hooks of its encoder and never knows which encoder it has."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from experiments.model.attention import FUSED, PLAIN, Heads, Past, attend, left_by_sinks, unmasked_scores
from experiments.model.layout import ALL, SKIPPING, Layout, visible
from experiments.model.precision import flash_dtype, fused_pays, linear
from experiments.model.temperature import LAWS, STEPPED, Temperature
from pe_zoo import Encoder, Geometry, Site
from pe_zoo._knobs import one_of, whole
from pe_zoo._positions import at, evenly_spaced
from pe_zoo._weights import weights

PAIRS_AT_ONCE, ON_GPU = 2**20, 2**23
"""Query-key pairs, over a batch, per block where gradients are not needed: on a CPU, and on a GPU."""


class Transformer(nn.Module):
    """Pre-norm Transformer, causal or bidirectional; all positional signal comes from the encoder and the mask.

    Args:
        vocab_size: number of tokens.
        geometry: the sizes; the encoder must have been built with the same.
        encoder: the positional encoder.
        causal: whether a query sees only itself and what came before.
        layout: which layers carry the encoder, and what each layer and head sees.
        temperature: law that sharpens queries seeing more keys, one of ``LAWS``; None: none.
        temperature_floor: the floor of the laws that have one; None: the training length.
        temperature_on: layers with temperature: ``all``, or ``skipping`` (those without the encoder).
        sinks: whether each head of each layer has a learned logit that takes its share of attention and gives nothing.
        ffn_multiple: hidden width of the feed-forward block, in multiples of model_dim.
        ffn_extra: hidden units of each layer's feed-forward block beyond that.
        query_block: most queries per block where gradients are not needed; fewer for long sequences, so that memory
            grows with the length and not with its square.
        attention: ``fused`` uses a fused kernel wherever the encoder's hooks allow it, ``plain`` never.
    """

    fixed = ""
    """Why no other encoder can take the place of its own; empty: one can."""

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
        sinks: bool = False,
        ffn_multiple: int = 4,
        ffn_extra: int = 0,
        query_block: int = 1024,
        attention: str = FUSED,
    ) -> None:
        super().__init__()
        if encoder.geometry != geometry:
            raise ValueError(f"the encoder was built for {encoder.geometry}, the model is {geometry}")
        if encoder.causal_only and not causal:
            raise ValueError(f"{encoder.name} needs a causal mask: set model.causal=true")
        (layout := layout or Layout()).check(geometry.num_layers, geometry.num_heads)
        check_temperature(temperature, temperature_floor, temperature_on, layout)
        one_of("attention", attention, (FUSED, PLAIN))
        whole("query_block", query_block, at_least=1)
        self.vocab_size, self.geometry, self.causal, self.layout = vocab_size, geometry, causal, layout
        self.encoder = encoder
        self.encoder_dropped = False
        self._bare = (Encoder(geometry),)  # identity hooks, for layers without the encoder; in a tuple: no submodule
        rows = torch.empty(vocab_size, geometry.model_dim)  # in a rehearsal torch would import its compiler
        embedding = nn.Embedding.from_pretrained(rows, freeze=False) if rows.is_meta else None
        self.token_embedding = embedding or nn.Embedding(vocab_size, geometry.model_dim)
        self.layers = nn.ModuleList(
            Layer(
                geometry,
                layer,
                causal=causal,
                windows=layout.seen(layer, geometry),
                temperature=(
                    Temperature(temperature, geometry, floor=temperature_floor)
                    if temperature and not (temperature_on == SKIPPING and layout.carries(layer))
                    else None
                ),
                sinks=sinks,
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
        if self.token_embedding.weight.is_meta:  # a rehearsal; torch would import its compiler
            return
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
        """Disable the encoder from now on, in training and evaluation; its parameters stay as they are."""
        self.encoder_dropped = True

    def trunk_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.named_parameters() if not name.startswith("encoder.")]

    def num_parameters(self) -> tuple[int, int]:
        return sum(p.numel() for p in self.encoder.parameters()), sum(p.numel() for _, p in self.trunk_parameters())

    def train_in(self, dtype: torch.dtype | None) -> None:
        """Multiply the layers' matrices in this dtype in training mode; None, and in evaluation: in their own."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.training_dtype = dtype

    def forward(self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None) -> Tensor:
        """Return next-token (causal) or same-place (bidirectional) logits.

        Args:
            tokens: ``(batch, length)`` int64.
            positions: of all tokens, cached ones included, ``(length,)`` or ``(batch, length)``; 0, 1, 2, … if None.
                Of several axes, ``(length, axes)`` or ``(batch, length, axes)``.
            pasts: each layer's cache of the tokens before these; the new ones are appended.

        Returns:
            ``(batch, length, vocab)``.
        """
        return self.unembedding(self.last(tokens, positions, pasts))

    def last(self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None) -> Tensor:
        """Return the stream that the logits are made of, ``(batch, length, model_dim)``."""
        return self.norm(self.hidden(tokens, positions, pasts)[-1])

    @property
    def num_streams(self) -> int:
        """How many tensors `hidden` returns."""
        return len(self.layers) + 1

    def read(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits, and the residual stream before the first layer and after each."""
        stream = self.hidden(tokens, positions)
        return self.unembedding(self.norm(stream[-1])), stream

    def hidden(
        self, tokens: Tensor, positions: Tensor | None = None, pasts: Sequence[Past] | None = None
    ) -> list[Tensor]:
        """Return the residual stream before the first layer and after each, ``(batch, length, model_dim)``."""
        batch_size, new = tokens.shape
        places = new + (pasts[0].length if pasts else 0)
        if positions is None:
            positions = torch.arange(places, dtype=torch.float32, device=tokens.device)
        positions = self.encoder.taken(positions)
        if tuple(positions.shape[:2]) not in ((places,) if positions.ndim < 3 else (1, places), (batch_size, places)):
            shapes = f"positions of shape {tuple(positions.shape)} for tokens of shape {tuple(tokens.shape)}"
            raise ValueError(f"{shapes}: give (length,) or (batch, length), and the axes if there are several")
        encoder = self._bare[0] if self.encoder_dropped else self.encoder
        stream = [encoder.embed(self.token_embedding(tokens), at(positions, slice(places - new, None)))]
        caches: Sequence[Past | None] = pasts or [None] * len(self.layers)
        for index, (layer, past) in enumerate(zip(self.layers, caches, strict=True)):
            stream.append(layer(stream[-1], positions, self._encoder_in(index), past))
        return stream

    def last_outputs(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings, ``(batch, length, model_dim)``, and the last outputs, after the final norm, of sequences.

        The second depend on the first. Layers are recomputed on the way back: some encoders need dozens of tensors of
        the size of the scores.
        """
        embedded = self.token_embedding(tokens).detach().requires_grad_()
        encoder = self._bare[0] if self.encoder_dropped else self.encoder
        stream = encoder.embed(embedded, positions)
        for index, layer in enumerate(self.layers):
            given = stream, positions, self._encoder_in(index)
            stream = checkpoint(layer, *given, use_reentrant=False, preserve_rng_state=False)
        return embedded, self.norm(stream)[:, -1]

    def attention(self, tokens: Tensor, positions: Tensor | None = None) -> list[Tensor]:
        """Return attention weights: ``num_layers`` of ``(batch, heads, query, key)``."""
        stream = self.hidden(tokens, positions)
        if positions is None:
            positions = torch.arange(tokens.shape[-1], dtype=torch.float32, device=tokens.device)
        positions = self.encoder.taken(positions)
        return [
            layer.weights(x, positions, self._encoder_in(index))
            for index, (layer, x) in enumerate(zip(self.layers, stream, strict=False))
            if isinstance(layer, Layer)
        ]

    def values(self, tokens: Tensor, positions: Tensor) -> list[Tensor]:
        """Return what attention mixes: ``num_layers`` of ``(batch, heads, length, head_dim)``."""
        found = zip(self.layers, self.hidden(tokens, positions), strict=False)
        return [layer.values(stream) for layer, stream in found if isinstance(layer, Layer)]

    def _encoder_in(self, layer: int) -> Encoder:
        return self.encoder if self.layout.carries(layer) and not self.encoder_dropped else self._bare[0]


class View(nn.Module):
    """What a layer shows to measures: its number of heads, and how far each sees (one window: all alike)."""

    def __init__(self, num_heads: int, windows: tuple[int | None, ...] = (None,)) -> None:
        super().__init__()
        self.num_heads, self.windows = num_heads, windows


class Layer(View):
    """Attention and feed-forward, each behind a norm and added to the stream. No biases, no dropout."""

    def __init__(
        self,
        geometry: Geometry,
        index: int,
        *,
        causal: bool,
        windows: tuple[int | None, ...],
        temperature: Temperature | None,
        sinks: bool,
        ffn_dim: int,
        query_block: int,
        attention: str,
    ) -> None:
        super().__init__(geometry.num_heads, windows)
        dim = geometry.model_dim
        heads = geometry.num_heads * geometry.head_dim
        self.index, self.causal = index, causal
        self.query_block, self.attention, self.temperature = query_block, attention, temperature
        self.sinks = nn.Parameter(torch.zeros(geometry.num_heads)) if sinks else None
        self.training_dtype: torch.dtype | None = None
        self.attention_norm = nn.LayerNorm(dim, bias=False)
        self.attention_in = nn.Linear(dim, 3 * heads, bias=False)
        self.attention_out = nn.Linear(heads, dim, bias=False)
        self.ffn_norm = nn.LayerNorm(dim, bias=False)
        self.ffn_in = nn.Linear(dim, ffn_dim, bias=False)
        self.ffn_out = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, stream: Tensor, positions: Tensor, encoder: Encoder, past: Past | None = None) -> Tensor:
        dtype = self.training_dtype if self.training else None
        heads = self._heads(encoder, stream, positions, past, dtype)
        if self._flows(encoder, heads):
            behind = self.causal and heads.new > 1  # a single query is the last: it sees every key
            scale = encoder.geometry.head_dim**-0.5
            q, k, v = (part.to(flash_dtype(encoder, part, dtype)) for part in (heads.q, heads.k, heads.v))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=behind, scale=scale)
        elif self._slides(encoder, heads):
            mixed = self._sliding(encoder, heads)
        else:
            parts = [
                attend(encoder, q, k, v, site, self.attention, rotated=heads.rotated, sharpen=sharpen, sinks=self.sinks)
                for q, k, v, site, sharpen in self._blocks(heads)
            ]
            mixed = parts[0] if len(parts) == 1 else torch.cat(parts, -2)
        stream = stream + linear(mixed.transpose(1, 2).flatten(-2), self.attention_out, dtype)
        hidden = functional.gelu(linear(self.ffn_norm(stream), self.ffn_in, dtype))
        return stream + linear(hidden, self.ffn_out, dtype)

    def weights(self, stream: Tensor, positions: Tensor, encoder: Encoder) -> Tensor:
        heads = self._heads(encoder, stream, positions)
        parts = []
        for q, k, _, site, sharpen in self._blocks(heads):
            scores = unmasked_scores(encoder, q, k, site, rotated=heads.rotated, sharpen=sharpen)
            part = weights(encoder, scores, site)
            if self.sinks is not None:
                part = part * left_by_sinks(scores.masked_fill(~site.mask, -torch.inf), self.sinks)
            parts.append(functional.pad(part, (0, heads.places - part.shape[-1])))
        return torch.cat(parts, -2)

    def values(self, stream: Tensor) -> Tensor:
        projected = self.attention_in(self.attention_norm(stream))
        return projected.unflatten(-1, (3, self.num_heads, -1))[..., 2, :, :].transpose(1, 2)

    def _heads(
        self,
        encoder: Encoder,
        stream: Tensor,
        positions: Tensor,
        past: Past | None = None,
        dtype: torch.dtype | None = None,
    ) -> Heads:
        x = self.attention_norm(stream)
        # Whatever the dtype of the products, queries and keys are rotated and scored in the stream's precision.
        projected = linear(x, self.attention_in, dtype).to(x.dtype)
        q, k, v = projected.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        if past is not None:
            x, k, v = past.and_now(x, k, v)
        heads = Heads(q, k, v, x, positions, rotated=not encoder.overrides("rotate"))
        # A temperature scales queries by the number of keys they see, before ``rotate``: block by block.
        if not heads.rotated and not encoder.blockwise_rotation and self.temperature is None:
            everywhere = torch.ones(1, 1, dtype=torch.bool, device=x.device)
            q, k = encoder.rotate(q, k, self._site(heads, slice(heads.places - heads.new, heads.places), everywhere))
            return Heads(q, k, v, x, positions, rotated=True)
        return heads

    def _flows(self, encoder: Encoder, heads: Heads) -> bool:
        """Return whether the fused kernel's own causal mask is the whole mask and no hook changes scores."""
        return (
            self._fuses(encoder, heads)
            and set(self.windows) == {None}
            and (not self.causal or heads.new in (1, heads.places))
            and not encoder.overrides("score")
        )

    def _slides(self, encoder: Encoder, heads: Heads) -> bool:
        """Return whether every query's row of the bias is the last query's, shifted."""
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
            and heads.q.shape[-1] == heads.v.shape[-1]  # for widened heads torch materialises the square matrix
            and heads.rotated
            and self.temperature is None
            and self.sinks is None
            and not encoder.overrides("mix")
            and fused_pays(heads.q, heads.k)
        )

    def _sliding(self, encoder: Encoder, heads: Heads) -> Tensor:
        """Attend by the last query's row of the bias: in reverse, each row is the one before, shifted by one key."""
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
            q, k, v = heads.q[:, :, queries].flip(-2), heads.k[:, :, :stop], heads.v[:, :, :stop]
            scale = encoder.geometry.head_dim**-0.5
            parts.append(functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale).flip(-2))
        return torch.cat(parts, -2)

    def _blocks(self, heads: Heads) -> Iterator[tuple[Tensor, Tensor, Tensor, Site, Tensor | None]]:
        """Yield blocks of queries with keys, values, site and factors of scores; causal keys end at the last query."""
        start = heads.places - heads.new
        while start < heads.places:
            stop = heads.places if torch.is_grad_enabled() else min(heads.places, start + self._at_once(heads, start))
            rows, seen = slice(start, stop), heads.upto(stop) if self.causal else heads
            place = torch.arange(seen.places, device=seen.x.device)  # the mask depends on indices, not positions
            site = self._site(seen, rows, visible(place[rows, None] - place, self.windows, self.causal))
            q = heads.q[:, :, start - heads.places + heads.new : stop - heads.places + heads.new]
            sharpen = self.temperature(site.mask).to(q.dtype) if self.temperature is not None else None
            if sharpen is not None and self.temperature is not None and not self.temperature.on_scores:
                q, sharpen = q * sharpen, None
            yield q, seen.k, seen.v, site, sharpen
            start = stop

    def _at_once(self, heads: Heads, start: int) -> int:
        """Return how many queries from ``start`` on make ``PAIRS_AT_ONCE`` pairs with the keys up to them."""
        pairs = (ON_GPU if heads.x.is_cuda else PAIRS_AT_ONCE) // len(heads.x)
        most = (math.isqrt(start**2 + 4 * pairs) - start) // 2 if self.causal else pairs // heads.places
        return max(1, min(self.query_block, most))

    def _site(self, heads: Heads, rows: slice, mask: Tensor) -> Site:
        here, there, causal = at(heads.positions, rows), heads.positions, self.causal
        return Site(
            layer=self.index, query_positions=here, key_positions=there, rows=rows, mask=mask, causal=causal, x=heads.x
        )


def check_temperature(law: str | None, floor: int | None, on: str, layout: Layout) -> None:
    """Refuse an unknown temperature, and options that would change nothing."""
    one_of("model.temperature_on", on, (ALL, SKIPPING))
    if law is not None:
        one_of("model.temperature", law, LAWS)
    if floor is not None and whole("model.temperature_floor", floor, at_least=1) and law not in STEPPED:
        laws = " or ".join(STEPPED)
        raise ValueError(f"model.temperature_floor={floor} changes nothing without model.temperature={laws}")
    if on == SKIPPING and (law is None or layout.skip_every is None):
        remedy = f"set model.temperature and layout.skip_every, or model.temperature_on={ALL}"
        unused = f"model.temperature_on={SKIPPING} changes nothing without a temperature and layers that are skipped"
        raise ValueError(f"{unused}; {remedy}")
