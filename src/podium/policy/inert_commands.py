"""Determine whether a command only uses its words, so that none of them can be the start of another command.

Deny and ask rules also apply to commands that a program runs. For a program that Podium does not know, any word may
start one. For the programs here, the words are text, names and paths: `echo rm x` and `git commit -m "rm x"` run no
`rm`.
"""

from __future__ import annotations

import re

from .command_words import Words, is_known_program, split_names
from .option_names import find_running_option
from .shell_program import BEFORE_WRAPPED, EXEC_OPTIONS, PATHLESS, WRAPPERS, find_risks, get_program_name

NO_RUNNERS = PATHLESS | split_names(
    "cat head tail wc cut tr uniq tac rev nl fold paste comm join expand column od xxd hexdump strings base64 md5sum "
    "sha1sum sha256sum sha512sum cksum ls dir stat file du df grep egrep fgrep ggrep zgrep test [ which type whereis "
    "apropos whatis tldr id date sleep kill pkill pgrep killall ps touch mkdir rmdir rm unlink mv cp ln chmod "
    "chown chgrp tee mktemp realpath readlink diff cmp jq cd pushd popd unset shift return exit wait sum "
    "rename link printenv tput logger nslookup dig host ping help clear"
)
"""Programs that run no other program, whatever their words are."""

_OF_NODE = (
    "install i ci add remove rm r un uninstall unlink ls list outdated update up upgrade info view v show search "
    "audit why explain pack publish link dedupe prune cache"
)
_OF_DEBIAN = (
    "install remove purge search show list update upgrade full-upgrade dist-upgrade autoremove autoclean clean "
    "policy depends rdepends download madison build-dep reinstall"
)
_OF_FEDORA = "install remove erase search info list update upgrade check-update provides repoquery reinstall autoremove"
_OF_DOCKER = (
    "build commit diff events export history image images import info inspect kill load login logout logs "
    "network pause port ps pull push rename restart rm rmi save search start stats stop system tag unpause version "
    "volume wait"
)
_OF_CONDA = "install remove list search update create info"
SUBCOMMANDS = {
    "git": "add am apply blame branch cat-file checkout cherry-pick clean commit describe diff for-each-ref gc init "
    "log format-patch ls-files ls-tree merge merge-base mv notes reflog remote reset restore rev-list rev-parse revert "
    "rm shortlog show show-ref stash status switch symbolic-ref tag update-index update-ref whatchanged worktree",
    "docker": _OF_DOCKER,
    "podman": _OF_DOCKER,
    "kubectl": "get describe delete logs label annotate apply rollout scale explain top wait version",
    "npm": _OF_NODE,
    "pnpm": _OF_NODE,
    "yarn": _OF_NODE,
    "pip": "install uninstall download show list freeze check index wheel cache",
    "uv": "add remove pip sync lock tree venv cache python init build publish version",
    "poetry": "add remove install update show lock check build publish search version",
    "conda": _OF_CONDA,
    "cargo": "add remove rm uninstall tree metadata search update fetch clean new init publish info",
    "rustup": "update install toolchain target component show default",
    "go": "get mod list install doc version clean",
    "gem": "install uninstall list search info update fetch",
    "bundle": "add remove install update info show list outdated check",
    "apt": _OF_DEBIAN,
    "apt-get": _OF_DEBIAN,
    "apt-cache": _OF_DEBIAN,
    "dpkg": "*",
    "apk": "add del search info update upgrade fetch list",
    "dnf": _OF_FEDORA,
    "yum": _OF_FEDORA,
    "pacman": "*",
    "brew": "install uninstall remove rm list ls info search upgrade update outdated deps uses link unlink pin unpin "
    "cleanup reinstall tap untap services desc leaves",
    "gh": "pr issue release run workflow label search gist project",
    "hg": "add remove rm commit ci log diff status st update mv cp tag branch revert addremove forget annotate cat",
    "svn": "add rm del delete remove commit ci update up checkout co status st diff log info list ls mv cp revert",
    "aws": "*",
    "gsutil": "*",
    "systemctl": "status start stop restart reload enable disable is-active is-enabled show list-units daemon-reload",
    "terraform": "plan apply validate init fmt show state output destroy import workspace version providers graph",
    "helm": "install upgrade uninstall delete list ls status history get repo search show template pull lint rollback",
}
"""For each program, the subcommands whose words are only names, so none starts a command. `*` is every subcommand."""

_OPTIONS_BEFORE = {
    "git": "-C=",
    "docker": "-H= --host= --context=",
    "kubectl": "-n= --namespace= --context=",
    "helm": "-n= --namespace= --kube-context=",
    "npm": "--prefix= -w= --workspace=",
    "pnpm": "-C= --dir= --filter= -r -w",
    "yarn": "--cwd=",
    "uv": "--directory= --project=",
    "poetry": "-C= --directory=",
    "go": "-C=",
    "hg": "-R=",
}
"""For each program, options before the subcommand. Those with `=` take the next word as their value."""
_FLAGS_BEFORE = {
    "git": split_names("--no-pager -P --no-optional-locks --literal-pathspecs --bare"),
    "": split_names("-y -q -qq -g --yes --quiet --assume-yes --no-cache --verbose --silent --global"),
}
_EVALUATING = split_names("printf test [ unset wait")
"""Builtins of the shell that evaluate the subscript of an array, which can contain a substitution."""
_PLAIN_WRAPPERS = split_names("time nohup nice timeout gtimeout env sudo doas command builtin exec xargs setsid")
"""Wrappers whose first operand, apart from numbers and assignments, is the command."""
_PLAIN_RUNNERS = split_names("uv poetry pipenv pdm hatch rye bundle")


def runs_no_command(words: Words) -> bool:
    """Return whether none of a command's words can start another command."""
    name = get_program_name(words)
    if name in _EVALUATING and any("[" in word and ("$(" in word or "`" in word) for word in words[1:]):
        return False
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
    """Return whether the subcommand takes only names. After an unknown option, which word that is stays open."""
    known = SUBCOMMANDS[name].split()
    options = _OPTIONS_BEFORE.get(name, "").split()
    flags = _FLAGS_BEFORE.get(name, _FLAGS_BEFORE[""])
    at = 1
    while at < len(words) and words[at].startswith("-") and known != ["*"]:
        if f"{words[at]}=" in options:
            at += 1
        elif words[at] not in flags and words[at] not in options and (name == "git" or "=" not in words[at]):
            return False
        at += 1
    if at < len(words) and known != ["*"] and words[at] not in known:
        return False
    if name.startswith("apt") and any(word.startswith(("-o", "-c", "--o", "--c")) for word in words):
        return False  # apt runs the programs that its configuration names: `-o DPkg::Pre-Invoke::=PROGRAM`
    return name == "git" or not find_running_option(words)


def find_plain_inner_start(words: Words) -> int:
    """Return the position of the command that a wrapper surely runs, or 0 if options leave that open."""
    name = get_program_name(words)
    at = 1 if name in _PLAIN_WRAPPERS else 2 if name in _PLAIN_RUNNERS and words[1:2] in (("run",), ("exec",)) else 0
    if not at:
        return 0
    while at < len(words) and not words[at].startswith("-") and BEFORE_WRAPPED.fullmatch(words[at]):
        at += 1
    return at if at < len(words) and not words[at].startswith("-") else 0
