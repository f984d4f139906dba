"""Load a model that was saved with encoders in use."""

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME
from transformers.utils.hub import cached_file
from transformers.utils.logging import get_verbosity, set_verbosity, set_verbosity_error

from pe_zoo._knobs import hint
from pe_zoo.hf.swap import USED, chosen, put


def load(path: str, auto: Any = AutoModelForCausalLM, **options: Any) -> PreTrainedModel:
    """Load a model that ``save_pretrained`` wrote while encoders were in use, with them.

    Args:
        path: a folder or a name on the hub; where the folder above it is here, the network is not asked.
        auto: class whose ``from_pretrained`` makes the model.
        options: of ``from_pretrained``.

    Raises:
        ValueError: the model was saved without an encoder of pe_zoo.
        FileNotFoundError: there is no such folder, nor such a name on the hub.
    """
    here = Path(path).parent.is_dir()
    loud = get_verbosity()
    set_verbosity_error()  # it would call the encoders' parameters unexpected
    try:
        # Offline, the hub is asked for many seconds, though most names that it does not have are mistyped folders.
        model: PreTrainedModel = auto.from_pretrained(path, **{"local_files_only": here} | options)
    except (OSError, ValueError) as error:
        if Path(path).exists():
            raise
        known = f"on the hub that {'was downloaded' if here else 'can be reached'}"
        beside = [str(file.parent) for file in Path(path).parent.glob("*/config.json")]
        near = f".{hint(str(path), beside, 'Beside it')}" if beside else ""
        remedy = f"give one that save_pretrained wrote, or a name {known}"
        raise FileNotFoundError(f"there is no folder {str(path)!r}; {remedy}{near}") from error
    finally:
        set_verbosity(loud)
    specs = getattr(model.config, USED, None)
    if not specs:
        raise ValueError(f"{path} was saved without an encoder of pe_zoo: load it with {auto.__name__}.from_pretrained")
    delattr(model.config, USED)
    for spec in specs:
        put(model, chosen(model, spec["layers"]), **spec)
    getattr(model.base_model, USED).load_state_dict(_saved(path))
    return model


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
