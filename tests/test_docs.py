"""Every code block in the documentation works: agent files load, programs run, commands succeed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from podium.files.agent_file import parse_agent_file
from podium.values.event import KINDS
from podium.values.team_modes import MODES
from podium.values.tool_table import TOOLS
from podium.workers.commander_socket import commander_socket_path

from .preloaded_podium import run_podium_command

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "podium"
CONTRIBUTORS_PAGES = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "AGENTS.md", "SECURITY.md") if (ROOT / name).exists()),
    ROOT / "docs" / "design.md",
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
"""The pages for people who change Podium."""
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *CONTRIBUTORS_PAGES})
ALL_PAGES = [*PAGES, ROOT / "CHANGELOG.md"]
NAME = r"\.?[A-Za-z_][\w-]*"
"""A part of a path."""
NOT_OURS = {"agents/planner.md", "utils.py"}
"""Paths in examples."""
PAGES_NOT_RUN = {"cli.md"}
"""Pages whose commands refer to runs that only a reader has; the commands' own tests cover them."""
COMMANDS_NOT_RUN = {"podium demo"}
"""Commands that take long and that tests of their own run exactly like this, with all that they print."""

SHELL_SYNTAX = re.compile(r"[|&;<>()$`\\*?{}~#!]")

FENCE = re.compile(r"^(`{3,})(\w+)([^\n]*)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    file: str
    text: str


def name_page(page: Path) -> str:
    """Return the name of a page in the names of tests."""
    return str(page.relative_to(ROOT).with_suffix(""))


def parse_blocks(page: Path) -> list[Block]:
    found = []
    for _, language, rest, text in FENCE.findall(page.read_text(encoding="utf-8")):
        file = re.search(r"file=(\S+)", rest)
        found.append(Block(language, file.group(1) if file else "", text))
    return found


def make_environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PODIUM_HOME": str(home), "PATH": path, "NO_COLOR": "1"}


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_block_of_a_page_works(page: Path, tmp_path: Path) -> None:
    repo, home = tmp_path / "repo", tmp_path / "home"
    (repo / ".git").mkdir(parents=True)
    for block in parse_blocks(page):
        match block.language:
            case "markdown":
                read = parse_agent_file(block.text.encode(), path=Path("block.md"), source="repo")
                assert [str(diagnostic) for diagnostic in read.diagnostics if diagnostic.severity == "error"] == []
                if block.file:
                    (repo / block.file).parent.mkdir(parents=True, exist_ok=True)
                    (repo / block.file).write_text(block.text, encoding="utf-8")
            case "python":
                run_command(["python", "-W", "error", "-c", block.text], repo, home)
            case "console" if page.name not in PAGES_NOT_RUN:
                for line in block.text.splitlines():
                    if line.startswith("$ ") and line[2:] not in COMMANDS_NOT_RUN:
                        run_line(line[2:], repo, home)
            case "text" | "mermaid" | "console" | "json":
                pass
            case other:
                pytest.fail(f"{page.name} has a block in {other}, and nothing here tries it")
    stop_commander(home)


def stop_commander(home: Path) -> None:
    """Stop the commander, if one is running: while there are schedules, it does not exit by itself."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(commander_socket_path(home / "podium.db")))
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        os.kill(pid, signal.SIGTERM)


def run_line(line: str, repo: Path, home: Path) -> None:
    """Run a line as a shell would. A call of podium that needs no shell takes less time without one."""
    if not line.startswith("podium ") or SHELL_SYNTAX.search(line):
        run_command(["bash", "-c", line], repo, home)
        return
    done = run_podium_command(shlex.split(line)[1:], cwd=repo, env=make_environment(home), timeout=60)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def run_command(command: list[str], repo: Path, home: Path) -> None:
    done = subprocess.run(
        command, cwd=repo, env=make_environment(home), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


def test_every_kind_of_event_is_documented() -> None:
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")

    assert [kind for kind in KINDS.values() if f"`{kind}`" not in page] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [page.name for page in PAGES if page.parent.name == "docs" and f"docs/{page.name}" not in readme] == []


def test_every_test_that_the_table_of_failures_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")))
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))

    assert [name for name in sorted(named) if f"def {name}(" not in source] == []


def test_the_design_names_every_folder() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    folders = set(re.findall(r"^  ([a-z_]+)/  ", page, re.MULTILINE))

    assert {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"} - folders <= {
        *("files", "engines", "tools", "mcp_client", "workspace", "store")
    }


@pytest.mark.parametrize("page", CONTRIBUTORS_PAGES, ids=name_page)
def test_every_path_that_a_page_for_contributors_names_exists(page: Path) -> None:
    """A path is relative to the top of the repository, to `src/podium`, or the end of the path of a module."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(rf"(?<![\w./-])(?:{NAME}/)*{NAME}\.(?:py|md|toml|yml|yaml|txt)\b", text))
    named |= {path.rstrip("/") for path in re.findall(rf"`((?:{NAME}/)+(?:{NAME})?)`", text)}
    missing = [
        path
        for path in sorted(named - NOT_OURS)
        if "NAME" not in path
        and not path.startswith(".venv/")
        and not any((folder / path).exists() for folder in (ROOT, SOURCE, page.parent))
        and not [*SOURCE.rglob(path)]
    ]

    assert missing == []


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_page)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in list_anchors(file)):
            broken.append(target)

    assert broken == []


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in plain}


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [
        *CONTRIBUTORS_PAGES,
        ROOT / "README.md",
        *(ROOT / ".github").rglob("*.*"),
        ROOT / ".pre-commit-config.yaml",
    ]
    named = {
        target
        for page in pages
        for target in re.findall(r"(?:`|^|: |\|\| )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert {"setup", "check", "docs", "test"} <= named <= targets


def test_the_hooks_for_commits_use_the_programs_of_the_environment() -> None:
    [repo] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]

    programs = [Path(hook["entry"].split()[0]) for hook in repo["hooks"]]

    assert repo["repo"] == "local"
    assert {program.parent for program in programs} == {Path(".venv/bin")}
    assert [program for program in programs if not Path(sys.executable).with_name(program.name).exists()] == []


def test_the_workflows_and_the_forms_for_issues_can_be_read() -> None:
    files = [*(ROOT / ".github").rglob("*.yml")]

    assert {type(yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files} == {dict}
    assert len(files) == 4


def test_every_tool_is_documented() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "api.md")

    assert [tool.name for tool in TOOLS if f"`{tool.name}" not in pages] == []


def test_every_team_mode_is_documented() -> None:
    page = (ROOT / "docs" / "teams.md").read_text(encoding="utf-8")

    assert [mode for mode in MODES if not re.search(rf"^\| \[?`{mode}`", page, re.MULTILINE)] == []
