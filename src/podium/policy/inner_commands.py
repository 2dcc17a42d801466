"""Find the inner command that a command runs, such as `rm a` in `sudo -u ada rm a`.

A command line does not show which options take a value, so several inner commands may be possible. The module also
determines whether Podium knows the program that a command runs. This module is only used to describe risks. Rules are
checked against every command that could run, and `shell_command` finds these commands.
"""

from __future__ import annotations

import re

from .command_words import Words, is_known_program, split_names
from .shell_program import (
    BEFORE_WRAPPED,
    COPIERS,
    EXEC_OPTIONS,
    INTERPRETER,
    PATHLESS,
    RUNNERS,
    SHELLS,
    WRAPPERS,
    WRITERS,
    get_program_name,
    is_read_only,
    is_runner,
)

MOST_COMMANDS = 50
STRING_RUNNERS = SHELLS | split_names("eval trap watch su ssh script")
"""Programs that can run one of their arguments as a command."""

BUILTINS = split_names(
    "[ [[ alias bg break builtin caller continue declare dirs disown enable exit export fg getopts hash help history "
    "jobs let local logout mapfile read readarray readonly return set shift shopt suspend times typeset ulimit umask "
    "unalias unset wait"
)
SYSTEM_PROGRAM = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]+")


def find_run_commands(words: Words) -> list[Words]:
    """Return the innermost commands that a command may run, or the command itself if it runs no other command.

    Only the first `MOST_COMMANDS` are followed. Each is a part of the words to their end, so none is followed twice.
    """
    innermost: list[Words] = []
    waiting = [words]
    followed: set[int] = set()
    while waiting:
        inner = waiting.pop()
        starts = [start for start in _find_inner_starts(inner) if start < len(inner)]
        if not starts or len(followed) >= MOST_COMMANDS:
            innermost.append(inner)
            continue
        new = [start for start in starts if len(inner) - start not in followed][:MOST_COMMANDS]
        followed.update(len(inner) - start for start in new)
        waiting.extend(inner[start:] for start in reversed(new))
    return innermost or [words]


def _find_inner_starts(words: Words) -> list[int]:
    """Return the positions where an inner command may begin."""
    name = get_program_name(words)
    if name == "find":
        return [at + 1 for at, word in enumerate(words) if word in EXEC_OPTIONS]
    if INTERPRETER.fullmatch(name):
        return [2] if words[1:2] == ("-m",) else []
    if name in WRAPPERS and not is_read_only(words):
        at = next((at for at in range(1, len(words)) if not BEFORE_WRAPPED.fullmatch(words[at])), len(words))
    elif is_runner(words, name):
        at = next((at for at in range(2, len(words)) if not words[at].startswith("-")), len(words))
    else:
        return []
    # `ssh` expects a host before the command. A word after an option can be the option's value.
    first = at + 1 if name == "ssh" else at
    return [first, first + 1] if words[at - 1].startswith("-") else [first]


def select_likely_commands(possible: list[Words]) -> list[Words]:
    """Return the possible commands whose program is known. If no program is known, return all possible commands."""
    return [one for one in possible if not _get_unknown_name(one)] or possible


def find_unknown_program(words: Words) -> str:
    """Return the unknown program that a command runs, or an empty string if Podium knows the program."""
    possible = find_run_commands(words)
    names = [_get_unknown_name(one) for one in possible]
    if not all(names):
        return ""
    return names[0] if len(names) == 1 else " ".join(words)


def _get_unknown_name(words: Words) -> str:
    head, name = words[0], get_program_name(words)
    if INTERPRETER.fullmatch(name):
        return _get_script_name(words)
    if re.search(r"\s", head):
        return ""  # a string that contains a command, which is parsed separately
    if "/" in head and not SYSTEM_PROGRAM.fullmatch(head):
        return head
    is_known = is_known_program(name) or name in WRAPPERS or name in RUNNERS or name in BUILTINS
    return "" if is_known or name in WRITERS or name in COPIERS or name in PATHLESS else head


def _get_script_name(words: Words) -> str:
    """Return the script that an interpreter runs, such as `build.py` for `python build.py`.

    If the first argument is an option, return the interpreter with that option, such as `python -c`. Without arguments,
    return the interpreter. For `--version`, `-V` and `--help`, return an empty string.
    """
    if words[1:2] and words[1] in ("--version", "-V", "--help"):
        return ""
    if len(words) == 1:
        return words[0]
    return f"{words[0]} {words[1]}" if words[1].startswith("-") else words[1]
