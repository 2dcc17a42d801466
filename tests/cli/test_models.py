"""`podium models`. Local servers are looked for at the tests' own ports, never at their usual ones."""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream

from podium.engines.local_model_servers import (
    CODING_AGENTS,
    LocalServer,
    ModelEntry,
    ServerAddress,
    find_servers,
    guess_provider,
    is_loopback,
    list_address_candidates,
    list_local_addresses,
)
from podium.files.confirmed_model_servers import ConfirmedServer, load_confirmed_servers
from podium.testing import ModelServer

from .conftest import Desk

NOWHERE = "http://127.0.0.1:1/v1"
NO_SERVERS = {"VLLM_BASE_URL": NOWHERE, "LMSTUDIO_BASE_URL": NOWHERE, "OLLAMA_HOST": "127.0.0.1:1"}


@pytest.fixture
def offline_desk(desk: Desk) -> Desk:
    """Make a desk where no server answers. The llama.cpp variable would make it the default, so a file is used."""
    (desk.home / "config.yaml").write_text(f"providers: {{llamacpp: {{base_url: '{NOWHERE}'}}}}\n")
    return desk


async def run_models(desk: Desk, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return await to_thread.run_sync(partial(desk.run_podium, "models", *arguments, **{**NO_SERVERS, **variables}))


async def read_models_json(desk: Desk, **variables: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await run_models(desk, "--json", **variables)).stdout)
    return found


async def test_without_a_provider_everything_is_listed_and_the_default_is_rehearsal(offline_desk: Desk) -> None:
    said = await run_models(offline_desk, PATH="/nowhere")

    assert said.returncode == 0
    assert "rehearsal, because no provider's key or address is set, no settings file sets a model" in said.stdout
    assert "OPENAI_API_KEY is not set" in said.stdout
    assert "sonnet  anthropic:claude-sonnet-5-5" in said.stdout
    assert said.stdout.count("\n  none") == 5


async def test_keys_are_named_and_never_shown(offline_desk: Desk) -> None:
    moved = "http://me:verysecret@host.test/v1"
    said = await run_models(offline_desk, "--json", OPENAI_API_KEY="sk-verysecret", OPENAI_BASE_URL=moved)

    found = json.loads(said.stdout)
    assert "verysecret" not in said.stdout
    assert found["providers"][0] == {
        "name": "openai",
        "url": "http://host.test/v1",
        "key_name": "OPENAI_API_KEY",
        "has_key": True,
        "default_model": "gpt-5-mini",
    }
    assert found["default"] == {
        "models": ["openai:gpt-5-mini"],
        "host": "host.test",
        "because": "OPENAI_API_KEY is set",
    }


async def test_roles_are_listed_with_their_fallbacks(offline_desk: Desk) -> None:
    (offline_desk.repo / "podium.yaml").write_text("model: fast\nmodels: {fast: {model: groq, fallbacks: [haiku]}}\n")

    found = await read_models_json(offline_desk)

    assert found["roles"] == {"fast": ["groq", "haiku"]}
    assert found["default"]["models"] == ["groq", "haiku"]
    assert found["default"]["because"] == "the repository's podium.yaml sets it"


async def test_a_server_is_found_and_used_only_once_the_person_agrees(offline_desk: Desk) -> None:
    async with ModelServer({"small": ["hi"]}) as server:
        at = server.url.removeprefix("http://").removesuffix("/v1")
        before = await read_models_json(offline_desk, OLLAMA_HOST=at)
        agreed = await run_models(offline_desk, "--use", at, OLLAMA_HOST=at)
        # The agreement stays in effect without the variable that changed the address.
        after = await read_models_json(offline_desk, OLLAMA_HOST="")

    assert before["servers"] == [
        {"provider": "ollama", "url": server.url, "models": ["small"], "is_confirmed": False},
    ]
    assert before["default"]["models"] == ["rehearsal"]
    assert agreed.returncode == 0, agreed.stderr
    assert f"now use ollama:small at {server.url}; saved in" in agreed.stderr
    assert after["default"]["models"] == ["ollama:small"]
    assert after["servers"][0]["is_confirmed"]
    assert load_confirmed_servers(offline_desk.home) == (
        ConfirmedServer(url=server.url, provider="ollama", model="small"),
    )
    assert (offline_desk.home / "config.yaml").read_text().splitlines()[1] == 'model: "ollama:small"'


