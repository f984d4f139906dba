"""An encoder for each kind of layer: who acts where, and the rotations of models that have two kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import pe_zoo
from pe_zoo import Geometry
from pe_zoo._contract.bench import some_inputs

GEOMETRY = Geometry(model_dim=24, num_heads=3, num_layers=5, train_length=16)
CYCLE = ("fox", "rope base=100", "none")


def layered(layers: tuple[str, ...] = CYCLE, geometry: Geometry = GEOMETRY) -> Any:
    return pe_zoo.build("layered", geometry, layers=layers).double()


def test_the_last_layer_has_the_last_entry() -> None:
    encoder = layered()
    assert [encoder.parts[part].name for part, _ in encoder.places] == ["rope", "none", "fox", "rope", "none"]
    assert [at for _, at in encoder.places] == [0, 0, 0, 1, 1], "each counts its own layers"
    few = layered(geometry=replace(GEOMETRY, num_layers=1))
    assert [part.name for part in few.parts] == ["none"]


def test_each_layer_does_what_its_encoder_does_alone() -> None:
    encoder = layered(("fox initial_gate=0.9", "rope base=100", "fox initial_gate=0.9"))
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    q, k, x = some_inputs(GEOMETRY)
    fox = pe_zoo.build("fox", replace(GEOMETRY, num_layers=3)).double()
    fox.load_state_dict(encoder.parts[1].state_dict())
    rope = pe_zoo.build("rope", GEOMETRY, base=100.0)
    for layer, (alone, at) in enumerate([(rope, 0), (fox, 0), (fox, 1), (rope, 0), (fox, 2)]):
        expected = pe_zoo.scores(alone, q, k, layer=at, x=x)
        assert torch.equal(pe_zoo.scores(encoder, q, k, layer=layer, x=x), expected)


def test_only_what_some_part_does_stands_in_the_way_of_a_fused_kernel() -> None:
    assert not layered(("rope", "none")).overrides("score")
    assert layered(("rope", "alibi")).static_bias
    assert not layered(("rope", "cope")).static_bias
    assert layered(("rope", "shaw")).overrides("mix")
    assert not layered(("rope", "none")).overrides("embed")
    assert layered(("rope", "learned num_rows=40")).max_length == 40


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), "layered layers must be a list of at least one encoder; got ()"),
        (("rope", "ropee"), "layered layers, 'ropee': no encoder named 'ropee'. Did you mean 'rope'?"),
        (("rope bas=3",), "layered layers, 'rope bas=3': rope has no knob 'bas'. Did you mean 'base'?"),
        (("rope 100",), "layered layers, 'rope 100': write '100' as name=value"),
    ],
)
def test_a_list_that_cannot_be_is_refused(layers: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  the whole message is compared
        layered(layers)
    assert str(refusal.value).startswith(said)


def test_gemma_4_rotates_its_two_kinds_of_layers_at_these_frequencies() -> None:
    models = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    configuration = models.Gemma4TextConfig(head_dim=16, global_head_dim=16, num_hidden_layers=6)
    theirs = models.Gemma4TextRotaryEmbedding(configuration)
    geometry = Geometry(model_dim=32, num_heads=2, num_layers=6, train_length=16)
    ours: Any = layered((*["rope"] * 5, "rope base=1000000 fraction=0.25 spectrum=truncated"), geometry)
    for layer, kind in enumerate(configuration.layer_types):
        part = ours.parts[ours.places[layer][0]]
        frequencies = getattr(theirs, f"{kind}_inv_freq")
        torch.testing.assert_close(part.frequencies().float(), frequencies, atol=1e-7, rtol=1e-6)
