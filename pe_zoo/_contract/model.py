"""Check that a model of one's own uses the hooks of an encoder rightly: ``pe_zoo.check_model``."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from pe_zoo._contract.bench import Broken, NotApplicable, gap, hold
from pe_zoo._contract.check import Verdict, judge
from pe_zoo._encoder import HOOKS, Encoder, scores

NEAR = 1e-4
"""How far the same number may come out by another way in float32, as a share of the largest."""

Calls = dict[str, list[tuple[tuple[Any, ...], Any]]]
"""Of each hook what it was given and what it returned, in order."""


def check_model(
    model: Callable[..., Tensor],
    encoder: Encoder,
    *,
    vocab_size: int,
    causal: bool = True,
    cached: Callable[[Tensor], Tensor] | None = None,
    length: int = 8,
) -> list[Verdict]:
    """Say whether a model uses an encoder's hooks rightly: for each promise whether it holds, and why not.

    Args:
        model: tokens ``(batch, length)`` to logits ``(batch, length, vocab)``, without dropout; if it takes positions,
            ``(length,)`` float, as its second argument.
        encoder: the one in the model.
        vocab_size: kinds of tokens.
        causal: whether no output may depend on a later token.
        cached: as ``model``, but token by token with its cache.
        length: tokens to try, at least 4.
    """
    tokens = torch.randint(vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    trial = Trial(model, encoder, tokens, causal, cached)
    return [judge(sentence, {"": partial(check, trial)}) for sentence, check in PROMISES.items()]


@dataclass(frozen=True)
class Trial:
    """A model and what it is asked."""

    model: Callable[..., Tensor]
    encoder: Encoder
    tokens: Tensor
    causal: bool
    cached: Callable[[Tensor], Tensor] | None

    def read(self, tokens: Tensor, *positions: Tensor) -> Tensor:
        """The logits."""
        with torch.no_grad():
            return self.model(tokens, *positions)

    def calls(self) -> Calls:
        """What the model passes to the hooks in one pass."""
        with watching(self.encoder) as calls:
            self.read(self.tokens)
        return calls

    def given(self, hook: str) -> list[tuple[Any, ...]]:
        """What the model passes to one hook; NotApplicable if that is nothing, and the encoder does nothing there."""
        calls = self.calls()[hook]
        if not calls and not self.encoder.overrides(hook):
            raise NotApplicable(f"{self.encoder.name} does not use {hook}")
        return [given for given, _ in calls]


@contextmanager
def watching(encoder: Encoder) -> Iterator[Calls]:
    """Note what an encoder's hooks are given."""
    calls: Calls = {hook: [] for hook in HOOKS}

    def watched(hook: str) -> Callable[..., Any]:
        plain, parameters = getattr(encoder, hook), inspect.signature(getattr(encoder, hook))

        @wraps(plain)
        def noting(*given: Any, **named: Any) -> Any:
            made = plain(*given, **named)
            calls[hook].append((parameters.bind(*given, **named).args, made))
            return made

        return noting

    try:
        for hook in HOOKS:
            object.__setattr__(encoder, hook, watched(hook))
        yield calls
    finally:
        for hook in HOOKS:
            object.__delattr__(encoder, hook)


def _embeds_once(trial: Trial) -> None:
    given, dim = trial.given("embed"), trial.encoder.geometry.model_dim
    hold(len(given) == 1, f"it calls embed {len(given)} times; call it once, on the token embeddings")
    x, positions = given[0]
    hold(x.shape == (*trial.tokens.shape, dim), f"embed gets {tuple(x.shape)}, not (batch, length, {dim})")
    hold(positions.is_floating_point(), f"embed gets positions of {positions.dtype}; make them float")


def _acts_in_every_layer(trial: Trial) -> None:
    layers = list(range(trial.encoder.geometry.num_layers))
    for hook in filter(trial.encoder.overrides, HOOKS[1:]):
        found = sorted({site.layer for *_, site in trial.given(hook)})
        hold(found == layers, f"it calls {hook} in layers {found} of {layers}: pass Site(layer=…), from 0")


def _sites(trial: Trial) -> None:
    sites = [site for hook in filter(trial.encoder.overrides, HOOKS[1:]) for *_, site in trial.given(hook)]
    if not sites:
        raise NotApplicable(f"{trial.encoder.name} acts in no layer")
    for site in sites:
        keys, queries = site.key_positions.shape[-1], site.query_positions.shape[-1]
        rows = len(range(*site.rows.indices(keys)))
        hold(rows == queries, f"rows={site.rows} are {rows} of {keys} keys, for {queries} queries")
        same = torch.equal(site.query_positions, site.key_positions[..., site.rows])
        hold(same, "query_positions are not key_positions[..., rows]")
        hold(site.key_positions.is_floating_point(), f"positions are {site.key_positions.dtype}; make them float")
        hold(site.mask.dtype == torch.bool, f"the mask is {site.mask.dtype}; make it bool, true where a query may look")
        hold(site.causal == trial.causal, f"site.causal is {site.causal}")
        ahead = torch.ones(queries, keys, dtype=torch.bool).tril(site.rows.indices(keys)[0]).logical_not()
        leaks = trial.causal and bool((site.mask.cpu() & ahead).any())
        hold(not leaks, "the mask lets a query look ahead: make it false above the diagonal")
        if site.x is not None:
            shape = len(trial.tokens), keys, trial.encoder.geometry.model_dim
            hold(site.x.shape == shape, f"x is {tuple(site.x.shape)}, not (batch, key, model_dim) {shape}: all keys")


