"""Find commands that use the network, and their hosts. Only the words of a command are considered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .command_words import Words, is_known_program, split_names
from .deleting_commands import split_git_words
from .safe_options import ALIASES
from .shell_program import INTERPRETER, PATHLESS, WRAPPERS, get_program_name

CLIENTS = split_names(
    "curl wget nc ncat netcat socat telnet ftp sftp lftp scp ssh sshpass ping dig nslookup host traceroute whois nmap "
    "http https xh aria2c rclone s3cmd mosh gh aws gcloud az kubectl helm terraform ansible ansible-playbook vagrant "
    "npx bunx uvx pipx apt apt-get apk dnf yum pacman brew cpan psql mysql mariadb mongosh redis-cli openvpn tcpdump"
)
"""Programs that use the network."""

_INSTALLING = "install i ci add update upgrade publish audit outdated exec x dlx create init view info login"
SUBCOMMANDS = {
    "git": split_names("clone fetch pull push ls-remote submodule"),
    "npm": split_names(_INSTALLING),
    "bun": split_names(_INSTALLING),
    "deno": split_names("add install publish"),
    "pip": split_names("install download index search wheel"),
    "uv": split_names("add sync lock pip publish self"),
    "poetry": split_names("add install update lock publish"),
    "pdm": split_names("add install update lock sync publish"),
    "pipenv": split_names("install update lock sync"),
    "conda": split_names("install create update"),
    "cargo": split_names("add install publish fetch update search login owner"),
    "rustup": split_names("install update toolchain component target self"),
    "go": split_names("get install"),
    "gem": split_names("install push update"),
    "bundle": split_names("install update add"),
    "composer": split_names("install update require"),
    "docker": split_names("pull push login build search"),
    "podman": split_names("pull push login build search"),
}
"""For each program, the subcommands that use the network."""

# Only what follows the scheme is matched, because a search for the scheme's start would take quadratic time.
_URL = re.compile(r"(?<=[A-Za-z0-9+.-])://(?:[^/\s@]*@)?(?P<host>[^/\s?#'\"@]+)")
_LOGIN = re.compile(r"[\w.-]+@(?P<host>[\w.-]*\w)(?=:|$)")
_REMOTE_FILE = re.compile(r"(?:[\w.-]+@)?[\w.-]+:")


def find_hosts(text: str) -> list[str]:
    """Return the hosts in the URLs that a string contains, without user names."""
    return [found["host"] for found in _URL.finditer(text)]


def find_network_uses(words: Words) -> Iterator[str]:
    """Yield the hosts that a command connects to.

    If the arguments of a network client name no host, yield its program and subcommand.
    """
    name = get_program_name(words)
    is_client = _is_client(words, name)
    is_open = is_client or not (is_known_program(name) or name in WRAPPERS or name in PATHLESS)
    if not is_open or INTERPRETER.fullmatch(name):
        return
    hosts = [host for word in words[1:] for host in find_hosts(word)]
    if is_client:
        hosts += [found["host"] for word in words[1:] if (found := _LOGIN.match(word))]
    if hosts or not is_client:
        yield from hosts
    else:
        has_subcommand = ALIASES.get(name, name) in SUBCOMMANDS
        yield f"{name} {_get_subcommand(words, name)}" if has_subcommand else name


def _is_client(words: Words, name: str) -> bool:
    if name == "rsync":
        return any(_REMOTE_FILE.match(word) or "://" in word for word in words[1:])
    return name in CLIENTS or _get_subcommand(words, name) in SUBCOMMANDS.get(ALIASES.get(name, name), ())


def _get_subcommand(words: Words, name: str) -> str:
    if name == "git":
        return split_git_words(words)[0]
    return next((word for word in words[1:] if not word.startswith("-")), "")
