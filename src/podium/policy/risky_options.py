"""Options and operands that make a program do more than its name suggests.

A wildcard in an allow rule matches only harmless words. Words that make a program run another program, write a
file or load other code are *risks*: only a rule that spells them out allows them. For a few programs the harmless
options are listed and every other option is a risk. For the others the risks are listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

Words = tuple[str, ...]


def split_names(text: str) -> frozenset[str]:
    """Return the words of a space-separated list."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Risk:
    """A word of a command, by position, that a wildcard does not cover.

    A `deed` does more than read. An `outside` word may name a path outside the checkout. A `guarded` word is not
    allowed even by a rule that spells it out.
    """

    place: int
    why: str
    kind: Literal["deed", "outside", "guarded"] = "deed"


def find_option_risks(words: Words, name: str) -> Iterator[Risk]:
    """Yield the known risks of the program with this name."""
    if (known := SPECIAL.get(name)) is not None:
        yield from known(words)
    elif name in OPTIONS:
        yield from _find_listed_option_risks(words, 1, OPTIONS[name])


def find_pattern_places(words: Words, name: str) -> frozenset[int]:
    """Return the positions of search patterns and scripts, so that a pattern like `/api/v1` is not taken for a path."""
    if name in ("sed", "gsed"):
        return frozenset(_find_sed_scripts(words))
    if name in ("awk", "gawk", "mawk"):
        return frozenset((_find_awk_program(words),))
    if name not in ("grep", "egrep", "fgrep", "rg"):
        return frozenset()
    for word in words[1:]:
        # With the pattern in an option, the first operand is a file.
        if word.startswith(("--r", "--f")) or (re.match(r"-[^-]", word) and re.search("[ef]", word)):
            return frozenset()
    return frozenset([at for at, word in enumerate(words) if at and not word.startswith("-")][:1])


def _find_listed_option_risks(words: Words, start: int, known: str) -> Iterator[Risk]:
    """Yield the listed options among the words: long ones also by a prefix, short ones also in clusters."""
    listed = known.split()
    for at, word in enumerate(words[start:], start):
        if word == "--":
            return
        option = word.partition("=")[0]
        if option.startswith("--"):
            bad = any(name.startswith(option) for name in listed)
        elif option.startswith("-"):
            bad = any(name == option or (len(name) == 2 and name[1] in option[1:]) for name in listed)
        else:
            bad = "=" in word and any(name.endswith("=") and word.startswith(name) for name in listed)
        if bad:
            yield Risk(at, f"{option} makes {words[0]} do more than its name suggests")


OPTIONS = {
    "rg": "--pre --pre-glob --hostname-bin --search-zip -z --hidden -. --unrestricted -u",
    "sort": "--output --compress-program --temporary-directory --files0-from -o -T",
    "tree": "-o -R",
    "date": "-s --set",
    "printf": "-v",
    "file": "-C -m --magic-file --compile",
    "make": "-f -C -E -I --file --makefile --directory --eval --include-dir SHELL= MAKEFLAGS= CC= CXX=",
    "go": "-exec -toolexec -o -modfile -overlay -C",
    "cargo": "--config --manifest-path --target-dir -Z",
    "ruff": "--config --output-file -o",
    "mypy": "--config-file --python-executable --install-types --cache-dir --junit-xml",
    "tar": "--to-command --use-compress-program --checkpoint-action --rmt-command --rsh-command --info-script -I -F",
    "rsync": "-e --rsh --rsync-path",
    "curl": "-K --config -o -O --output --remote-name -T --upload-file --data-binary --form -F",
    "wget": "-O --output-document -i --input-file --use-askpass --post-file --config -e --execute",
    "zip": "-T --unzip-command",
    "man": "-P --pager -H --html -C",
    "less": "-o -O -k --log-file --LOG-FILE --lesskey-file",
    "jq": "-f --from-file -L",
    "yq": "-i --inplace",
}


