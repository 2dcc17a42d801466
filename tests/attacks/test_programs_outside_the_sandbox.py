"""Servers, hooks and notifications outside the sandbox: no file of a checkout decides what they run."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from podium.engines.acp.agent_process import AgentCommand, open_unconfined
from podium.store.reader import StoreReader
from podium.values.errors import Mistake, OutsideFailed
from podium.values.event import HookRan, ToolAnswered
from podium.workspace.travel.forge import run_forge_program

from ..cli.conftest import Desk
from ..mcp_client.bench import RAW
from .stage import bash, call

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Clone:
    """A clone with planted programs. Each leaves a mark outside the checkout if it can, and one inside."""

    desk: Desk
    outside: Path

    @property
    def repo(self) -> Path:
        return self.desk.repo

    @property
    def path(self) -> str:
        """A PATH that begins with folders of the clone, under several names."""
        links = self.outside / "links"
        folders = (".venv/bin", ".", "", self.repo / ".venv/bin", self.repo / "node_modules/.bin", links)
        return os.pathsep.join(map(str, (*folders, self.outside / "bin", os.environ["PATH"])))

    def list_canaries(self) -> list[str]:
        """Return the planted programs that ran outside the sandbox."""
        return sorted(path.name for path in (self.outside / "canary").iterdir())

    def take_marks(self) -> list[str]:
        """Return the planted programs that ran, in the sandbox or not, and forget them."""
        marks = sorted(self.repo.glob("ran-*"))
        for mark in marks:
            mark.unlink()
        return [mark.name.removeprefix("ran-") for mark in marks]

    def plant_shell(self, path: str, name: str = "") -> Path:
        name = name or path.replace("/", "-")
        return write_program(self.repo / path, f"#!/bin/sh\n{self.mark(name)}\n")

    def mark(self, name: str) -> str:
        return f"touch {self.outside}/canary/{name}; touch {self.repo}/ran-{name}"

    def plant_python(self, path: str) -> None:
        name = path.replace("/", "-")
        file = self.repo / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"import os\nos.system({self.mark(name)!r})\n")

    def run(self, agent: str = "sly") -> Any:
        done = self.desk.run_podium("run", agent, "go", PATH=self.path, CLONE=str(self.repo))
        assert done.returncode == 0, done.stderr
        return done

    def check(self) -> str:
        return self.desk.run_podium("check", PATH=self.path, CLONE=str(self.repo)).stdout

    def write_settings(self, settings: dict[str, Any]) -> None:
        (self.desk.home / "config.yaml").write_text(json.dumps(settings))

    def write_own_agent(self, *moves: Any, **keys: Any) -> None:
        """Write an agent of the person's own."""
        self.desk.write_agent("sly", *moves, **keys)
        folder = self.desk.home / "agents"
        folder.mkdir(exist_ok=True)
        (self.repo / ".podium/agents/sly.md").rename(folder / "sly.md")


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(desk: Desk, tmp_path: Path) -> Clone:
    (tmp_path / "canary").mkdir()
    clone = Clone(desk, tmp_path)
    clone.plant_python("mcp_server_time.py")
    clone.plant_python("mcp_folder/__main__.py")
    clone.plant_python("sitecustomize.py")
    for name in (".venv/bin/python3", ".venv/bin/uv", ".venv/bin/npx", "node_modules/.bin/npx", "uv", "tools/server"):
        clone.plant_shell(name)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/planted").symlink_to(desk.repo / "tools/server")
    (tmp_path / "tools").symlink_to(desk.repo / "tools")
    return clone


