"""Turns a GGUF file of the Llama architecture into a Hugging Face model directory.

usage: gguf_to_hf.py MODEL.gguf DIRECTORY float32|bfloat16

Written for SmolLM2's GGUF: byte-level BPE, tied embeddings. Quantised tensors are expanded.
"""

import json
import pathlib
import shutil
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL_TOKEN = 3  # GGUF's token type for special tokens

# GGUF's names for the tensors of one layer; the rest of a name is the same for all layers.
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def hugging_face_name(name):
    """blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight"""
    if name in OTHER_TENSORS:
        return OTHER_TENSORS[name]
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[kind]}.{suffix}"


def split_halves(weight, heads):
    """[heads * head_dim, hidden]: undoes llama.cpp's row order within each head.

    llama.cpp rotates neighbouring rows (0,1), (2,3), ...; Hugging Face's code rotates row i with
    row i + head_dim / 2.
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def to_bfloat16(values):
    """float32 -> the upper 16 bits, rounded to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, dtype=numpy.float32).view(numpy.uint32)
    rounded = bits + numpy.uint32(0x7FFF) + ((bits >> numpy.uint32(16)) & numpy.uint32(1))
    return (rounded >> numpy.uint32(16)).astype(numpy.uint16)


def to_float32(values):
    return numpy.ascontiguousarray(values, dtype="<f4")


# torch's name of a type -> safetensors' name and the conversion
DTYPES = {"float32": ("F32", to_float32), "bfloat16": ("BF16", to_bfloat16)}


def read_tensors(reader, config):
    """Hugging Face name -> (shape, type, bytes) of every tensor."""
    type_name, convert = DTYPES[config["torch_dtype"]]
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            weight = split_halves(weight, heads[kind])
        name = hugging_face_name(tensor.name)
        tensors[name] = (weight.shape, type_name, convert(weight).tobytes())
    return tensors


def write_safetensors(tensors, path):
    """The format: the header's length (8 bytes), the header as JSON, then the tensors' bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, type_name, data) in tensors.items():
        header[name] = {
            "dtype": type_name,
            "shape": list(shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            file.write(data)


def make_config(field, dtype):
    hidden = field("llama.embedding_length")
    heads = field("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": hidden**-0.5,
        "intermediate_size": field("llama.feed_forward_length"),
        "max_position_embeddings": field("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": field("llama.block_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        # GGUF keeps it in float32, which is not the short decimal that was meant.
        "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_scaling": None,
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
        "use_cache": True,
        "vocab_size": field("llama.vocab_size"),
    }


def make_tokenizer(field):
    """GGUF names the pre-tokenizer only ("smollm"): single digits, then GPT-2's byte-level split."""
    tokens = field("tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = field("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, kinds)
        if kind == CONTROL_TOKEN
    ])
    return tokenizer


def make_tokenizer_config(field):
    tokens = field("tokenizer.ggml.tokens")
    return {
        "add_prefix_space": False,
        "bos_token": tokens[field("tokenizer.ggml.bos_token_id")],
        "chat_template": field("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[field("tokenizer.ggml.eos_token_id")],
        "model_max_length": field("llama.context_length"),
        "pad_token": tokens[field("tokenizer.ggml.padding_token_id")],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[field("tokenizer.ggml.unknown_token_id")],
    }


def check_round_trip(tokenizer):
    for text in ("Hello, the quick brown fox.\nIt's 12345!", "naïve 你好  two  spaces\t\n\n"):
        if tokenizer.decode(tokenizer.encode(text).ids) != text:
            raise SystemExit(f"gguf_to_hf: the tokenizer does not give back {text!r}")


def write_json(value, path):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(source, target, dtype):
    reader = GGUFReader(source)

    def field(name):
        if name not in reader.fields:
            raise SystemExit(f"gguf_to_hf: {source}: no field '{name}'")
        return reader.fields[name].contents()

    architecture = field("general.architecture")
    if architecture != "llama":
        raise SystemExit(f"gguf_to_hf: {source}: architecture '{architecture}', not 'llama'")
    target = pathlib.Path(target)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    config = make_config(field, dtype)
    tokenizer = make_tokenizer(field)
    check_round_trip(tokenizer)
    write_safetensors(read_tensors(reader, config), partial / "model.safetensors")
    tokenizer.save(str(partial / "tokenizer.json"))
    write_json(make_tokenizer_config(field), partial / "tokenizer_config.json")
    write_json(
        {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        partial / "generation_config.json",
    )
    write_json(config, partial / "config.json")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in DTYPES:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