# Programs that search files and edit text -----------------------------------------------------------


def _find_find_risks(words: Words) -> Iterator[Risk]:
    for at, word in enumerate(words[1:], 1):
        if word.startswith("-") and word not in FIND_TESTS:
            yield Risk(at, f"{word} makes find do more than search")


FIND_TESTS = split_names(
    "-name -iname -path -ipath -wholename -iwholename -type -xtype -maxdepth -mindepth -size -mtime -mmin -atime -amin "
    "-ctime -cmin -newer -anewer -cnewer -empty -print -print0 -printf -ls -prune -not -o -or -a -and -regex -iregex "
    "-regextype -perm -user -group -uid -gid -links -inum -samefile -lname -ilname -nouser -nogroup -xdev -mount "
    "-depth -true -false -readable -writable -executable -quit -daystart -noleaf -H -L -P --version"
)


def _find_sed_risks(words: Words) -> Iterator[Risk]:
    scripts = _find_sed_scripts(words)
    for at, word in enumerate(words[1:], 1):
        if at in scripts:
            if not all(_SED_STEP.fullmatch(step.strip()) for step in scripts[at].split(";")):
                yield Risk(at, "its script does more than print, delete and substitute")
        elif word.startswith("-") and not _SED_OPTION.fullmatch(word):
            yield Risk(at, f"{word} makes sed write a file or read its script from one")


def _find_sed_scripts(words: Words) -> dict[int, str]:
    """Return the scripts among the words, by position."""
    found: dict[int, str] = {}
    for at, word in enumerate(words[1:], 1):
        if at > 1 and re.fullmatch(r"-[nErsuz]*e|--expression", words[at - 1]):
            found[at] = word
        elif word.startswith("--expression="):
            found[at] = word.partition("=")[2]
    if not found:
        found = {at: word for at, word in enumerate(words) if at and not word.startswith("-")}
        found = dict(list(found.items())[:1])
    return found


_SED_OPTION = re.compile(r"-[nErsuz]*e?|--(?:quiet|silent|regexp-extended|posix|separate|null-data|sandbox|version)?")
_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\[]|\\[^cn]|\[[^\]/\\]+\])+/I?)"
# No labels, no files, no `e`: each step is a complete command, so splitting at `;` is safe.
_SED_STEP = re.compile(
    rf"(?:{_ADDRESS}(?:,(?:{_ADDRESS}|\+\d+))?\s*!?\s*)?"
    r"(?:[pdqDPnNgGhHx=]|s(?P<by>[/|#,@%])(?:(?!(?P=by))[^\\]|\\.)*(?P=by)(?:(?!(?P=by))[^\\]|\\.)*(?P=by)[gpIi\d]*)"
)


def _find_awk_risks(words: Words) -> Iterator[Risk]:
    at = _find_awk_program(words)
    program = words[at] if at < len(words) else "-"
    if program.startswith("-") or re.search(r"[|<>@]|system|getline|ENVIRON", program):
        yield Risk(at, "its script may run another program or write a file")


def _find_awk_program(words: Words) -> int:
    at = 1
    while at < len(words) and words[at].startswith("-F"):
        at += 2 if words[at] == "-F" else 1
    return at


def _find_second_operand_risks(words: Words) -> Iterator[Risk]:
    """Yield the operands after the first one, for programs that write to them, as in `uniq FROM TO`."""
    operands = [at for at, word in enumerate(words[1:], 1) if not word.startswith("-")]
    yield from (Risk(at, f"{words[0]} writes to {words[at]}") for at in operands[1:])


# Project tests and scripts ---------------------------------------------------------------------------


