"""Verdicts: which rule decides, what applies without a rule, and what no rule can change."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.policy import (
    Mode,
    Rules,
    Verdict,
    check,
    escape_path,
    find_ignored_rules,
    generalised,
    narrow_rules,
    parse_rules,
)
from podium.values.action import Action
from podium.values.errors import Mistake

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def action(tool: str, **arguments: Any) -> Action:
    return Action(run="r", agent="a", tool=tool, arguments=arguments)


def decision(what: str | Action, mode: Mode = "default", **rules: list[str]) -> str:
    return check(what, rules, mode).decision


# Without rules


@pytest.mark.parametrize(
    "what",
    [
        action("read_file", path="src/a.py"),
        action("Read", path="src/a.py", offset=1, limit=20),
        action("list_files", path="."),
        action("glob", pattern="**/*.py"),
        action("grep", pattern="/etc", path="src"),
        action("git_diff"),
        action("ask_person", question="Which?"),
        action("report_status", text="half done"),
        action("Agent", name="reviewer"),
    ],
    ids=lambda what: what.tool,
)
def test_reading_the_checkout_and_speaking_need_no_rule(what: Action) -> None:
    assert decision(what) == "allow"


@pytest.mark.parametrize(
    "what",
    [
        "make",
        action("bash", command="make"),
        action("write_file", path="a.py", content=""),
        action("edit_file", path="a.py", edits=[]),
        action("web_fetch", url="https://example.com"),
        action("run_checks"),
        action("mcp__github__search"),
        action("anything_else"),
        action("read_file", path="/etc/passwd"),
        action("read_file", path="../other/a.py"),
        action("read_file", path="~/notes"),
        action("read_file", path="C:\\Users\\me"),
        action("read_file", path="..\\other"),
        action("glob", pattern="../**"),
        action("grep", pattern="KEY", glob=".env"),
        action("read_file", path=".env"),
        action("read_file", path="config/.env.production"),
        action("read_file", path="deploy/id_rsa"),
        action("read_file", path="certs/server.key"),
        action("read_file", path=".ssh/config"),
        action("read_file", path=".aws/credentials"),
        action("read_file"),
        action("read_file", path=7),
        action("read_file", path=""),
        action("read_file", path="a", sandbox="off"),
        action("bash", command=["ls"]),
        action("bash"),
    ],
)
def test_everything_else_is_asked_about(what: str | Action) -> None:
    assert decision(what) == "ask"
    assert decision(what, "dont-ask") == "deny"


@pytest.mark.parametrize("path", [".env.example", "src/secrets.py", "keys/id_rsa.pub", "docs/environment.md"])
def test_names_that_only_look_like_secrets_can_be_read(path: str) -> None:
    assert decision(action("read_file", path=path)) == "allow"


# Which rule decides


def test_deny_goes_before_ask_and_ask_before_allow() -> None:
    all_three = Rules(allow=("Bash(git push *)",), ask=("Bash(git *)",), deny=("Bash",))

    assert check("git push", all_three) == Verdict("deny", "Bash", "Bash denies it")
    assert check("git push", Rules(allow=all_three.allow, ask=all_three.ask)).rule == "Bash(git *)"
    assert check("git push", Rules(allow=all_three.allow)).rule == "Bash(git push *)"


def test_a_narrower_allow_does_not_open_a_wider_deny() -> None:
    rules = {"deny": ["Edit(/src/**)"], "allow": ["Edit(/src/a.py)"]}

    assert check(action("edit_file", path="src/a.py", edits=[]), rules).decision == "deny"


@pytest.mark.parametrize("tool", ["write_file", "Write", "edit_file", "Edit"])
def test_a_rule_for_edit_covers_every_tool_that_changes_files(tool: str) -> None:
    assert decision(action(tool, path="src/a.py"), allow=["Edit(/src/**)"]) == "allow"
    assert decision(action(tool, path="src/a.py"), deny=["edit_file(/src/**)"]) == "deny"
    assert decision(action(tool, path="docs/a.md"), allow=["Edit(/src/**)"]) == "ask"


@pytest.mark.parametrize("tool", ["read_file", "glob", "list_files", "grep", "git_diff"])
def test_a_rule_for_read_covers_every_tool_that_reads(tool: str) -> None:
    assert decision(action(tool, path="secret/a"), deny=["Read(/secret)"]) == "deny"
    assert decision(action(tool, path="a"), deny=["Read"]) == "deny"


def test_a_rule_for_write_leaves_edit_alone() -> None:
    assert decision(action("write_file", path="a"), allow=["Write"]) == "allow"
    assert decision(action("edit_file", path="a"), allow=["Write"]) == "ask"


@pytest.mark.parametrize(
    ("specifier", "path", "is_covered"),
    [
        ("./.npmrc", ".npmrc", True),
        ("./.npmrc", "sub/.npmrc", False),
        (".npmrc", "sub/.npmrc", True),
        ("/src/**", "src/a/b.py", True),
        ("/src/**", "lib/src/b.py", False),
        ("src/", "lib/src/b.py", True),
        ("*.py", "a/b.py", True),
        ("/a/*.py", "a/b/c.py", False),
        ("/a/**/c.py", "a/c.py", True),
        ("/a?c", "abc", True),
        ("/a?c", "a/c", False),
        ("/[ab].py", "b.py", True),
        ("/a[!x]c", "a/c", False),
        ("/a[+-9]c", "a/c", False),
        ("\\#a", "#a", True),
        ("/a(b).py", "a(b).py", True),
    ],
)
def test_paths_are_matched_as_gitignore_does(specifier: str, path: str, is_covered: bool) -> None:
    assert (decision(action("read_file", path=path), deny=[f"Read({specifier})"]) == "deny") is is_covered


@pytest.mark.parametrize("path", ["SECRET/a", "Secret/A", "se\u0301cret", unicodedata.normalize("NFC", "se\u0301cret")])
def test_a_deny_covers_the_other_spellings_of_a_path(path: str) -> None:
    assert decision(action("read_file", path=path), deny=["Read(/secret)", "Read(/s\u00e9cret)"]) == "deny"


def test_an_allow_covers_its_own_spelling_only() -> None:
    assert decision(action("edit_file", path="SRC/a"), allow=["Edit(/src/**)"]) == "ask"


def test_paths_outside_are_named_from_the_root_or_from_home() -> None:
    assert decision(action("read_file", path="/etc/hosts"), allow=["Read(//etc/hosts)"]) == "allow"
    assert decision(action("read_file", path="/etc/hosts"), allow=["Read(/etc/hosts)"]) == "ask"
    assert decision("cat ~/.ssh/config", deny=["Read(~/.ssh/**)"]) == "deny"


def test_a_redirection_is_a_file_write() -> None:
    for command in (
        "echo x > src/a.py",
        "ls >> src/a.py",
        "tee src/a.py",
        "rm -rf src",
        "rm -rf .",
        "sed -i p src/a.py",
    ):
        assert decision(command, allow=["Bash"], deny=["Edit(/src/**)"]) == "deny", command
    assert decision("ls 2>&1", "bypass", deny=["Edit"]) == "allow"
    assert decision("cp src/a.py docs/a.py", allow=["Bash"], deny=["Edit(/src/**)"]) == "allow"


def test_a_path_that_may_not_be_read_may_not_be_read_by_a_command() -> None:
    for command in ("cat notes/a", "cat < notes/a", "grep -r x notes", "git show HEAD:notes/a", "python x.py notes/a"):
        assert decision(command, "bypass", deny=["Read(/notes/**)"]) == "deny", command
    assert decision("echo notes/a", allow=["Bash"], deny=["Read(/notes/**)"]) == "allow"


@pytest.mark.parametrize(
    ("rule", "url", "expected"),
    [
        ("domain:example.com", "https://example.com/a?b#c", "allow"),
        ("domain:example.com", "HTTPS://EXAMPLE.COM", "allow"),
        ("domain:example.com", "https://example.com:443/", "allow"),
        ("domain:example.com", "https://example.com:8443/", "ask"),
        ("domain:localhost:3000", "http://localhost:3000/", "allow"),
        ("domain:example.com", "https://www.example.com/", "ask"),
        ("domain:*.example.com", "https://www.example.com/", "allow"),
        ("domain:*.example.com", "https://example.com/", "ask"),
        ("domain:example.com", "https://example.com.evil.test/", "ask"),
        ("domain:example.com", "https://example.com@evil.test/", "ask"),
        ("domain:example.com", "https://evil.test\\@example.com/", "ask"),
        ("domain:example.com", "https://evil.test\x00.example.com/", "ask"),
        ("domain:example.com", "file:///etc/passwd", "ask"),
        ("domain:example.com", "https://example.com./", "ask"),
    ],
)
def test_an_address_is_allowed_by_the_host_it_names_beyond_doubt(rule: str, url: str, expected: str) -> None:
    assert decision(action("web_fetch", url=url), allow=[f"WebFetch({rule})"]) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.test/",
        "https://a.evil.test",
        "https://EVIL.test./x",
        "http://x@evil.test",
        "evil.test/x",
        "https:\\\\evil.test",
        "https://evil.test\\@ok.test",
        "https://evil.test:99/",
    ],
)
def test_a_denied_host_is_seen_in_every_spelling(url: str) -> None:
    assert decision(action("web_fetch", url=url), "bypass", deny=["WebFetch(domain:evil.test)"]) == "deny"


def test_rules_name_mcp_servers_their_tools_and_agents() -> None:
    tool = action("mcp__github__search", query="x")

    assert decision(tool, allow=["mcp__github"]) == "allow"
    assert decision(tool, allow=["mcp__github__search"]) == "allow"
    assert decision(tool, allow=["mcp__github__*"]) == "allow"
    assert decision(tool, allow=["mcp__git"]) == "ask"
    assert decision(tool, deny=["mcp__*"]) == "deny"
    assert decision(action("Agent", name="builder"), deny=["Agent(build*)"]) == "deny"
    assert decision(action("Agent", name="builder"), ask=["Agent"]) == "ask"
    assert decision(action("run_checks"), allow=["run_checks"]) == "allow"


# What no rule can change

PROTECTED = [
    ".git/hooks/pre-commit",
    ".GIT/config",
    ".git",
    "sub/.git/config",
    ".gi\u200ct/config",
    "．git/config",
    ".git./config",
    ".git::$INDEX_ALLOCATION/config",
    ".git\\hooks",
    "git~1/config",
    ".husky/pre-commit",
    ".bashrc",
    ".zshrc",
    ".profile",
    ".podium/agents/a.md",
    "podium.yaml",
    ".claude/settings.json",
    ".mcp.json",
    ".envrc",
    ".vscode/tasks.json",
    ".hu\u017fky/x",
    "keys/id_ed25519",
    "keys/server.pem",
]


@pytest.mark.parametrize("mode", ["default", "accept-edits", "bypass"])
@pytest.mark.parametrize("path", PROTECTED)
def test_protected_paths_are_asked_about_whatever_is_allowed(path: str, mode: Mode) -> None:
    rules = {"allow": ["Edit", "Edit(**)", f"Edit({escape_path(path)})" if path.isprintable() else "Edit", "Bash"]}

    assert check(action("write_file", path=path, content=""), rules, mode).decision == "ask"


@pytest.mark.parametrize(
    "command", ["echo x > .git/config", "cp x .git/hooks/post-commit", "tee .bashrc", "rm -r .podium"]
)
def test_protected_paths_are_asked_about_in_commands_too(command: str) -> None:
    assert check(command, {"allow": ["Bash", f"Bash({command})"]}, "bypass").decision == "ask"


def test_secrets_and_large_diffs_are_asked_about_although_allowed() -> None:
    edit = action("edit_file", path="src/a.py", edits=[])

    assert check(edit, {"allow": ["Edit"]}, changed_lines=400).decision == "allow"
    assert check(edit, {"allow": ["Edit"]}, changed_lines=401).decision == "ask"
    assert check(edit, {}, "accept-edits", changed_lines=401).decision == "ask"
    assert check(edit, {"allow": ["Edit"]}, changed_lines=401, large_diff=500).decision == "allow"
    assert decision(action("read_file", path=".env"), allow=["Read(./.env)"]) == "ask"
    assert decision("cat .env", allow=["Bash(cat .env)"]) == "ask"


def test_a_changed_environment_is_asked_about() -> None:
    changed = Action(run="r", agent="a", tool="bash", arguments={"command": "ls"}, environment={"LD_PRELOAD": "x"})

    assert check(changed, {"allow": ["Bash"]}).decision == "ask"


# Modes


def test_accepting_edits_accepts_edits_in_the_checkout_and_nothing_else() -> None:
    assert decision(action("edit_file", path="src/a.py", edits=[]), "accept-edits") == "allow"
    assert decision(action("write_file", path="/tmp/a", content=""), "accept-edits") == "ask"
    assert decision(action("edit_file", path="src/a.py"), "accept-edits", ask=["Edit"]) == "ask"
    assert decision("touch a", "accept-edits") == "ask"


def test_planning_only_reads() -> None:
    assert decision(action("read_file", path="a"), "plan") == "allow"
    assert decision(action("write_file", path="a"), "plan", allow=["Edit"]) == "deny"
    assert decision("git status && ls", "plan", allow=["Bash"]) == "allow"
    assert decision("git status", "plan") == "allow"
    for command in ("pytest", "touch a", "git add a", "ls > a", "sed -i p a", "find . -delete", "git branch x"):
        assert decision(command, "plan", allow=["Bash", f"Bash({command})"]) == "deny", command
    assert decision(action("mcp__x__y"), "plan", allow=["mcp__x"]) == "ask"


def test_not_asking_denies_what_would_be_asked() -> None:
    verdict = check("make", {}, "dont-ask")

    assert verdict.decision == "deny"
    assert "dont-ask mode denies instead of asking" in verdict.reason
    assert decision("make", "dont-ask", allow=["Bash(make)"]) == "allow"


def test_bypassing_keeps_what_rules_say() -> None:
    assert decision("curl x | sh", "bypass") == "allow"
    assert decision("make", "bypass", ask=["Bash(make)"]) == "ask"
    assert decision("make", "bypass", deny=["Bash(make)"]) == "deny"
    assert decision("ls '", "bypass") == "ask"


def test_a_mode_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(Mistake, match=r"yolo.*accept-edits"):
        check("ls", {}, "yolo")  # type: ignore[arg-type]  # what the test is about


# Narrowing


def test_a_repository_adds_ask_and_deny_and_its_allow_is_named_as_ignored() -> None:
    mine = Rules(allow=("Bash(ls *)",), ask=("Bash(make *)",))
    theirs = Rules(allow=("Bash", "Bash(ls *)"), ask=("Bash(make *)", "Edit"), deny=("Read(./x)",))

    both = narrow_rules(mine, theirs)

    assert both == Rules(("Bash(ls *)",), ("Bash(make *)", "Edit"), ("Read(./x)",))
    assert find_ignored_rules(mine, theirs) == ("Bash",)


# Rules as they are written


def test_rules_are_read_from_settings_with_their_examples() -> None:
    value = {
        "allow": [
            "Read",
            {
                "rule": "Bash(npm run test *)",
                "match": ["npm run test", "npm run test -- -t a"],
                "not_match": "npm run tests",
            },
        ],
        "deny": [{"rule": "Read(./secret/**)", "match": ["secret/a"], "not_match": ["public/a"]}],
        "ask": [
            {"rule": "mcp__x", "match": ["mcp__x__y"]},
            {"rule": "WebFetch(domain:a.b)", "match": ["https://a.b/"]},
        ],
    }

    rules = parse_rules(value, "podium.yaml")

    assert rules == Rules(("Read", "Bash(npm run test *)"), ("mcp__x", "WebFetch(domain:a.b)"), ("Read(./secret/**)",))
    assert parse_rules(None, "podium.yaml") == Rules()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"allow": [{"rule": "Bash(ls *)", "match": ["lsof"]}]}, "does not cover its example"),
        ({"allow": [{"rule": "Bash(git *)", "match": ["git -c a=b log"]}]}, "does not cover its example"),
        ({"deny": [{"rule": "Read(.env)", "not_match": [".env"]}]}, "covers its example"),
        ({"deny": [{"rule": "Read(.env)", "match": 7}]}, "7 under match"),
        ({"deny": [{"rule": "Read(.env)", "match": [".env", 7]}]}, "7 under match"),
        ({"allow": ["Bash("]}, r'podium.yaml: the rule "Bash\(" cannot be used: expected Tool'),
        ({"allow": ["Bash()"]}, "its parentheses are empty"),
        ({"allow": ["Bash(echo 'x)"]}, "quote"),
        ({"allow": ["*"]}, "Tool or Tool"),
        ({"allow": ["Rea*"]}, "MCP"),
        ({"allow": ["run_checks(x)"]}, "does not accept a specifier"),
        ({"deny": ["Read(!x)"]}, "!"),
        ({"deny": ["Read(#x)"]}, "matches no path"),
        ({"deny": ["Read([z-a])"]}, "gitignore"),
        ({"deny": ["Read([[:alpha:]])"]}, "not a set of letters"),
        ({"deny": ["Read(/a[)"]}, "not a set of letters"),
        ({"deny": ["Read(/)"]}, "matches no path"),
        ({"deny": ["Read(a\\)"]}, "gitignore"),
        ({"deny": ["WebFetch(example.com)"]}, "domain:example.com"),
        ({"deny": ["Ba\u200bsh"]}, "Tool or Tool"),
        ({"deny": ["Bash(a\nb)"]}, "on one line"),
        ({"deny": "Bash"}, "a list of rules"),
        ({"deny": [7]}, "a rule is a string"),
        ({"deny": [{"rule": "Bash", "macth": []}]}, "macth"),
        ({"deny": [{"rule": "Bash", "match": [7]}]}, "an example must be a string"),
        ({"denny": ["Bash"]}, "denny"),
        (["Bash"], "under allow, ask and deny"),
    ],
)
def test_an_invalid_rule_is_a_mistake_that_says_why(value: Any, said: str) -> None:
    with pytest.raises(Mistake, match=said):
        parse_rules(value, "podium.yaml")


# Rules from answers


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("git status -s", "Bash(git status *)"),
        ("npm run test -- --watch=false", "Bash(npm run test *)"),
        ("pytest -q", "Bash(pytest *)"),
        ("cargo bench --all", "Bash(cargo bench --all)"),
        ("./build.sh 'a b*'", "Bash(./build.sh 'a b*')"),
        (action("edit_file", path="src/a[1]*.py"), "Edit(/src/a\\[1\\]\\*.py)"),
        (action("web_fetch", url="https://docs.python.org/3/"), "WebFetch(domain:docs.python.org)"),
        (action("mcp__github__search"), "mcp__github__search"),
        (action("run_checks"), "run_checks"),
    ],
)
def test_always_saves_a_rule_that_says_what_it_covers(what: str | Action, rule: str) -> None:
    assert generalised(what) == rule


@pytest.mark.parametrize(
    "what",
    [
        "ls && git status",
        "ls | head",
        "bash -c ls",
        "python -c 'print(1)'",
        "python x.py",
        "npx cowsay",
        "env A=1 ls",
        "sudo ls",
        "xargs ls",
        "curl https://example.com",
        "rm -rf build",
        "npm install x",
        "git push --force",
        "git -c a=b log",
        "echo $(id)",
        "ls > a",
        "cat /etc/passwd",
        "cat .env",
        "find . -delete",
        "ls '",
        "",
        action("write_file", path=".git/config"),
        action("read_file", path=".env"),
        action("read_file", path="../x"),
        action("edit_file", path="a\nb"),
        action("edit_file", path="."),
        action("web_fetch", url="https://a@b/"),
        action("bad name (x)"),
    ],
)
def test_always_is_not_offered_where_it_would_cover_too_much(what: str | Action) -> None:
    assert generalised(what) is None


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Cn", "Co"]), min_size=1)


@given(NAMES, NAMES)
def test_an_escaped_path_is_matched_by_itself_and_by_no_other(path: str, other: str) -> None:
    rule = generalised(action("edit_file", path=path))
    if rule is None:
        return

    assert check(action("edit_file", path=path), parse_rules({"allow": [rule]}, "x")).rule == rule
    if other != path and "/" not in other:
        is_below = other.startswith(f"{path.strip('/')}/")
        assert is_below or check(action("edit_file", path=other), Rules(allow=(rule,))).decision == "ask"


@given(st.lists(st.text("ab*[]'\"\\ -$", max_size=5), min_size=1, max_size=4))
def test_a_saved_command_is_the_one_that_was_shown(words: list[str]) -> None:
    import shlex

    command = shlex.join(["tool", *words])
    rule = generalised(command)
    if rule is None:
        return

    assert rule == f"Bash({command})"
    assert check(command, Rules(allow=(rule,))).rule == rule
    assert check(f"{command} more", Rules(allow=(rule,))).decision == "ask"


# Properties

RULE_TEXTS = st.sampled_from(
    "Bash|Bash(git *)|Bash(git status)|Bash(ls*)|Bash(rm *)|Bash(* main)|Read|Read(/src/**)|Read(*.py)|Edit|Edit(.git)|"
    "Edit(/src/**)|Write|Grep|WebFetch|WebFetch(domain:a.test)|mcp__x|mcp__x__y|Agent|Agent(b*)|run_checks".split("|")
)
TEXTS = st.lists(RULE_TEXTS, max_size=4).map(tuple)
RULES = st.builds(Rules, TEXTS, TEXTS, TEXTS)
MODES: st.SearchStrategy[Mode] = st.sampled_from(("default", "accept-edits", "plan", "dont-ask", "bypass"))
SUBJECTS: st.SearchStrategy[str | Action] = st.one_of(
    st.sampled_from(
        "git status|ls|ls -la|rm x|git push origin main|echo x > src/a.py|git status && rm x|sudo rm x|ls $(rm x)|"
        "lsof".split("|")
    ),
    st.text(max_size=20),
    st.sampled_from(
        [
            action("read_file", path="src/a.py"),
            action("grep", pattern="x", path="src"),
            action("edit_file", path="src/a.py", edits=[]),
            action("write_file", path=".git/config", content=""),
            action("write_file", path="docs/a.md", content=""),
            action("web_fetch", url="https://a.test/"),
            action("mcp__x__y"),
            action("mcp__z__y"),
            action("Agent", name="builder"),
            action("run_checks"),
            action("other"),
        ]
    ),
)


@settings(max_examples=300)
@given(SUBJECTS, RULES, RULE_TEXTS, MODES)
def test_one_more_deny_never_lets_more_run(what: str | Action, rules: Rules, text: str, mode: Mode) -> None:
    stricter = Rules(rules.allow, rules.ask, (*rules.deny, text))

    assert STRICTNESS[check(what, stricter, mode).decision] >= STRICTNESS[check(what, rules, mode).decision]


@settings(max_examples=300)
@given(SUBJECTS, RULES, RULE_TEXTS, MODES)
def test_one_more_allow_never_overrides_deny_or_ask(what: str | Action, rules: Rules, text: str, mode: Mode) -> None:
    before = check(what, rules, mode)
    after = check(what, Rules((*rules.allow, text), rules.ask, rules.deny), mode)

    assert STRICTNESS[after.decision] <= STRICTNESS[before.decision]
    if before.rule in rules.deny + rules.ask and before.decision != "allow":
        assert after.decision == before.decision


@settings(max_examples=300)
@given(SUBJECTS, RULES, RULES, MODES)
def test_narrowing_never_allows_more(what: str | Action, rules: Rules, by: Rules, mode: Mode) -> None:
    assert (
        STRICTNESS[check(what, narrow_rules(rules, by), mode).decision] >= STRICTNESS[check(what, rules, mode).decision]
    )


@settings(max_examples=200)
@given(SUBJECTS, RULES, st.randoms(), MODES)
def test_the_order_of_rules_of_a_kind_does_not_matter(
    what: str | Action, rules: Rules, chance: Any, mode: Mode
) -> None:
    shuffled = Rules(*(tuple(chance.sample(texts, len(texts))) for texts in (rules.allow, rules.ask, rules.deny)))

    assert check(what, shuffled, mode).decision == check(what, rules, mode).decision


@settings(max_examples=200)
@given(
    st.text(max_size=30),
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=9), max_size=3),
)
def test_unknown_tools_and_arguments_are_never_allowed_unasked(tool: str, arguments: Mapping[str, Any]) -> None:
    known = {"ask_person", "report_status", "route_to", "check_workers", "get_worker_result", "agent", "git_diff"}
    if tool.lower() in known | {"read", "glob", "grep", "list_files", "read_file"}:
        return

    assert check(Action(run="r", agent="a", tool=tool, arguments=dict(arguments)), {}).decision == "ask"


@pytest.mark.parametrize(
    "tool", ["read_file", "write_file", "edit_file", "glob", "grep", "git_diff", "bash", "web_fetch"]
)
def test_an_argument_that_no_rule_knows_is_asked_about(tool: str) -> None:
    known = {"path": "a", "command": "ls", "url": "https://a.test/"}
    key = {"bash": "command", "web_fetch": "url"}.get(tool, "path")
    everything = {"allow": ["Read", "Edit", "Bash", "WebFetch"]}

    assert check(action(tool, **{key: known[key]}), everything).decision == "allow"
    assert check(action(tool, **{key: known[key], "sandbox": "off"}), everything).decision == "ask"


@settings(max_examples=300, deadline=None)
@given(st.text("ab rm'\"\\$`(){}<>|&;\n=*~!#-", max_size=60))
def test_no_text_breaks_the_command_parser(text: str) -> None:
    verdict = check(text, {"allow": ["Bash(a *)"], "deny": ["Bash(rm *)"]})

    assert verdict.decision in STRICTNESS
    assert verdict.reason
