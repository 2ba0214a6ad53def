"""Writes the shipped GGUF as a Hugging Face folder that vLLM can load. Runs in vLLM's environment: imports nothing of ours.

``python vllm_model.py GGUF FOLDER``. llama.cpp permutes the rows of q and k; that is undone here.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    read_model(source).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(folder)


def read_model(source: Path) -> LlamaForCausalLM:
    """The model in f32, its weights as exactly as the GGUF file holds them."""
    reader = gguf.GGUFReader(source)

    def value(name: str) -> float:
        return reader.fields[f"llama.{name}"].contents()

    heads, kv_heads = int(value("attention.head_count")), int(value("attention.head_count_kv"))
    state: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        state[_name(tensor.name)] = torch.from_numpy(_unpermuted(tensor.name, array, heads, kv_heads).copy())
    config = LlamaConfig(
        vocab_size=state["model.embed_tokens.weight"].shape[0],
        hidden_size=int(value("embedding_length")),
        intermediate_size=int(value("feed_forward_length")),
        num_hidden_layers=int(value("block_count")),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=int(value("context_length")),
        rms_norm_eps=float(value("attention.layer_norm_rms_epsilon")),
        rope_theta=float(value("rope.freq_base")),
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    return model


def _name(name: str) -> str:
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[kind]}.weight"


def _unpermuted(name: str, array: np.ndarray, heads: int, kv_heads: int) -> np.ndarray:
    count = heads if ".attn_q." in name else kv_heads if ".attn_k." in name else 0
    if count == 0:
        return array
    half = array.shape[0] // count // 2
    return array.reshape(count, half, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


if __name__ == "__main__":
    main()