def _find_pytest_risks(words: Words) -> Iterator[Risk]:
    for at, word in enumerate(words[1:], 1):
        option = word.partition("=")[0]
        if word.startswith("@"):
            yield Risk(at, f"{word} names a file with more options")
        elif option.startswith("--"):
            if option not in PYTEST_LONG:
                yield Risk(at, f"{option} may make pytest load or write something else")
        elif option.startswith("-") and not _PYTEST_SHORT.fullmatch(word):
            following = words[at + 1] if at + 1 < len(words) else ""
            if not _PYTEST_PAIR.fullmatch(f"{word}{following}" if len(word) == 2 else word):
                yield Risk(at, f"{option} may make pytest load or write something else")


_PYTEST_SHORT = re.compile(r"-[qvxslhV]*(?:[kmnr].*)?", re.DOTALL)
# Disabling a plug-in and built-in warnings are harmless. pytest imports any other name given here.
_PYTEST_PAIR = re.compile(r"-pno:\S+|-W(?:error|ignore|default|always|once|module)(?:::[A-Za-z]+)?")
PYTEST_LONG = split_names(
    "-- --lf --last-failed --ff --failed-first --nf --new-first --sw --stepwise --stepwise-skip --tb --durations "
    "--durations-min --maxfail --collect-only --co --exitfirst --verbose --quiet --verbosity --capture --show-capture "
    "--no-header --no-summary --color --strict --strict-markers --strict-config --showlocals --no-showlocals "
    "--deselect --ignore --ignore-glob --fixtures --fixtures-per-test --markers --version --help --disable-warnings "
    "--runxfail --setup-show --setup-only --setup-plan --numprocesses --timeout --cache-show --doctest-modules "
    "--full-trace --cov --no-cov --keep-duplicates --continue-on-collection-errors --code-highlight --hypothesis-seed"
)


def _find_npm_risks(words: Words) -> Iterator[Risk]:
    """Yield everything except running project scripts and listing. The words after `--` go to the script."""
    first = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
    if first < len(words) and words[first] not in ("run", "run-script", "test", "t", "ls", "list"):
        yield Risk(first, f"{words[0]} {words[first]} does more than run a script of the project")
    passed_on = words.index("--") if "--" in words else len(words)
    for at, word in enumerate(words[1:], 1):
        option = word.partition("=")[0]
        if at < passed_on and word.startswith("-") and option not in NPM_OPTIONS:
            yield Risk(at, f"{option} may change what {words[0]} runs")
        elif at > passed_on and _SCRIPT_OPTION.match(option):
            yield Risk(at, f"{option} may load other code")


NPM_OPTIONS = split_names("-s --silent --if-present -w --workspace --workspaces -ws --ignore-scripts -v --version")
_SCRIPT_OPTION = re.compile(
    r"-[rcepi]|--(?:require|import|loader|experimental-loader|config|eval|exec|print|global|setup|test-?runner|runner|"
    r"env|transform|resolver|reporter|plugin|preload|inspect|node-options|output|project|root|prefix|shell)",
    re.IGNORECASE,
)


def _find_cd_risks(words: Words) -> Iterator[Risk]:
    if len(words) < 2 or any(word.startswith("-") for word in words[1:]):
        yield Risk(1, f"{words[0]} leaves the checkout")


# git -------------------------------------------------------------------------------------------------

