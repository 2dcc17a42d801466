"""`podium engines`: which coding agents are there, how to get the others, and consent."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import Desk


def install(folder: Path, name: str, package: str, version: str) -> None:
    """Install a coding agent as npm does: a package, and a link to its program in another folder."""
    module = folder / "lib" / "node_modules" / package
    module.mkdir(parents=True)
    (module / "package.json").write_text(json.dumps({"name": package, "version": version}))
    (module / "run.sh").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (module / "run.sh").chmod(0o755)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).symlink_to(module / "run.sh")


def test_installed_agents_are_listed_with_their_version_and_the_others_with_how_to_install_them(
    desk: Desk, tmp_path: Path
) -> None:
    install(tmp_path, "gemini", "@google/gemini-cli", "0.1.2")
    (tmp_path / "bin" / "kimi").write_text("#!/bin/sh\necho kimi version 2.1.0\n")
    (tmp_path / "bin" / "kimi").chmod(0o755)

    said = desk.run_podium("engines", PATH=f"{tmp_path}/bin:/usr/bin:/bin")

    assert said.returncode == 0
    lines = [" ".join(line.split()) for line in said.stdout.splitlines()]
    assert "gemini 0.1.2, tested with 0.61.0 not confirmed gemini --acp" in lines
    assert "kimi 2.1.0 not confirmed kimi acp" in lines
    assert "goose not installed not confirmed goose acp" in lines
    assert f"goose npm install --prefix {desk.home}/agents @aaif/goose-binary-linux-x64@1.52.0" in lines
    assert any(line.startswith("codex: its own sandbox cannot run inside Podium's") for line in lines)
    assert not (tmp_path / "ran").exists()


def test_an_agent_of_the_settings_is_listed_and_needs_no_consent(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text("engines: {mine: {command: /bin/true, args: [--acp], mode: ask}}\n")

    found = json.loads(desk.run_podium("engines", "--json").stdout)["engines"]

    [mine] = [one for one in found if one["name"] == "mine"]
    assert (mine["command"], mine["mode"], mine["is_own"], mine["is_confirmed"]) == (
        ["/bin/true", "--acp"],
        "ask",
        True,
        True,
    )


def test_consent_is_given_once_and_check_tells_what_is_missing(desk: Desk, tmp_path: Path) -> None:
    install(tmp_path, "gemini", "@google/gemini-cli", "0.61.0")
    folder = desk.repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "coder.md").write_text("---\ndescription: Codes.\nengine: gemini\n---\nCode.\n")
    (folder / "other.md").write_text("---\ndescription: Codes.\nengine: goose\n---\nCode.\n")
    (folder / "wrong.md").write_text("---\ndescription: Codes.\nengine: gose\n---\nCode.\n")
    path = f"{tmp_path}/bin:/usr/bin:/bin"

    before = desk.run_podium("check", PATH=path)
    used = desk.run_podium("engines", "use", "gemini", PATH=path)
    after = desk.run_podium("check", PATH=path)

    assert "coder uses gemini, a coding agent that you have not confirmed; it uses your own login" in before.stdout
    assert "other uses goose, which is not installed" in before.stdout
    assert "wrong uses the engine 'gose'" in before.stdout
    assert used.stderr == "agents in any repository may now use gemini, with your login and at your expense\n"
    assert "coder uses gemini" not in after.stdout


def test_an_unknown_name_is_refused(desk: Desk) -> None:
    said = desk.run_podium("engines", "use", "goos")

    assert said.returncode == 2
    assert "there is no coding agent 'goos'; available: goose, copilot, codex" in said.stderr
