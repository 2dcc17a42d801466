"""Recognise commands that install packages or create environments. Only the words of a command are considered."""

from __future__ import annotations

import re

from .command_words import Words, split_names
from .network_commands import find_hosts
from .shell_command import parse_command
from .shell_program import INTERPRETER, get_program_name

_NODE = split_names(
    "install i in add ci install-clean clean-install uninstall un remove rm r update up upgrade link unlink rebuild rb "
    "dedupe ddp prune install-test it import patch-commit"
)
_PYTHON = split_names("install add remove update upgrade sync lock init uninstall")
INSTALLING: dict[str, frozenset[str]] = {
    "npm": _NODE,
    "pnpm": _NODE,
    "yarn": _NODE,
    "bun": _NODE,
    "pip": frozenset(("install", "uninstall")),
    "uv": split_names("add remove sync venv"),
    "poetry": _PYTHON,
    "pdm": _PYTHON,
    "pipenv": _PYTHON,
    "conda": split_names("install create update remove"),
    "cargo": split_names("install add update fetch"),
    "go": split_names("get install"),
    "gem": split_names("install update uninstall"),
    "bundle": split_names("install update add"),
    "composer": split_names("install update require remove"),
}
"""For each program, the subcommands that install packages."""
REGISTRIES = {
    "pip": ("pypi.org", "files.pythonhosted.org"),
    "npm": ("registry.npmjs.org",),
    "yarn": ("registry.yarnpkg.com", "registry.npmjs.org"),
    "cargo": ("index.crates.io", "static.crates.io", "crates.io"),
    "go": ("proxy.golang.org", "sum.golang.org"),
    "gem": ("rubygems.org", "index.rubygems.org"),
    "composer": ("repo.packagist.org", "api.github.com", "codeload.github.com"),
    "conda": ("conda.anaconda.org", "repo.anaconda.com"),
}
"""The hosts from which each program installs packages unless it is told otherwise."""
_REGISTRY_OF = dict.fromkeys(("uv", "poetry", "pdm", "pipenv", "tox", "nox"), "pip") | {
    "pnpm": "npm",
    "bun": "npm",
    "bundle": "gem",
}
_OTHER_SOURCE = frozenset(("--no-index", "--offline", "-i", "--index-url", "--index", "--default-index", "--registry"))
"""Options that replace the program's own source of packages."""
_REMOVING = split_names("uninstall un remove rm r venv unlink prune")
_SAME = {"mamba": "conda", "micromamba": "conda", "bundler": "bundle", "yarnpkg": "yarn"}
_PIP = re.compile(r"pip[0-9.]*")
_MODULES = frozenset(("pip", "venv", "virtualenv", "tox", "nox", "uv", "poetry", "pdm", "pipenv"))


def is_installation(text: str) -> bool:
    """Return whether a shell command contains a command that installs packages or creates an environment."""
    return any(map(_is_installing, parse_command(text).candidates))


def list_named_hosts(text: str) -> tuple[str, ...]:
    """Return the names of the hosts in the URLs of a command. Addresses and this machine's own name are left out."""
    names = (host.lower() for host in find_hosts(text))
    return tuple(dict.fromkeys(name for name in names if re.fullmatch(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}", name)))


def list_registries(text: str) -> tuple[str, ...]:
    """Return the hosts from which the installations in a shell command get packages by default."""
    found: dict[str, None] = {}
    for words in parse_command(text).candidates:
        if not _is_installing(words) or any(word.partition("=")[0] in _OTHER_SOURCE for word in words):
            continue
        name, rest = _split_installer(words)
        if name not in ("venv", "virtualenv") and _REMOVING.isdisjoint(rest[:2]):
            found |= dict.fromkeys(REGISTRIES.get(_REGISTRY_OF.get(name, name), ()))
    return tuple(found)


def _split_installer(words: Words) -> tuple[str, Words]:
    """Return the name of the program that a command runs, such as `pip` for `python -m pip`, and its arguments."""
    name, rest = get_program_name(words), words[1:]
    if INTERPRETER.fullmatch(name) and "-m" in rest:
        rest = rest[rest.index("-m") + 1 :]
        if not rest or rest[0] not in _MODULES:
            return "", ()
        name, rest = rest[0], rest[1:]
    return "pip" if _PIP.fullmatch(name) else _SAME.get(name, name), rest


def _is_installing(words: Words) -> bool:
    name, rest = _split_installer(words)
    if name in ("venv", "virtualenv", "tox", "nox"):
        return True
    plain = [word for word in rest if not word.startswith("-")]
    if name == "uv" and plain[:1] == ["pip"]:
        return plain[1:2] in (["install"], ["sync"], ["uninstall"])
    if name == "yarn" and not plain:
        return True
    # An option before the subcommand may have a value, as in `npm --prefix app ci`.
    return not INSTALLING.get(name, frozenset()).isdisjoint(plain[:2])
