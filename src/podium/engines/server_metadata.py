"""Read a model's context window from its server's metadata.

Servers report it in different places: `/models` in vLLM and many providers, `/props` in llama.cpp, and `/api/ps` and
`/api/show` in Ollama. The functions that read the responses are pure and lenient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .local_model_servers import fetch_document
from .model_probes import ServerReport

if TYPE_CHECKING:
    from aiohttp import ClientSession

WINDOW_KEYS = ("loaded_context_length", "max_model_len", "context_length", "context_window", "max_context_length")
"""The fields that can contain the context window in a model list."""

_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)


class MetadataSource(NamedTuple):
    """An endpoint of a server: its path, and the function that reads a model's context window from the response.

    If `is_posted` is true, the request posts the name of the model. If `is_below_root` is true, the path is relative to
    the base URL without `/v1`, otherwise to the base URL.
    """

    path: str
    read_window: Callable[[Any, str], int | None]
    is_posted: bool = False
    is_below_root: bool = True


async def fetch_context_window(
    client: ClientSession, url: str, model: str, *, headers: Mapping[str, str], is_own_server: bool, proxy: str | None
) -> ServerReport | None:
    """Return the context window that a server reports for a model, or None if it reports none.

    `is_own_server` means that the server is local and needs no key. If it is set, endpoints that only local servers
    have are queried too.
    """
    root = url.removesuffix("/v1")
    for source in (*OWN_SERVER_SOURCES, MODEL_LIST) if is_own_server else (MODEL_LIST,):
        base = root if source.is_below_root else url
        post = {"model": model} if source.is_posted else None
        body = await fetch_document(client, f"{base}{source.path}", post=post, headers=headers, proxy=proxy)
        try:
            document = None if body is None else msgspec.json.decode(body)
        except msgspec.DecodeError:
            continue
        if window := source.read_window(document, model):
            return ServerReport(window=window, source=f"the server's {source.path}")
    return None


def read_running_window(document: Any, model: str) -> int | None:
    """Return the window of a loaded model from Ollama's `/api/ps`."""
    for entry in _list_entries(document, "models"):
        if model in (entry.get("name"), entry.get("model")) or entry.get("name") == f"{model}:latest":
            return _read_number(entry.get("context_length"))
    return None


def read_props_window(document: Any, model: str) -> int | None:
    """Return the window from llama.cpp's `/props`."""
    settings = _read_mapping(_read_mapping(document).get("default_generation_settings"))
    return _read_number(settings.get("n_ctx"))


def read_show_window(document: Any, model: str) -> int | None:
    """Return the window from Ollama's `/api/show`: the configured one or, failing that, the model's maximum."""
    fields = _read_mapping(document)
    parameters = fields.get("parameters")
    configured = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    if configured is not None:
        return _read_number(int(configured[1]))
    info = _read_mapping(fields.get("model_info"))
    return next((_read_number(value) for key, value in info.items() if str(key).endswith(".context_length")), None)


def read_listed_window(document: Any, model: str) -> int | None:
    """Return the window from an entry of `/models`."""
    for entry in _list_entries(document, "data"):
        if entry.get("id") == model:
            meta = _read_mapping(entry.get("meta"))
            found = [*(entry.get(key) for key in WINDOW_KEYS), meta.get("n_ctx"), meta.get("n_ctx_train")]
            return next((number for value in found if (number := _read_number(value))), None)
    return None


MODEL_LIST = MetadataSource("/models", read_listed_window, is_below_root=False)
OWN_SERVER_SOURCES = (
    MetadataSource("/api/ps", read_running_window),
    MetadataSource("/props", read_props_window),
    MetadataSource("/api/show", read_show_window, is_posted=True),
)
"""The endpoints of local servers that report a model's context window, in the order in which they are queried.

Endpoints that report the window of a loaded model come first, because it can be smaller than the model's maximum.
"""


def _list_entries(document: Any, key: str) -> list[Mapping[str, Any]]:
    entries = _read_mapping(document).get(key)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _read_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
