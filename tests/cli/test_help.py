from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from podium import __version__
from podium.cli.command_table import COMMANDS, NAMES, build_help_text
from podium.cli.root import podium
from podium.values.team_modes import MODES

from .conftest import Desk

HEAVY = {"click", "typing", "inspect", "dataclasses", "rich", "msgspec", "anyio", "asyncio", "podium.cli.root"}


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"], ["--debug", "--help"]])
def test_help_is_the_same_however_it_is_asked_for(desk: Desk, arguments: list[str]) -> None:
    said = desk.run_podium(*arguments)

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.rstrip("\n") == build_help_text() == podium.get_help(click.Context(podium))


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_help_imports_nothing_that_takes_time(desk: Desk, arguments: list[str]) -> None:
    code = (
        f"import sys; from podium.cli import main; main({arguments}); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )

    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)

    assert not HEAVY & set(said.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import podium",
        "from podium.cli import main; main(['--help'])",
        "from podium.cli import main; main(['ps', '--all'])",
        "from podium.cli import main; main(['show', ''])",
    ],
)
def test_libraries_for_drawing_and_reading_text_are_not_loaded_before_they_are_needed(desk: Desk, code: str) -> None:
    desk.write_agent("lead", "done")
    desk.invoke("run", "lead", "Prüfe die Kasse — und zwar von Anfang bis Ende und in allen Einzelheiten …")
    loaded = "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    program = f"import atexit, sys; atexit.register(lambda: {loaded}); {code}"

    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=desk.repo, env=desk.environment
    )

    assert "podium" in said.stderr.split()
    assert not {"prompt_toolkit", "wcwidth", "markdown_it", "rich"} & set(said.stderr.split())


def test_the_code_of_team_modes_is_not_loaded_before_a_team_uses_it() -> None:
    code = "import sys; from podium import App; print(*sys.modules, sep='\\n')"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(said.stdout.split())
    assert "podium.patterns.registry" in loaded
    assert not {f"podium.patterns.{mode}" for mode in MODES} & loaded


def test_a_run_of_an_agent_that_is_not_in_a_file_loads_no_yaml_parser(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import anyio
from podium import Agent, App, Settings

async def main():
    async with App(Settings.load({}, home=Path(sys.argv[1]), model="rehearsal"), environ={}) as app:
        print((await app.run(Agent(name="poet", prompt="You are a poet."), "Write.")).outcome, *sys.modules)

anyio.run(main)
"""

    said = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)

    loaded = set(said.stdout.split())
    assert {"succeeded", "podium.values.located_yaml"} <= loaded
    assert "yaml" not in loaded


def test_the_version_is_printed(desk: Desk) -> None:
    assert desk.run_podium("--version").stdout == f"podium {__version__}\n"
    assert desk.invoke("--version").stdout == f"podium {__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_states_its_purpose_and_an_example(desk: Desk, name: str) -> None:
    example = next(example for command, _, _, example in COMMANDS if command == name)

    said = desk.invoke(name, "--help")

    assert said.exit_code == 0
    assert f"Usage: podium {name}" in said.stdout
    assert " ".join(f"Example: {example}".split()) in " ".join(said.stdout.split())
    assert said.stdout.splitlines()[2].strip()


def test_help_with_a_command_is_that_commands_help(desk: Desk) -> None:
    assert desk.invoke("help", "run").stdout == desk.invoke("run", "--help").stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["workers", "outptu", "feat/a"], "'outptu'; did you mean output? run podium workers --help to see its usage"),
        (["run", "--mdoel", "x"], "'--mdoel'; did you mean --model? run podium run --help to see its usage"),
        (["run", "--modle", "x"], "'--modle'; did you mean --model? run podium run --help to see its usage"),
        (["delegate", "--branch", "x"], "'--branch'; run podium delegate --help to see its usage"),
        (["ps", "--repo", "x"], "'--repo'; run podium ps --help to see its usage"),
    ],
)
def test_an_unknown_subcommand_or_option_gets_the_closest_one(desk: Desk, words: list[str], sentence: str) -> None:
    said = desk.invoke(*words)

    assert said.exit_code == 2
    assert said.stderr.endswith(f"{sentence}\n")
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("shwo", "did you mean podium show?"),
        ("rnu", "run podium --help to list all commands"),  # not suggested: commands with side effects
        ("delte", "run podium --help to list all commands"),
    ],
)
def test_an_unknown_command_gets_the_closest_one_that_only_looks(desk: Desk, word: str, hint: str) -> None:
    said = desk.run_podium(word, "x")

    assert said.returncode == 2
    assert said.stderr == f"podium: unknown command '{word}'; {hint}\n"


def test_a_command_unlike_any_other_gets_the_list(desk: Desk) -> None:
    said = desk.invoke("xyzzy")

    assert said.exit_code == 2
    assert said.stderr == "podium: unknown command 'xyzzy'; run podium --help to list all commands\n"


def test_the_module_is_the_command(desk: Desk) -> None:
    said = subprocess.run([sys.executable, "-m", "podium", "--version"], capture_output=True, text=True)

    assert said.stdout == f"podium {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "variables", "given"),
    [
        (("--server", "https://192.168.1.5:8420", "ps"), {}, "--server and PODIUM_SERVER are"),
        (("ps",), {"PODIUM_SERVER": "https://192.168.1.5:8420"}, "--server and PODIUM_SERVER are"),
        (("login", "https://192.168.1.5:8420/#code=x"), {}, "podium login is"),
    ],
)
def test_what_controlled_another_machine_names_its_replacement(
    desk: Desk, arguments: tuple[str, ...], variables: dict[str, str], given: str
) -> None:
    said = desk.run_podium(*arguments, **variables)

    assert said.returncode == 2
    assert said.stderr == (
        f"podium: {given} no longer supported; run the command on the other machine with ssh, or use the dashboard or "
        "the API of podium serve there\n"
    )