async def test_of_several_models_one_has_to_be_named(offline_desk: Desk) -> None:
    async with ModelServer({"small": ["hi"], "large": ["hi"]}) as server:
        variables = {"VLLM_BASE_URL": server.url}
        which = await run_models(offline_desk, "--use", "vllm", **variables)
        wrong = await run_models(offline_desk, "--use", "vllm", "--model", "huge", **variables)
        nobody = await run_models(offline_desk, "--use", "lmstudio", **variables)
        named = await run_models(offline_desk, "--use", "vllm", "--model", "large", **variables)

    assert which.returncode == wrong.returncode == nobody.returncode == 2
    assert "has 2 models (small, large); choose one with --model" in which.stderr
    assert "does not have the model 'huge'; available: small, large" in wrong.stderr
    assert f"; there is vllm at {server.url}" in nobody.stderr
    assert "vllm:large" in named.stderr


async def test_of_many_models_only_the_first_are_named(offline_desk: Desk) -> None:
    async with ModelServer({f"m{number}": ["hi"] for number in range(10)}) as server:
        which = await run_models(offline_desk, "--use", "vllm", VLLM_BASE_URL=server.url)

    assert "has 10 models (m0, m1, m2, m3, m4, m5, m6, m7 and 2 more); choose one with --model" in which.stderr


@pytest.mark.parametrize("body", [b"<html>", b'{"data": [1]}', b'{"data": "x"}', b"[]"])
async def test_what_does_not_list_models_is_no_server(body: bytes) -> None:
    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        port = listener.listeners[0].extra(SocketAttribute.local_port)
        found = await find_servers([ServerAddress(provider="x", url=f"http://127.0.0.1:{port}/v1")])
        group.cancel_scope.cancel()

    assert found == ()


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    async with (
        ModelServer({"small": ["hi"]}) as server,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as silent,
    ):
        port = silent.listeners[0].extra(SocketAttribute.local_port)
        asked = [
            ServerAddress(provider="silent", url=f"http://127.0.0.1:{port}/v1"),
            ServerAddress(provider="ollama", url=server.url.replace("//", "//me:secret@")),
        ]
        began = time.monotonic()

        found = await find_servers(asked, seconds=1)

    assert found == (LocalServer(provider="ollama", url=server.url, models=("small",)),)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://[::1]:11434/v1", True),
        ("http://localhost:1234/v1", True),
        ("http://me:pw@127.0.0.1/v1", True),
        ("http://box:11434/v1", False),
        ("http://127.0.0.1.evil.test/v1", False),
        ("http://127.0.0.1@evil.test/v1", False),
        ("http://[broken/v1", False),
    ],
)
def test_only_this_machine_is_asked(url: str, answer: bool) -> None:
    assert is_loopback(url) is answer
    assert (ServerAddress(provider="ollama", url=url) in list_local_addresses({"OLLAMA_BASE_URL": url})) is answer


