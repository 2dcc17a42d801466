"""Find commands that delete files or discard work. Only the words of a command are considered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from .command_words import Words, split_names
from .shell_program import COPIERS, PATHLESS, WRAPPERS, WRITERS, get_program_name, is_read_only, is_runner

DELETERS = split_names("rm rmdir unlink shred srm wipe del erase")
"""Programs that delete the files given as operands."""

DESTROYERS = split_names("truncate mkfs wipefs fdisk parted")
"""Programs that destroy the content of a file or a disk."""

DELETING_WORDS = split_names("rm rmi delete del remove uninstall destroy purge prune drop unlink erase wipe clean")
"""Subcommands that delete something, whichever program they belong to."""

OTHERS = PATHLESS | WRAPPERS | WRITERS | COPIERS
"""Programs without subcommands."""


def find_deletions(words: Words, *, run_by: Words) -> Iterator[str]:
    """Yield the operands that a command deletes, such as the paths after `rm`.

    If a command deletes or discards something that is not an operand, yield the whole command instead.

    `run_by` is the outer command that runs this command.
    """
    name = get_program_name(words)
    if name in DELETERS:
        operands = [word for word in words[1:] if not word.startswith("-")]
        # `find -exec` and `xargs -I` replace `{}` with file names that are unknown here, so yield the outer command.
        yield from [" ".join(run_by)] if "{}" in operands else operands or [" ".join(words)]
    elif name in DESTROYERS or name.startswith("mkfs.") or _deletes_by_option(words, name):
        yield " ".join(words)


def _deletes_by_option(words: Words, name: str) -> bool:
    if name == "git":
        return _discards_in_git(words)
    if name == "find":
        return "-delete" in words
    if name == "rsync":
        return any(word.startswith(("--delete", "--remove-source-files")) for word in words)
    if name in OTHERS or is_runner(words, name) or is_read_only(words):
        return False
    operands = [word for before, word in pairwise(words) if not _is_option_or_value(before, word)]
    return not DELETING_WORDS.isdisjoint(operands[:2])


def _is_option_or_value(before: str, word: str) -> bool:
    """Return whether `word` is an option, or may be the value of the short option `before`."""
    return word.startswith("-") or (len(before) == 2 and before.startswith("-"))


# Git -------------------------------------------------------------------------------------------------


def split_git_words(words: Words) -> tuple[str, Words]:
    """Return the subcommand of a git command, and the words after it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else 1
    return (words[at], words[at + 1 :]) if at < len(words) else ("", ())


def _discards_in_git(words: Words) -> bool:
    subcommand, rest = split_git_words(words)
    check = _GIT_CHECKS.get(subcommand)
    return check is not None and check(rest)


def _has_any(*options: str) -> Callable[[Words], bool]:
    return lambda rest: not frozenset(options).isdisjoint(rest)


def _has_any_start(*starts: str) -> Callable[[Words], bool]:
    return lambda rest: any(word.startswith(starts) for word in rest)


_GIT_CHECKS: dict[str, Callable[[Words], bool]] = {
    "rm": lambda rest: True,
    "clean": lambda rest: "-n" not in rest and "--dry-run" not in rest,
    "reset": _has_any("--hard", "--merge", "--keep"),
    "checkout": _has_any("--", ".", "-f", "--force"),
    "switch": _has_any("-f", "--force", "--discard-changes"),
    "restore": lambda rest: "--staged" not in rest or "--worktree" in rest,
    "branch": _has_any("-d", "-D", "--delete", "-f", "--force"),
    "tag": _has_any("-d", "--delete", "-f", "--force"),
    "push": _has_any_start("-f", "--force", "-d", "--delete", "--mirror", "--prune", ":", "+"),
    "stash": _has_any("drop", "clear"),
    "worktree": _has_any("remove", "prune"),
    "remote": _has_any("remove", "rm", "prune"),
    "reflog": _has_any("expire", "delete"),
    "update-ref": _has_any("-d", "--stdin"),
}
"""For each subcommand, a function that returns whether the words after it delete or discard something."""
