"""Programs that run others: what a rule with a wildcard does not cover, and what deny rules see behind any program."""

from __future__ import annotations

import shlex
from pathlib import Path

from podium.policy import Rules, check
from podium.policy.inert_commands import NO_RUNNERS, SUBCOMMANDS
from podium.policy.option_names import RUNNING_NAMES
from podium.policy.shell_program import SHELLS, WRAPPERS

from .harmless_commands import read_commands

# Rules with a wildcard

HERE = Path(__file__).parent


def read_lines(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()


def allow_program(command: str) -> Rules:
    return Rules(allow=(f"Bash({command.split()[0]} *)", "Bash"))


def test_a_wildcard_covers_no_command_that_a_program_is_told_to_run() -> None:
    commands = read_lines("running_commands.txt")

    allowed = [one for one in commands if check(one, allow_program(one)).decision == "allow"]

    assert len(set(commands)) >= 220
    assert allowed == []


def test_a_wildcard_after_a_subcommand_covers_no_command_that_a_program_is_told_to_run() -> None:
    rules = {
        "bun run": "bun run bash",
        "jj log": "jj log --config x",
        "hg log": "hg log --config x",
        "bazel build": "bazel build --a_command=x",
    }

    for start, command in rules.items():
        assert check(command, {"allow": [f"Bash({start} *)"]}).decision == "ask", command


def test_what_a_rule_contains_is_allowed() -> None:
    for command in ("mytool --config a.toml x", "fd -X wc -l", "just --set a b", "bun run mine x", "mytool -c a.toml"):
        start, literal = shlex.split(command)[0], " ".join(shlex.split(command)[:-1])
        assert check(command, {"allow": [f"Bash({start} *)"]}).decision == "ask", command
        assert check(command, {"allow": [f"Bash({literal} *)"]}).decision == "allow", command
        assert check(command, {"allow": [f"Bash({command})"]}).decision == "allow", command


def find_question(command: str, rules: Rules) -> str:
    verdict = check(command, rules)
    return "" if verdict.decision == "allow" else verdict.reason


def test_a_wildcard_still_covers_honest_uses_of_these_programs() -> None:
    commands = read_lines("honest_commands.txt")
    rules = Rules(allow=("Bash", "Bash(deno task *)"))

    asked = {one: why for one in commands if (why := find_question(one, rules))}

    assert len(commands) > 50
    assert asked == {}


# Deny rules

DENY = Rules(allow=("Bash",), deny=("Bash(rm *)", "Bash(curl *)", "Bash(sudo *)", "Bash(git push *)"))


def test_a_denied_command_is_seen_behind_any_program_and_in_any_string() -> None:
    commands = read_lines("hidden_commands.txt")

    missed = [one for one in commands if check(one, DENY, "bypass").decision != "deny"]
    unasked = [one for one in commands if check(one, Rules(ask=DENY.deny), "bypass").decision != "ask"]

    assert len(set(commands)) >= 100
    assert missed == []
    assert unasked == []


def test_a_denied_command_is_seen_if_a_line_break_splits_its_words() -> None:
    for command in ("r\\\nm x", "git pu\\\nsh", "ls; cu\\\n\\\nrl x", "zzz && r\\\nm x"):
        assert check(command, DENY, "bypass").decision == "deny", command


def test_a_denied_command_is_seen_in_a_substitution_in_a_here_document() -> None:
    for body in ("`rm x`", "a `b` `rm x` c", "${x:-`rm x`}", "$(rm x)"):
        assert check(f"cat > a <<E_F\n{body}\nE_F", DENY, "bypass").decision == "deny", body
        assert check(f"cat > a <<'E_F'\n{body}\nE_F", DENY, "bypass").decision == "allow", body


def test_a_program_named_by_a_pattern_is_asked_about_if_there_are_deny_rules() -> None:
    for command in ("/bin/r? x", "/bin/[r]m x", "/bin/r* x", "zzz; ./r?"):
        assert check(command, DENY, "bypass").decision == "ask", command
        assert check(command, {}, "bypass").decision == "allow", command


def test_a_command_that_only_names_a_denied_program_is_not_denied() -> None:
    commands = [*read_lines("naming_commands.txt"), "cat > a <<'E'\nrm x\nE"]

    assert [one for one in commands if check(one, DENY, "bypass").decision == "deny"] == []


def test_usual_deny_rules_deny_no_harmless_command() -> None:
    denied = [one for one in read_commands() if check(one, DENY, "bypass").decision == "deny"]
    asked = [one for one in read_commands() if "more commands" in check(one, DENY, "bypass").reason]

    assert [one for one in denied if not one.startswith("curl ")] == []
    assert asked == []


def test_a_command_that_may_run_too_many_others_is_asked_about_if_there_are_deny_rules() -> None:
    command = "zzz " + " ".join(f"'a{number} b'" for number in range(150))

    assert check(command, DENY, "bypass").decision == "ask"
    assert check(f"{command} rm x", DENY, "bypass").decision in ("ask", "deny")
    assert check(command, {}, "bypass").decision == "allow"


# Paths


def test_a_denied_path_is_seen_in_joined_options_and_after_every_separator() -> None:
    words = ["-nfsecret.txt", "-fsecret.txt", f"-{'n' * 5_000}fsecret.txt", "--file=secret.txt", "a=b:secret.txt"]
    words += ["x,secret.txt", "@secret.txt", "-x=a,secret.txt", "HEAD:secret.txt", "-Isecret.txt", "-nf./secret.txt"]
    commands = [f"grep {word} a" for word in words] + ["zzz 'cat secret.txt'", "cd b && grep -nf../secret.txt a"]

    missed = [one[:40] for one in commands if check(one, {"deny": ["Read(./secret.txt)"]}, "bypass").decision != "deny"]

    assert missed == []
    assert check("grep -nfother.txt a", {"deny": ["Read(./secret.txt)"]}, "bypass").decision == "allow"
    assert check("zzz rm src/a.py", {"deny": ["Edit(/src/**)"]}, "bypass").decision == "deny"


def test_a_denied_path_is_seen_in_braces_variables_and_code() -> None:
    rules = {"deny": ["Read(./secret.txt)", "Edit(/src/**)"]}
    commands = ["cat {secret,x}.txt", "cat secret.{txt,a}", "cat secret.t{x..x}t", "x=secret.txt; cat $x"]
    commands += ["cat $PWD/secret.txt", 'cat "$PWD"/secret.txt', "cat ${PWD}/secret.txt", "cat ~+/secret.txt"]
    commands += ["python3 -c 'print(open(\"secret.txt\").read())'", "awk '{getline x <\"secret.txt\"}' a"]
    commands += ["cat $(echo secret.txt)", "cat `printf %s secret.txt`", 'true secret.txt && cat "$_"']
    commands += ["cat ${x:-secret.txt}", "for f in secret.txt; do cat $f; done", "for f in s*; do cat $f; done"]
    commands += ["read f <<< secret.txt; cat $f", "xargs cat <<< secret.txt", "sed 1rsecret.txt a"]
    commands += ["git -C sub diff ../secret.txt", "env --chdir=a/b cat ../../secret.txt", "cat $OLDPWD/secret.txt"]
    commands += ["cat /proc/self/cwd/secret.txt", "docker run -v ./secret.txt:/a x", "aws x --input file://secret.txt"]
    commands += ["cp -t src a", "cp --target-directory=src a", "install -t src a"]

    assert [one for one in commands if check(one, rules, "bypass").decision != "deny"] == []


def test_a_denied_path_that_is_only_printed_is_not_denied() -> None:
    rules = {"deny": ["Read(./secret.txt)", "Bash(rm *)"]}
    commands = ["echo secret.txt", "echo secret.txt >> .gitignore", "printf '%s\\n' secret.txt", "cat <<< 'rm x'"]

    assert [one for one in commands if check(one, rules, "bypass").decision == "deny"] == []


def test_a_denied_path_is_seen_in_a_pattern_that_the_shell_expands() -> None:
    rules = {"deny": ["Read(./secret.txt)", "Read(/a/.env.x)", "Edit(/b/c.py)"]}
    denied = ["cat secret.tx?", "cat sec*", "cat ./s*t", "cat *", "cat [s]ecret.txt", "cat < s*t", "cat a/.e*"]
    denied += ["cd a && cat ../s*t", "echo x > b/*.py", "rm b/*"]
    allowed = [
        "cat *.md",
        "cat a/*",
        "cat b/*.txt",
        "find . -name '*.txt'",
        "grep 's.*t' a",
        "git add 'sec*'",
        "cat b/*.py",
    ]

    assert [one for one in denied if check(one, rules, "bypass").decision != "deny"] == []
    assert [one for one in allowed if check(one, rules, "bypass").decision != "allow"] == []


# The tables


def test_no_program_that_runs_others_is_listed_as_one_that_does_not() -> None:
    assert not NO_RUNNERS & (WRAPPERS | SHELLS)
    assert not SUBCOMMANDS.keys() & (WRAPPERS | NO_RUNNERS)
    assert "command" in RUNNING_NAMES