def test_no_spelling_of_a_server_runs_a_file_of_a_fresh_clone(clone: Clone) -> None:
    repo, outside = clone.repo, clone.outside
    module = ["-m", "mcp_server_time"]
    never = {
        "module": {"command": "python3", "args": module},
        "npx": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem"]},
        "uv": {"command": "uv", "args": ["run", "server"]},
        "on-path": {"command": "planted"},
        "dot": {"command": "./tools/server"},
        "relative": {"command": "tools/server"},
        "argument": {"command": "sh", "args": ["./tools/server"]},
        "above": {"command": "sh", "args": [f"../{repo.name}/tools/server"]},
        "bare": {"command": "sh", "args": ["tools/server"]},
        "option": {"command": "bash", "args": ["--init-file=./tools/server", "-i"]},
        "text": {"command": "env", "args": ["-S", "sh ./tools/server"]},
        "shell": {"command": "sh", "args": ["-c", "./tools/server"]},
        "here": {"command": "python3", "args": module, "env": {"PYTHONPATH": ".:", "PYTHONSAFEPATH": ""}},
        "current": {"command": "python3", "args": ["."]},
    }
    asking = {
        "absolute": {"command": str(repo / "tools/server")},
        "absolute-argument": {"command": "sh", "args": [str(repo / "tools/server")]},
        "link": {"command": "sh", "args": [str(outside / "tools/server")]},
        "variable": {"command": "sh", "args": ["${CLONE}/tools/server"]},
        "after-option": {"command": "env", "args": [f"--chdir={repo}", "python3", *module]},
        "folder": {"command": "python3", "args": [str(repo / "mcp_folder")]},
        "environment": {"command": "python3", "args": module, "env": {"PYTHONPATH": str(repo)}},
        "working": {"command": "python3", "args": module, "cwd": "."},
    }
    clone.write_settings({"mcpServers": never | asking})
    clone.write_own_agent("The end.", tools=[f"mcp__{name}" for name in (*never, *asking)])

    checked = clone.check()
    before = clone.run()
    marks_before = clone.take_marks()
    clone.desk.run_podium("trust", "--all", CLONE=str(repo))
    clone.run()
    marks_after = clone.take_marks()

    assert clone.list_canaries() == []
    assert marks_before == []
    # What the person trusts runs, but only in the sandbox.
    assert set(marks_after) == {"tools-server", ".venv-bin-python3"}
    for name in ("dot", "relative", "argument", "above", "shell", "current"):
        assert f"mcpServers.{name}: " in checked
        assert f"the MCP server '{name}' cannot be used: " in before.stderr
    assert "add cwd: ." in " ".join(checked.split())
    for name in asking:
        assert f"mcpServers.{name}: uses files of this checkout" in " ".join(checked.split()), name
        assert f"the MCP server '{name}' uses the checkout" in before.stderr


def test_a_trusted_server_is_not_started_after_its_file_has_changed(clone: Clone) -> None:
    clone.write_settings({"mcpServers": {"mine": {"command": "sh", "args": [str(clone.repo / "tools/server")]}}})
    clone.write_own_agent("The end.", tools=["mcp__mine"])
    clone.desk.run_podium("trust", "yours.mcpServers.mine")
    clone.run()
    trusted = clone.take_marks()

    clone.plant_shell("tools/server", "changed")
    done = clone.run()

    assert trusted == ["tools-server"]
    assert clone.take_marks() == []
    assert "is not started until you trust it with podium trust" in done.stderr
    assert json.loads(clone.desk.run_podium("trust", "--json").stdout)["items"][0]["state"] == "changed"


