"""Determine whether a command only uses its words, so that none of them can be the start of another command.

Deny and ask rules also apply to commands that a program runs. For a program that Podium does not know, any word may
start one. For the programs here, the words are text, names and paths: `echo rm x` and `git commit -m "rm x"` run no
`rm`.
"""

from __future__ import annotations

import re

from .command_words import Words, is_known_program, split_names
from .option_names import find_running_option
from .shell_program import BEFORE_WRAPPED, EXEC_OPTIONS, PATHLESS, RUNNERS, WRAPPERS, find_risks, get_program_name

NO_RUNNERS = PATHLESS | split_names(
    "cat head tail wc cut tr uniq tac rev nl fold paste comm join expand column od xxd hexdump strings base64 md5sum "
    "sha1sum sha256sum sha512sum cksum ls dir stat file du df grep egrep fgrep ggrep zgrep test [ which type whereis "
    "apropos whatis tldr hash id date sleep kill pkill pgrep killall ps touch mkdir rmdir rm unlink mv cp ln chmod "
    "chown chgrp tee mktemp realpath readlink diff cmp jq cd pushd popd export unset shift set return exit wait sum "
    "rename link printenv tput logger nslookup dig host ping man info help clear"
)
"""Programs that run no other program, whatever their words are."""

SUBCOMMANDS = {
    "git": "rebase bisect submodule filter-branch difftool mergetool archive fetch pull push clone ls-remote grep "
    "send-email config daemon instaweb hook maintenance for-each-repo svn p4",
    "docker": "run exec compose container buildx sandbox debug",
    "podman": "run exec compose container unshare machine",
    "kubectl": "exec run debug plugin attach cp",
    "npm": "exec x explore edit run-script init create config set",
    "pnpm": "exec dlx create config",
    "yarn": "exec dlx create config node",
    "pip": "config",
    "uv": "run tool",
    "poetry": "run config shell",
    "conda": "run",
    "cargo": "run install",
    "rustup": "run",
    "go": "run tool generate env",
    "gem": "exec",
    "bundle": "exec",
    "apt": "",
    "apt-get": "",
    "apt-cache": "",
    "dpkg": "",
    "apk": "",
    "dnf": "",
    "yum": "",
    "pacman": "",
    "brew": "sh",
    "gh": "alias extension codespace api config",
    "hg": "bisect",
    "svn": "",
    "aws": "",
    "gsutil": "",
    "systemctl": "edit",
    "terraform": "console",
    "helm": "plugin",
}
"""For each program, the subcommands that may run another command. The words of its other subcommands are only names."""

_GIT_OPTIONS = frozenset(("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--bare"))
_PLAIN_WRAPPERS = split_names("time nohup nice timeout gtimeout env sudo doas command builtin exec xargs setsid")
"""Wrappers whose first operand, apart from numbers and assignments, is the command."""
_PLAIN_RUNNERS = split_names("uv poetry pipenv pdm hatch rye bundle")


def runs_no_command(words: Words) -> bool:
    """Return whether none of a command's words can start another command."""
    name = get_program_name(words)
    if name in NO_RUNNERS:
        return True
    if name == "command" and words[1:2] in (("-v",), ("-V",)):
        return True
    if name == "find":
        return EXEC_OPTIONS.isdisjoint(words)
    if name in WRAPPERS:
        return False
    if name == "sed":
        words = tuple(word for word in words if not _IN_PLACE.fullmatch(word))
    if is_known_program(name) and all(risk.kind != "deed" for risk in find_risks(words)):
        return True
    return name in SUBCOMMANDS and _uses_only_names(words, name)


_IN_PLACE = re.compile(r"-i(?:\.\w+)?|--in-place(?:=\.\w+)?")


def _uses_only_names(words: Words, name: str) -> bool:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if name == "git" and words[at] == "-C":
            at += 1
        elif name == "git" and words[at] not in _GIT_OPTIONS:
            return False
        at += 1
    subcommand = words[at] if at < len(words) else ""
    is_running = subcommand in SUBCOMMANDS[name].split() or subcommand in RUNNERS.get(name, ())
    return not is_running and (name == "git" or not find_running_option(words))


def find_plain_inner_start(words: Words) -> int:
    """Return the position of the command that a wrapper surely runs, or 0 if options leave that open."""
    name = get_program_name(words)
    at = 1 if name in _PLAIN_WRAPPERS else 2 if name in _PLAIN_RUNNERS and words[1:2] in (("run",), ("exec",)) else 0
    if not at:
        return 0
    while at < len(words) and not words[at].startswith("-") and BEFORE_WRAPPED.fullmatch(words[at]):
        at += 1
    return at if at < len(words) and not words[at].startswith("-") else 0
