"""The recipes of shipped models are those of their configurations, layer by layer."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import yaml
from support import QUICK, ROOT, Command

from experiments.model.layout import Layout
from experiments.report import documented
from pe_zoo import Geometry, build

LAYERS = 12
GEOMETRY = Geometry(model_dim=32, num_heads=2, num_layers=LAYERS, train_length=16)
FILES = {
    file.stem: file
    for file in sorted((ROOT / "configs" / "encoder").glob("*.yaml"))
    if "\nrecipe: " in file.read_text(encoding="utf-8")
}
CONFIGURATIONS = {
    "command_a": "cohere2.configuration_cohere2.Cohere2Config",
    "deepseek_mla": "deepseek_v3.configuration_deepseek_v3.DeepseekV3Config",
    "gemma4": "gemma4.configuration_gemma4.Gemma4TextConfig",
    "gpt_oss": "gpt_oss.configuration_gpt_oss.GptOssConfig",
    "inkling": "inkling.configuration_inkling.InklingTextConfig",
    "llama4": "llama4.configuration_llama4.Llama4TextConfig",
    "mistral_large4": "mistral_large4.configuration_mistral_large4.MistralLarge4TextConfig",
    "modernbert": "modernbert.configuration_modernbert.ModernBertConfig",
    "olmo3": "olmo3.configuration_olmo3.Olmo3Config",
    "smollm3": "smollm3.configuration_smollm3.SmolLM3Config",
}


def recipe(name: str) -> dict[str, Any]:
    return yaml.safe_load(FILES[name].read_text(encoding="utf-8"))


def shipped(name: str) -> Any:
    module, _, cls = CONFIGURATIONS[name].rpartition(".")
    return getattr(pytest.importorskip(f"transformers.models.{module}"), cls)(num_hidden_layers=LAYERS)


def test_every_recipe_is_known_here() -> None:
    assert FILES.keys() == CONFIGURATIONS.keys()
    assert all(recipe(name)["recipe"] == name for name in FILES)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_windows_and_layers_without_encoder_are_the_models_own(name: str) -> None:
    theirs, layout = shipped(name), Layout(**recipe(name).get("layout", {}))
    layout.check(LAYERS, 2)
    kinds = getattr(theirs, "layer_types", None) or ["full_attention"] * LAYERS
    limited = ["sliding" in kind or "chunked" in kind for kind in kinds]
    assert [layout.seen(layer, GEOMETRY) != (None, None) for layer in range(LAYERS)] == limited
    rotated = getattr(theirs, "no_rope_layers", None)  # 1 where a layer rotates
    if name == "command_a":  # its attention rotates in sliding layers alone
        rotated = limited
    if rotated is not None:
        assert [layout.carries(layer) for layer in range(LAYERS)] == [bool(rotates) for rotates in rotated]
    else:
        assert all(layout.carries(layer) for layer in range(LAYERS))


@pytest.mark.parametrize("name", ["gemma4", "gpt_oss", "llama4", "modernbert", "olmo3", "smollm3"])
def test_bases_are_the_models_own(name: str) -> None:
    theirs, given = shipped(name), recipe(name)
    chosen = {"name": given["defaults"][0].partition("@")[0], **given.get("encoder", {})}
    encoder: Any = build(chosen.pop("name"), GEOMETRY, **chosen)
    for layer in range(LAYERS):
        part = encoder.parts[encoder.places[layer][0]] if chosen.get("layers") else encoder
        of_kind = theirs.rope_parameters
        of_kind = of_kind if "rope_theta" in of_kind else of_kind[theirs.layer_types[layer]]
        assert part.base == of_kind["rope_theta"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_recipe_runs_and_stands_in_results_under_its_name(name: str, command: Command) -> None:
    done = command(*QUICK, f"encoder={name}", "model.num_layers=4")
    assert done.code == 0, done.err
    assert f"{name} on copy" in done.out + done.err


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_recipe_says_on_its_page_what_it_is(name: str) -> None:
    entry = documented.encoders(pd.DataFrame({"source": []}))[name]
    assert "transformers 5.23.0" in entry.summary
    assert entry.declared["family"]


def test_a_recipe_and_a_layout_are_two_layouts(command: Command) -> None:
    done = command("encoder=gemma4", "layout=swan", "model.num_layers=4", "model=tiny")
    assert done.code == 2
    assert "encoder=gemma4 has a layout of its own, and layout=swan is another" in done.err
