from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium.engines.local.model_installation import GgufHeader, read_gguf_header
from podium.values.errors import Mistake

from .gguf import TENSOR, build_gguf

WHOLE = build_gguf()


def test_the_header_says_what_a_model_needs(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(build_gguf(context_length=2048))

    assert read_gguf_header(path) == GgufHeader(
        architecture="llama",
        title="Tiny",
        licence="apache-2.0",
        context_length=2048,
        cache_bytes_per_token=2 * 2 * 32 * 2,
    )


@pytest.mark.parametrize("length", [0, 3, 20, 100, len(WHOLE) - len(TENSOR)])
def test_a_file_that_was_cut_off_is_refused_in_one_sentence(length: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(WHOLE[:length])

    with pytest.raises(Mistake, match=r"^cut\.gguf is not a valid or supported GGUF file: it [^\n]+$"):
        read_gguf_header(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(place=st.integers(0, len(WHOLE) - len(TENSOR) - 1), bits=st.integers(1, 255))
def test_a_damaged_header_is_read_or_refused_and_never_crashes(place: int, bits: int, tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    data = bytearray(WHOLE)
    data[place] ^= bits
    path.write_bytes(data)

    with suppress(Mistake):
        read_gguf_header(path)
