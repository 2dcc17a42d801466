"""The file with the prices of models that were used before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from podium.engines.model.model_prices import PriceCache, add_cost, find_context_window
from podium.values.usage import Usage

USED = Usage(input_tokens=1_000, output_tokens=500, cached_tokens=100, calls=1)

LATER = """
import sys
from pathlib import Path
from podium.engines.model.model_prices import add_cost, find_context_window
from podium.engines.model.model_prices import PriceCache
from podium.values.usage import Usage

restored = PriceCache(Path(sys.argv[1])).restore("openai", "gpt-5-mini")
cost = add_cost("openai", "gpt-5-mini", Usage(input_tokens=1_000, output_tokens=500, cached_tokens=100, calls=1)).usd
print(restored, repr(cost), find_context_window("openai", "gpt-5-mini"), "genai_prices" in sys.modules)
"""


def test_a_later_process_knows_the_price_of_a_model_without_loading_the_price_list(tmp_path: Path) -> None:
    PriceCache(tmp_path / "prices.json").load_and_store("openai", "gpt-5-mini")

    done = subprocess.run(
        [sys.executable, "-c", LATER, str(tmp_path / "prices.json")], capture_output=True, text=True, check=True
    )

    cost = add_cost("openai", "gpt-5-mini", USED).usd
    assert cost > 0
    assert done.stdout.split() == ["True", repr(cost), str(find_context_window("openai", "gpt-5-mini")), "False"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"price_list": "another", "models": {"openai:gpt-5-mini": {"rates": []}}}']
)
def test_a_file_that_is_damaged_or_of_another_price_list_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    cache = PriceCache(path)

    assert not cache.restore("openai", "gpt-5-mini")

    cache.load_and_store("openai", "gpt-5-mini")
    assert cache.restore("openai", "gpt-5-mini")


def test_a_model_whose_price_is_unknown_is_not_kept(tmp_path: Path) -> None:
    cache = PriceCache(tmp_path / "prices.json")

    cache.load_and_store("openai", "nobody-knows-it")

    assert not cache.restore("openai", "nobody-knows-it")


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    PriceCache(tmp_path / "file" / "prices.json").load_and_store("openai", "gpt-5-mini")
