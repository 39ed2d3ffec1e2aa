"""A model of some hundred thousand weights as a checkpoint directory: quick to write, to load and to run.

Its weights are noise, so that what it writes is up to a request's `logit_bias` and format. The text
`</think>` is one token, which lets a test end a reasoning section by a bias.
"""

import json
import random
import struct

HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
HEAD_DIM = HIDDEN // HEADS
CLOSE = "</think>"
END = "<|end|>"


def byte_text():
    """The character that stands for each byte in a byte-level vocabulary."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + at) for at, byte in enumerate(hidden)}


def vocabulary():
    """Token ids by text, and the merges that make one token of `</think>`."""
    tokens = {text: byte for byte, text in sorted(byte_text().items())}
    merges = []
    for length in range(2, len(CLOSE) + 1):
        merges.append([CLOSE[: length - 1], CLOSE[length - 1]])
        tokens[CLOSE[:length]] = len(tokens)
    return tokens, merges


def write_json(path, value):
    path.write_text(json.dumps(value))


def write_tensors(path, rows):
    noise = random.Random(7)
    shapes = {"model.embed_tokens.weight": [rows, HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {
            name + "input_layernorm.weight": [HIDDEN],
            name + "self_attn.q_proj.weight": [HIDDEN, HIDDEN],
            name + "self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
            name + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
            name + "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
            name + "post_attention_layernorm.weight": [HIDDEN],
            name + "mlp.gate_proj.weight": [FEED_FORWARD, HIDDEN],
            name + "mlp.up_proj.weight": [FEED_FORWARD, HIDDEN],
            name + "mlp.down_proj.weight": [HIDDEN, FEED_FORWARD],
        }
    header, data = {}, b""
    for name, shape in shapes.items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        center = 1.0 if len(shape) == 1 else 0.0
        values = struct.pack(f"<{size}f", *(center + noise.uniform(-0.2, 0.2) for _ in range(size)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def write_checkpoint(directory, chat_template):
    """Writes the model with this chat template. Returns the ids of its tokens by text."""
    directory.mkdir()
    tokens, merges = vocabulary()
    end = len(tokens)
    write_tensors(directory / "model.safetensors", end + 1)
    sizes = {
        "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "eos_token_id": end,
        "tie_word_embeddings": True,
    }
    write_json(directory / "config.json", sizes)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"id": end, "content": END, "special": True, "normalized": False, "single_word": False}
    tokenizer = {
        "version": "1.0", "added_tokens": [special | {"lstrip": False, "rstrip": False}],
        "normalizer": None, "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": tokens, "merges": merges},
    }
    write_json(directory / "tokenizer.json", tokenizer)
    write_json(directory / "tokenizer_config.json", {"eos_token": END, "chat_template": chat_template})
    return tokens
