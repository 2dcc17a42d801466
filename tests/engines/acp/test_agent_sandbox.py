"""Coding agents in the sandbox: what a hostile one cannot do, what is on record, and when there is no sandbox."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from anyio import create_task_group
from msgspec import structs

from podium import Settings
from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.policy import Rules
from podium.runs.assembly.agent_sandbox import choose_agent_sandbox, list_agent_programs
from podium.runs.queries.engine_listing import list_open_points
from podium.testing import make_repository
from podium.values.errors import AgentFailed, Mistake
from podium.values.event import ActionBegan, ActionRefused, Noticed, PermissionAsked, ToolAnswered
from podium.workspace.sandbox import bubblewrap

from ...installed_agents import find_goose
from .agent_lab import KEY, AgentLab

CALL_HOME = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\" 2>&1 | tail -1"
ASK_PROXY = "curl -s -o /dev/null -w '%{http_code}' http://evil.test/"


async def test_an_agent_that_ignores_denials_changes_nothing_outside_and_reaches_nobody(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--after-denial", "ignores", is_sandboxed=True)
    lab.program = structs.replace(lab.program, hosts=("allowed.test",))
    lab.rules = Rules(deny=("Bash",))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("canary")
    with socket.create_server(("127.0.0.1", 0)) as machine:
        machine.setblocking(False)
        commands = (
            f"echo x >{outside}/made; cat {outside}/secret; echo x >{tmp_path}/home/made; echo x >inside",
            CALL_HOME.format(port=machine.getsockname()[1]),
            ASK_PROXY,
        )
        calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
        async with lab.session([{"says": "", "calls": calls}, "Done."]) as session:
            await session.ask("Work.")

        with pytest.raises(BlockingIOError):
            machine.accept()
    said = [event.text for event in lab.events(ToolAnswered)]
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert not (tmp_path / "home" / "made").exists()
    assert (lab.repo / "inside").exists()
    assert "canary" not in "".join(said)
    assert ("refused" in said[1], said[2]) == (True, "403")
    assert len(lab.events(ActionRefused)) == 3
    assert lab.events(ActionBegan) == []
    assert any("evil.test" in event.text for event in lab.events(Noticed))


async def test_nobody_is_asked_about_a_commit_that_the_sandbox_prevents(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, is_sandboxed=True)
    make_repository(lab.repo)
    calls = [{"name": "bash", "arguments": {"command": "git add -A && git commit -m x"}}]

    async with lab.session([{"says": "", "calls": calls}, "Done."]) as session:
        await session.ask("Work.")

    assert lab.events(PermissionAsked) == []
    [refused] = lab.events(ActionRefused)
    assert "git add cannot work here" in refused.reason
    assert "Your edits are kept" in refused.reason


async def test_an_agent_can_change_its_additional_checkouts_but_not_their_protected_files(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path, "--after-denial", "ignores", is_sandboxed=True)
    lab.rules = Rules(deny=("Bash",))
    other = tmp_path / "other"
    (other / ".podium").mkdir(parents=True)
    lab.also = (str(other),)
    command = f"echo x >{other}/made; echo x >{other}/.podium/made; echo x >{tmp_path}/outside"

    async with lab.session(
        [{"says": "", "calls": [{"name": "bash", "arguments": {"command": command}}]}, "Done."]
    ) as one:
        await one.ask("Work.")

    assert (other / "made").exists()
    assert list((other / ".podium").iterdir()) == []
    assert not (tmp_path / "outside").exists()


async def test_goose_never_has_the_key_of_its_model(tmp_path: Path) -> None:
    find_goose()
    lab = AgentLab("goose", tmp_path, is_sandboxed=True)
    script = [lab.call("bash", command="env; cat /proc/[0-9]*/environ"), "Done."]

    async with lab.session(script) as session, create_task_group() as group:
        group.start_soon(lab.answer_request, "once")
        await session.ask("Work.")

    [said] = lab.events(ToolAnswered)
    assert "OPENAI_API_KEY=none" in said.text
    assert KEY not in said.text
    assert lab.server is not None
    assert {call.headers["authorization"] for call in lab.server.calls} == {f"Bearer {KEY}"}
    home = tmp_path / "home" / "agent-homes"
    assert not any(KEY.encode() in file.read_bytes() for file in home.rglob("*") if file.is_file())


async def test_without_bubblewrap_an_agent_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(*, outside: Path) -> str:
        raise Mistake("bubblewrap is not installed")

    monkeypatch.setattr(bubblewrap, "find_bubblewrap", find_nothing)
    lab = AgentLab("scripted", tmp_path, is_sandboxed=True)

    async with lab.session(["Hi."]) as session:
        with pytest.raises(AgentFailed, match="scripted cannot be started: bubblewrap is not installed"):
            await session.ask("Hi?")

    assert lab.children == []


async def test_an_agent_without_a_sandbox_runs_with_a_notice(tmp_path: Path) -> None:
    lab = AgentLab("scripted", tmp_path)

    async with lab.session(["Hi."]) as session:
        await session.ask("Hi?")

    assert [event.text.split(":")[0] for event in lab.events(Noticed)] == ["scripted runs without a sandbox"]


def test_only_an_agent_with_its_own_login_reaches_the_hosts_of_its_vendor(tmp_path: Path) -> None:
    settings = Settings.load({}, home=tmp_path, network=("pypi.org",))
    copilot = AGENT_PROGRAMS["copilot"]

    own = choose_agent_sandbox(settings, copilot, has_model=False)
    chosen = choose_agent_sandbox(settings, copilot, has_model=True)

    vendor = "api.github.com, github.com, *.githubcopilot.com"
    assert own.name == f"agent, with network access to pypi.org, {vendor}"
    assert chosen.name == "agent, with network access to pypi.org"
    assert list_open_points(settings, copilot)[0].endswith(vendor)


def test_your_own_settings_turn_the_sandbox_off_for_one_agent(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("engines: {goose: {sandbox: off}, qwen: {hosts: [qwen.test]}}\n")

    settings = Settings.load({}, home=tmp_path)
    programs = list_agent_programs(settings)

    assert choose_agent_sandbox(settings, programs["goose"], has_model=True).name == "none"
    assert (programs["goose"].command, programs["goose"].is_own) == (("goose", "acp"), False)
    assert "qwen.test" in choose_agent_sandbox(settings, programs["qwen"], has_model=False).name
    assert "without a sandbox" in list_open_points(settings, programs["goose"])[0]


def test_a_repository_can_neither_turn_the_sandbox_off_nor_grant_access(tmp_path: Path) -> None:
    (repo := tmp_path / "repo").mkdir()
    access = "sandbox: off, hosts: [evil.test], readable: [/]"
    (repo / "podium.yaml").write_text(f"engines: {{goose: {{{access}}}, mine: {{command: mine, {access}}}}}\n")

    proposed = Settings.load({}, repo, home=tmp_path / "home").proposed.engines

    assert list(proposed) == ["mine"]
    assert (proposed["mine"].sandbox, proposed["mine"].hosts, proposed["mine"].readable) == (True, (), ())


def test_an_entry_without_a_command_must_be_about_a_known_agent(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("engines: {gose: {sandbox: off}}\n")

    with pytest.raises(Mistake, match=r"engines\.gose in your settings has no command, and gose is not"):
        list_agent_programs(Settings.load({}, home=tmp_path))