def test_a_server_of_the_repository_is_trusted_with_its_file_and_stays_in_the_sandbox(clone: Clone) -> None:
    (clone.repo / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": {"command": "tools/server", "cwd": "."}}}))
    clone.desk.write_agent("sly", "The end.", tools=["mcp__own"])

    clone.run()
    before = clone.take_marks()
    clone.desk.run_podium("trust", "--all")
    clone.run()
    trusted = clone.take_marks()
    clone.plant_shell("tools/server", "changed")
    clone.run()

    assert (before, trusted, clone.take_marks()) == ([], ["tools-server"], [])
    assert clone.list_canaries() == []


def test_servers_outside_the_checkout_start_and_know_the_repository(clone: Clone) -> None:
    outside, report = clone.outside, clone.outside / "report"
    raw = Path(RAW).read_text()
    (outside / "lib").mkdir()
    (outside / "lib/honest_server.py").write_text(raw)
    (outside / "elsewhere/notes").mkdir(parents=True)
    told = f'#!/bin/sh\necho "$PWD $(ls -A | wc -l) $PODIUM_REPO $PYTHONSAFEPATH $*" >> {report}\n'
    start = f"exec {sys.executable} {RAW}\n"
    write_program(outside / "bin/npx", told + start)
    write_program(outside / "bin/absolute", told + start)
    module = {"command": sys.executable, "args": ["-m", "honest_server"], "env": {"PYTHONPATH": str(outside / "lib")}}
    servers = {
        "module": module,
        "npx": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-time"]},
        "absolute": {"command": str(outside / "bin/absolute"), "args": ["banner"]},
        "elsewhere": {"command": "npx", "args": ["banner"], "cwd": str(outside / "elsewhere")},
    }
    clone.write_settings({"mcpServers": servers, "permissions": {"allow": [f"mcp__{name}" for name in servers]}})
    moves = [call(f"mcp__{name}__say", text=f"{name} works") for name in servers]
    clone.write_own_agent(*moves, "The end.", tools=[f"mcp__{name}" for name in servers])

    done = clone.run()

    with StoreReader(clone.desk.store) as reader:
        events = [entry.event for entry in reader.read_entries(clone.desk.run_id())]
    answers = [event.text for event in events if isinstance(event, ToolAnswered)]
    assert answers == [f"{name} works" for name in servers], done.stderr
    starts = [line.split() for line in report.read_text().splitlines()]
    assert {words[2] for words in starts} == {str(clone.repo)}
    assert {words[3] for words in starts} == {"1"}
    folders = {(str(Path(words[0]).parent), words[1]) for words in starts}
    assert folders == {(str(clone.desk.home / "program-folders"), "0"), (str(outside), "1")}
    assert list((clone.desk.home / "program-folders").iterdir()) == []
    assert clone.list_canaries() == []


def test_an_agent_of_a_clone_starts_none_of_the_persons_servers_before_it_is_trusted(clone: Clone) -> None:
    mark = {"command": "sh", "args": ["-c", f"touch {clone.outside}/started-mine; exit 1"]}
    clone.write_settings({"mcpServers": {"mine": mark, "other": mark}})
    clone.desk.write_agent("sly", "The end.", tools=["mcp__mine__*"])

    checked = clone.check()
    done = clone.run()
    before = (clone.outside / "started-mine").exists()
    clone.desk.run_podium("trust", "agents.sly.mcpServers")
    clone.run()
    after = (clone.outside / "started-mine").exists()
    (clone.outside / "started-mine").unlink()
    clone.desk.write_agent("sly", "The end.", tools=["mcp__mine__*", "mcp__other"])
    clone.run()

    assert (before, after, (clone.outside / "started-mine").exists()) == (False, True, False)
    assert "uses MCP servers from your settings (mine)" in done.stderr
    assert "uses MCP servers from your settings (mine)" in " ".join(checked.split())


def test_a_hook_outside_the_sandbox_runs_nothing_that_the_runs_own_command_wrote(clone: Clone) -> None:
    repo, told = clone.repo, clone.outside / "told.jsonl"
    hooks = [
        [sys.executable, "-m", "mynotify"],
        "python3 -m mynotify",
        "./notify.sh",
        "sh notify.sh",
        "notify-tool",
        ["notify-tool"],
        ["sh", str(repo / "notify.sh")],
        f"sh {repo}/notify.sh",
        'sh "$PODIUM_REPO"/notify.sh',
        ["sh", f"{clone.outside}/tools/notify.sh"],
        ["python3", str(repo)],
        ["make", "-C", str(repo)],
    ]
    entries: list[dict[str, Any]] = [{"command": command, "sandbox": False} for command in hooks]
    entries.append({"command": [sys.executable, "-m", "mynotify"], "sandbox": False, "cwd": "."})
    entries.append({"command": f"cat >> {told}", "sandbox": False})
    clone.write_settings({"hooks": {"run_ended": entries}, "permissions": {"allow": ["Bash"]}})
    script = clone.mark("hook")
    clone.plant_shell(".venv/bin/notify-tool", "hook")
    for path in ("notify.sh", "tools/notify.sh"):
        write_program(repo / "planted" / path, f"#!/bin/sh\n{script}\n")
    for path in ("mynotify.py", "__main__.py"):
        write_program(repo / "planted" / path, f"import os\nos.system({script!r})\n")
    write_program(repo / "planted/Makefile", f"all:\n\t{script}\n")
    clone.write_own_agent(bash("cp -r planted/. ."), "The end.", tools=["Bash"])

    done = clone.run()

    assert (repo / "mynotify.py").exists(), done.stderr
    assert clone.list_canaries() == []
    assert clone.take_marks() == []
    assert json.loads(told.read_text())["repo"] == str(repo)


def test_a_hook_that_uses_a_file_of_the_checkout_is_trusted_with_it_and_stays_in_the_sandbox(clone: Clone) -> None:
    clone.plant_shell("guard.sh")
    hook = {"command": [str(clone.repo / "guard.sh")], "sandbox": False}
    clone.write_settings({"hooks": {"before_tool": hook}, "permissions": {"allow": ["Bash"]}})
    clone.write_own_agent(bash("touch made"), "The end.", tools=["Bash"])

    clone.run()
    denied = (clone.take_marks(), (clone.repo / "made").exists())
    clone.desk.run_podium("trust", "--all")
    clone.run()
    trusted = (clone.take_marks(), (clone.repo / "made").exists())
    clone.plant_shell("guard.sh", "weakened")
    clone.run()

    # A guard that may not be called denies.
    assert (denied, trusted, clone.take_marks()) == (([], False), (["guard.sh"], True), [])
    assert clone.list_canaries() == []
    assert HookRan.__struct_config__.tag in clone.desk.kinds(clone.desk.run_id())


def test_a_notification_runs_no_program_of_the_checkout(clone: Clone) -> None:
    write_program(clone.outside / "bin/honest", f"#!/bin/sh\ncat > {clone.outside}/notified\n")
    clone.plant_shell(".venv/bin/honest")
    commands = [["honest"], ["planted"], ["python3", "-m", "mcp_server_time"], ["sh", str(clone.repo / "tools/server")]]
    clone.write_settings({"notify": [{"command": command} for command in commands]})
    clone.write_own_agent("The end.")

    done = clone.run()

    assert json.loads((clone.outside / "notified").read_text())["event"] == "finished"
    assert clone.list_canaries() == []
    assert clone.take_marks() == []
    assert "which agents' commands can change" in done.stderr


async def test_neither_a_coding_agent_nor_a_forges_program_is_taken_from_the_checkout(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone.plant_shell(".venv/bin/gh")
    monkeypatch.setenv("PATH", f"{clone.repo}/.venv/bin")
    agent = AgentCommand(argv=("uv", "acp"), env=os.environ, checkouts=(clone.repo,), home=clone.outside)

    with pytest.raises(Mistake, match="found only in a checkout"):
        async with open_unconfined(agent):
            pass
    with pytest.raises(OutsideFailed):
        await run_forge_program("gh", "issue", "list", what="gh issue list", folder=clone.repo)

    assert clone.list_canaries() == []
    assert clone.take_marks() == []


async def test_a_coding_agent_outside_the_sandbox_gets_no_variables_of_the_checkout(clone: Clone) -> None:
    environ = {"PATH": f"{clone.repo}/.venv/bin:{os.environ['PATH']}", "PYTHONPATH": str(clone.repo)}
    code = "import os; print(os.environ['PATH'], os.environ.get('PYTHONPATH'), os.environ['PYTHONSAFEPATH'])"
    agent = AgentCommand(argv=(sys.executable, "-c", code), env=environ, checkouts=(clone.repo,), home=clone.outside)

    async with open_unconfined(agent) as process:
        said = (await process.read_stdout()).decode().split()

    assert str(clone.repo) not in said[0]
    assert said[1:] == ["None", "1"]
    assert clone.list_canaries() == []
