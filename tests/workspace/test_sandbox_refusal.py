"""Without a working sandbox, no command runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from podium.core.gate import InvalidCall
from podium.tools.command_sandbox import CommandSandbox
from podium.tools.shell import Bash
from podium.values.errors import Mistake
from podium.values.event import ToolUse
from podium.workspace.sandbox.bubblewrap import Sandbox
from podium.workspace.sandbox.bubblewrap_program import find_bubblewrap


def write_fake_program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
async def sandbox(tmp_path: Path) -> Sandbox:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    return await Sandbox.find(tmp_path / "repo", home=tmp_path / "home")


def test_missing_bubblewrap_is_reported_with_the_command_that_installs_it() -> None:
    with pytest.raises(Mistake, match=r"bubblewrap is not installed; install it with: \S+"):
        find_bubblewrap(outside=Path("/usr"))


def test_bubblewrap_is_never_taken_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake_program(tmp_path / "bwrap", f"touch {tmp_path}/ran")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{tmp_path}:/usr/bin:/bin")

    found = find_bubblewrap(outside=tmp_path)

    assert Path(found).is_absolute()
    assert not Path(found).is_relative_to(tmp_path)
    assert not (tmp_path / "ran").exists()


async def test_a_bubblewrap_that_does_nothing_is_found_out(sandbox: Sandbox, tmp_path: Path) -> None:
    through = write_fake_program(tmp_path / "bwrap", 'while [ "$1" != -- ]; do shift; done; shift; "$@"')

    wrong = await replace(sandbox, program=through).self_test()

    for part in (
        "wrote to",
        "saw the Podium home",
        "reached this machine's network",
        "Seccomp is 0",
        "NoNewPrivs is 0",
    ):
        assert any(part in one for one in wrong), (part, wrong)


async def test_a_bubblewrap_that_fails_is_reported_in_its_own_words(sandbox: Sandbox, tmp_path: Path) -> None:
    failing = write_fake_program(
        tmp_path / "bwrap", 'echo "bwrap: No permissions to create a new namespace" >&2; exit 1'
    )

    wrong = await replace(sandbox, program=failing).self_test()

    assert len(wrong) == 1
    assert wrong[0].startswith("bwrap: No permissions to create a new namespace (")


FIND_SANDBOX = """
import anyio, sys
from pathlib import Path
from podium.values.errors import Mistake
from podium.workspace.sandbox.bubblewrap import Sandbox
try:
    anyio.run(lambda: Sandbox.find(Path(sys.argv[1]), home=Path(sys.argv[2])))
except Mistake as mistake:
    print(mistake)
"""


def test_where_user_namespaces_are_off_the_error_names_the_command_that_enables_them(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    find_command = [sys.executable, "-c", FIND_SANDBOX, str(tmp_path / "repo"), str(tmp_path / "home")]
    off = 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"'
    can_be_made = subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode == 0
    around = ["unshare", "-Ur", "--mount", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c", off, "sh"]

    done = subprocess.run([*(around if can_be_made else ()), *find_command], capture_output=True, text=True, timeout=60)

    assert done.stderr == ""
    assert "commands need a sandbox, and the sandbox failed its self-test" in done.stdout
    assert "sudo sysctl -w" in done.stdout


async def test_a_checkout_that_holds_the_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(Mistake, match="contains your home folder"):
        await Sandbox.find(tmp_path, home=tmp_path / "podium")
    with pytest.raises(Mistake, match="contains your home folder"):
        await Sandbox.find(Path("/"), home=tmp_path / "podium")


async def test_a_git_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / ".git").symlink_to(tmp_path)

    with pytest.raises(Mistake, match="is a link, which a command could replace"):
        await Sandbox.find(tmp_path / "repo", home=tmp_path / "podium")


async def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare.git"], check=True)

    with pytest.raises(Mistake, match=r"bare\.git is a bare git repository, so a command could change"):
        await Sandbox.find(tmp_path / "bare.git", home=tmp_path / "home")


async def test_a_link_in_the_checkout_shows_nothing_outside(tmp_path: Path) -> None:
    repo, secret = tmp_path / "repo", tmp_path / "keys" / "bin"
    secret.mkdir(parents=True)
    (secret / "python3").write_text("CANARY")
    (repo / ".venv" / "bin").mkdir(parents=True)
    (repo / ".venv" / "bin" / "python").symlink_to(secret / "python3")
    for name in (".envrc", ".claude"):
        (repo / name).symlink_to(tmp_path / "keys")
    sandbox = await Sandbox.find(repo, home=tmp_path / "home")

    shown = sandbox.wrap(["true"])
    sandbox.remove_placeholders()

    assert not any(str(tmp_path / "keys") in part for part in shown)


@pytest.mark.parametrize("more", [{"sandbox": "off"}, {"cwd": "/"}, {"env": {"LD_PRELOAD": "x.so"}}])
async def test_no_argument_of_a_command_loosens_its_sandbox(sandbox: Sandbox, more: dict[str, object]) -> None:
    bash = Bash(sandbox.checkout, sandbox=CommandSandbox(name="workspace", wrap=sandbox.wrap))

    with pytest.raises(InvalidCall):
        await bash.prepare(ToolUse(id="1", name="bash", arguments={"command": "true", **more}))


async def test_a_command_of_an_agent_runs_in_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    bash = Bash(sandbox.checkout, sandbox=CommandSandbox(name="workspace", wrap=sandbox.wrap))
    command = f"echo x >{tmp_path}/canary; grep Seccomp: /proc/self/status; hostname"

    prepared = await bash.prepare(ToolUse(id="1", name="bash", arguments={"command": command}))
    answer = await prepared.act()

    assert "Seccomp:\t2\nsandbox\n" in answer.text
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("folder", ["/etc", "/usr", "/proc", "/dev", "/run"])
async def test_a_folder_of_the_system_is_refused_in_one_sentence(tmp_path: Path, folder: str) -> None:
    with pytest.raises(
        Mistake, match=f"^{Path(folder).resolve()} is a folder of the system, .*; run them in a subfolder$"
    ):
        await Sandbox.find(Path(folder), home=tmp_path / "home")

    assert list(Path("/etc").glob("probe-*")) == []
