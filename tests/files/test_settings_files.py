"""Reading settings files: every mistake in them is reported in one sentence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from podium.files.model_role import Role
from podium.files.settings_document import (
    Launch,
    NotifyCommand,
    ProviderLimits,
    SettingsDocument,
    WorktreeSettings,
    make_document,
)
from podium.files.settings_files import read_settings_files
from podium.values.agent import Budget, Permissions
from podium.values.errors import Mistake
from podium.values.mcp_server import McpServer

ALL_KEYS = """\
model: fast
models:
  fast: groq:llama
  deep:
    model: opus
    fallbacks: [sonnet, fast]
    prompt: Think twice.
    rules: [Edit, "Bash(pytest *)"]
    budget: {usd: 2}
engines:
  mine: {command: agent, args: [--acp], env: {MODE: x}}
mcpServers:
  files: {command: server, args: [.], env: {TOKEN: "${TOKEN}"}}
  far: {url: https://tools.example/mcp, headers: {Authorization: "Bearer ${TOKEN}"}}
permissions:
  allow: [Read]
  ask: [Bash]
  deny: WebFetch
  mode: accept-edits
sandbox: off
network: [PyPI.org, "*.example.com:8443", pypi.org]
store: local
workers: 8
max_restarts: 0
budget: {usd: 1.5, tokens: 1000, seconds: 60, turns: 3, files_changed: 0}
notify: [bell, "https://hooks.example/x/", {command: [notify-send, Podium]}, {command: say done}]
checks:
  tests: pytest -q
  lint: [ruff, check, .]
worktrees:
  setup: make deps
  teardown: [rm, -r, build]
  folder: ~/trees/{repo}/{branch}
  quota: 1.5GB
providers:
  openai: {base_url: "http://127.0.0.1:9/v1/", requests_per_minute: 60, tokens_per_minute: 90000, concurrent: 4}
approvals: {timeout: never}
squad_inbox: true
squad_history: true
forge: gitlab
"""

EXPECTED = make_document(
    model="fast",
    models={
        "fast": Role(model="groq:llama"),
        "deep": Role(
            model="opus",
            fallbacks=("sonnet", "fast"),
            prompt="Think twice.",
            rules=("Edit", "Bash(pytest *)"),
            budget=Budget(usd=2),
        ),
    },
    engines={"mine": Launch(command="agent", args=("--acp",), env={"MODE": "x"})},
    mcp_servers={
        "files": McpServer(name="files", command="server", args=(".",), env={"TOKEN": "${TOKEN}"}),
        "far": McpServer(name="far", url="https://tools.example/mcp", headers={"Authorization": "Bearer ${TOKEN}"}),
    },
    permissions=Permissions(allow=("Read",), ask=("Bash",), deny=("WebFetch",)),
    permission_mode="accept-edits",
    sandbox=False,
    network=("pypi.org", "*.example.com:8443"),
    store="local",
    workers=8,
    max_restarts=0,
    squad_inbox=True,
    squad_history=True,
    forge="gitlab",
    budget=Budget(usd=1.5, tokens=1000, seconds=60, turns=3, files_changed=0),
    notify=(
        "bell",
        "https://hooks.example/x/",
        NotifyCommand(command=("notify-send", "Podium")),
        NotifyCommand(command=("sh", "-c", "say done")),
    ),
    checks={"tests": ("sh", "-c", "pytest -q"), "lint": ("ruff", "check", ".")},
    worktrees=WorktreeSettings(
        setup=("sh", "-c", "make deps"),
        teardown=("rm", "-r", "build"),
        folder="~/trees/{repo}/{branch}",
        quota=1_500_000_000,
    ),
    providers={
        "openai": ProviderLimits(
            base_url="http://127.0.0.1:9/v1", requests_per_minute=60, tokens_per_minute=90000, concurrent=4
        )
    },
    approval_seconds=math.inf,
)


def write_settings(home: Path, text: str | bytes, name: str = "config.yaml") -> Path:
    (home / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return home


def list_diagnostics(home: Path, repo: Path | None = None) -> list[str]:
    return [f"{diagnostic.severity} {diagnostic}" for diagnostic in read_settings_files(home, repo).diagnostics]


def test_every_key_is_read(tmp_path: Path) -> None:
    read = read_settings_files(write_settings(tmp_path, ALL_KEYS))

    assert read.diagnostics == ()
    assert read.user == EXPECTED


def test_without_files_all_settings_are_empty(tmp_path: Path) -> None:
    read = read_settings_files(tmp_path / "nowhere", tmp_path)

    assert (read.user, read.repo, read.proposed, read.paths) == (
        SettingsDocument(),
        SettingsDocument(),
        SettingsDocument(),
        (),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n", ":1: expected a mapping with entries such as KEY: VALUE, got a list"),
        ("model: a\nmodel: b\n", ":2: model: duplicate key, also on line 1; keep only one"),
        ("mcpServers: {}\nmcp_servers: {}\n", ":2: mcp_servers: same key as mcpServers on line 1; remove one of them"),
        ("a: &x 1\nb: *x\n", ':1: a: "&x" is a YAML alias or anchor, which is not supported; '),
        ("model: [a\n", ":2: this is not valid YAML: "),
        ("model: 5\n", ":1: model: expected a string, got the number 5"),
        (
            "models: fast\n",
            ':1: models: expected a mapping of names to roles, such as fast: openai:gpt-5-mini, got the string "fast"',
        ),
        ("models:\n  a: {prompt: x}\n", ":2: models.a: this role has no model; add model: PROVIDER:MODEL"),
        ("models:\n  a:\n", ":2: models.a: the value is missing; enter a value, or remove the entry"),
        ("workers: 0\n", ":1: workers: expected an integer of at least 1, got the number 0"),
        ("max_restarts: -1\n", ":1: max_restarts: expected an integer of at least 0, got the number -1"),
        (
            "network: [http://a.test]\n",
            ":1: network: 'http://a.test' is not a host; give one such as example.com, example.com:8443 or",
        ),
        ("sandbox: maybe\n", ':1: sandbox: expected true or false, got the string "maybe"'),
        ("budget:\n  usd: -1\n", ":2: budget.usd: expected a number above 0, got the number -1"),
        (
            "permissions:\n  mode: yolo\n",
            ':2: permissions.mode: unknown value "yolo"; expected default, accept-edits, plan, dont-ask or bypass',
        ),
        ("permissions: {allow: {a: b}}\n", ":1: permissions.allow: expected a list of rules, got a mapping"),
        ("mcpServers:\n  a: {args: [x]}\n", ":2: mcpServers.a: this server needs either a command or a url; "),
        ("mcpServers:\n  a: {command: x, url: 'http://y'}\n", ":2: mcpServers.a: this server needs either"),
        ("engines: {a: {args: [x]}}\n", ":1: engines.a: this engine has no command; add command: PROGRAM"),
        ("checks: {a: []}\n", ":1: checks.a: expected a program with its arguments, got an empty list"),
        ("worktrees: {setup: []}\n", ":1: worktrees.setup: expected a program with its arguments, got an empty list"),
        (
            "worktrees: {folder: 7}\n",
            ":1: worktrees.folder: expected a path such as ../{repo}-worker-{branch}, got the number 7",
        ),
        (
            "worktrees:\n  folder: ../same\n",
            ":2: worktrees.folder: '../same' would use the same folder for every worktree; use a pattern that contains",
        ),
        (
            "worktrees:\n  folder: ../{name}-{branch}\n",
            ":2: worktrees.folder: '../{name}-{branch}' contains {name}, which is not a placeholder; use {repo} and",
        ),
        (
            "worktrees:\n  folder: trees/{branch}\n",
            ":2: worktrees.folder: 'trees/{branch}' would be inside the repository",
        ),
        (
            "worktrees:\n  folder: .git/{branch}\n",
            ":2: worktrees.folder: '.git/{branch}' would be in git's own folder",
        ),
        (
            "worktrees: {quota: 20GiB}\n",
            ':1: worktrees.quota: expected a size such as 20GB, 500MB or a number of bytes, got the string "20GiB"',
        ),
        (
            "worktrees: {quota: 0}\n",
            ":1: worktrees.quota: expected a size such as 20GB, 500MB or a number of bytes, got the number 0",
        ),
        (
            "worktrees: {quota: [1]}\n",
            ":1: worktrees.quota: expected a size such as 20GB, 500MB or a number of bytes, got a list",
        ),
        (
            "notify: pigeon\n",
            ':1: notify: unknown value "pigeon"; expected bell, title, desktop, a URL or {command: PROGRAM}',
        ),
        ("notify: [bell, {}]\n", ":1: notify: this entry has no command; add command: PROGRAM"),
        ("notify: [ftp://secret.example]\n", ":1: notify: not a valid URL; expected one such as https://hooks.ex"),
        ("notify: ['https://a b']\n", ":1: notify: not a valid URL; expected one such as https://hooks.example/x"),
        (
            "approvals: {timeout: soon}\n",
            ':1: approvals.timeout: expected a number of seconds or "never", got the string "soon"',
        ),
    ],
)
def test_an_error_names_file_line_key_and_what_would_be_right(tmp_path: Path, text: str, sentence: str) -> None:
    [found] = list_diagnostics(write_settings(tmp_path, text))

    assert found.startswith("error ")
    assert f"config.yaml{sentence}" in found


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"model: \xff\n", "config.yaml: is not UTF-8: byte 0xff on line 1; save it as UTF-8"),
        (b"#" * (1024 * 1024 + 1), "config.yaml: is larger than the limit of 1 MiB; shorten it"),
        (b"model: a\0\n", "config.yaml: has a NUL byte on line 1, so it seems to be a binary file; use plain text"),
    ],
)
def test_a_file_that_is_not_text_is_an_error(tmp_path: Path, data: bytes, sentence: str) -> None:
    [found] = list_diagnostics(write_settings(tmp_path, data))

    assert found.endswith(sentence)


def test_a_folder_or_a_broken_link_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    (tmp_path / "podium.yaml").symlink_to(tmp_path / "nothing")

    first, second = list_diagnostics(tmp_path, tmp_path)

    assert first.endswith("config.yaml: is a folder; use a regular file")
    assert second.startswith("error podium.yaml: ")


def test_the_placeholder_of_a_running_command_is_no_settings_file(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    for name in ("podium.yaml", ".mcp.json"):
        (repo / name).mkdir(parents=True)

    assert list_diagnostics(tmp_path, repo) == []
    assert read_settings_files(tmp_path, repo).paths == ()


def test_a_repositorys_file_that_leads_out_is_not_read(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    write_settings(tmp_path, "model: a", "elsewhere.yaml")
    (repo / "podium.yaml").symlink_to(tmp_path / "elsewhere.yaml")

    read = read_settings_files(tmp_path, repo)

    assert "is outside the repository" in str(read.errors[0])
    assert read.repo == SettingsDocument()


def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(tmp_path: Path) -> None:
    home = write_settings(tmp_path, "modle: a\nbudget: {dollars: 1}\nmodel: b\n")

    first, second = list_diagnostics(home)

    assert ":1: modle: " in first
    assert first.endswith(" model")
    assert ":2: budget.dollars: unknown key, ignored" in second
    assert read_settings_files(home).user.model == "b"


def test_a_key_may_be_spelled_in_camel_case(tmp_path: Path) -> None:
    home = write_settings(tmp_path, "maxRestarts: 2\nproviders: {openai: {baseUrl: https://host.example/v1}}\n")

    read = read_settings_files(home)

    assert list_diagnostics(home) == []
    assert read.user.max_restarts == 2
    assert read.user.providers["openai"].base_url == "https://host.example/v1"
    assert read.user_lines["providers.openai.base_url"].endswith("config.yaml:2")


def test_a_file_with_an_error_after_very_many_warnings_has_no_effect(tmp_path: Path) -> None:
    unknown = "".join(f"unknown{number}: 1\n" for number in range(200))
    home = write_settings(tmp_path, f"{unknown}model: a\nworkers: none\n")

    read = read_settings_files(home)

    assert read.user == SettingsDocument()
    assert [error.key for error in read.errors] == ["workers"]


def test_no_message_repeats_what_may_be_secret(tmp_path: Path) -> None:
    text = """\
mcpServers: {a: {command: x, env: {TOKEN: 4444}, headers: {Authorization: [4444]}}}
providers: {openai: {base_url: "me:4444@host"}}
store: mysql://me:4444@host/db
"""

    found = list_diagnostics(write_settings(tmp_path, text))

    assert len(found) == 4
    assert "4444" not in "".join(found)


def test_a_variable_in_a_command_stays_as_it_is(tmp_path: Path) -> None:
    home = write_settings(tmp_path, "mcpServers: {a: {command: '${SHELL}', args: [-c, 'echo ${HOME}']}}\n")

    [found] = list_diagnostics(home)
    filled = (
        read_settings_files(home).user.mcp_servers["a"].resolve_variables({"HOME": "/x", "SHELL": "/bin/evil"}).server
    )

    assert "mcpServers.a.command: ${SHELL} is not expanded; variables are expanded only in args, env" in found
    assert (filled.command, filled.args) == ("${SHELL}", ("-c", "echo /x"))


def test_variables_are_filled_in_when_a_server_starts(tmp_path: Path) -> None:
    home = write_settings(
        tmp_path, "mcpServers: {a: {url: 'https://t.test', headers: {Authorization: 'Bearer ${SECRET}!'}}}"
    )
    server = read_settings_files(home).user.mcp_servers["a"]

    assert server.headers == {"Authorization": "Bearer ${SECRET}!"}
    assert server.resolve_variables({"SECRET": "s"}).server.headers == {"Authorization": "Bearer s!"}
    with pytest.raises(Mistake, match=r"the MCP server 'a' needs the environment variable SECRET, which is not set"):
        server.resolve_variables({})


def test_a_server_whose_tools_could_not_be_called_is_an_error_and_in_mcp_json_left_out(tmp_path: Path) -> None:
    home, repo = tmp_path / "home", tmp_path
    home.mkdir()
    write_settings(home, "mcpServers:\n  a__b: {command: x}\n")
    write_settings(repo, '{"mcpServers": {"a b": {"command": "x"}, "c": {"command": "y"}}}', ".mcp.json")

    own, foreign, _ = list_diagnostics(home, repo)

    assert "config.yaml:2: mcpServers.a__b: invalid MCP server name; use at most 40 characters: letters" in own
    assert own.startswith("error ")
    assert foreign.startswith("warning .mcp.json:1: mcpServers.a b: invalid MCP server name")
    assert list(read_settings_files(home, repo).proposed.mcp_servers) == ["c"]


@pytest.mark.parametrize(
    ("rules", "line", "sentence"),
    [
        ("deny: [Bash(]", 2, 'permissions.deny: the rule "Bash(" cannot be used: expected Tool or Tool(specifier)'),
        ("ask:\n  - Read\n  - Write()", 4, 'permissions.ask: the rule "Write()" cannot be used: its parentheses are'),
        (
            "deny:\n  - Read\n  - rule: Read(./secrets)\n    match: config/secrets",
            4,
            'permissions.deny: the rule "Read(./secrets)" under deny does not cover its example "config/secrets"',
        ),
        (
            "allow:\n  - {rule: Bash(npm test *), match: [npm test x], not_match: [npm tests, npm test]}",
            3,
            'permissions.allow: the rule "Bash(npm test *)" under allow covers its example "npm test"; change one or',
        ),
        (
            "deny: [5]",
            2,
            "permissions.deny: 5 under deny is not a rule; a rule is a string, or a mapping with rule, match",
        ),
        ("deny: [{rule: Read, mach: x}]", 2, 'permissions.deny: the rule "Read" has the unknown key mach; it can have'),
        ("deny: [{rule: Read, match: 5}]", 2, "permissions.deny: expected a list of strings under match, got 5"),
        ("deny: [{rule: Read, match: [5]}]", 2, "permissions.deny: expected a list of strings under match, got [5]"),
    ],
)
@pytest.mark.parametrize("name", ["config.yaml", "podium.yaml"])
def test_an_invalid_rule_or_a_failing_example_is_an_error_at_its_line(
    tmp_path: Path, name: str, rules: str, line: int, sentence: str
) -> None:
    write_settings(tmp_path, f"permissions:\n  {rules.replace(chr(10), chr(10) + '  ')}\n", name)

    [found] = read_settings_files(tmp_path, tmp_path).errors

    assert str(found).partition(f"{name}:{line}: ")[2].startswith(sentence)


def test_rules_with_examples_that_hold_are_kept_as_texts_and_found_by_their_lines(tmp_path: Path) -> None:
    text = """\
permissions:
  allow:
    - rule: Bash(npm run test *)
      match: [npm run test -- -u, npm run test]
      not_match: npm run tests
  deny:
    - " Read(./.env) "
    - {rule: WebFetch, match: }
"""

    read = read_settings_files(write_settings(tmp_path, text))

    assert read.diagnostics == ()
    assert read.user.permissions == Permissions(allow=("Bash(npm run test *)",), deny=("Read(./.env)", "WebFetch"))
    assert read.user_lines["permissions.allow.Bash(npm run test *)"].endswith("config.yaml:3")
    assert read.user_lines["permissions.deny.WebFetch"].endswith("config.yaml:8")


def test_a_repository_decides_little_and_proposes_the_rest(tmp_path: Path) -> None:
    home, repo = tmp_path / "home", tmp_path
    write_settings(repo, ALL_KEYS, "podium.yaml")

    read = read_settings_files(home, repo)

    assert set(read.repo.iter_explicit_keys()) == {
        *("model", "models.fast", "models.deep", "permissions.ask", "permissions.deny", "workers", "max_restarts"),
        *("budget.usd", "budget.tokens", "budget.seconds", "budget.turns", "budget.files_changed"),
        *(f"providers.openai.{limit}" for limit in ("requests_per_minute", "tokens_per_minute", "concurrent")),
        *("approvals.timeout", "squad_inbox", "squad_history", "forge"),
    }
    assert set(read.proposed.iter_explicit_keys()) == {
        *("engines.mine", "mcpServers.files", "mcpServers.far", "permissions.allow", "permissions.mode", "sandbox"),
        *("network", "store", "checks.tests", "checks.lint", "providers.openai.base_url", "notify"),
        *("worktrees.setup", "worktrees.teardown", "worktrees.folder", "worktrees.quota"),
    }
    assert read.proposed.mcp_servers["files"].source == "repo"
    assert {diagnostic.key for diagnostic in read.diagnostics} == {
        *read.proposed.iter_explicit_keys(),
        "models.deep.rules",
    }
    assert read.repo.models["deep"].rules == ()
    said = [f"{diagnostic.severity} {diagnostic}" for diagnostic in read.diagnostics]
    untrusted = "proposed by the repository; ignored until you trust it with podium trust"
    assert f"notice podium.yaml:28: checks.tests: {untrusted}" in said
    assert "warning podium.yaml:16: permissions.allow: ignored: a repository can only tighten permissions" in said
    assert "notice podium.yaml:20: sandbox: ignored: it takes effect only in your own settings" in said
    assert [line for line in said if line.startswith("warning")] == [
        line for line in said if any(key in line for key in (".rules:", "permissions.allow:", "permissions.mode:"))
    ]


def test_the_servers_of_mcp_json_are_proposed_too(tmp_path: Path) -> None:
    text = (
        '{\n\t"$schema": "x",\n\t"mcpServers": {\n\t\t"web": {"type": "http", "url": "https://t.example/mcp"}\n\t}\n}\n'
    )
    write_settings(tmp_path, text, ".mcp.json")

    read = read_settings_files(tmp_path / "home", tmp_path)

    assert read.proposed.mcp_servers == {"web": McpServer(name="web", url="https://t.example/mcp", source="repo")}
    assert [str(diagnostic).partition(": proposed")[0] for diagnostic in read.diagnostics] == [
        ".mcp.json:4: mcpServers.web"
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{\n"mcpServers": {', ".mcp.json:2: this is not valid JSON: "),
        ("[]", ".mcp.json:1: this is not a JSON object; expected an object with mcpServers"),
        (
            '{"mcpServers": {\n"a": {},\n"a": {}}}',
            ".mcp.json:3: a: duplicate key, also on line 2; keep only one",
        ),
        (
            '{"mcpServers": {\n"a": {"command": 1}}}',
            ".mcp.json:2: mcpServers.a.command: expected a string, got the number 1",
        ),
        ('{"mcpServers": {"a": {"command": "\\ud800"}}}', ".mcp.json:1: this text contains an invalid character"),
        ('{"mcpServers": ' + "[" * 5000 + "]" * 5000 + "}", ".mcp.json:1: "),
    ],
)
def test_a_broken_mcp_json_is_only_a_warning(tmp_path: Path, text: str, sentence: str) -> None:
    write_settings(tmp_path, text, ".mcp.json")

    [found] = list_diagnostics(tmp_path / "home", tmp_path)

    assert found.startswith(f"warning {sentence}")
