"""Find commands that cannot work in the sandbox, whatever a person answers, and say what works instead.

A search that finds too little only lets a command fail by itself. One that finds too much would keep an agent from a
command that works, so only commands are found whose program and folder are certain.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise

from .command_words import Words, split_names
from .deleting_commands import split_git_words
from .inner_commands import STRING_RUNNERS, find_run_commands, select_likely_commands
from .network_commands import find_network_uses
from .shell_command import ShellCommand, parse_command
from .shell_program import get_program_name

RECORDING = split_names("add stage commit")
"""The subcommands of git that record changes, which Podium does by itself in a worker's checkout."""
_WRITING = RECORDING | split_names(
    "am checkout cherry-pick commit-tree fetch filter-branch gc merge mv prune pull read-tree rebase repack replace "
    "reset restore revert rm switch update-index update-ref write-tree sparse-checkout"
)
"""The subcommands of git that always write git's own data."""
_WRITING_ACTIONS = {
    "stash": split_names("push save pop apply drop clear create store branch"),
    "remote": split_names("add remove rm rename set-url set-head set-branches prune update"),
    "worktree": split_names("add remove move prune lock unlock repair"),
    "notes": split_names("add append copy edit remove prune merge"),
    "submodule": split_names("add update init deinit sync set-url set-branch absorbgitdirs"),
    "bisect": split_names("start good bad old new skip reset run"),
    "reflog": split_names("expire delete"),
}
"""For other subcommands, the actions that write git's own data."""
_LISTING = split_names(
    "-l --list -a --all -r --remotes -v -vv --contains --no-contains --merged --no-merged --points-at --show-current "
    "--format --sort -n"
)
"""Options with which `git branch` and `git tag` only list."""
_OTHER_PLACE = ("--git-dir", "--work-tree", "GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=")
LOCAL_HOSTS = ("localhost", "127.", "0.0.0.0", "[::", "::1", "host.containers.internal")


def find_git_write(text: str, is_own_folder: Callable[[str], bool]) -> str:
    """Return the first command in a shell command that would write git's data of the checkout, such as `git commit`.

    `is_own_folder` returns whether a folder, given relative to the checkout, is a part of the checkout itself. Return
    an empty string if there is no such command, or if it may apply to another repository.
    """
    if "git" not in text or any(word in text for word in _OTHER_PLACE):
        return ""
    command = parse_command(text)
    found = ""
    for words in _list_commands(command):
        if get_program_name(words) != "git":
            continue
        subcommand, rest = split_git_words(words)
        if subcommand in ("init", "clone"):
            return ""  # a repository of the command's own, which it can write to
        if not found and _writes(subcommand, rest) and all(map(is_own_folder, _list_folders(command, words))):
            found = f"git {subcommand}"
    return found


def describe_git_write(written: str, *, is_committed: bool | None) -> str:
    """Say why a command that `find_git_write` found cannot work, and what works instead.

    `is_committed` is whether Podium commits the work in the checkout, or None if that is not known.
    """
    if written.removeprefix("git ") in RECORDING:
        kept = {
            True: "Podium commits; your edits are kept",
            False: "Your edits are kept; the user commits",
            None: "Your edits are kept",
        }
        way = f"{kept[is_committed]}. Leave out git add and git commit."
    else:
        way = (
            "Your edits are kept. To undo one, edit the file again; git show HEAD:FILE prints what was committed. "
            "To rename or delete a file, use mv or rm."
        )
    return f"{written} cannot work here, because commands cannot write git's data. {way}"


def find_unreachable_host(text: str, granted: Collection[str]) -> str:
    """Return the first host that a shell command names and cannot reach, or an empty string if there is none.

    `granted` contains the hosts that commands can reach. This machine's own names are left out.
    """
    for words in _list_commands(parse_command(text)):
        for host in find_network_uses(words):
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            is_host = "." in name and " " not in name
            if is_host and not name.startswith(LOCAL_HOSTS) and not _is_granted(name.lower(), granted):
                return name
    return ""


def _is_granted(host: str, granted: Collection[str]) -> bool:
    for one in granted:
        name = one.lower()
        if host == name or host == name.rpartition(":")[0] or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def _list_commands(command: ShellCommand) -> Iterator[Words]:
    """Yield the commands that certainly or very likely run, including those that other programs run."""
    if command.unread:
        return
    runs_strings = any(get_program_name(words) in STRING_RUNNERS for words in command.simple)
    for words in (*command.simple, *(command.nested if runs_strings else ())):
        yield from select_likely_commands(find_run_commands(words))


def _writes(subcommand: str, rest: Words) -> bool:
    if "--help" in rest or "-h" in rest:
        return False
    plain = [word for word in rest if not word.startswith("-")]
    if subcommand in _WRITING:
        return not (subcommand == "add" and {"-n", "--dry-run"} & {*rest})
    if subcommand == "stash":
        return not plain or plain[0] in _WRITING_ACTIONS[subcommand]
    if subcommand in _WRITING_ACTIONS:
        return bool(plain) and plain[0] in _WRITING_ACTIONS[subcommand]
    if subcommand in ("branch", "tag"):
        return bool(plain) and not any(word.partition("=")[0] in _LISTING for word in rest)
    if subcommand == "apply":
        return not {"--index", "--cached", "-3", "--3way"}.isdisjoint(rest)
    return False


def _list_folders(command: ShellCommand, words: Words) -> list[str]:
    """Return the folders in which a git command may run, relative to the checkout."""
    named = [word for before, word in pairwise(words) if before == "-C"]
    folders = ["", *command.folders] if not command.folders else list(command.folders)
    return [posixpath.join(folder, *named) for folder in folders]
