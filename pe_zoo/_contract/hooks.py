"""Promises that every encoder keeps, whatever it claims."""

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from pe_zoo._contract.bench import (
    CAUSAL,
    LENGTH,
    VOCAB,
    Bench,
    Broken,
    Maker,
    Risk,
    gap,
    hold,
    hold_finite,
    promise,
    read,
    some_inputs,
    some_positions,
    some_tokens,
)
from pe_zoo._encoder import Geometry, scores

State = dict[str, Tensor]
FAR_APART = 1000
"""Distance of neighbours tried with parameters that moved: what grows with distance overflows (float64 at e^709)."""


@promise("Embed adds a vector that does not depend on the tokens: no scaling, no dropout, no norm.")
def check_embed_adds_position_and_nothing_else(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, positions = bench.fresh(make), some_positions(2, LENGTH)
    x, y = (torch.randn(2, LENGTH, encoder.geometry.model_dim, dtype=torch.float64) for _ in range(2))
    difference = gap(encoder.embed(x, positions) - x, encoder.embed(y, positions) - y)
    hold(difference < 1e-12, "what embed adds depends on the token embeddings: they are scaled, dropped or normalised")
    again = torch.equal(encoder.train().embed(x, positions), encoder.eval().embed(x, positions))
    hold(again, "embed differs between training and evaluation mode")


@promise("A forward pass changes nothing: same output twice, no state modified, no global random state used.")
def check_pure(make: Maker, causal: bool, bench: Bench) -> None:
    encoder = bench.fresh(make)
    model, tokens, others = bench.model(encoder, causal), some_tokens(), some_positions(2, 3)
    state = {name: tensor.clone() for name, tensor in [*encoder.named_parameters(), *encoder.named_buffers()]}
    attributes, randomness = set(vars(encoder)), torch.random.get_rng_state()
    first = model(tokens)
    model(tokens[:, :3], others)
    hold(torch.equal(first, model(tokens)), "a second forward pass gives another result")
    first.sum().backward()
    hold(torch.equal(randomness, torch.random.get_rng_state()), "it uses the global random state: draw in `__init__`")
    after = dict([*encoder.named_parameters(), *encoder.named_buffers()])
    hold(after.keys() == state.keys(), "a forward pass adds or removes parameters or buffers")
    for name, tensor in state.items():
        hold(torch.equal(after[name], tensor), f"a forward pass changes {name}")
    new = sorted(set(vars(encoder)) ^ attributes)
    hold(not new, f"a forward pass adds or removes attributes: {', '.join(new)}")


def hold_causal(model: nn.Module, tokens: Tensor) -> None:
    """Raise ``Broken`` if an output of a model depends on a later input, by its gradient or in any bit."""
    seen: list[Tensor] = []
    watch = model.get_submodule("token_embedding").register_forward_hook(lambda _, __, output: seen.append(output))
    logits = model(tokens)
    watch.remove()
    hold_finite(logits, "a model gives logits that are")
    # Without gradients torch may take another kernel, so bits are compared between two readings of one kind.
    before, length = read(model, tokens), tokens.shape[1]
    for place in range(length):
        (gradient,) = torch.autograd.grad(logits[:, place].pow(2).sum(), seen[0], retain_graph=True)
        later = gradient[:, place + 1 :].abs().sum()
        hold(later == 0, f"output {place} has a gradient from later inputs: read `site.mask`")
    for place in range(1, length):
        changed = tokens.clone()
        changed[:, place:] = (changed[:, place:] + 1 + torch.randint(VOCAB - 1, changed[:, place:].shape)) % VOCAB
        same = torch.equal(read(model, changed)[:, :place], before[:, :place])
        hold(same, f"tokens from {place} on change earlier logits")


@promise(
    "Under a causal mask no output depends on a later input: gradients are exactly 0, and not a bit changes.", CAUSAL
)
def check_no_leak_from_the_future(make: Maker, causal: bool, bench: Bench) -> None:
    model, tokens = bench.model(bench.fresh(make), True), some_tokens()
    hold_causal(model, tokens)
    before = read(model, tokens)
    for place in range(LENGTH):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCAB
        differs = not torch.equal(read(model, changed)[:, place], before[:, place])
        hold(differs, f"output {place} does not depend on its own input")


@promise("Under a causal mask, later tokens, padding included, change nothing before them.", CAUSAL)
def check_prefix_does_not_change(make: Maker, causal: bool, bench: Bench) -> None:
    model, tokens, positions = bench.model(bench.fresh(make), True), some_tokens(), some_positions(LENGTH)
    padded = tokens.clone()
    padded[:, 4:] = 0
    for longer in (tokens, padded):
        changed = gap(read(model, longer, positions)[:, :4], read(model, tokens[:, :4], positions[:4]))
        hold(changed < 1e-11, f"four tokens alone and the same four with others after them differ by {changed:.1g}")


@promise("A sequence gets the same logits alone and in a batch, with shared or per-sample positions.")
def check_batch_does_not_matter(make: Maker, causal: bool, bench: Bench) -> None:
    model, tokens = bench.model(bench.fresh(make), causal), some_tokens(3)
    for positions in (some_positions(LENGTH), some_positions(3, LENGTH)):
        together = read(model, tokens, positions)
        for sample in range(3):
            own = positions if positions.ndim == 1 else positions[sample : sample + 1]
            alone = read(model, tokens[sample : sample + 1], own)[0]
            changed = gap(together[sample], alone)
            hold(changed < 1e-11, f"a sequence alone and in a batch differ by {changed:.1g}")


@promise("Queries in blocks, or the last queries alone, get the same results as all queries together.")
def check_blocks(make: Maker, causal: bool, bench: Bench) -> None:
    encoder, tokens = bench.fresh(make), some_tokens(length=8)
    q, k, x = some_inputs(encoder.geometry, 8)
    whole, blocks = (bench.model(encoder, causal, query_block=size) for size in (8, 3))
    blocks.load_state_dict(whole.state_dict())
    for positions in (some_positions(8), some_positions(2, 8)):
        changed = gap(encoder.embed(x, positions)[:, -1:], encoder.embed(x[:, -1:], positions[..., -1:]))
        hold(changed < 1e-11, f"embed of the last token alone differs by {changed:.1g}")
        expected = scores(encoder, q, k, positions, x=x, causal=causal)
        for last in (1, 3):
            last_rows = scores(encoder, q[:, :, -last:], k, positions, x=x, causal=causal)
            changed = gap(expected[:, :, -last:], last_rows)
            differ = f"the scores of the last {last} queries alone differ by {changed:.1g}"
            hold(changed < 1e-11, f"{differ}: take distances from `site.distance`, not from indices")
        changed = gap(read(whole, tokens, positions), read(blocks, tokens, positions))
        hold(changed < 1e-11, f"a model that handles queries in blocks differs by {changed:.1g}: read `site.rows`")


@promise("Every parameter gets a finite gradient that is not 0.")
def check_gradients(make: Maker, causal: bool, bench: Bench) -> None:
    model = bench.model(bench.fresh(make), causal)
    model(some_tokens()).pow(2).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            raise Broken(f"no gradient reaches {name}")
        hold(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")
        # A parameter that softmax cancels gets a rounding error, about 10⁻¹⁴; others get 10⁻³ and more.
        hold(parameter.grad.abs().sum() > 1e-9, f"the gradient of {name} is 0 up to rounding")


@promise("Logits stay finite, and learning goes on, where a parameter has the other sign or is further from 0.")
def check_parameters_may_move(make: Maker, causal: bool, bench: Bench) -> None:
    # Far below the training length: a learned threshold near it would look like a number that must be positive.
    sizes = replace(bench.geometry, train_length=max(bench.geometry.train_length, 8 * LENGTH))
    model, tokens = bench.model(bench.fresh(make, sizes), causal), some_tokens()
    remedy = "if it must be positive, use `torch.nn.functional.softplus` of it"
    encoder, far = model.get_submodule("encoder"), FAR_APART * torch.arange(LENGTH).float()
    places = [None, *([far] if far.max() < (getattr(encoder, "max_length", None) or math.inf) else [])]
    for name, parameter in encoder.named_parameters():
        kept = parameter.detach().clone()
        for moved in (-kept, -kept.abs() - 1, kept.abs() + 1):
            with torch.no_grad():
                parameter.copy_(moved)
            values = f"{name} = {moved.flatten()[0]:.3g}{', …' * (moved.numel() > 1)}"
            for positions in places:
                if not read(model, tokens, positions).isfinite().all():
                    where = f" at distances of {FAR_APART} and more" * (positions is not None)
                    raise Risk(f"logits are not finite with {values}{where}, which training may reach: {remedy}")
        # One of a layer inside, such as a bias before a ReLU, is no quantity whose sign means something.
        if "." not in name and parameter.requires_grad and _clamped(model, tokens, parameter):
            raise Risk(f"no gradient leads {name} away from numbers below 0, which training may reach: {remedy}")
        with torch.no_grad():
            parameter.copy_(kept)


def _clamped(model: nn.Module, tokens: Tensor, parameter: Tensor) -> bool:
    """Whether a parameter learns just above 0, and nowhere below."""

    def learns(value: float) -> bool:
        with torch.no_grad():
            parameter.fill_(value)
        (gradient,) = torch.autograd.grad(model(tokens).square().sum(), parameter, allow_unused=True)
        return gradient is not None and bool(gradient.any())

    return learns(0.05) and not any(map(learns, (-0.05, -1.0, -2.0)))


@promise("All state is in the state_dict, which restores the encoder; copies and other instances share nothing.")
def check_state(make: Maker, causal: bool, bench: Bench) -> None:
    first, second, tokens = bench.fresh(make), bench.fresh(make), some_tokens()
    for name in (name for module in first.modules() for name, held in vars(module).items() if isinstance(held, Tensor)):
        raise Broken(
            f"self.{name} is a plain tensor, which is not learned and stays behind on the CPU: "
            f"torch.nn.Parameter(…), or, if it is fixed, self.register_buffer({name!r}, …)"
        )
    model = bench.model(first, causal)
    before = read(model, tokens)
    double = copy.deepcopy(model)
    twin = double.get_submodule("encoder")
    hold(torch.equal(before, read(double, tokens)), "a copy gives other results than the original")
    with torch.no_grad():
        for tensor in [*twin.parameters(), *second.parameters()]:
            tensor.add_(torch.randn_like(tensor))
    hold(torch.equal(before, read(model, tokens)), "a copy or a second instance shares its parameters")
    if any(True for _ in first.parameters()):
        same = gap(before, read(double, tokens)) <= 1e-6  # not of what is no number, which another promise holds
        hold(not same, "changing the parameters does not change the results")
    twin.load_state_dict(first.state_dict())
    second.load_state_dict(first.state_dict())
    hold(torch.equal(before, read(double, tokens)), "a copy with the state loaded back gives other results")
    loaded = bench.model(second, causal)
    loaded.load_state_dict(model.state_dict())
    hold(torch.equal(before, read(loaded, tokens)), "another instance with this one's state_dict gives other results")


@promise("Results do not depend on earlier calls, of this encoder or of another of its class.")
def check_history_does_not_matter(make: Maker, causal: bool, bench: Bench, other: Maker | None = None) -> None:
    tokens, far, ahead = some_tokens(), 3 * some_positions(LENGTH), torch.tensor([40.0])
    wide = Geometry(model_dim=32, num_heads=2, num_layers=2, train_length=bench.geometry.train_length, head_dim=12)
    models = [bench.model(bench.fresh(make), causal)]
    try:
        models.append(bench.model(bench.fresh(other or make, wide), causal))
    except ValueError:
        models.append(bench.model(bench.fresh(make), causal))  # a constructor may refuse a geometry
    far_first = [read(model, tokens, far) for model in models]
    near = [read(model, tokens) for model in models]
    for model, then, between in zip(reversed(models), reversed(far_first), reversed(near), strict=True):
        hold(torch.equal(read(model, tokens), between), "results depend on earlier calls")
        hold(torch.equal(read(model, tokens, far), then), "results depend on earlier calls")
        if causal:  # the same at a new length, in the other order
            longer, positions = torch.cat([tokens, tokens[:, :1]], 1), torch.cat([torch.arange(LENGTH).float(), ahead])
            changed = gap(read(model, longer, positions)[:, :LENGTH], between)
            hold(changed < 1e-11, "results depend on the lengths of earlier calls")


@promise("Models stacked with torch.func.vmap equal the same models one by one: forward and gradient.")
def check_vmap(make: Maker, causal: bool, bench: Bench) -> None:
    models = [bench.model(bench.fresh(make), causal) for _ in range(3)]
    tokens = torch.stack([some_tokens() for _ in models])
    parameters, buffers = torch.func.stack_module_state(models)

    def loss(state: State, buffers: State, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.func.functional_call(models[0], (state, buffers), (tokens, positions))
        return logits.pow(2).mean(), logits

    for positions in (torch.arange(LENGTH).float(), some_positions(3, 2, LENGTH)):
        own = positions.ndim == 3
        together = torch.func.vmap(torch.func.grad(loss, has_aux=True), in_dims=(0, 0, 0, 0 if own else None))
        gradients, logits = together(parameters, buffers, tokens, positions)
        for index, model in enumerate(models):
            model.zero_grad()
            alone = model(tokens[index], positions[index] if own else positions)
            hold(gap(alone, logits[index]) < 1e-10, "a model under vmap gives other logits than alone")
            alone.pow(2).mean().backward()
            for name, parameter in model.named_parameters():
                same = parameter.grad is not None and gap(parameter.grad, gradients[name][index]) < 1e-10
                hold(same, f"the gradient of {name} under vmap differs from the one alone")
