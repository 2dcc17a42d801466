"""Find the context windows of models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...engines.engine_choice import resolve_model_address
from ...engines.local.model_folder import find_models_folder
from ...engines.model import model_prices
from ...engines.model.providers import LOCAL
from ...files.model_role import resolve_models
from ...files.settings import Settings
from ...values.errors import Mistake
from ...views.run_state.model_usage import ContextUse
from ..assembly.engine_lookup import find_call_options
from .overview import ShownContext


def add_context_windows(
    contexts: Sequence[ContextUse | ShownContext | None], settings: Settings, environ: Mapping[str, str] = os.environ
) -> list[ShownContext | None]:
    """Return the contexts of runs or workers with the windows of their models.

    The first lookup of a model can take 0.2 s, because it loads the price list.
    """
    models = {one.model for one in contexts if one is not None}
    windows = {model: find_context_window(model, settings, environ) for model in models}
    return [None if one is None else ShownContext.of(one, window=windows[one.model]) for one in contexts]


def find_context_window(model: str, settings: Settings, environ: Mapping[str, str]) -> int | None:
    """Return the context window of a model such as `openai:gpt-5-mini` in tokens, or None if it is unknown.

    A test of the model takes precedence over the price list.
    """
    default = resolve_models(settings.model, settings.models).models[0] if settings.model else ""
    addresses = settings.add_provider_addresses(environ)
    try:
        address = resolve_model_address(model, addresses, default=default, default_url=settings.base_url)
    except Mistake:
        return None
    if address.provider.name == LOCAL:
        installed = find_models_folder(environ, settings.home).find_model(address.model)
        return None if installed is None else installed.served_window
    tested = find_call_options(settings, address).abilities.window
    return tested or model_prices.find_context_window(address.provider.name, address.model)
