"""Commands that cannot work in the sandbox whatever a person answers, and commands that only look like it."""

from __future__ import annotations

import pytest

from podium.policy.impossible_commands import find_git_write, find_unreachable_host
from podium.policy.install_commands import list_registries


def is_own_folder(folder: str) -> bool:
    return not folder.startswith(("/", "..", "~", "$"))


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("git add -A && git commit -m x", "git add"),
        ("git -C . commit -am x", "git commit"),
        ("cd src && git add .", "git add"),
        ("python -m pytest && git stash", "git stash"),
        ("git stash pop", "git stash"),
        ("git checkout -- a.py", "git checkout"),
        ("git -c user.name=x --no-pager commit -m x", "git commit"),
        ("FOO=1 timeout 5 /usr/bin/git commit -m x", "git commit"),
        ("bash -c 'git commit -m x'", "git commit"),
        ("if true; then (git restore a.py); fi", "git restore"),
        ("git branch new", "git branch"),
        ("git tag v1", "git tag"),
        ("git apply --index p.diff", "git apply"),
        ("git worktree add ../x", "git worktree"),
    ],
)
def test_a_command_that_writes_the_data_of_git_is_found(command: str, written: str) -> None:
    assert find_git_write(command, is_own_folder) == written


@pytest.mark.parametrize(
    "command",
    [
        *("git status", "git diff --stat", "git log --grep 'git commit'", "git stash list", "git branch --list 'a*'"),
        *("git tag -l", "git add --dry-run .", "git apply p.diff", "git show HEAD:a > a", "git commit --help"),
        *("echo git commit", "grep -r 'git commit' .", "make commit", "python commit.py"),
        *("cd /tmp/x && git commit -m x", "git -C /tmp/x commit", "cd .. && git commit", "GIT_DIR=/x git add ."),
        "mkdir t && cd t && git init && git add . && git commit -m x",
    ],
)
def test_a_command_that_only_reads_or_is_about_another_repository_is_not_found(command: str) -> None:
    assert find_git_write(command, is_own_folder) == ""


@pytest.mark.parametrize(
    ("command", "host"),
    [
        ("curl -s https://example.com/x", "example.com"),
        ("git clone git@example.com:a/b", "example.com"),
        ("curl https://api.granted.test/x && wget https://example.com:8443/y", "example.com"),
        *((f"curl {url}", "") for url in ("http://localhost:8000", "http://127.0.0.1:1/", "https://a.granted.test")),
        *((command, "") for command in ("echo https://example.com", "python a.py https://example.com", "npx tsc")),
    ],
)
def test_a_host_is_unreachable_if_a_client_names_it_and_it_is_not_granted(command: str, host: str) -> None:
    assert find_unreachable_host(command, ["*.granted.test", "pypi.org"]) == host


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("pip install x", ("pypi.org", "files.pythonhosted.org")),
        ("python3 -m pip install -e .", ("pypi.org", "files.pythonhosted.org")),
        ("uv pip install x", ("pypi.org", "files.pythonhosted.org")),
        ("cd app && poetry add x", ("pypi.org", "files.pythonhosted.org")),
        ("npm --prefix app ci", ("registry.npmjs.org",)),
        ("pnpm add x", ("registry.npmjs.org",)),
        ("cargo fetch", ("index.crates.io", "static.crates.io", "crates.io")),
        *((command, ()) for command in ("pip install --no-index x", "npm ci --registry=https://mirror.test")),
        *((command, ()) for command in ("python -m venv .venv", "pip uninstall x", "echo pip install x", "npm test")),
    ],
)
def test_an_installation_needs_the_registry_of_its_program(command: str, hosts: tuple[str, ...]) -> None:
    assert list_registries(command) == hosts