def _scores(trial: Trial) -> None:
    scale = trial.encoder.geometry.head_dim**-0.5
    for products, q, k, _ in trial.given("score"):
        hold(products.isfinite().all(), "scores are masked already; mask after score")
        hold(_near(products, q @ k.mT * scale), "scores are not q · k / sqrt(head_dim) of the q and k beside them")
    calls = trial.calls()
    for (_, turned), ((_, *heads, _), _) in zip(calls["rotate"], calls["score"], strict=False):
        hold(all(map(torch.equal, turned, heads)), "score gets other q and k than rotate returned: use what it returns")


def _mixes(trial: Trial) -> None:
    for masked, v, site in trial.given("mix"):
        hold((masked.isneginf() >= ~site.mask).all(), "mix gets scores that are not −inf where the mask is false")
        heads = trial.encoder.geometry.num_heads
        hold(v.shape[1] == heads, f"mix gets values of {v.shape[1]} heads, not {heads}: repeat those that groups share")


def _future(trial: Trial) -> None:
    if not trial.causal:
        raise NotApplicable("not a causal model")
    before = trial.read(trial.tokens)
    for place in range(1, trial.tokens.shape[1]):
        others = trial.tokens.clone()
        others[:, place:] = trial.tokens[:, place:].flip(-1).roll(1, 0)
        changed = gap(trial.read(others)[:, :place], before[:, :place])
        hold(changed <= NEAR * before.abs().max(), f"tokens from {place} on change earlier logits by {changed:.1g}")


def _shift(trial: Trial) -> None:
    try:
        inspect.signature(trial.model).bind(None, None)
    except TypeError:
        raise NotApplicable("the model takes no positions") from None
    places = torch.arange(float(trial.tokens.shape[1]))
    here = trial.read(trial.tokens, places)
    hold(_near(here, trial.read(trial.tokens)), "positions 0, 1, 2, … change the logits: they should be its own")
    same = _near(here, trial.read(trial.tokens, places + 3))
    if trial.encoder.shift_invariant:
        hold(same, f"logits change where all positions shift, though {trial.encoder.name} is shift invariant")
    spread = not _near(here, trial.read(trial.tokens, 3 * places))
    hold(spread or not _reads_positions(trial.encoder, places), "positions change nothing: pass them to every site")


def _cache(trial: Trial) -> None:
    if trial.cached is None:
        raise NotApplicable("pass cached= to check it")
    remedy = "keep x, keys before rotate, values and positions of all tokens, and rotate again in every step"
    whole = trial.read(trial.tokens)
    try:
        with torch.no_grad():
            parts = trial.cached(trial.tokens)
    except RuntimeError as error:
        raise Broken(f"{error}: {remedy}") from error
    if whole.shape != parts.shape:
        raise Broken(f"cached gives {tuple(parts.shape)}, the model {tuple(whole.shape)}")
    hold(_near(parts, whole), f"they differ by {gap(parts, whole):.1g}: {remedy}")


def _reads_positions(encoder: Encoder, places: Tensor) -> bool:
    """Whether an encoder tells positions from others three times as far apart."""
    sizes, draw = encoder.geometry, torch.Generator().manual_seed(0)
    dtype = next((parameter.dtype for parameter in encoder.parameters()), torch.float32)
    q, k = torch.randn(2, 1, sizes.num_heads, len(places), sizes.head_dim, generator=draw, dtype=dtype)
    x = torch.randn(1, len(places), sizes.model_dim, generator=draw, dtype=dtype)
    with torch.no_grad():
        near, far = (
            torch.cat([encoder.embed(x, at).flatten(), scores(encoder, q, k, at, x=x).flatten()])
            for at in (places, 3 * places)
        )
    return not _near(near, far)


def _near(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and gap(a, b) <= NEAR * float(b.abs().max())


PROMISES: dict[str, Callable[[Trial], None]] = {
    "Embed is called once, with token embeddings and float positions.": _embeds_once,
    "Every other hook that the encoder uses is called in every layer.": _acts_in_every_layer,
    "Sites tell positions, rows, mask and input as they are.": _sites,
    "Score gets scaled products of rotated queries and keys, not yet masked.": _scores,
    "Mix gets masked scores and the values of every head.": _mixes,
    "No output depends on a later token.": _future,
    "Positions reach the encoder: a shift changes logits where it should, and only there.": _shift,
    "Token by token with a cache, logits are those of the whole.": _cache,
}
