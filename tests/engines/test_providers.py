from __future__ import annotations

from pathlib import Path

import pytest
from yarl import URL

from podium.engines.model.providers import (
    ALIASES,
    LOCAL,
    PROVIDERS,
    find_configured_provider,
    find_provider,
    parse_model,
    resolve_base_url,
)
from podium.values.errors import Mistake


@pytest.mark.parametrize(
    ("text", "name", "model"),
    [
        ("openai:gpt-5-mini", "openai", "gpt-5-mini"),
        ("anthropic:claude-opus-5-5", "anthropic", "claude-opus-5-5"),
        ("Anthropic: claude-opus-5-5 ", "anthropic", "claude-opus-5-5"),
        ("ollama:llama3.2:3b", "ollama", "llama3.2:3b"),
        ("openrouter:openai/gpt-oss-120b:nitro", "openrouter", "openai/gpt-oss-120b:nitro"),
        ("gpt-5-mini", "openai", "gpt-5-mini"),
        ("claude-opus-4-8", "anthropic", "claude-opus-4-8"),
        ("groq", "groq", "openai/gpt-oss-120b"),
        ("deepseek:", "deepseek", "deepseek-flash"),
        ("sonnet", "anthropic", "claude-sonnet-5-5"),
        ("opus", "anthropic", "claude-opus-5-5"),
        ("anthropic:haiku", "anthropic", "claude-haiku-5-5"),
    ],
)
def test_a_model_name_gives_its_provider(text: str, name: str, model: str) -> None:
    found, called = parse_model(text)

    assert (found.name, called) == (name, model)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("antropic:claude", "model provider 'antropic' not found; available: anthropic"),
        ("llama3.2:3b", "model provider 'llama3.2' not found; available: "),
        ("zzz:x", "available: openai, anthropic, openrouter, .* and local"),
        ("ollama", "ollama has no default model; specify an installed one as ollama:NAME"),
        (" ", "the model name is empty; use a name such as sonnet"),
    ],
)
def test_an_unknown_name_is_a_mistake_that_says_what_would_work(text: str, sentence: str) -> None:
    with pytest.raises(Mistake, match=sentence):
        parse_model(text)


def test_every_provider_has_an_address_and_remote_ones_have_a_key_and_a_model() -> None:
    for one in (one for one in PROVIDERS.values() if one.name != LOCAL):
        url = URL(one.base_url)
        is_local = url.host == "127.0.0.1"

        assert find_provider(one.name) is one
        assert url.scheme == ("http" if is_local else "https")
        assert bool(one.key_name) == (not is_local)
        assert is_local or parse_model(one.name) == (one, one.default_model)


def test_every_alias_means_a_model() -> None:
    assert {parse_model(alias)[0].name for alias in ALIASES} == {"anthropic"}


@pytest.mark.parametrize(
    ("name", "environ", "url"),
    [
        ("openai", {}, "https://api.openai.com/v1"),
        ("openai", {"OPENAI_BASE_URL": "http://here:1/v1/"}, "http://here:1/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "http://here", "OPENAI_BASE_URL": "http://there"}, "http://here"),
        ("vllm", {"VLLM_BASE_URL": "http://gpu:8000/v1"}, "http://gpu:8000/v1"),
        ("ollama", {"OLLAMA_HOST": ""}, "http://127.0.0.1:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "box"}, "http://box:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "box:80"}, "http://box:80/v1"),
        ("ollama", {"OLLAMA_HOST": ":1234"}, "http://127.0.0.1:1234/v1"),
        ("ollama", {"OLLAMA_HOST": "0.0.0.0"}, "http://127.0.0.1:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "[::]:11434"}, "http://127.0.0.1:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "[::1]:11434"}, "http://[::1]:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "https://box.example/ollama/"}, "https://box.example/ollama/v1"),
        ("ollama", {"OLLAMA_HOST": "box", "OLLAMA_BASE_URL": "http://far:1/v1"}, "http://far:1/v1"),
    ],
)
def test_the_environment_changes_the_base_url_of_a_provider(name: str, environ: dict[str, str], url: str) -> None:
    assert resolve_base_url(find_provider(name), environ) == url


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        ({"HOME": "/", "OPENAI_API_KEY": " "}, None),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_BASE_URL": "http://here"}, "openai"),
        ({"XAI_API_KEY": "k"}, "xai"),
        ({"OLLAMA_HOST": "box"}, None),
        ({"LLAMACPP_BASE_URL": "http://here"}, "llamacpp"),
    ],
)
def test_the_first_configured_provider_with_a_default_model_is_found(environ: dict[str, str], name: str | None) -> None:
    found = find_configured_provider(environ)

    assert (found.name if found else None) == name


def test_every_provider_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")

    for one in PROVIDERS.values():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{one.name}` |")]

        assert one.name == LOCAL or f"`{one.base_url}`" in row
        assert f"| {f'`{one.key_name}`' if one.key_name else ''}".rstrip() in row
        assert one.default_model == "default" or one.default_model in row