async def test_coding_agents_are_named_and_not_run(offline_desk: Desk, tmp_path: Path) -> None:
    for name in ("goose", "claude"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (tmp_path / name).chmod(0o755)

    found = await read_models_json(offline_desk, PATH=str(tmp_path))

    assert found["coding_agents"] == {
        name: str(tmp_path / name) for name in CODING_AGENTS if name in ("goose", "claude")
    }
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("spelling", [("--use",), ("use",)])
async def test_a_server_at_an_address_of_its_own_is_asked_directly(
    offline_desk: Desk, spelling: tuple[str, ...]
) -> None:
    async with ModelServer({"small": ["hi"]}) as server:
        at = server.url.removesuffix("/v1")
        said = await run_models(offline_desk, *spelling, f"{at}/")

    assert said.returncode == 0, said.stderr
    assert load_confirmed_servers(offline_desk.home) == (
        ConfirmedServer(url=server.url, provider="vllm", model="small"),
    )


@pytest.mark.parametrize(
    ("url", "owner", "provider"),
    [
        ("http://127.0.0.1:9/v1", "library", "ollama"),
        ("http://127.0.0.1:9/v1", "organization_owner", "lmstudio"),
        ("http://127.0.0.1:8080/v1", "llamacpp", "llamacpp"),
        ("http://127.0.0.1:8080/v1", "me", "llamacpp"),
        ("http://127.0.0.1:9/v1", None, "vllm"),
    ],
)
def test_the_kind_of_a_server_is_known_by_its_list_of_models_or_its_port(
    url: str, owner: str | None, provider: str
) -> None:
    assert guess_provider(url, [ModelEntry(id="m", owned_by=owner)]) == provider


@pytest.mark.parametrize(
    ("address", "urls"),
    [
        ("ollama", ["http://127.0.0.1:11434/v1"]),
        ("Ollama", ["http://127.0.0.1:11434/v1"]),
        ("127.0.0.1:9", ["http://127.0.0.1:9/v1", "http://127.0.0.1:9"]),
        ("http://box.test/api/", ["http://box.test/api/v1", "http://box.test/api"]),
        ("https://box.test/v1/", ["https://box.test/v1"]),
    ],
)
def test_an_address_can_be_a_url_a_host_or_a_provider(address: str, urls: list[str]) -> None:
    assert [one.url for one in list_address_candidates(address, {})] == urls


@pytest.mark.parametrize(
    "address", ["", "ftp://x", "http://", "http://x y", "http://[x", "http://x:0", "http://x:99999"]
)
def test_what_is_no_address_is_one_sentence(desk: Desk, address: str) -> None:
    said = desk.invoke("models", "use", address)

    assert said.exit_code == 2
    assert "is not the address of a model server; use one such as http://127.0.0.1:11434/v1" in said.stderr


def test_options_of_the_list_do_not_stand_before_a_subcommand(desk: Desk) -> None:
    said = desk.invoke("models", "--json", "test")

    assert said.exit_code == 2
    assert "--json cannot come before test" in said.stderr


def test_a_model_without_an_address_is_a_usage_error(desk: Desk) -> None:
    said = desk.invoke("models", "--model", "x")

    assert said.exit_code == 2
    assert "--model needs --use ADDRESS; give both" in said.stderr


# The options that choose a model


async def run_lead(desk: Desk, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = ("run", "lead", "go", "--quiet", *arguments)
    return await to_thread.run_sync(partial(desk.run_podium, *words, **{**NO_SERVERS, **variables}))


async def test_a_provider_alone_means_the_only_model_of_its_server(offline_desk: Desk) -> None:
    offline_desk.write_agent("lead", engine="model")
    async with ModelServer({"small": ["from the small one"]}) as server:
        at = server.url.removeprefix("http://").removesuffix("/v1")
        said = await run_lead(offline_desk, "--provider", "ollama", OLLAMA_HOST=at)

    assert (said.returncode, said.stdout) == (0, "from the small one\n")


async def test_a_provider_alone_with_several_models_asks_which(offline_desk: Desk) -> None:
    offline_desk.write_agent("lead", engine="model")
    async with ModelServer({"small": ["hi"], "large": ["hi"]}) as server:
        at = server.url.removeprefix("http://").removesuffix("/v1")
        said = await run_lead(offline_desk, "--provider", "ollama", OLLAMA_HOST=at)

    assert said.returncode == 2
    assert said.stderr == "podium: Ollama has 2 models; add --model with one of: small, large\n"


async def test_a_server_that_does_not_run_is_named_at_once(offline_desk: Desk) -> None:
    offline_desk.write_agent("lead", engine="model")

    alone = await run_lead(offline_desk, "--provider", "ollama")
    called = await run_lead(offline_desk, "--model", "ollama:small")

    assert (alone.returncode, called.returncode) == (2, 1)
    assert "Ollama is not running at http://127.0.0.1:1/v1" in alone.stderr
    assert called.stderr.count("Ollama is not running at http://127.0.0.1:1") == 1
    assert offline_desk.kinds(offline_desk.run_id()).count("call_failed") == 1  # so nothing waits for another attempt


async def test_a_forced_model_replaces_the_models_in_files(offline_desk: Desk) -> None:
    offline_desk.write_agent("lead", engine="model", model="anthropic:claude-opus-5-5")
    async with ModelServer({"small": ["from the small one"]}) as server:
        at = server.url.removeprefix("http://").removesuffix("/v1")
        said = await run_lead(offline_desk, "--force-model", "ollama:small", OLLAMA_HOST=at)

    assert (said.returncode, said.stdout) == (0, "from the small one\n")
