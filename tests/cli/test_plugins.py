"""Plug-ins: a really installed package adds engines, tools, patterns, hooks and commands, and costs nothing unused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.testing import read_events
from podium.values.event import HookRan, PermissionAsked, ToolAnswered

from .conftest import Desk

PLUGIN = """
import click, os, podium
from contextlib import asynccontextmanager
from podium.engines import Finished, Text
from podium.patterns import Answer

print("loaded", file=open(os.environ["LOADED"], "a"))

def deploy_state(service: str) -> str:
    "Return the version of a service."
    return f"{service}: 1.4.2"

async def twice(op, request):
    session = op.session()
    first = await session.ask(request.prompt())
    return Answer(text=(await session.ask(f"Improve {first.text}")).text)

def guard(event):
    if event["arguments"].get("path") == "b.txt":
        return {"decision": "deny", "reason": "b is frozen"}

def hang(event):
    import time
    time.sleep(2)

class Shouter:
    name = "shouter"
    is_restored = False

    @asynccontextmanager
    async def open(self, spec):
        yield self

    @asynccontextmanager
    async def ask(self, prompt, turn):
        async def pieces():
            yield Text(prompt.upper())
            yield Finished()
        yield pieces()

@click.command()
@click.argument("name")
def standup(name):
    click.echo(f"hello {name}")

plugin = podium.Plugin(
    engines={"shouter": Shouter()},
    tools=[deploy_state],
    patterns={"twice": twice},
    hooks={"before_tool": guard, "run_ended": hang},
    commands={"standup": standup},
)
"""


def install(folder: Path, module: str, code: str) -> None:
    """Install a package with a plug-in in a folder, as an installer would."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[podium.plugins]\n{module} = {module}:plugin\n")
    (folder / f"{module}.py").write_text(code)


@pytest.fixture
def bench(desk: Desk, tmp_path: Path) -> Desk:
    install(tmp_path / "site", "acme", PLUGIN)
    desk.environment["PYTHONPATH"] = str(tmp_path / "site")
    desk.environment["LOADED"] = str(tmp_path / "loaded")
    return desk


def is_loaded(desk: Desk) -> bool:
    return Path(desk.environment["LOADED"]).exists()


def test_a_command_of_a_plug_in_is_called_and_nothing_else_loads_it(bench: Desk) -> None:
    bench.write_agent("plain", "done")

    for command in (["--help"], ["agents"], ["ps"], ["check"], ["run", "plain", "go", "--quiet"]):
        assert bench.run_podium(*command).returncode == 0
    assert not is_loaded(bench)
    said = bench.run_podium("standup", "Ada")
    unknown = bench.run_podium("standdown")

    assert (said.returncode, said.stdout) == (0, "hello Ada\n")
    assert unknown.returncode == 2
    assert "unknown command 'standdown'" in unknown.stderr


def test_an_agents_file_uses_the_engines_tools_and_patterns_of_a_plug_in(bench: Desk) -> None:
    call = {"calls": [{"name": "deploy_state", "arguments": {"service": "shop"}}]}
    bench.write_agent("looker", call, "seen", tools=["deploy_state"])
    bench.write_agent("writer", "draft", "better", pattern="twice")
    bench.write_agent("loud", engine="shouter")
    bench.write_agent("lead", "draft", "best", team={"mode": "twice", "members": ["writer"]})
    (bench.home / "config.yaml").write_text("permissions: {ask: [WebFetch]}\n")

    checked = bench.run_podium("check")
    refused = bench.run_podium("run", "looker", "go", "--quiet")
    assert len(read_events(bench.store, bench.run_id(), PermissionAsked)) == 1
    (bench.home / "config.yaml").write_text("permissions: {allow: [deploy_state]}\n")
    bench.run_podium("run", "looker", "go", "--quiet")

    [answered] = read_events(bench.store, bench.run_id(), ToolAnswered)
    assert (checked.returncode, refused.returncode) == (0, 0), checked.stdout
    assert "not found" not in checked.stdout
    assert answered.text == "shop: 1.4.2"
    assert bench.run_podium("run", "writer", "go", "--quiet").stdout.strip() == "better"
    assert bench.run_podium("run", "lead", "go", "--quiet").stdout.strip() == "best"
    assert bench.run_podium("run", "loud", "go", "--quiet").stdout.strip() == "GO"


def test_a_run_with_a_plug_ins_pattern_is_resumed_from_the_command_line(bench: Desk) -> None:
    bench.write_agent("writer", "draft", "better", pattern="twice")

    died = bench.run_podium("run", "writer", "go", PODIUM_FAULT="6")
    resumed = bench.run_podium("resume", bench.run_id(), "--quiet")

    assert died.returncode == 137
    assert (resumed.returncode, resumed.stdout.strip()) == (0, "better"), resumed.stderr


def test_hooks_of_a_plug_in_are_called_if_the_settings_name_it(bench: Desk) -> None:
    hooks = {"before_tool": {"plugin": "acme"}, "run_ended": {"plugin": "acme", "timeout": 0.2}}
    (bench.home / "config.yaml").write_text(f"hooks: {json.dumps(hooks)}\npermissions: {{allow: [Write]}}\n")
    files = [{"calls": [{"name": "write_file", "arguments": {"path": p, "content": "x"}}]} for p in ("a.txt", "b.txt")]
    bench.write_agent("hand", *files, "done", tools=["Write"])

    assert bench.run_podium("run", "hand", "go", "--quiet").returncode == 0

    assert (bench.repo / "a.txt").exists()
    assert not (bench.repo / "b.txt").exists()
    ran = read_events(bench.store, bench.run_id(), HookRan)
    assert [(one.outcome, one.reason) for one in ran] == [
        ("passed", ""),
        ("denied", "b is frozen"),
        ("failed", "timed out after 0.2 s"),
    ]


def test_a_broken_plug_in_is_named_and_one_in_the_current_folder_is_not_used(bench: Desk, tmp_path: Path) -> None:
    install(tmp_path / "site", "broken", "raise RuntimeError('half installed')")
    install(bench.repo, "planted", PLUGIN.replace("standup", "planted"))
    (bench.home / "config.yaml").write_text("hooks: {before_tool: {plugin: missing}}\npermissions: {allow: [Write]}\n")
    bench.write_agent(
        "hand", {"calls": [{"name": "write_file", "arguments": {"path": "a", "content": "x"}}]}, "done", tools=["Write"]
    )

    planted = bench.run_podium("planted", "x", PYTHONPATH=f"{tmp_path / 'site'}:{bench.repo}")
    assert bench.run_podium("run", "hand", "go", "--quiet").returncode == 0

    assert planted.returncode == 2
    assert "the plug-in broken cannot be loaded: RuntimeError: half installed" in planted.stderr
    assert "hello" not in planted.stdout
    assert not (bench.repo / "a").exists()
    [ran] = read_events(bench.store, bench.run_id(), HookRan)
    assert ran.reason == "plug-in 'missing' not found; installed: acme"
