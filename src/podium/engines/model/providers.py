"""Define the model providers, and resolve model names to providers and models.

All functions in this module are pure; the environment is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from ...values.errors import Mistake

LOCAL = "local"
"""The provider for models that Podium itself runs on this machine."""


class Provider(Struct, frozen=True, kw_only=True):
    """A model provider.

    `wire` names its API, which the module `WIRE_wire` calls. `key_name` is the environment variable with the API key,
    or None if no key is needed.
    `default_model` is empty if the user has to name a model. `asks_usage` is false if the provider
    rejects requests for usage; `takes_schema` is false if it does not support response schemas.
    `host_name` is the environment variable that the server itself uses for its listening address.
    `limit_name` is the request field that limits the length of the reply. `server_name` is the product
    name of a server that users run themselves. The provider `local` has no address, because Podium starts
    its engines.
    """

    name: str
    wire: str
    base_url: str
    key_name: str | None = None
    default_model: str = ""
    asks_usage: bool = True
    takes_schema: bool = True
    host_name: str | None = None
    limit_name: str = "max_tokens"
    server_name: str = ""

    @property
    def service(self) -> str:
        """The provider's name without the account name: `openai` for `openai@work`."""
        return self.name.partition("@")[0]

    @property
    def url_name(self) -> str:
        """The name of the environment variable that overrides the base URL.

        If the variable of an account is not set, the account uses the base URL of its provider.
        """
        service, mark, account = self.name.upper().partition("@")
        return f"{service}_BASE_URL_{account}" if mark else f"{service}_BASE_URL"


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            wire="openai",
            base_url="https://api.openai.com/v1",
            key_name="OPENAI_API_KEY",
            default_model="gpt-5-mini",
            limit_name="max_completion_tokens",
        ),
        Provider(
            name="anthropic",
            wire="anthropic",
            base_url="https://api.anthropic.com",
            key_name="ANTHROPIC_API_KEY",
            default_model="claude-sonnet-5-5",
        ),
        Provider(
            name="openrouter",
            wire="openai",
            base_url="https://openrouter.ai/api/v1",
            key_name="OPENROUTER_API_KEY",
            default_model="openrouter/auto",
        ),
        Provider(
            name="gemini",
            wire="openai",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
            key_name="GEMINI_API_KEY",
            default_model="gemini-flash-latest",
        ),
        Provider(
            name="mistral",
            wire="openai",
            base_url="https://api.mistral.ai/v1",
            key_name="MISTRAL_API_KEY",
            default_model="mistral-medium-latest",
            asks_usage=False,
        ),
        Provider(
            name="deepseek",
            wire="openai",
            base_url="https://api.deepseek.com",
            key_name="DEEPSEEK_API_KEY",
            default_model="deepseek-flash",
            takes_schema=False,
        ),
        Provider(
            name="groq",
            wire="openai",
            base_url="https://api.groq.com/openai/v1",
            key_name="GROQ_API_KEY",
            default_model="openai/gpt-oss-120b",
        ),
        Provider(
            name="xai",
            wire="openai",
            base_url="https://api.x.ai/v1",
            key_name="XAI_API_KEY",
            default_model="grok-4.3",
        ),
        Provider(
            name="ollama",
            wire="openai",
            base_url="http://127.0.0.1:11434/v1",
            host_name="OLLAMA_HOST",
            server_name="Ollama",
        ),
        Provider(name="vllm", wire="openai", base_url="http://127.0.0.1:8000/v1", server_name="vLLM"),
        Provider(
            name="llamacpp",
            wire="openai",
            base_url="http://127.0.0.1:8080/v1",
            default_model="default",
            server_name="llama.cpp",
        ),
        Provider(name="lmstudio", wire="openai", base_url="http://127.0.0.1:1234/v1", server_name="LM Studio"),
        Provider(name=LOCAL, wire="local", base_url=""),
    )
}
"""The providers, in lookup order. llama.cpp serves one model and accepts any name for it."""

KEY_NAMES = frozenset(provider.key_name for provider in PROVIDERS.values() if provider.key_name is not None)
ADDRESS_NAMES = frozenset(
    name for provider in PROVIDERS.values() for name in (provider.url_name, provider.host_name) if name is not None
)

ALIASES = {
    "sonnet": "anthropic:claude-sonnet-5-5",
    "opus": "anthropic:claude-opus-5-5",
    "haiku": "anthropic:claude-haiku-5-5",
}


def find_provider(name: str) -> Provider:
    """Return the provider with this name. Raise Mistake if it is unknown; the message suggests similar names.

    `openai@work` is another account at the same provider, whose key is in `OPENAI_API_KEY_WORK`.
    """
    service, mark, account = name.lower().partition("@")
    found = PROVIDERS.get(service)
    if found is not None and mark:
        return _make_account(found, account)
    if found is None:
        # Every command imports this module, and only this error needs difflib.
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), PROVIDERS) or list(PROVIDERS)
        raise Mistake(f"model provider {name!r} not found; available: {_join_names(near)}")
    return found


