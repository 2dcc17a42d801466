from __future__ import annotations

import json
import re

import pytest

from .conftest import Desk


def test_every_setting_is_shown_with_its_source_and_no_secret(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text(
        "workers: 2\nmcpServers: {far: {url: 'https://me:s3cret@h.test/mcp?key=s3cret',"
        " headers: {Authorization: s3cret}}, near: {command: server, args: [--key, s3cret], env: {TOKEN: s3cret}}}\n"
        "providers: {groq: {base_url: 'http://me:s3cret@h.test'}}\napprovals: {timeout: never}\n"
    )
    (desk.repo / "podium.yaml").write_text("budget: {usd: 2}\npermissions: {deny: [WebFetch], allow: [Bash]}\n")

    said = desk.run_podium("config", "show", "--json", PODIUM_MODEL="openai:m")

    assert said.returncode == 0, said.stderr
    assert "s3cret" not in said.stdout
    found = json.loads(said.stdout)
    rows = {row["key"]: (row["value"], row["source"]) for row in found["settings"]}
    assert rows["model"] == ("openai:m", "environment")
    assert rows["home"] == (str(desk.home), "environment")
    assert rows["workers"] == (2, "user file")
    assert rows["sandbox"] == (True, "default")
    assert rows["budget.usd"] == (2.0, "repository file")
    assert rows["narrowing.deny"] == (["WebFetch"], "repository file")
    assert rows["approvals.timeout"] == ("never", "user file")
    assert rows["providers.groq.base_url"] == ("http://h.test", "user file")
    assert rows["mcpServers.far"] == ({"url": "https://h.test/mcp", "headers": ["Authorization"]}, "user file")
    assert rows["mcpServers.near"] == ({"command": "server", "env": ["TOKEN"]}, "user file")
    assert found["proposed"] == ["permissions.allow"]
    assert [notice.split(": ")[:2] for notice in found["notices"]] == [["podium.yaml:2", "permissions.allow"]]


def test_config_alone_takes_the_options_of_show_and_none_before_a_subcommand(desk: Desk) -> None:
    alone, shown = desk.invoke("config", "--json"), desk.invoke("config", "show", "--json")
    before = desk.invoke("config", "--json", "path")

    assert (alone.exit_code, alone.stdout) == (0, shown.stdout)
    assert before.exit_code == 2
    assert "--json must come after the subcommand: podium config path --json" in before.stderr


@pytest.mark.parametrize("arguments", [["config"], ["config", "show"]])
def test_for_people_it_is_a_table(desk: Desk, arguments: list[str]) -> None:
    (desk.repo / "podium.yaml").write_text("modle: x\nchecks: {tests: pytest}\n")

    said = desk.invoke(*arguments)

    assert said.exit_code == 0
    assert "sandbox            default      true" in said.stdout
    assert "note: podium.yaml:1: modle: unknown key, ignored" in said.stdout


def test_config_path_lists_the_settings_files(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("")

    said = desk.invoke("config", "path", "--json")
    for_people = desk.invoke("config", "path")

    assert [(file["path"], file["exists"]) for file in json.loads(said.stdout)["files"]] == [
        (str(desk.repo / "podium.yaml"), True),
        (str(desk.repo / ".mcp.json"), False),
        (str(desk.home / "config.yaml"), False),
    ]
    assert for_people.stdout.count("not found") == 2


def test_valid_files_have_no_diagnostics(desk: Desk) -> None:
    said = desk.invoke("config", "validate")

    assert (said.exit_code, said.stdout) == (0, "settings: no problems\n")


def test_all_diagnostics_are_listed_at_once_and_errors_make_the_exit_code_1(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text("workers: many\nsandbox: 3\n")
    (desk.repo / "podium.yaml").write_text("modle: x\nstore: local\n")

    said = desk.invoke("config", "validate")
    found = json.loads(desk.invoke("config", "validate", "--json").stdout)

    assert said.exit_code == 1
    assert said.stdout.endswith("settings: 2 errors, 1 warning, 1 notice\n")
    assert found["errors"] == 2
    assert [diagnostic["key"] for diagnostic in found["findings"]] == ["workers", "sandbox", "modle", "store"]


def test_an_unknown_model_is_a_diagnostic_too(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("workers: 2\nmodel: opnai:x\n")

    said = desk.invoke("config", "validate")

    assert said.exit_code == 1
    assert "error: settings: podium.yaml:2: model: model provider 'opnai' not found" in said.stdout


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("limits: 5", "limits: expected a mapping with keys such as max_wait or fallback_models, got the number 5"),
        ("limits: {max_wait: 0}", "limits.max_wait: expected a number above 0, got the number 0"),
        ("limits: {max_wait: soon}", 'limits.max_wait: expected a number above 0, got the string "soon"'),
        ("limits: {fallback_models: [5]}", "limits.fallback_models: expected a string, got the number 5"),
        ("limits: {fallback_models: [opnai:m]}", "limits.fallback_models: model provider 'opnai' not found"),
        ("limits: {fallback_models: ['openai@a b:m']}", "limits.fallback_models: the openai account 'a b' is inv"),
        ("budget: {per_day: 20}", "budget.per_day: expected a mapping with keys such as usd, tokens or turns, got"),
        ("budget: {per_day: {usd: -1}}", "budget.per_day.usd: expected a number above 0, got the number -1"),
        (
            "budget: {per_repository_day: {tokens: many}}",
            'budget.per_repository_day.tokens: expected an integer of at least 1, got the string "many"',
        ),
    ],
)
def test_bad_limits_and_budgets_of_a_day_are_one_sentence_each(desk: Desk, text: str, error: str) -> None:
    (desk.home / "config.yaml").write_text(f"{text}\n")

    said = desk.invoke("config", "validate")

    assert said.exit_code == 1
    assert f"config.yaml:1: {error}" in said.stdout
    assert said.stdout.endswith("settings: 1 error\n")


def test_check_reports_the_settings_of_the_repository_as_validate_does(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text("budget: {per_day: {usd: 1}}\n")
    (desk.repo / "podium.yaml").write_text(
        "modle: x\nlimits: {max_wait: 5}\nbudget: {per_day: {usd: 2, turns: 9}}\nchecks: {tests: 'true'}\n"
    )
    desk.write_agent("hand", "done")

    said = desk.invoke("check")
    found = json.loads(desk.invoke("check", "--json").stdout)
    validated = json.loads(desk.invoke("config", "validate", "--json").stdout)
    of_one_file = desk.invoke("check", ".podium/agents/hand.md")

    assert said.exit_code == 0
    assert "warning: podium.yaml:1: modle: " in said.stdout
    assert "notice: podium.yaml:2: limits.max_wait: ignored: " in said.stdout
    assert "podium.yaml:3: budget.per_day.usd: ignored: " in said.stdout
    assert "notice: podium.yaml:4: checks.tests: proposed " in said.stdout
    assert "turns" not in said.stdout
    assert found["findings"] == validated["findings"]
    assert set(found) == {"schema", "agents", "errors", "findings"}
    assert of_one_file.stdout == "1 agent: no problems\n"


@pytest.mark.parametrize("path", [(), (".podium/agents/hand.md",)])
def test_check_lists_all_errors_in_the_settings_and_in_agent_files_at_once(desk: Desk, path: tuple[str, ...]) -> None:
    (desk.home / "config.yaml").write_text("workers: many\n")
    (desk.repo / "podium.yaml").write_text("sandbox: 3\n")
    desk.write_agent("hand", "done", max_turns=0)

    said = desk.invoke("check", *path)

    assert said.exit_code == 1
    assert "config.yaml:1: workers: expected an integer of at least 1" in said.stdout
    assert "error: podium.yaml:1: sandbox: expected true or false" in said.stdout
    assert "hand.md:4: max_turns: expected an integer of at least 1" in said.stdout
    assert "notice: settings: agents' models, tools and hooks are checked only if the settings" in said.stdout
    assert "3 errors, " in said.stdout


UNKNOWN_KEYS = {
    "limit: {}": ("limit", "limits"),
    "limits: {maxwait: 5}": ("limits.maxwait", "max_wait"),
    "budget: {per_dya: {usd: 1}}": ("budget.per_dya", "per_day"),
    "budget: {per_day: {turn: 1}}": ("budget.per_day.turn", "turns"),
    "budget: {per_repository_day: {files_changed: 1}}": ("budget.per_repository_day.files_changed", "usd"),
    "hooks: {run_ended: {comand: 'true'}}": ("hooks.run_ended.comand", "command"),
    "hooks: {before_tool: [{command: 'true', time_out: 3}]}": ("hooks.before_tool.time_out", "timeout"),
    "worktrees: {set_up: 'true'}": ("worktrees.set_up", "setup"),
    "providers: {openai: {concurrency: 2}}": ("providers.openai.concurrency", "concurrent"),
    "engines: {mine: {command: x, reads: [a]}}": ("engines.mine.reads", "readable"),
    "mcpServers: {files: {command: x, arg: [a]}}": ("mcpServers.files.arg", "args"),
    "models: {fast: {model: haiku, fallback: [opus]}}": ("models.fast.fallback", "fallbacks"),
    "models: {fast: {model: haiku, budget: {usb: 1}}}": ("models.fast.budget.usb", "usd"),
    "permissions: {denies: [Bash]}": ("permissions.denies", "deny"),
    "approvals: {time: 5}": ("approvals.time", "timeout"),
    "notify: [{command: x, comand: y}]": ("notify.comand", "command"),
}
"""Settings with an unknown key, that key, and the known key that is closest to it."""


@pytest.mark.parametrize("text", UNKNOWN_KEYS)
def test_check_reports_an_unknown_key_in_the_settings_at_every_level(desk: Desk, text: str) -> None:
    key, closest = UNKNOWN_KEYS[text]
    (desk.repo / "podium.yaml").write_text(f"{text}\n")

    said = desk.invoke("check").stdout

    assert re.search(rf"^warning: podium\.yaml:1: {re.escape(key)}: .* {re.escape(closest)}$", said, re.MULTILINE)


UNKNOWN_AGENT_KEYS = {
    "memori: user": ("memori", "memory"),
    "skils: [a]": ("skils", "skills"),
    "team: {members: [answer], chose: person}": ("team.chose", "choose"),
    "team: {members: [answer], kep: best}": ("team.kep", "keep"),
    "team: {members: [{agent: answer, wieght: 2}]}": ("team.members.wieght", "weight"),
    "budget: {usdd: 1}": ("budget.usdd", "usd"),
    "router: {destinations: [answer], fallbck: answer}": ("router.fallbck", "fallback"),
    "advisors: {agents: [answer], requires: any}": ("advisors.requires", "require"),
    "permissions: {denied: [Bash]}": ("permissions.denied", "deny"),
    "hooks: {before_tool: {command: 'true', tool: Bash}}": ("hooks.before_tool.tool", "tools"),
}


@pytest.mark.parametrize("text", UNKNOWN_AGENT_KEYS)
def test_check_reports_an_unknown_key_in_an_agent_file_at_every_level(desk: Desk, text: str) -> None:
    key, closest = UNKNOWN_AGENT_KEYS[text]
    desk.write_agent("hand", "done")
    file = desk.repo / ".podium" / "agents" / "hand.md"
    file.write_text(file.read_text().replace("---\n", f"---\n{text}\n", 1))

    said = desk.invoke("check").stdout

    assert re.search(rf"hand\.md:2: {re.escape(key)}: .* {re.escape(closest)}$", said, re.MULTILINE)


@pytest.mark.parametrize("file", ["config.yaml", "podium.yaml"])
def test_check_names_the_events_if_hooks_are_written_for_an_unknown_one(desk: Desk, file: str) -> None:
    place = desk.home if file == "config.yaml" else desk.repo
    (place / file).write_text("hooks: {run_endet: 'true'}\n")

    said = desk.invoke("check")

    assert said.exit_code == 1
    problem = 'hooks for the event "run_endet" are not supported in this file; available: run_started,'
    assert f"{file}:1: hooks.run_endet: {problem}" in said.stdout


def test_check_reports_an_unknown_key_of_a_rule(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("permissions: {deny: [{rule: Bash, matches: [ls]}]}\n")

    said = desk.invoke("check")

    assert "podium.yaml:1: permissions.deny: " in said.stdout
    assert "matches" in said.stdout


def test_check_reports_settings_that_are_wrong_only_together(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("model: opnai:x\n")

    said = desk.invoke("check")

    assert said.exit_code == 1
    assert "error: settings: podium.yaml:1: model: model provider 'opnai' not found" in said.stdout


def test_another_command_stops_at_the_first_error(desk: Desk) -> None:
    (desk.home / "config.yaml").write_text("workers: many\nsandbox: 3\n")

    said = desk.invoke("config", "show")

    assert said.exit_code == 2
    assert 'workers: expected an integer of at least 1, got the string "many" (and 1 more; ' in said.stderr


def test_an_unknown_word_after_config_is_a_usage_error(desk: Desk) -> None:
    assert desk.invoke("config", "shwo").exit_code == 2


def test_what_a_repository_writes_does_not_act_on_the_terminal(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text('"\\e[31m": 1\nmodels: {"\\e[2J": openai:m}\n')

    for arguments in (["config", "show"], ["config", "validate"], ["models"]):
        assert "\x1b" not in desk.run_podium(*arguments).stdout
