"""`podium demo`: run a team, kill the process midway, resume the run and check that nothing was lost.

Then run a team in reflect mode, and a team that plans a feature and builds it in a repository.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ...core.journal_rows import find_chain_break
from ...engines.local.model_folder import find_models_folder
from ...engines.model.providers import REHEARSAL
from ...files.discovery import load_roster
from ...files.workflow_graph import render_tree as graph
from ...store.fault_injection import EXIT_CODE
from ...store.reader import StoreReader
from ...store.wakeup import ensure_socket_folder
from ...system.locations import find_home_folder
from ...values.event import (
    KINDS,
    BallotCast,
    DecisionCommitted,
    Entry,
    Evaluated,
    ModelReplied,
    PlanCommitted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepHandedOver,
    ReflectEnded,
    WorkEnded,
)
from ...views.run_state.tree import RunView
from ...workspace.git.repository import find_trusted_program
from ..output import exit_codes
from ..output.live_tree import draw_run_tree
from ..output.run_tree import choose_symbols
from ..output.text import escape_for_terminal

AGENTS = Path(__file__).parents[2] / "builtin" / "demo"
LEAD = "lead"
REQUEST = "Can we cache prices for a day without leaking customers' discounts?"
TEAM = "release"
GOAL = "Is the price cache ready to ship?"
PLANNERS = "feature"
FEATURE = "Cache prices for a day."
WORK_KINDS = (
    PlanCommitted,
    PlanStepBlocked,
    BallotCast,
    DecisionCommitted,
    PlanStepHandedOver,
    PlanStepCompleted,
    WorkEnded,
)
"""The events that the demo shows while a team works on its plan."""
PODIUM = (sys.executable, "-P", "-m", "podium")
"""Without -P, a module that an agent wrote into the demo's repository could shadow one of Podium's."""
PR_SET_CHILD_SUBREAPER = 36
FOREIGN_PREFIXES = ("PODIUM_", "GIT_")
"""Prefixes of the environment variables that are removed so that the demo uses only its own folder."""


@click.command("demo")
@click.option("--keep", "is_kept", is_flag=True, help="Keep the demo's folder, so that you can explore it.")
@click.option(
    "--open", "opens", is_flag=True, help="After the demo, show its runs in the browser until you press Ctrl-C."
)
@click.option("--local", "is_local", is_flag=True, help="Use an installed local model instead of simulated replies.")
def demo_command(is_kept: bool, opens: bool, is_local: bool) -> int:
    """Run a team of six agents, kill its process midway and resume the run. Then run two other teams.

    The first of these two teams evaluates and improves its own work. The second plans a feature and builds it in
    steps, in a repository with worktrees.

    Everything happens in a temporary folder with the rehearsal engine: the flow is real, the replies
    are simulated. The demo needs no key and no network, and changes none of your files.

    With --local, a team with a real model (see podium models add) fixes a bug in a repository instead.
    """
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    demo, agents, model = Demo, AGENTS, REHEARSAL
    if is_local:
        from . import local_demo  # imported here to keep start-up fast: only --local needs it

        demo, agents, model = local_demo.LocalDemo, local_demo.AGENTS, local_demo.find_demo_model()
    with _make_demo_folder(agents, model, is_kept=is_kept) as folder:
        code = demo(console, folder).run_sections(is_kept=is_kept)
        return _serve_demo(folder) or code if opens else code


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """A demo's folder, which contains a repository and a home folder for Podium. All agents use `model`."""

    root: Path
    model: str = REHEARSAL

    @property
    def repo(self) -> Path:
        return self.root / "shop"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def store(self) -> Path:
        return self.home / "podium.db"

    @property
    def git(self) -> str | None:
        """The git program, which is never one from a checkout, or None if there is no git on the PATH."""
        return find_trusted_program("git", outside=self.repo) if shutil.which("git") else None

    def create_repository(self) -> bool:
        """Create a git repository with one commit in the folder `repo`. Return False if git is not installed."""
        if self.git is None:
            return False
        for words in (("init", "--quiet", "--template="), ("add", "--all"), ("commit", "--quiet", "-m", "Start")):
            self.call_git(*words)
        return True

    def call_git(self, *words: str) -> str:
        """Call git in the repository, without the user's settings, and return its output."""
        identity = {f"GIT_{who}_{what}": "podium" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(
            [self.git or "git", *words],
            cwd=self.repo,
            env={**self.build_environment(), **identity, **settings},
            capture_output=True,
            check=True,
            encoding="utf-8",
            errors="replace",
        ).stdout

    def passes_test(self) -> bool:
        """Return whether the unit tests in the repository pass, without a sandbox, so before an agent changes them."""
        command = [sys.executable, "-B", "-m", "unittest", "-q"]
        return subprocess.run(command, cwd=self.repo, capture_output=True, check=False).returncode == 0

    def build_environment(self) -> dict[str, str]:
        """Return an environment in which Podium and git use only this folder."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
        models = find_models_folder(os.environ, find_home_folder()).root
        return {**own, "PODIUM_HOME": str(self.home), "PODIUM_MODEL": self.model, "PODIUM_MODELS": str(models)}


@contextmanager
def _make_demo_folder(agents: Path, model: str, *, is_kept: bool) -> Iterator[DemoFolder]:
    """Create a folder with the demo's agents, and delete it at the end unless `is_kept` is true."""
    place = DemoFolder(Path(tempfile.mkdtemp(prefix="podium-demo-")), model)
    _adopt_background_processes()
    try:
        shutil.copytree(agents, place.repo / ".podium" / "agents")
        place.home.mkdir(mode=0o700)
        yield place
    finally:
        if not is_kept:
            _kill_background_processes()
            for folder in (ensure_socket_folder(place.store), place.root):
                shutil.rmtree(folder, ignore_errors=True)


def _adopt_background_processes() -> None:
    """Become the parent of the processes that the demo's commands leave in the background, such as a commander."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _kill_background_processes() -> None:
    """Kill all processes that are still running, so that none of them uses the demo's folder while it is removed."""
    with suppress(OSError):  # until there are no more child processes
        while True:
            for pid in Path("/proc/thread-self/children").read_text(encoding="ascii").split():
                os.kill(int(pid), signal.SIGKILL)
            os.wait()


def _serve_demo(folder: DemoFolder) -> int:
    """Show the demo's runs in the browser until Ctrl-C. Return 0, or the server's exit code if it failed."""
    arguments = [*PODIUM, "serve", "--open", "--port", "0"]
    with suppress(KeyboardInterrupt):
        code = subprocess.run(arguments, cwd=folder.repo, env=folder.build_environment(), check=False).returncode
        return 0 if code > exit_codes.SIGNALLED else code
    return 0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and the standard output of a process."""

    code: int
    answer: str


class Demo:
    """Runs the demo in sections. Each section starts with a description of what happens."""

    def __init__(self, console: Console, folder: DemoFolder) -> None:
        self._console = console
        self._folder = folder
        self._section = 0
        self._is_successful = True

    def run_sections(self, *, is_kept: bool) -> int:
        """Run all sections and return the exit code."""
        self._print_text(
            "A rehearsal by a team: the flow is real, the replies are simulated. None of your files are changed."
        )
        self._start_section(f"Six agents, each a file in {self._folder.repo}/.podium/agents:")
        team = load_roster(self._folder.repo, self._folder.home).resolve_team(LEAD)
        self._print_text(graph({agent.name: agent for agent in team}, LEAD))
        run = self._show_crash()
        self._show_reflection()
        self._show_collaboration()
        self._start_section("Next steps:")
        self._print_text("\n".join(f"  {line}" for line in self._suggest_commands(run, is_kept=is_kept)))
        return exit_codes.GOAL_MET if self._is_successful else exit_codes.INTEGRITY

    def _show_crash(self) -> str:
        """Run a team twice, the second time with a crash midway, and resume that run. Return its id."""
        self._start_section("An uninterrupted run, for comparison.")
        whole = self._run_podium("run", LEAD, REQUEST, "--quiet")
        self._print_text(whole.answer)
        entries = self._read_entries(self._newest_run())
        calls = _list_reply_keys(entries)

        middle = len(entries) // 2
        self._start_section(f"The same run again, but its process dies right after entry {middle}, as with kill -9.")
        died = self._run_podium("run", LEAD, REQUEST, "--plain", fault=middle)
        run = self._newest_run()
        kept = self._read_entries(run)
        self._print_text(
            f"The process has ended (exit code {died.code}). On disk: {len(kept)} entries, "
            f"with {len(_list_reply_keys(kept))} of {len(calls)} model replies."
        )
        self._check_claim("the process died right after this entry", died.code == EXIT_CODE and len(kept) == middle)

        self._start_section("Another process resumes the run: finished steps are read from the timeline, not repeated.")
        resumed = self._run_podium("resume", run, "--plain")
        self._print_text(resumed.answer)
        self._show_timeline(run, calls)
        self._check_claim("the answer is the same as in the uninterrupted run", whole.answer == resumed.answer != "")
        return run

    def _show_timeline(self, run: str, calls: Sequence[str]) -> None:
        """Draw the tree of a run and check its timeline.

        The run must have made exactly the model calls in `calls`, and no entry of its timeline may have been altered.
        """
        self._start_section("The run, as recorded on its timeline:")
        timeline = self._read_entries(run)
        run_view = RunView.from_entries(timeline)
        self._console.print(
            draw_run_tree(run_view, self._console, choose_symbols(self._console.encoding), is_live=False)
        )
        done = _list_reply_keys(timeline)
        self._check_claim(
            f"there are {len(done)} model replies, and no model call was repeated", sorted(done) == sorted(calls)
        )
        self._check_claim(f"all {len(timeline)} entries are unaltered", self._has_intact_chain(run))

    def _show_reflection(self) -> None:
        self._start_section(
            "A team in reflect mode: the lead plans, the members work, and the lead evaluates, until the goal is met."
        )
        reflected = self._run_podium("run", TEAM, GOAL, "--plain")
        loop = [entry.event for entry in self._read_entries(self._newest_run())]
        scores = [f"{event.score:.1f}" for event in loop if isinstance(event, Evaluated)]
        ends = [event.end for event in loop if isinstance(event, ReflectEnded)]
        self._print_text(reflected.answer)
        self._check_claim(f"scored {', then '.join(scores)}: {', '.join(ends)}", ends == ["goal_met"])

        self._start_section("An estimate for the same team, before any money is spent:")
        self._run_podium("run", TEAM, GOAL, "--dry-run", "--quiet")

    def _show_collaboration(self) -> None:
        """Run a team that works on a plan in worktrees, and show its decision, its handover and the merged branch."""
        self._start_section("A team in collaborate mode: a plan, a vote, a handover, reviews, and one merged branch.")
        if not self._folder.create_repository():
            self._print_text("This part needs git, which is not installed here.")
            return
        done = self._run_podium("run", PLANNERS, FEATURE, "--quiet")
        # The newest run of all belongs to one of the team's workers, which have runs of their own.
        run = self._newest_run(PLANNERS)
        kinds = [word for kind in WORK_KINDS for word in ("--kind", KINDS[kind])]
        self._print_text(self._run_podium("logs", run, *kinds).answer)
        self._print_text(self._run_podium("plan", run).answer)
        events = [entry.event for entry in self._read_entries(run)]
        [ended] = [event for event in events if isinstance(event, WorkEnded)]
        self._check_claim(
            f"{len(ended.done)} steps done, with a vote and a handover",
            done.code == 0
            and len(ended.done) == 3
            and all(any(isinstance(event, kind) for event in events) for kind in WORK_KINDS),
        )
        record = self._folder.call_git("ls-tree", "--name-only", ended.branch, "docs/adr/")
        self._check_claim(f"one merged branch with the decision record: {ended.branch}", ".md" in record)

    # Processes

    def _run_podium(self, *arguments: str, fault: int | None = None) -> CommandResult:
        """Run `podium` in a separate process and print its standard error as it arrives."""
        variables = {} if fault is None else {"PODIUM_FAULT": str(fault)}
        self._print_command(variables, arguments)
        with subprocess.Popen(
            [*PODIUM, *arguments],
            cwd=self._folder.repo,
            env={**self._folder.build_environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for said in process.stderr:
                self._print_text(f"  {said.rstrip()}", "dim")
            answer = process.stdout.read()
        return CommandResult(code=process.returncode, answer=answer.rstrip("\n"))

    # Reading the store

    def _newest_run(self, agent: str = "") -> str:
        """Return the id of the newest run. If `agent` is given, return the newest run that was started with it."""
        with StoreReader(self._folder.store) as reader:
            runs = reader.list_runs()
        return next(run.id for run in runs if not agent or run.started.agent == agent)

    def _read_entries(self, run: str) -> list[Entry]:
        with StoreReader(self._folder.store) as reader:
            return reader.read_entries(run)

    def _has_intact_chain(self, run: str) -> bool:
        with StoreReader(self._folder.store) as reader:
            return find_chain_break(reader.read_rows(run)) is None

    # Output

    def _start_section(self, what: str) -> None:
        self._section += 1
        self._console.print()
        self._print_text(f"{self._section}. {what}", "bold")

    def _print_command(self, variables: dict[str, str], arguments: Sequence[str]) -> None:
        words = [*(f"{name}={value}" for name, value in variables.items()), "podium", *map(shlex.quote, arguments)]
        self._print_text(f"$ {' '.join(words)}", "cyan")

    def _check_claim(self, claim: str, is_true: bool) -> None:
        signs = choose_symbols(self._console.encoding)
        self._is_successful = self._is_successful and is_true
        if is_true:
            self._print_text(f"{signs.done} {claim}", "green")
        else:
            self._print_text(f"{signs.failed} NOT TRUE: {claim}", "bold red")

    def _print_text(self, text: str, style: str = "") -> None:
        self._console.print(Text(escape_for_terminal(text), style=style))

    def _suggest_commands(self, run: str, *, is_kept: bool) -> list[str]:
        if not is_kept:
            return [
                "podium demo --keep          run the demo again and keep its folder for exploring",
                "podium doctor               check this machine, e.g. which models are available",
                'podium run triage "..."     ask the built-in agents your own question',
                "podium agents               list the available agents",
            ]
        place = f"cd {self._folder.repo} && export PODIUM_HOME={self._folder.home}"
        return [place, f"podium show {run}", f"podium logs {run}", f"podium verify {run}", "podium ps"]


def _list_reply_keys(entries: Sequence[Entry]) -> list[str]:
    """Return the step keys of the model calls that received a reply."""
    return [entry.key for entry in entries if isinstance(entry.event, ModelReplied)]
