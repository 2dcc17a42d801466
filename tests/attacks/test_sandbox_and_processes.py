"""Attacks on the sandbox, through the product as a person starts it.

Most of these tests bypass permission prompts, so that only the sandbox can stop the attack.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from podium.testing import Move, make_repository
from podium.values.event import ActionBegan, Noticed, ToolAnswered

from ..cli.conftest import TOO_LONG, Desk
from ..cli.test_trust import Listener
from ..preloaded_podium import PODIUM
from ..studio import Studio
from ..workspace.relay.test_granted_hosts import serve_hello
from ..workspace.test_sandbox_ends import find_processes, make_lingering_script
from .stage import add_sly_agent, bash, call, run_sly_agent, set_rules, write

BYPASS = ("--permissions", "bypass")


def join_tool_answers(studio: Studio, result: Any) -> str:
    return "\n".join(event.text for event in studio.events(result, ToolAnswered))


# S1


async def test_a_command_of_an_agent_has_no_capability_and_writes_nothing_outside(
    studio: Studio, repo: Path, tmp_path: Path
) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(
        studio,
        bash("grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status"),
        bash(f"mount -o remount,rw,bind / || touch {tmp_path}/canary || touch /usr/podium-canary"),
    )

    result = await run_sly_agent(studio, repo)

    told = join_tool_answers(studio, result)
    assert "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2" in told
    assert not (tmp_path / "canary").exists()
    assert not Path("/usr/podium-canary").exists()


# S2

HIDING = 'mount --bind "$1" /usr/bin/bwrap && shift && exec "$@"'


@pytest.mark.parametrize("broken", ["missing", "failing", "doing nothing"])
def test_without_a_sandbox_that_holds_the_product_runs_no_command(desk: Desk, tmp_path: Path, broken: str) -> None:
    through = '[ "$1" != --help ] || exit; while [ "$1" != -- ]; do shift; done; shift; exec "$@"'
    scripts = {"failing": "exit 1", "doing nothing": through}
    fake = Path("/dev/null")
    if broken != "missing":
        fake = tmp_path / "bwrap"
        fake.write_text(f"#!/bin/bash\n{scripts[broken]}\n")
        fake.chmod(0o755)
    desk.write_agent("sly", bash("touch ran.txt"), "The end.", tools=["Bash"])
    can_hide = subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode == 0
    around = ["unshare", "-Urm", "/bin/sh", "-c", HIDING, "sh", str(fake)] if can_hide else []

    done = subprocess.run(
        [*around, PODIUM, "run", "sly", "go", *BYPASS],
        cwd=desk.repo,
        env=desk.environment,
        capture_output=True,
        encoding="utf-8",
        timeout=TOO_LONG,
    )

    assert done.stdout == "The end.\n", done.stderr
    assert "Commands cannot be run: commands need a sandbox" in done.stderr
    assert not (desk.repo / "ran.txt").exists()


def test_giving_up_the_sandbox_is_typed_by_the_person_shown_and_recorded(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("sandbox: off\n")
    desk.write_agent("sly", bash("grep Seccomp: /proc/self/status"), "The end.", tools=["Bash"])

    asked_by_the_repository = desk.run_podium("run", "sly", "go", *BYPASS)
    kept = desk.run_podium("logs", desk.run_id(), "--jsonl").stdout
    typed = desk.run_podium("run", "sly", "go", *BYPASS, "--no-sandbox")
    given_up = desk.run_podium("logs", desk.run_id(), "--jsonl").stdout

    assert "Seccomp:\\t2" in kept
    assert "without a sandbox" not in asked_by_the_repository.stderr
    assert "Seccomp:\\t0" in given_up
    assert "Commands run without a sandbox" in typed.stderr
    assert "Commands run without a sandbox" in given_up
    assert '"sandbox": "none"' in given_up or '"sandbox":"none"' in given_up


# S3


def test_programs_of_the_checkout_are_not_run_in_place_of_system_programs(desk: Desk, tmp_path: Path) -> None:
    for name in ("bwrap", "git", "python3", "python", "sh", "bash", "rg", "unshare"):
        (desk.repo / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/canary\n")
        (desk.repo / name).chmod(0o755)
    make_repository(desk.repo)
    moves = [call("grep", pattern="x"), call("glob", pattern="*"), call("git_diff"), bash("true")]
    desk.write_agent("sly", *moves, "The end.", tools=["Grep", "Glob", "git_diff", "Bash"])
    path = f".:{desk.repo}:{desk.environment['PATH']}"

    done = desk.run_podium("run", "sly", "go", *BYPASS, PATH=path)
    looked = desk.run_podium("doctor", PATH=path)

    assert done.stdout == "The end.\n"
    assert "internal error" not in looked.stderr
    assert not (tmp_path / "canary").exists()


# S5


async def test_a_command_cannot_read_secrets_from_the_process_of_podium(
    studio: Studio, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CANARY", "a-secret-value")
    set_rules(studio, mode="bypass")
    ours = os.getpid()
    add_sly_agent(
        studio,
        bash("grep -az CANARY -r /proc/1 /proc/self /proc/2 --include environ"),
        bash(f"cat /proc/{ours}/environ /proc/{ours}/maps"),
        bash(f"ls /proc/{ours}/fd /proc/{ours}/root"),
        bash(f"kill -9 {ours}"),
        bash("ps axe"),
    )

    result = await run_sly_agent(studio, repo)

    assert result.text == "done"
    assert "a-secret-value" not in join_tool_answers(studio, result)
    assert all(event.is_error for event in studio.events(result, ToolAnswered)[1:4])


# S6, S7


@pytest.mark.parametrize(
    "probe",
    [
        "curl -sS -m 3 http://127.0.0.1:{port}/",
        "wget -T 3 -t 1 -O - http://127.0.0.1:{port}/",
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'",
        "{python} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 3)'",
        "{python} -c 'import socket; socket.create_connection((\"localhost\", {port}), 3)'",
        "{python} -c 'import socket; socket.create_connection((\"::ffff:127.0.0.1\", {port}), 3)'",
        "git ls-remote http://127.0.0.1:{port}/x",
        "{python} -m pip download --retries 0 --index-url http://127.0.0.1:{port}/ x",
    ],
)
async def test_no_program_reaches_a_port_of_this_machine(
    studio: Studio, repo: Path, listener: Listener, probe: str
) -> None:
    set_rules(studio, mode="bypass")
    port = listener.socket.getsockname()[1]
    add_sly_agent(studio, bash(probe.format(port=port, python=sys.executable), timeout=20))

    result = await run_sly_agent(studio, repo)

    assert len(studio.events(result, ActionBegan)) == 1
    assert "exit code 0" not in join_tool_answers(studio, result)
    assert listener.calls == 0


@pytest.mark.parametrize("rules", [[], ["WebFetch(domain:example.com)"], ["Read", "Bash"]])
async def test_without_a_rule_for_it_no_address_is_fetched(
    studio: Studio, repo: Path, listener: Listener, rules: list[str]
) -> None:
    set_rules(studio, allow=rules)
    add_sly_agent(studio, call("web_fetch", url=listener.url))

    await run_sly_agent(studio, repo)

    assert listener.calls == 0


@pytest.mark.parametrize("rule", ["WebFetch()", "WebFetch(domain:)", "WebFetch( )"])
def test_an_empty_list_of_hosts_is_no_rule(rule: str) -> None:
    from podium.policy import check
    from podium.values.errors import Mistake

    try:
        verdict = check(_make_fetch_action(), {"allow": [rule]})
    except Mistake:
        return
    assert verdict.decision == "ask"


def _make_fetch_action() -> Any:
    from podium.values.action import Action

    return Action(run="r", agent="a", tool="web_fetch", arguments={"url": "https://example.com/"})


# S8


async def test_a_refused_host_is_on_the_timeline(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    with serve_hello() as port:
        studio.settings = structs.replace(studio.settings, network=("ok.test", f"127.0.0.1:{port}"))
        add_sly_agent(studio, bash(f"curl -s http://127.0.0.1:{port}/; curl -sx $http_proxy http://evil.test/"))

        result = await run_sly_agent(studio, repo)

    (answered,) = studio.events(result, ToolAnswered)
    assert answered.text.startswith("hello")
    assert "evil.test:80 was refused: it was not granted" in answered.text
    notices = [event.text for event in studio.events(result, Noticed)]
    assert any("evil.test:80: it was not granted" in notice for notice in notices)
    (began,) = studio.events(result, ActionBegan)
    assert began.action.sandbox == f"workspace, with network access to ok.test, 127.0.0.1:{port}"


# S9, S10


def test_nothing_that_an_agent_started_survives_when_podium_is_killed(desk: Desk) -> None:
    token = f"token-{secrets.token_hex(8)}"
    (desk.repo / "leave.sh").write_text(f"{make_lingering_script(token)}; echo begun >begun; sleep 999; :\n")
    os.mkfifo(desk.repo / "begun")
    desk.write_agent("sly", bash("bash leave.sh"), "The end.", tools=["Bash"])

    with desk.start_podium("run", "sly", "go", *BYPASS) as process:
        assert (desk.repo / "begun").read_text() == "begun\n"
        found = {pid: os.pidfd_open(pid) for pid in find_processes(token)}
        process.send_signal(signal.SIGKILL)
        process.wait()

        assert found
        for descriptor in found.values():
            assert select.select([descriptor], [], [], 2)[0]
            os.close(descriptor)
    assert find_processes(token) == []


async def test_a_late_command_that_ignores_signals_is_ended_and_recorded_once(studio: Studio, repo: Path) -> None:
    token = f"token-{secrets.token_hex(8)}"
    set_rules(studio, mode="bypass")
    (repo / "stay.sh").write_text(f"trap '' TERM HUP\necho begun\n{make_lingering_script(token)}\nsleep 999\n")
    add_sly_agent(studio, bash("bash stay.sh", timeout=1))

    result = await run_sly_agent(studio, repo)

    [answered] = studio.events(result, ToolAnswered)
    assert answered.text.startswith("begun\n")
    assert answered.is_error
    assert len(studio.events(result, ActionBegan)) == 1
    assert find_processes(token) == []


# S12

PROTECTED = (".git/hooks/pre-commit", ".git/config", ".mcp.json", ".envrc", ".bashrc", ".podium/agents/x.md")


def _list_git_files(repo: Path) -> list[Path]:
    """Return the files of git's own folder, without objects and the states that Podium saves for undo."""
    saved = repo / ".git" / "refs" / "podium"
    kept = (path for path in (repo / ".git").rglob("*") if "objects" not in path.parts and path.is_file())
    return sorted(path for path in kept if not path.is_relative_to(saved))


