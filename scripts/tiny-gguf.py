"""Writes a language model of random weights that llama.cpp loads: `tiny-gguf.py FILE`.

The software GPU computes nothing, so what the weights are does not matter, only that the program's kernels are launched.
The format is GGUF 3: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import random
import struct
import sys

EMBEDDING, FEED_FORWARD, HEADS, BLOCKS, VOCABULARY, CONTEXT = 256, 512, 4, 4, 512, 512
ALIGNMENT = 32

# Types of values and of tensors.
U32, F32, TEXT = 4, 6, 8
TENSOR_F32 = 0


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    data = text(value) if kind == TEXT else struct.pack("<I" if kind == U32 else "<f", value)
    return text(key) + struct.pack("<I", kind) + data


def tensors():
    """Name and sizes of each, the innermost first."""
    yield "token_embd.weight", (EMBEDDING, VOCABULARY)
    yield "output_norm.weight", (EMBEDDING,)
    yield "output.weight", (EMBEDDING, VOCABULARY)
    for block in range(BLOCKS):
        for name, sizes in (
            ("attn_norm", (EMBEDDING,)),
            ("attn_q", (EMBEDDING, EMBEDDING)),
            ("attn_k", (EMBEDDING, EMBEDDING)),
            ("attn_v", (EMBEDDING, EMBEDDING)),
            ("attn_output", (EMBEDDING, EMBEDDING)),
            ("ffn_norm", (EMBEDDING,)),
            ("ffn_gate", (EMBEDDING, FEED_FORWARD)),
            ("ffn_up", (EMBEDDING, FEED_FORWARD)),
            ("ffn_down", (FEED_FORWARD, EMBEDDING)),
        ):
            yield f"blk.{block}.{name}.weight", sizes


def main():
    pairs = [
        pair("general.architecture", TEXT, "llama"),
        pair("general.name", TEXT, "random weights"),
        pair("llama.block_count", U32, BLOCKS),
        pair("llama.context_length", U32, CONTEXT),
        pair("llama.embedding_length", U32, EMBEDDING),
        pair("llama.feed_forward_length", U32, FEED_FORWARD),
        pair("llama.attention.head_count", U32, HEADS),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.vocab_size", U32, VOCABULARY),
        pair("tokenizer.ggml.model", TEXT, "no_vocab"),
    ]
    head, body = b"", b""
    generator = random.Random(1)
    count = 0
    for name, sizes in tensors():
        numbers = 1
        for size in sizes:
            numbers *= size
        head += text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        head += struct.pack("<IQ", TENSOR_F32, len(body))
        body += struct.pack(f"<{numbers}f", *(generator.uniform(-0.1, 0.1) for _ in range(numbers)))
        body += b"\0" * (-len(body) % ALIGNMENT)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) + head
    with open(sys.argv[1], "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + body)


main()
