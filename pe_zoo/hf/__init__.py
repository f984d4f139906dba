"""Any encoder in a language model of Hugging Face Transformers: ``pip install 'pe-zoo[hf]'``.

    >>> import transformers, pe_zoo.hf
    >>> config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    ...                                   num_attention_heads=4, vocab_size=64, max_position_embeddings=128)
    >>> model = transformers.LlamaForCausalLM(config)
    >>> encoder = pe_zoo.hf.use(model, "fox", initial_gate=0.9)
    >>> encoder.weight.shape  # layers, heads, model_dim
    torch.Size([2, 4, 32])

The model's own rotation or table is off in those layers, and the encoder a part of the model: ``Trainer``, optimizers
and ``save_pretrained`` see its parameters. ``load`` reads such a model back, ``restore`` undoes all of it.
``python -m pe_zoo.hf`` says which families of the installed Transformers it takes, and why not the others.
"""

from importlib.util import find_spec

if find_spec("transformers") is None:
    raise ImportError("pe_zoo.hf needs the package transformers: pip install 'pe-zoo[hf]'")

from pe_zoo.hf.saved import load
from pe_zoo.hf.swap import restore, use

__all__ = ["load", "restore", "use"]
