"""An encoder in a model that two processes train together: DistributedDataParallel, gradients as of the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from support import ROOT

SCRIPT = """
import sys, torch, transformers
import pe_zoo.hf
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

def made(name):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config)
    pe_zoo.hf.use(model, name)
    return model

def gradients(model, tokens):
    model(input_ids=tokens, labels=tokens).loss.backward()
    return {key.removeprefix("module."): value.grad for key, value in model.named_parameters()}

distributed.init_process_group("gloo")
rank, found = distributed.get_rank(), {}
tokens = torch.randint(64, (4, 12), generator=torch.Generator().manual_seed(2))
for name in sys.argv[2:]:
    shared = gradients(DistributedDataParallel(made(name)), tokens[2 * rank : 2 * rank + 2])
    found[name] = shared, gradients(made(name), tokens)
torch.save(found, f"{sys.argv[1]}/{rank}.pt")
distributed.destroy_process_group()
"""


def test_two_processes_have_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    names = ["t5", "fox", "learned", "dape"]  # a static bias, one that reads the layer, an embedding, one of scores
    (tmp_path / "two.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, str(tmp_path / "two.py"), str(tmp_path), *names],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in range(2):
        for name, (shared, whole) in torch.load(tmp_path / f"{rank}.pt").items():
            assert shared.keys() == whole.keys()
            assert any("pe_zoo" in key for key in whole), name
            for key in whole:
                torch.testing.assert_close(shared[key], whole[key], rtol=1e-4, atol=1e-6, msg=f"{name}: {key}")
