"""Cache model prices in a file.

Loading the price list takes 0.2 s of CPU time, longer than many servers take to reply. So the
prices of every model in use are stored in a file that takes less than a millisecond to read. The file
is valid for one version of the price list.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from ...system.atomic_file import replace_file
from ...values.errors import Mistake
from .model_prices import ModelFacts, describe_model, remember_model

MAX_MODELS = 200


class _CachedPrices(Struct):
    """The contents of the file: the version of the price list, and the price and context window of each model."""

    price_list: str
    models: dict[str, ModelFacts]


class PriceCache:
    """A price cache in a file. If the file cannot be read or written, lookups still work but are slower."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def restore(self, provider: str, model: str) -> bool:
        """Load the price and context window of a model from the file into memory.

        Return False if the file does not contain the model.
        """
        facts = self._read().models.get(f"{provider}:{model}")
        if facts is None:
            return False
        remember_model(provider, model, facts)
        return True

    def load_and_store(self, provider: str, model: str) -> None:
        """Load the price list, and store the price and context window of a model in the file.

        Nothing is stored if the price is unknown or depends on the time of day, or if the file is full.
        """
        facts = describe_model(provider, model)
        content = self._read()
        if facts is None or len(content.models) >= MAX_MODELS:
            return
        content.models[f"{provider}:{model}"] = facts
        with suppress(OSError, Mistake):
            replace_file(self._path, msgspec.json.encode(content))

    def _read(self) -> _CachedPrices:
        """Return the contents of the file. If the file cannot be used, return contents with an empty list of models.

        The file cannot be used if it is unreadable or was written for another version of the price list.
        """
        current = _CachedPrices(price_list=_identify_price_list(), models={})
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_CachedPrices)
        except (OSError, msgspec.MsgspecError):
            return current
        return content if content.price_list == current.price_list else current


def _identify_price_list() -> str:
    """Return an identifier for the installed version of the price list, without importing the list."""
    found = find_spec("genai_prices")
    places = [] if found is None else list(found.submodule_search_locations or ())
    try:
        state = (Path(places[0]) / "data.py").stat()
    except (IndexError, OSError):
        return ""
    return f"{state.st_size}-{state.st_mtime_ns}"
