"""The test bench of the contract: a minimal model around an encoder, and its inputs. Needs torch alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pe_zoo._encoder import Encoder, Geometry, Site, raw_scores
from pe_zoo._positions import at, length_of

VOCAB, LENGTH = 11, 6
"""Kinds of tokens, and tokens of a test sequence."""
BOTH, CAUSAL, BIDIRECTIONAL = (True, False), (True,), (False,)
"""Masks: whether a model is causal."""
HOLDS, NOT_APPLICABLE, ADVICE, FAILS = "holds", "n/a", "advice", "FAILS"
"""Outcomes of a check, the worst last."""

Maker = Callable[[Geometry], Encoder]


class Broken(AssertionError):
    """A promise does not hold; the message says how, and what to do where that is known."""

    outcome = FAILS


class Root(Broken):
    """A fault that breaks other promises as well, which are not judged ``until`` something holds."""

    def __init__(self, reason: str, until: str) -> None:
        super().__init__(reason)
        self.until = until


class Missing(Broken):
    """A claim that only enables a faster path is not made, though it would hold."""

    outcome = ADVICE


class Risk(Broken):
    """A fault of values that training may reach, and may not."""

    outcome = ADVICE


class NotApplicable(Exception):
    """A promise does not apply to this encoder; the message says why."""

    outcome = NOT_APPLICABLE


@dataclass(frozen=True)
class Promise:
    """A check of an encoder, the sentence it proves, and the masks (causal or not) under which it applies."""

    sentence: str
    check: Callable[..., None]
    masks: tuple[bool, ...]

    def __call__(self, *arguments: Any, **others: Any) -> None:
        self.check(*arguments, **others)


def promise(sentence: str, masks: tuple[bool, ...] = BOTH) -> Callable[[Callable[..., None]], Promise]:
    """Make a promise of a check ``(make, causal, bench)`` that raises ``Broken`` where it does not hold."""
    return lambda check: Promise(sentence, check, masks)


def hold(condition: bool | Tensor, otherwise: str) -> None:
    """Raise ``Broken`` unless a condition is true."""
    if not condition:
        raise Broken(otherwise)


def hold_finite(values: Tensor, what: str) -> None:
    """Raise ``Root`` unless all values are finite."""
    if not values.isfinite().all():
        causes = "log(0), 0 / 0, roots of negative numbers and overflow"
        where = "at distance 0, and at hidden keys, whose distance has the other sign, as well"
        raise Root(f"{what} not finite: look for {causes}, {where}", until="logits are finite")


class Stack(nn.Module):
    """Token embedding, attention layers, logits: the plain path and nothing else."""

    def __init__(
        self,
        vocab_size: int,
        geometry: Geometry,
        encoder: Encoder,
        *,
        causal: bool = True,
        query_block: int | None = None,
    ) -> None:
        super().__init__()
        self.geometry, self.causal, self.query_block = geometry, causal, query_block
        self.encoder = encoder
        dim, layers = geometry.model_dim, range(geometry.num_layers)
        self.token_embedding = nn.Embedding(vocab_size, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim, bias=False) for _ in layers)
        heads = geometry.num_heads * geometry.head_dim
        self.inward = nn.ModuleList(nn.Linear(dim, 3 * heads, bias=False) for _ in layers)
        self.outward = nn.ModuleList(nn.Linear(heads, dim, bias=False) for _ in layers)
        self.unembedding = nn.Linear(dim, vocab_size, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """``(batch, length)`` tokens to ``(batch, length, vocab)`` logits; positions 0, 1, 2, … if None."""
        if positions is None:
            positions = torch.arange(tokens.shape[-1], dtype=torch.float32)
        positions = self.encoder.taken(positions)
        stream = self.encoder.embed(self.token_embedding(tokens), positions)
        for layer, (norm, inward, outward) in enumerate(zip(self.norms, self.inward, self.outward, strict=True)):
            x = norm(stream)
            q, k, v = inward(x).unflatten(-1, (3, self.geometry.num_heads, -1)).permute(2, 0, 3, 1, 4)
            stream = stream + outward(self._attend(q, k, v, positions, layer, x).transpose(1, 2).flatten(-2))
        return self.unembedding(stream)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, layer: int, x: Tensor) -> Tensor:
        length, mixed = q.shape[-2], []
        for start in range(0, length, self.query_block or length):
            rows = slice(start, min(start + (self.query_block or length), length))
            site = site_of(positions, self.causal, x, rows, layer)
            scores = raw_scores(self.encoder, q[:, :, rows], k, site)
            mixed.append(self.encoder.mix(scores.masked_fill(~site.mask, -torch.inf), v, site))
        return torch.cat(mixed, -2)


@dataclass(frozen=True)
class Bench:
    """The model and the sizes at which a promise is checked.

    Args:
        trunk: ``trunk(vocab_size, geometry, encoder, causal=…, query_block=…)``: a model with a ``token_embedding``.
        geometry: test positions stay below its ``train_length``.
    """

    trunk: Callable[..., nn.Module] = Stack
    geometry: Geometry = Geometry(model_dim=24, num_heads=6, num_layers=2, train_length=64)  # noqa: RUF009  frozen

    def fresh(self, make: Maker, geometry: Geometry | None = None) -> Encoder:
        """A float64 encoder with perturbed parameters: at their initial values some methods do nothing."""
        encoder = make(geometry or self.geometry).double()
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        return encoder

    def model(self, encoder: Encoder, causal: bool, **options: Any) -> nn.Module:
        """A float64 model around an encoder."""
        return self.trunk(VOCAB, encoder.geometry, encoder, causal=causal, **options).double()


def read(model: nn.Module, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Logits, without gradients."""
    with torch.no_grad():
        return model(tokens, positions)


def some_tokens(batch: int = 2, length: int = LENGTH) -> Tensor:
    """Tokens without repetition, so that every reordering changes a sequence."""
    return torch.stack([torch.randperm(VOCAB)[:length] for _ in range(batch)])


def some_positions(*shape: int) -> Tensor:
    """Increasing, irregular, small whole numbers."""
    return torch.randint(1, 4, shape).cumsum(-1).float()


def heads_of(geometry: Geometry, batch: int, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random queries, keys or values."""
    return torch.randn(batch, geometry.num_heads, length, geometry.head_dim, dtype=dtype)


def some_inputs(
    geometry: Geometry, length: int = LENGTH, batch: int = 2, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and layer input."""
    q, k = (heads_of(geometry, batch, length, dtype) for _ in range(2))
    return q, k, torch.randn(batch, length, geometry.model_dim, dtype=dtype)


def site_of(
    positions: Tensor, causal: bool, x: Tensor | None = None, rows: slice | None = None, layer: int = 0
) -> Site:
    """A site for some rows of the queries, or for all of them."""
    keys = length_of(positions)
    rows = rows or slice(0, keys)
    mask = torch.ones(keys, keys, dtype=torch.bool)
    mask = (mask.tril() if causal else mask)[rows]
    queries = at(positions, rows)
    return Site(layer=layer, query_positions=queries, key_positions=positions, rows=rows, mask=mask, causal=causal, x=x)


def gap(a: Tensor, b: Tensor) -> float:
    """Largest difference; 0 where both are the same infinity.

    >>> gap(torch.tensor([1.0, torch.inf]), torch.tensor([3.0, torch.inf]))
    2.0
    """
    return torch.where(a == b, 0.0, (a - b).abs()).max().item() if a.numel() else 0.0


@contextmanager
def same_state() -> Iterator[None]:
    """Begin with the same random numbers each time; the global state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # noqa: TID251  encoders draw their initial parameters from the global state
        yield
