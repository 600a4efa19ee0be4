"""Makes the model of the speed comparison: a Llama of 8 layers, hidden size 512, random weights.

usage: make_perf_model.py TOKENIZER_FOLDER TARGET   (runs in LLaMA-Factory's environment)

The tokenizer is Llama 2's, with 32,000 ids.
"""

import json
import pathlib
import shutil
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {
    "vocab_size": 32000,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def main(tokenizer, target):
    tokenizer, target = pathlib.Path(tokenizer), pathlib.Path(target)
    partial = target.with_name(target.name + ".partial")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE, dtype="float32")).save_pretrained(partial)
    # The form of config.json that hubs hold and every version reads.
    path = partial / "config.json"
    config = json.loads(path.read_text())
    config.pop("rope_parameters", None)
    config.pop("dtype", None)
    config.update(torch_dtype="float32", rope_theta=10000.0, rope_scaling=None)
    path.write_text(json.dumps(config, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, partial / name)
    partial.rename(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
