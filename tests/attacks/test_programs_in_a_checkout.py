"""An agent plants programs and start-up files where the person's next command runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from podium.files.settings_document import InstallSettings
from podium.policy.install_commands import is_installation
from podium.runs.assembly.sandbox_choice import choose_sandbox
from podium.tools.shell import CommandOutput, run_command_line
from podium.values.event import Noticed, PermissionAsked, ToolAnswered
from podium.workspace.worktrees.worktree_slots import lease_slot

from ..cli.conftest import Desk
from ..studio import Studio
from .stage import (
    add_sly_agent,
    answer_in_order,
    answer_with,
    bash,
    call,
    run_attended,
    run_sly_agent,
    set_rules,
    write,
)

TOUCH = "#!/bin/sh\ntouch {trace}\n"


@pytest.fixture
def environment(repo: Path) -> Path:
    """Make a virtual environment and packages in the checkout, ignored by git."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", repo / ".venv"], check=True)
    (repo / "node_modules" / ".bin").mkdir(parents=True)
    (repo / ".git" / "info" / "exclude").write_text(".venv\nnode_modules\n")
    return repo / ".venv"


def site_packages(environment: Path) -> Path:
    return next(environment.glob("lib/python3*/site-packages"))


async def test_what_the_person_runs_next_is_not_what_an_agent_planted(
    studio: Studio, repo: Path, environment: Path, tmp_path: Path
) -> None:
    set_rules(studio, mode="bypass")
    trace = tmp_path / "trace"
    packages = site_packages(environment).relative_to(repo)
    plant = f"import os; os.system('touch {trace}')"
    add_sly_agent(
        studio,
        bash(f'echo "{plant}" >{packages}/x.pth; printf "#!/bin/sh\\ntouch {trace}\\n" >.venv/bin/git'),
        bash(
            "chmod +x .venv/bin/git; cp /bin/false node_modules/.bin/jest; mv .venv x; ln -sf /bin/false .venv/bin/pip"
        ),
        write(f"{packages}/y.pth", plant + "\n"),
        write(".venv/bin/activate", "touch x\n"),
        write("node_modules/.bin/jest", "x\n"),
        call("edit_file", path=".venv/pyvenv.cfg", old="home", new="home2"),
    )

    result = await run_sly_agent(studio, repo)

    subprocess.run([environment / "bin" / "python", "-c", "1"], check=True)
    assert not trace.exists()
    assert not (environment / "bin" / "git").exists()
    assert list((repo / "node_modules" / ".bin").iterdir()) == []
    asked = studio.events(result, PermissionAsked)
    assert [event.reason.split(", which")[0] for event in asked] == [
        *(
            f"{packages}/y.pth is in .venv",
            ".venv/bin/activate is in .venv",
            "node_modules/.bin/jest is in node_modules",
        ),
        ".venv/pyvenv.cfg is in .venv",
    ]


async def test_one_install_that_a_person_allows_changes_the_environment_and_is_reported(
    studio: Studio, repo: Path, environment: Path
) -> None:
    set_rules(studio, mode="bypass")
    package = repo / "pkg" / "helper-1.dist-info"
    package.mkdir(parents=True)
    script = f"pip() {{ echo x >{environment}/bin/helper && chmod +x {environment}/bin/helper; }}; pip install helper"
    add_sly_agent(studio, bash(script), bash("echo y >.venv/bin/helper; cat .venv/bin/helper"), bash(script))

    result = await run_attended(studio, repo, answer_in_order("once", "deny"))

    first, second, third = studio.events(result, ToolAnswered)
    assert "programs changed: .venv/bin/helper" in first.text
    assert "x\n" in second.text
    assert third.is_error
    assert (environment / "bin" / "helper").read_text() == "x\n"
    requests = studio.events(result, PermissionAsked)
    assert [asked.action.sandbox for asked in requests] == [
        "workspace, with network access to pypi.org, files.pythonhosted.org; "
        "this command can change .venv, node_modules, venv"
    ] * 2
    assert "programs changed: .venv/bin/helper" in [event.text for event in studio.events(result, Noticed)]