def _make_account(provider: Provider, account: str) -> Provider:
    """Return the provider for another account. Raise Mistake if the name is invalid or the provider needs no key."""
    if provider.key_name is None:
        raise Mistake(f"{provider.name} needs no key, so it has no accounts; use {provider.name} instead")
    if not _ACCOUNT.fullmatch(account):
        raise Mistake(
            f"the {provider.name} account {account!r} is invalid; use letters, digits and underscores, such as "
            f"{provider.name}@work"
        )
    key_name = f"{provider.key_name}_{account.upper()}"
    return structs.replace(provider, name=f"{provider.name}@{account}", key_name=key_name)


_ACCOUNT = re.compile(r"[a-z0-9_]{1,40}")


def find_key_names(environ: Iterable[str]) -> frozenset[str]:
    """Return the environment variables for keys: those of all providers, and those of accounts found in `environ`."""
    return KEY_NAMES.union(_find_accounts(environ, KEY_NAMES))


def _find_accounts(environ: Iterable[str], names: Iterable[str]) -> list[str]:
    starts = tuple(f"{name}_" for name in names)
    return [name for name in environ if name.startswith(starts)]


def parse_model(text: str) -> tuple[Provider, str]:
    """Resolve `provider:model`, a provider alone, an alias or a model alone to its provider and model.

    A model alone belongs to Anthropic if its name starts with `claude-`, otherwise to OpenAI or the
    server at `OPENAI_BASE_URL`. Raise Mistake if the name is empty or cannot be resolved.
    """
    text = text.strip()
    if not text:
        raise Mistake("the model name is empty; use a name such as sonnet or openai:gpt-5-mini")
    name, colon, model = ALIASES.get(text.removeprefix("anthropic:"), text).partition(":")
    if not colon and name.lower().partition("@")[0] not in PROVIDERS:
        name, model = ("anthropic" if name.startswith("claude-") else "openai"), name
    found = find_provider(name)
    if not (model := model.strip() or found.default_model):
        hint = "; run podium models add to list the available ones" if found.name == LOCAL else ""
        raise Mistake(f"{found.name} has no default model; specify an installed one as {found.name}:NAME{hint}")
    return found, model


def resolve_base_url(provider: Provider, environ: Mapping[str, str]) -> str:
    """Return the provider's base URL in this environment."""
    if provider.wire == "local":
        return provider.base_url
    for name in (provider.url_name, PROVIDERS[provider.service].url_name):
        if url := environ.get(name, "").strip():
            return url.rstrip("/")
    if provider.host_name is not None and (host := environ.get(provider.host_name, "").strip()):
        return _build_ollama_url(host)
    return provider.base_url


def find_configured_provider(environ: Mapping[str, str]) -> Provider | None:
    """Return the first provider that has a default model and whose key or address is set in this environment."""
    for provider in PROVIDERS.values():
        names = (provider.key_name, provider.url_name)
        if provider.default_model and any(environ.get(name, "").strip() for name in names if name is not None):
            return provider
    return None


def describe_stopped_server(provider: str, url: str) -> str:
    """Return the message for a server on this machine that is not running."""
    known = PROVIDERS.get(provider)
    name = known.server_name if known is not None else ""
    subject = f"{name} is not running" if name else f"no {provider} server is running"
    return f"{subject} at {url}; start it, or use another model"


def read_provider_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with provider keys and addresses. Variables that are not set have the value "".

    Unset variables are included, so that they override the values in another process. Otherwise, a key from this
    environment could be sent to an address from the other process's environment.
    """
    names = find_key_names(environ).union(ADDRESS_NAMES, _find_accounts(environ, ADDRESS_NAMES))
    return {name: environ.get(name, "") for name in names}


def without_credentials(url: str) -> str:
    """Return the URL without its user name and password."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _build_ollama_url(host: str) -> str:
    """Return the base URL for an OLLAMA_HOST of the form `[scheme://][host][:port][/path]`."""
    scheme, mark, rest = host.rpartition("://")
    place, slash, path = rest.rstrip("/").partition("/")
    if not mark and not place.rpartition(":")[2].isdecimal():
        place = f"{place}:11434"
    # A server may listen on all interfaces, but a client needs one address.
    place = re.sub(r"^(0\.0\.0\.0|\[::\])?(?=:|$)", "127.0.0.1", place)
    return f"{scheme or 'http'}://{place}{slash}{path}/v1"


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


REHEARSAL = "rehearsal"
