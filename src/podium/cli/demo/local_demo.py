"""`podium demo --local`: a team with a real model on this machine fixes a bug in a repository.

The team works in its own checkout. Its change is merged only if the previously failing test passes.
"""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from ...engines.local.model_folder import choose_default_model, find_models_folder, has_library, load_catalogue
from ...engines.model.providers import LOCAL
from ...system.locations import find_home_folder
from ...values.errors import DependencyMissing
from ...values.event import Routed
from ...values.fleet_job import format_install_commands
from ..output import exit_codes
from .demo import Demo, DemoFolder

AGENTS = Path(__file__).parents[2] / "builtin" / "demo_local"
FRONT_DESK = "desk"
FILES = {
    "price.py": """\
def total(price, quantity):
    return price
""",
    "test_price.py": """\
import unittest

from price import total


class TotalTest(unittest.TestCase):
    def test_the_total_is_the_price_of_all_pieces(self):
        self.assertEqual(total(5, 3), 15)


if __name__ == "__main__":
    unittest.main()
""",
}
REQUEST = "The test fails. In price.py, replace the line `return price` with `return price * quantity`."
CHECK = "python3 -m unittest -q"
SETTINGS = "permissions: {allow: [Edit]}\n"


def find_demo_model() -> str:
    """Return the installed local model for the demo. Raise DependencyMissing if none can run."""
    if not has_library():
        raise DependencyMissing(
            f"podium demo --local needs the package xllamacpp; install it with {format_install_commands('local')}"
        )
    model = choose_default_model(find_models_folder(os.environ, find_home_folder()).load_models())
    if model is None:
        name = next(one.name for one in load_catalogue() if not one.is_for_tests)
        raise DependencyMissing(
            f"podium demo --local needs a local model; add one first, e.g. with: podium models add {name}"
        )
    return f"{LOCAL}:{model.name}"


class LocalDemo(Demo):
    """Runs the demo with a local model: a failing test, a team that fixes it, and the merge."""

    def __init__(self, console: Console, folder: DemoFolder) -> None:
        super().__init__(console, folder)
        for name, text in FILES.items():
            (folder.repo / name).write_text(text, encoding="utf-8")
        (folder.home / "config.yaml").write_text(SETTINGS, encoding="utf-8")

    def run_sections(self, *, is_kept: bool) -> int:
        """Run all sections and return the exit code."""
        self._print_text(
            f"A real team with {self._folder.model}, which runs on this machine: nothing is simulated, and nothing "
            "leaves the machine. On a few cores, this takes minutes. None of your files are changed."
        )
        self._start_section("A repository with a bug, and a test that shows it:")
        if not self._folder.create_repository():
            self._print_text("This demo needs git, which is not installed here.")
            return exit_codes.MISSING
        self._print_text(FILES["price.py"].rstrip())
        self._check_claim("the test fails", not self._folder.passes_test())

        self._start_section("A router chooses a team. The team's coder works in its own checkout, on its own branch.")
        ended = self._run_podium("run", FRONT_DESK, REQUEST, "--plain")
        self._print_text(ended.answer)
        run = self._newest_run(FRONT_DESK)
        routed = [entry.event.agent for entry in self._read_entries(run) if isinstance(entry.event, Routed)]
        self._check_claim("the request went to the team that changes code", routed == ["repair"])
        self._check_claim("the run succeeded", ended.code == exit_codes.GOAL_MET)

        self._start_section("The branch is merged only if the test passes on the result.")
        merged = self._run_podium("merge", "--all", "--check", CHECK, "--yes")
        self._print_text(merged.answer)
        # The check ran in the sandbox. Outside, nothing that a model wrote is run.
        is_merged = merged.code == exit_codes.GOAL_MET and bool(self._read_change())
        self._check_claim("the test passes now, and the branch is merged", is_merged)
        self._print_text(self._read_change())
        self._start_section("Next steps:")
        self._print_text("\n".join(f"  {line}" for line in self._suggest_commands(run, is_kept=is_kept)))
        return exit_codes.GOAL_MET if self._is_successful else exit_codes.GOAL_NOT_MET

    def _read_change(self) -> str:
        """Return the difference between the first commit and the current one, or an empty string."""
        first = self._folder.call_git("rev-list", "--max-parents=0", "HEAD").split()[0]
        return self._folder.call_git("diff", first, "HEAD").strip()
