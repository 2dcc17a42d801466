"""The JSON answers of the commands and of the API are those that programs of users know."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from . import scene as golden
from .scene import Scene, open_scene


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with open_scene(tmp_path_factory.mktemp("scene").resolve()) as scene:
        yield scene


def test_the_commands_answer_in_json_as_before(scene: Scene) -> None:
    assert scene.read_commands() == json.loads(golden.COMMANDS.read_text(encoding="utf-8"))


def test_the_routes_of_the_api_answer_as_before(scene: Scene) -> None:
    assert scene.read_routes() == json.loads(golden.ROUTES.read_text(encoding="utf-8"))


def test_every_command_with_json_output_is_compared_or_listed_as_acting() -> None:
    names = set(golden.list_json_commands())

    assert golden.ACTING - names == set()
    assert golden.OF_THE_MACHINE - names == set()
    assert golden.ARGUMENTS.keys() - names == set()
    assert names - golden.ACTING == json.loads(golden.COMMANDS.read_text(encoding="utf-8")).keys()