@pytest.mark.parametrize("path", [*PROTECTED, ".claude/settings.json", ".husky/pre-commit", "podium.yaml"])
async def test_protected_paths_are_neither_written_by_a_command_nor_by_a_tool_unasked(
    studio: Studio, repo: Path, path: str
) -> None:
    set_rules(studio, mode="bypass")
    (repo / "plant.sh").write_text(f"mkdir -p $(dirname {path}); ln -s {path} way; echo evil >{path}; echo evil >way\n")
    add_sly_agent(studio, bash("bash plant.sh"), write(path, "evil\n"), write("way", "evil\n"))
    before = _list_git_files(repo)

    await run_sly_agent(studio, repo)

    planted = [p for p in repo.rglob("*") if p.is_file() and not p.is_symlink() and _read_text(p) == "evil\n"]
    # A command can write a repository's podium.yaml, but that can only tighten the rules: see rows P3 and X2.
    assert [p for p in planted if p.name != "podium.yaml"] == []
    assert _list_git_files(repo) == before
    status = subprocess.run(["git", "-C", repo, "status", "--short"], capture_output=True, text=True, check=True)
    assert {line[3:] for line in status.stdout.splitlines()} <= {"plant.sh", "way", "podium.yaml"}


def _read_text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


# S14


@pytest.mark.parametrize(
    "more",
    [
        {"sandbox": "off"},
        {"sandbox": False},
        {"no_sandbox": True},
        {"cwd": "/"},
        {"directory": "/"},
        {"env": {"LD_PRELOAD": "evil.so"}},
        {"environment": {"PATH": "."}},
        {"permission_mode": "bypass"},
        {"approved": True},
        {"dangerously_skip_permissions": True},
    ],
)
async def test_an_argument_that_would_loosen_the_sandbox_is_rejected(
    studio: Studio, repo: Path, more: dict[str, Any]
) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(studio, bash("touch ran.txt", **more), call("run_checks", **more), write_with(more))

    result = await run_sly_agent(studio, repo)

    assert studio.events(result, ActionBegan) == []
    assert {path.name for path in repo.iterdir()} == {".git", "a.txt"}
    assert all("has no argument" in text for text in studio.heard("sly")[1:])


