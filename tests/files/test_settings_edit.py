from __future__ import annotations

from pathlib import Path

import pytest

from podium.files.settings_edit import replace_model_line, set_model, set_notify_words
from podium.values.errors import Mistake


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'model: "ollama:x"\n'),
        ("# mine\nworkers: 2\n", '# mine\nworkers: 2\nmodel: "ollama:x"\n'),
        ("workers: 2", 'workers: 2\nmodel: "ollama:x"\n'),
        ("model: sonnet  # for now\nworkers: 2\n", 'model: "ollama:x"  # for now\nworkers: 2\n'),
        ("workers: 2\r\nmodel: 'a: b'\r\nsandbox: on\r\n", 'workers: 2\r\nmodel: "ollama:x"\r\nsandbox: on\r\n'),
        ("model:\nworkers: 2\n", 'model: "ollama:x"\nworkers: 2\n'),
        ("models:\n  model: a\n", 'models:\n  model: a\nmodel: "ollama:x"\n'),
    ],
)
def test_the_model_is_set_and_the_rest_of_the_file_stays(before: str, after: str) -> None:
    assert replace_model_line(before, "ollama:x") == after


def test_a_new_file_is_private_and_an_existing_one_keeps_its_mode_and_its_link(
    tmp_path: Path,
) -> None:
    file, link = tmp_path / "home" / "config.yaml", tmp_path / "link.yaml"
    set_model(file, "ollama:x")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    link.symlink_to(file)

    set_model(link, "ollama:y")

    assert link.is_symlink()
    assert file.read_text() == 'model: "ollama:y"\n'
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    "text", ["{model: sonnet}\n", '"model": sonnet\n', "model: >\n  sonnet\n", "{\nmodel: a,\nworkers: 2\n}\n"]
)
def test_a_file_laid_out_in_another_way_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)

    with pytest.raises(Mistake, match="edited automatically; edit the file yourself and set the key model to ollama:x"):
        set_model(file, "ollama:x")

    assert file.read_text() == text


def test_a_file_with_an_error_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("workers: none\n")

    with pytest.raises(Mistake, match="workers"):
        set_model(file, "ollama:x")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "notify: [bell, title]\n"),
        ("workers: 2\nnotify: [desktop]\nsandbox: on\n", "workers: 2\nnotify: [bell, title]\nsandbox: on\n"),
        ("notify: [bell, https://hooks.example/x]\n", "notify: [bell, title, https://hooks.example/x]\n"),
        ("notify:\n  - desktop\nworkers: 2\n", "notify:\n  - bell\n  - title\nworkers: 2\n"),
        (
            "notify:\n- bell\n- command: [say, hi]\nworkers: 2\n",
            "notify:\n- bell\n- title\n- command: [say, hi]\nworkers: 2\n",
        ),
    ],
)
def test_the_words_of_notify_are_set_and_webhooks_and_commands_stay(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(before)

    set_notify_words(file, ["title", "bell"])

    assert file.read_text() == after


def test_no_words_leave_an_empty_list_and_an_unusual_layout_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("notify:\n  - bell\n")
    set_notify_words(file, [])
    assert file.read_text() == "notify: []\n"
    file.write_text('notify: ["bell", {command: [say, "a, b"]}]\n')

    with pytest.raises(
        Mistake, match="automatically; edit the notify list yourself: include bell; leave out title, desktop"
    ):
        set_notify_words(file, ["bell"])

    assert file.read_text() == 'notify: ["bell", {command: [say, "a, b"]}]\n'
