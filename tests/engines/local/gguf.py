"""Write small files in GGUF format, with a header like a real model's and no useful weights."""

from __future__ import annotations

import struct

TENSOR = b"\0" * 4096


def build_gguf(*, context_length: int = 4096, licence: str = "apache-2.0", tensor: bytes = TENSOR) -> bytes:
    """Return a GGUF file with one tensor."""
    values = [
        _text_value("general.architecture", "llama"),
        _text_value("general.name", "Tiny"),
        _text_value("general.license", licence),
        _number_value("llama.context_length", context_length),
        _number_value("llama.block_count", 2),
        _number_value("llama.embedding_length", 64),
        _number_value("llama.attention.head_count", 4),
        _number_value("llama.attention.head_count_kv", 2),
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("b"),
    ]
    tensor_info = _text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 16, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + b"".join(values) + tensor_info
    return head + b"\0" * (-len(head) % 32) + tensor


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _text_value(key: str, value: str) -> bytes:
    return _text(key) + struct.pack("<I", 8) + _text(value)


def _number_value(key: str, value: int) -> bytes:
    return _text(key) + struct.pack("<II", 4, value)