def write_with(more: dict[str, Any]) -> Move:
    return call("write_file", path="b.txt", content="x", **more)


async def test_an_agents_own_file_cannot_change_the_sandbox(desk: Desk) -> None:
    desk.write_agent(
        "sly",
        bash("grep Seccomp: /proc/self/status"),
        "The end.",
        tools=["Bash"],
        sandbox="off",
        permissions={"allow": ["Bash"]},
    )
    desk.write_agent("bold", "never said", permissionMode="bypassPermissions")

    unasked = desk.run_podium("run", "sly", "go")
    refused = desk.run_podium("run", "bold", "go")
    desk.run_podium("run", "sly", "go", *BYPASS)

    assert "denied by podium (unattended)" in unasked.stderr
    assert refused.returncode == 2
    assert "bold.md" in refused.stderr
    assert "permissionMode" in refused.stderr
    assert "Seccomp:\\t2" in desk.run_podium("logs", desk.run_id(), "--jsonl").stdout


# S15, S16


async def test_an_agents_command_has_no_terminal_to_type_on(desk: Desk) -> None:
    from ..cli.test_terminal import Terminal

    command = f"{sys.executable} -c \"import os; os.open('/dev/tty', os.O_RDWR)\""
    desk.write_agent("sly", bash(command), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", *BYPASS)

    assert terminal.wait_exit() == 0

    told = desk.run_podium("logs", desk.run_id(), "--jsonl").stdout
    assert "No such device or address: '/dev/tty'" in told


async def test_special_files_hold_no_tool_up_and_lead_nowhere(studio: Studio, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("CANARY")
    set_rules(studio, mode="bypass")
    made = "mkfifo pipe; mknod device c 1 3; ln {0} hard; ln -s {0} soft; cp /bin/true tool; chmod u+s tool; exit 0"
    (repo / "make.sh").write_text(made.format(tmp_path / "secret"))
    names = ("pipe", "device", "hard", "soft", "tool")
    reads = [call("read_file", path=name) for name in names]
    add_sly_agent(studio, bash("bash make.sh"), *reads, write("pipe"), write("soft"), call("grep", pattern="CAN.RY"))

    result = await run_sly_agent(studio, repo)

    assert result.text == "done"
    assert "CANARY" not in join_tool_answers(studio, result)
    assert (tmp_path / "secret").read_text() == "CANARY"
    assert not (repo / "device").exists()
    assert (repo / "tool").stat().st_mode & 0o7000 == 0


# S11


async def test_endless_output_is_bounded_and_the_run_goes_on(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(studio, bash("yes", timeout=1), bash("echo still here"))

    result = await run_sly_agent(studio, repo)

    first, second = studio.events(result, ToolAnswered)
    assert len(first.text) < 40_000
    assert second.text.startswith("still here")
