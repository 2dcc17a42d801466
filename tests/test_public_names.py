"""The names that users import: they exist, they are typed, and the documentation imports no others."""

from __future__ import annotations

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import podium
from podium import Agent, Budget, Team

from .studio import Studio

ROOT = Path(__file__).parent.parent
PACKAGES = ("podium", "podium.engines", "podium.patterns", "podium.policy", "podium.testing")
"""The modules from which users import public names."""

PYTHON_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed(package: str) -> None:
    module = import_module(package)

    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))


def test_the_errors_that_people_catch_are_public() -> None:
    errors = import_module("podium.values.errors")
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, podium.PodiumError)]
    internal = {"LeaseLost", "JournalMismatch", "ChecksumMismatch", "DependencyMissing", "PlacementUnavailable"}

    assert {kind.__name__ for kind in kinds} - internal <= set(podium.__all__)


def find_other_imports(source: str) -> list[str]:
    """Return the names of Podium that a program imports although they are not public."""
    others = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "podium":
                public = import_module(module).__all__ if module in PACKAGES else ()
                others += [f"{module}.{alias.name}" for alias in names if alias.name not in public]
            case ast.Import(names=names):
                ours = [alias.name for alias in names if alias.name.split(".")[0] == "podium"]
                others += [name for name in ours if name not in PACKAGES]
    return others


@pytest.mark.parametrize(
    "page", sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.stem
)
def test_the_documents_import_public_names_only(page: Path) -> None:
    blocks = PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))

    assert [name for block in blocks for name in find_other_imports(block)] == []


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda example: example.stem)
def test_the_examples_import_public_names_only(example: Path) -> None:
    assert find_other_imports(example.read_text(encoding="utf-8")) == []


def test_the_api_reference_is_what_the_docstrings_make() -> None:
    build_page = runpy.run_path(str(ROOT / "tools" / "api_reference.py"))["build_page"]

    # `make docs` writes it anew.
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == build_page()


def test_type_checkers_find_our_types() -> None:
    assert (Path(podium.__file__).parent / "py.typed").is_file()


def test_agents_in_code_take_what_files_take() -> None:
    def look_up(item: str) -> str:
        """Look an item up."""
        return item

    # `make check` fails here when a type checker rejects one of these forms.
    agent = Agent(
        name="lead",
        tools=[look_up, "read_file"],
        team={"mode": "broadcast", "members": ["one", "two"]},
        router=True,
        advisors=["legal"],
        agents=["one", "two"],
        budget={"usd": 1.0},
        permissions={"allow": ["Bash(make test)"]},
        capabilities="python, sql",
    )

    assert isinstance(agent.team, Team)
    assert agent.budget == Budget(usd=1.0)
    assert agent.advisors is not None
    assert agent.advisors.agents == ("legal",)
    assert agent.destinations == ("one", "two")
    assert agent.capabilities == ("python", "sql")


async def test_an_option_that_a_run_does_not_have_is_refused(studio: Studio) -> None:
    misspelt: Any = {"bugdet": {"usd": 1}}

    with pytest.raises(TypeError, match="a run has no option bugdet; available: repo, "):
        await podium.run(Agent(name="lead", engine="rehearsal"), "go", settings=studio.settings, **misspelt)
