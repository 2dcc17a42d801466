"""List the providers that are model servers on this machine. They need no key, and any program can use their ports."""

from __future__ import annotations

from collections.abc import Iterable

LOCAL_PROVIDERS = frozenset(("ollama", "vllm", "llamacpp", "lmstudio"))


def find_local_provider(model: str) -> str | None:
    """Return the local provider that a model name starts with, such as `ollama` in `ollama:NAME`.

    Return None if the model is not local.
    """
    provider = model.partition(":")[0].strip().lower()
    return provider if provider in LOCAL_PROVIDERS else None


def list_local_providers(models: Iterable[str]) -> set[str]:
    """Return the local providers that the given models use."""
    return {provider for model in models if (provider := find_local_provider(model)) is not None}
