"""The programs in a shell command: what a simple command reads, changes and runs.

Only the words of the command count. A program that is not listed is assumed to have no risky options, but its
paths are still checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from .path_rules import is_protected, is_sensitive, locate_path
from .risky_options import (
    GIT_READS,
    Risk,
    Words,
    find_git_subcommand,
    find_option_risks,
    find_pattern_places,
    split_names,
)


def get_program_name(words: Words) -> str:
    """Return the name of the program in lower case, without its folder: `rm` for `/bin/RM`."""
    return words[0].rpartition("/")[2].lower() if words else ""


@lru_cache(maxsize=1024)
def find_risks(words: Words) -> tuple[Risk, ...]:
    """Return every word of a simple command that a wildcard does not cover."""
    return tuple(_find_risks(words))


def _find_risks(words: Words) -> Iterator[Risk]:
    name = get_program_name(words)
    if name in WRAPPERS:
        yield from _find_wrapper_risks(words, name)
        return
    yield from _find_interpreter_risks(words) if INTERPRETER.fullmatch(name) else find_option_risks(words, name)
    if name not in PATHLESS:
        looked_for = find_pattern_places(words, name)
        for at, word in enumerate(words):
            if at not in looked_for:
                yield from _find_path_risks(at, word)


def is_read_only(words: Words) -> bool:
    """Return whether the command is known to change nothing."""
    known = words[0] in READERS or (words[0] == "git" and find_git_subcommand(words)[1] in GIT_READS)
    return known and not any(risk.kind == "deed" for risk in find_risks(words))


def find_mentioned_paths(words: Words) -> list[str]:
    """Return the words that a program could take for paths. Programs that open no path have none."""
    return [] if get_program_name(words) in PATHLESS else [path for word in words[1:] for path in _find_paths(word)]


def find_changed_paths(words: Words) -> list[str]:
    """Return the paths that a command is known to write, move or delete."""
    return [word.removeprefix("of=") for word in _find_changed_operands(words) if not word.startswith("-")]


def _find_changed_operands(words: Words) -> Words:
    """Return the words that name what a command is known to change, including options among them."""
    name = get_program_name(words)
    if name in WRITERS:
        return words[1:]
    if name in COPIERS:
        return words[-1:]
    if name == "git":
        at, subcommand = find_git_subcommand(words)
        return words[at + 1 :] if subcommand in GIT_WRITES else ()
    if name == "sed" and any(re.match(r"-[a-zA-Z]*i|--in", word) for word in words[1:]):
        return words[1:]
    return ()


@lru_cache(maxsize=4096)
def _find_paths(word: str) -> tuple[str, ...]:
    """Return the possible paths in a word: all of it, an option's value, or the text after `@` or `:` (`HEAD:.env`)."""
    paths = [rest for mark in "=:@" if mark in word and (rest := word.partition(mark)[2])]
    if not word.startswith("-"):
        paths.insert(0, word)
    elif not word.startswith("--") and len(word) > 2:
        paths.insert(0, word[2:])
    return tuple(paths)


def _find_path_risks(at: int, word: str) -> Iterator[Risk]:
    if not _ADDRESS.match(word):
        for path in _find_paths(word):
            if is_protected(path):
                yield Risk(at, f"{path} is protected", "guarded")
            elif is_sensitive(path):
                yield Risk(at, f"{path} may contain secrets", "guarded")
            elif not locate_path(path).is_inside:
                yield Risk(at, f"{path} may be outside the checkout", "outside")


_ADDRESS = re.compile(r"(?:https?|wss?|git|ssh)://")


def _find_wrapper_risks(words: Words, name: str) -> Iterator[Risk]:
    """Yield the risks of a command that runs another: the start of that command, and its own risks."""
    at = 1
    while at < len(words) and _BEFORE_WRAPPED.fullmatch(words[at]):
        if name in TEXT_READERS or "=" in words[at]:
            yield Risk(at, f"{name} {words[at]} changes what runs")
        at += 1
    yield Risk(at, f"{name} runs another command")
    if name in TEXT_READERS - SHELLS:
        # Commands from standard input or inside a string are not among the words.
        yield Risk(len(words), f"{name} runs code that is not part of the command")
    elif at < len(words):
        yield from (Risk(at + risk.place, risk.why, risk.kind) for risk in find_risks(words[at:]))


# An option, a duration, a number or an assignment before the wrapped command.
_BEFORE_WRAPPED = re.compile(r"-.*|\d+(?:\.\d+)?[smhd]?|[A-Za-z_]\w*=.*", re.DOTALL)


def _find_interpreter_risks(words: Words) -> Iterator[Risk]:
    """Yield the options before the script, which make the interpreter run other code."""
    for at, word in enumerate(words[1:], 1):
        if word in ("--version", "-V", "--help") or not word.startswith("-"):
            return
        yield Risk(at, f"{word} makes {words[0]} run code")
        if word == "-m" and at + 1 < len(words):
            yield Risk(at + 1, "-m runs a module")
            yield from (Risk(at + 1 + risk.place, risk.why, risk.kind) for risk in find_risks(words[at + 1 :]))
            return
    yield Risk(len(words), f"{words[0]} runs code that is not part of the command")


INTERPRETER = re.compile(
    r"(?:python|pypy|ruby|perl|php|lua|node|nodejs|deno|bun|rscript|julia|tclsh|osascript|pwsh|powershell|ghci|jshell|"
    r"groovy|scala|irb|sqlite3|psql|mysql|vim?|nvim|emacs|ed|ex)[\d.]*"
)

SHELLS = split_names("bash sh dash zsh ksh ash fish csh tcsh rbash")
TEXT_READERS = SHELLS | split_names(
    "eval source . su ssh env watch script flock trap alias at batch xargs parallel entr tmux screen expect busybox"
)
"""Programs that read a command from a string or a file."""

WRAPPERS = TEXT_READERS | split_names(
    "sudo doas runuser timeout gtimeout nice ionice chrt taskset nohup setsid stdbuf unbuffer time command builtin "
    "exec coproc strace ltrace gdb perf chroot unshare nsenter setpriv sg systemd-run toybox fakeroot proot numactl "
    "prlimit xvfb-run npx bunx uvx pipx dbus-run-session firejail bwrap caffeinate rlwrap direnv sshpass torsocks"
)
"""Programs whose arguments are, or contain, another command."""

PATHLESS = split_names("echo printf true false pwd : whoami basename dirname seq")
"""Programs that open no path."""

READERS = PATHLESS | split_names(
    "ls cat head tail wc grep egrep fgrep rg find stat file du df tree diff cmp sort uniq cut tr nl date which type "
    "realpath readlink md5sum sha1sum sha256sum cksum id uname jq column sed awk rev tac fold paste comm cd"
)
"""Programs that change nothing if none of their words is a risk."""

WRITERS = split_names(
    "tee mv rm rmdir touch mkdir truncate dd chmod chown chgrp patch unlink shred split mkfifo mknod ed ex vi vim nano"
)
"""Programs that change the files named by their operands."""

COPIERS = split_names("cp ln install rsync scp")
"""Programs that change their last operand."""

GIT_WRITES = split_names("rm mv checkout restore apply clean reset")