async def test_an_installation_names_the_programs_of_every_checkout_that_it_can_change(
    repo: Path, environment: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "app" / "node_modules").mkdir(parents=True)
    sandbox = await choose_sandbox([repo, other], tmp_path / "home", tmp_path / "store", installs=InstallSettings())
    assert sandbox.open_for_install is not None

    install = sandbox.open_for_install((), ())
    assert install is not None
    assert install.wrap is not None
    argv = ["/bin/sh", "-c", f"mkdir {other}/app/node_modules/.bin; echo x >{other}/app/node_modules/.bin/jest"]
    await run_command_line(argv, repo, 30, CommandOutput(), install.wrap)

    assert f"{other}/app/node_modules" in install.name
    assert [os.path.normpath(repo / name) for name in install.list_changed()] == [
        str(other / "app/node_modules/.bin/jest")
    ]


@pytest.mark.parametrize("command", ["tox -e py", "python -m nox", "cd app && npm --prefix x ci", "uv pip install x"])
def test_commands_that_change_environments_count_as_installations(command: str) -> None:
    assert is_installation(command)
    assert not is_installation(f"echo {command.split()[-1]}; npm test; python -m pytest; uv run x")


async def test_an_install_reaches_the_hosts_that_its_request_names(studio: Studio, repo: Path) -> None:
    set_rules(studio, allow=["Bash(pip install *)"])
    studio.settings = structs.replace(studio.settings, installs=InstallSettings(hosts=("packages.test",)))
    add_sly_agent(studio, bash("pip install --index-url https://mirror.test/simple --proxy http://127.0.0.1:1 x"))

    result = await run_attended(studio, repo, answer_with("deny"))

    [asked] = studio.events(result, PermissionAsked)
    assert asked.action.sandbox == (
        "workspace, with network access to packages.test, mirror.test; "
        "this command can change .venv, node_modules, venv"
    )


async def test_the_persons_settings_open_the_environment_for_every_command(
    studio: Studio, repo: Path, environment: Path
) -> None:
    set_rules(studio, mode="bypass")
    studio.settings = structs.replace(studio.settings, installs=InstallSettings(ask=False))
    add_sly_agent(studio, bash("echo x >.venv/bin/helper"), write(".venv/bin/other", "x\n"))

    result = await run_sly_agent(studio, repo)

    assert studio.events(result, PermissionAsked) == []
    assert (environment / "bin" / "helper").exists()
    assert (environment / "bin" / "other").exists()


async def test_a_worktree_that_podium_made_keeps_a_writable_environment(
    studio: Studio, repo: Path, environment: Path
) -> None:
    set_rules(studio, mode="bypass")
    lease_slot(studio.settings.home, repo, repo)
    add_sly_agent(studio, bash("pip() { echo x >.venv/bin/helper; }; pip install helper"))

    result = await run_sly_agent(studio, repo)

    assert studio.events(result, PermissionAsked) == []
    assert (environment / "bin" / "helper").exists()


def test_programs_of_a_checkout_on_the_path_are_not_run(desk: Desk, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    planted = desk.repo / ".venv" / "bin"
    planted.mkdir(parents=True)
    links = tmp_path / "links"
    links.symlink_to(planted)
    for name in ("goose", "claude-agent-acp", "codex", "git", "gh", "rg", "bwrap", "notify-send", "setpriv"):
        (planted / name).write_text(f"#!/bin/sh\necho {name} >>{trace}\n")
        (planted / name).chmod(0o755)
    path = f"{planted}:{links}:.venv/bin:{desk.environment['PATH']}"
    desk.write_agent("sly", call("grep", pattern="x"), bash("true"), "The end.", tools=["Grep", "Bash"])

    listed = desk.run_podium("engines", "--json", PATH=path)
    for words in (("models", "--json"), ("doctor",), ("run", "sly", "go", "--permissions", "bypass"), ("worktrees",)):
        desk.run_podium(*words, PATH=path)

    assert not trace.exists()
    assert str(planted) not in listed.stdout
    assert str(links) not in listed.stdout


PROTECTED = (
    *(".jj/x", ".hg/hgrc", ".sl/config", ".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/config.toml", ".exrc"),
    *("rust-toolchain.toml", "mise.toml", ".devcontainer/x", ".pre-commit-config.yaml", "flake.nix", "app/flake.nix"),
)


async def test_a_person_decides_whether_a_tool_creates_files_that_run_programs(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(studio, *(write(name) for name in PROTECTED), bash("true"))

    result = await run_attended(studio, repo, answer_with("once"))

    asked = [event.action.arguments["path"] for event in studio.events(result, PermissionAsked)]
    assert asked == list(PROTECTED)
    assert [name for name in PROTECTED if not (repo / name).exists()] == []
