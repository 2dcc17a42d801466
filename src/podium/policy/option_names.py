"""Recognise options that make a program run another one or load a configuration, by their names.

The names are used for programs without a table of harmless options. A rule that contains such an option covers it; a
wildcard does not.
"""

from __future__ import annotations

import re

from .command_words import Words, split_names

RUNNING_NAMES = split_names(
    "pager exec execute execdir cmd cmds command commands shell config configs configuration conf cfg rc rcfile "
    "bazelrc initfile hook hooks preview editor plugin plugins loader preload eval evaluate script scripts program "
    "prog binary executable interpreter compiler linker runner launcher wrapper require browser viewer askpass rsh ssh "
    "extension addon toolchain startup become justfile makefile preprocessor renderer "
    "invoke javaagent agentpath agentlib terminal toolexec vettool difftool mergetool preexec postexec handler "
    "callback sendmail entrypoint settings"
)
"""Names, and parts of names such as `ssh-command`, of options whose value is a program, code or a configuration."""

WHOLE_NAMES = split_names("pre run init load bind bin sh expr source import cc cxx")
"""Names that only count alone: `--pre` runs a program, and `--pre-release` and `--dry-run` do not."""

_NOT_RUNNING = split_names("no ignore skip without disable list show print dump")
"""First parts of the names of options that turn something off or show it."""

_PART = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_CODE_OPTIONS = ("-c", "-e")
_PLAIN_VALUE = re.compile(r"[-+]?\d+(?:\.\d+)?|(?i:debug|release|relwithdebinfo|minsizerel)")
"""Numbers, and the usual names of build types, as in `dotnet test -c Release`."""

LONGEST_OPTION = 100
SHELL_NAMES = split_names("bash sh dash zsh ksh mksh ash fish csh tcsh sudo doas xargs busybox")


def find_running_option(words: Words) -> str:
    """Return the first word that may make a program run another one or load a configuration, or an empty string."""
    return next((words[at] for at in range(1, len(words)) if _is_running_option(words, at)), "")


def is_running_word(words: Words, at: int) -> bool:
    """Return whether the word at this position may be code, the name of a shell, or an option that runs a program."""
    word = words[at]
    is_code = "$(" in word or "`" in word or word.startswith("|") or word.endswith("|")
    return is_code or word in SHELL_NAMES or _is_running_option(words, at)


def _is_running_option(words: Words, at: int) -> bool:
    """Return whether the word at this position may make an unknown program run another one or load a configuration."""
    word = words[at]
    if not word.startswith("-") or word.strip("-") == "":
        return False
    name, sign, value = word.partition("=")
    if not sign:
        value = "".join(words[at + 1 : at + 2])
    is_plain = len(value) < LONGEST_OPTION and _PLAIN_VALUE.fullmatch(value) is not None
    if word[:2] in _CODE_OPTIONS and (len(name) == 2 or not name[2:].isalnum()):
        return not is_plain and (len(word) > 2 or not (value == "" or value.startswith("-")))
    if len(name) > LONGEST_OPTION:
        return True
    parts = [part.lower() for part in _PART.findall(name)]
    if not parts or parts[0] in _NOT_RUNNING or (parts == ["configuration"] and is_plain):
        return False
    if parts[0] == "on" and len(parts) > 1:  # `--on-change COMMAND`
        return True
    if not RUNNING_NAMES.isdisjoint(parts) or "".join(parts) in RUNNING_NAMES | WHOLE_NAMES:
        return True
    # Programs accept a long option that is cut short: `--pag` for `--pager`.
    is_long = name.startswith("--") and len(parts) == 1 and len(parts[0]) > 2
    return is_long and any(running.startswith(parts[0]) for running in RUNNING_NAMES)