GIT_READS = split_names(
    "status log diff show rev-parse ls-files ls-tree blame annotate describe shortlog rev-list merge-base name-rev "
    "for-each-ref show-ref show-branch count-objects check-ignore cat-file diff-tree diff-index diff-files whatchanged "
    "cherry range-diff grep branch tag remote stash worktree reflog version"
)
GIT_EVERYDAY = frozenset(("add", "commit"))
GIT_GLOBAL = frozenset(("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--version"))
GIT_OPTIONS = (
    "--output --ext-diff --textconv --filters --show-signature --open-files-in-pager --upload-pack --receive-pack "
    "--exec --config --config-env --template --no-verify --force --force-with-lease --mirror --delete --hard --help "
    "--interactive --edit --extcmd --tool --separate-git-dir --recurse-submodules --strategy --gpg-sign --exec-path "
    "--no-index"
)
GIT_SHORT = {
    "commit": "-n -t",
    "push": "-f -d",
    "grep": "-O",
    "rebase": "-x -i",
    "clone": "-u -c",
    "difftool": "-x -t",
    "add": "-p -i -e -f",
    "archive": "-o",
    "format-patch": "-o",
}
GIT_LISTS = {
    "branch": "-a -r -v -vv -l --list --all --remotes --verbose --show-current --merged --no-merged --contains --sort "
    "--format --points-at --no-color --color --column",
    "tag": "-l --list -n --contains --no-contains --merged --no-merged --sort --format --points-at --column",
    "remote": "-v --verbose",
}
"""Subcommands that only list with these options. With operands or other options they change something."""
GIT_SHOWS = {"remote": ("get-url",), "stash": ("list", "show"), "worktree": ("list",), "reflog": ("show", "exists")}
"""Words after a subcommand with which it only shows something."""
_TAKES_OPERANDS = ("-l", "--list", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at")


def find_git_subcommand(words: Words) -> tuple[int, str]:
    """Return the position and name of git's subcommand. An option that changes git itself counts as one."""
    for at in range(1, len(words)):
        if words[at] not in GIT_GLOBAL:
            return at, words[at]
    return len(words), ""


def _find_git_risks(words: Words) -> Iterator[Risk]:
    at, subcommand = find_git_subcommand(words)
    if subcommand.startswith("-"):
        yield Risk(len(words), f"{subcommand} changes how git works")
        return
    if subcommand and subcommand not in GIT_READS and subcommand not in GIT_EVERYDAY:
        yield Risk(at, f"git {subcommand} does more than a rule for git in general allows")
    rest = words[at + 1 :]
    yield from _find_listed_option_risks(words, at + 1, f"{GIT_OPTIONS} {GIT_SHORT.get(subcommand, '')}")
    if subcommand == "commit" and not any(
        re.match(r"-[a-z]*[mFC]|--(?:message|no-edit|file|reuse)", word) for word in rest
    ):
        yield Risk(len(words), "git commit opens an editor")
    if subcommand in GIT_LISTS or subcommand in GIT_SHOWS:
        yield from _find_git_listing_risks(subcommand, rest, at + 1)
    for place, word in enumerate(rest, at + 1):
        if "::" in word or "%G" in word or "%(signature" in word or (subcommand == "push" and word[:1] in ("+", ":")):
            yield Risk(place, f"{word} makes git run a program or overwrite the work of others")


def _find_git_listing_risks(subcommand: str, rest: Words, start: int) -> Iterator[Risk]:
    """Yield the words with which the subcommand does more than list."""
    if rest and rest[0] in GIT_SHOWS.get(subcommand, ()):
        return
    if subcommand == "stash" and not rest:
        yield Risk(start, "git stash removes changes from the checkout")
    lists = GIT_LISTS.get(subcommand, "").split()
    takes_operands = any(word.partition("=")[0] in _TAKES_OPERANDS for word in rest)
    for at, word in enumerate(rest, start):
        if word.partition("=")[0] not in lists and (word.startswith("-") or not takes_operands):
            yield Risk(at, f"git {subcommand} {word} changes something")


SPECIAL: dict[str, Callable[[Words], Iterator[Risk]]] = {
    "git": _find_git_risks,
    "find": _find_find_risks,
    "sed": _find_sed_risks,
    "gsed": _find_sed_risks,
    "awk": _find_awk_risks,
    "gawk": _find_awk_risks,
    "mawk": _find_awk_risks,
    "pytest": _find_pytest_risks,
    "py.test": _find_pytest_risks,
    "npm": _find_npm_risks,
    "pnpm": _find_npm_risks,
    "yarn": _find_npm_risks,
    "cd": _find_cd_risks,
    "pushd": _find_cd_risks,
    "uniq": _find_second_operand_risks,
    "xxd": _find_second_operand_risks,
}
