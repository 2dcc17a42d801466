"""Find the remote of a repository, check its URL, and remove the credentials from it.

Only paths and the protocols ssh and https are accepted, and http only for this machine. Git supports others, such as
`ext::`, that run a command from the URL.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from ...values.errors import Mistake
from ...values.located_yaml import quote_text
from ..git.repository import GitLocation, call_git, root_folder

Protocol = Literal["file", "ssh", "https", "http"]

USABLE = "use the path of a repository, or a URL like git@host:team/repository.git or https://host/team/repository.git"
HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
HOST = re.compile(r"\w[\w.-]*|\[[0-9A-Fa-f:.]+\]", re.ASCII)
USER = re.compile(r"[\w+%][\w.+%-]*", re.ASCII)
SSH_PATH = re.compile(rf"(?:{USER.pattern}@)?(?:{HOST.pattern}):[^-].*", re.ASCII)
"""Matches a repository on another machine in the short form, such as `git@host:team/repository.git`."""
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """The validated location of a remote repository: a URL without credentials, or an absolute path."""

    text: str
    protocol: Protocol

    @property
    def name(self) -> str:
        """The name of the repository: the last part of its path, without `.git`."""
        last = re.split(r"[/:]", self.text.rstrip("/"))[-1].removesuffix(".git")
        return re.sub(r"[^\w.-]", "-", last, flags=re.ASCII).strip(".-") or "repository"

    @property
    def folder_name(self) -> str:
        """A folder name that is unique to this URL."""
        return f"{self.name[:60]}-{sha256(os.fsencode(self.text)).hexdigest()[:16]}"


def parse_remote_url(given: str, *, root: Path | None = None) -> RemoteUrl:
    """Validate the location of a remote repository, and return it without credentials. Raise Mistake if it is invalid.

    A relative path is relative to `root`.
    """
    if not given or given.startswith("-") or not given.isprintable() or given != given.strip():
        raise Mistake(f"{_quote_url(given)} is not the URL of a git repository; {USABLE}")
    if HELPER.match(given):
        helper = given.partition("::")[0]
        raise Mistake(f"a remote that starts with {helper}:: can run any command, so it is not used; {USABLE}")
    if "://" in given:
        return _parse_full_url(given)
    before, colon, _ = given.partition(":")
    if colon and "/" not in before:
        if not SSH_PATH.fullmatch(given):
            raise Mistake(f"{_quote_url(given)} is not the URL of a git repository; {USABLE}")
        return RemoteUrl(given, "ssh")
    return _parse_path(given, root)


def _parse_full_url(given: str) -> RemoteUrl:
    try:
        parts = urlsplit(given)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Mistake(f"{_quote_url(given)} is not a valid URL ({error}); {USABLE}") from None
    if parts.scheme == "file":
        if host not in ("", "localhost"):
            raise Mistake(f"{_quote_url(given)} refers to another machine, which a file URL cannot reach; {USABLE}")
        return _parse_path(unquote(parts.path), None)
    if parts.scheme not in ("ssh", "https", "http"):
        raise Mistake(f"{_quote_url(given)} uses the protocol {parts.scheme!r}, which is not supported; {USABLE}")
    if parts.query or parts.fragment:
        raise Mistake(f"{_quote_url(given)} has a query or fragment (? or #), which git servers do not use; remove it")
    shown = f"[{host}]" if ":" in host else host
    if not HOST.fullmatch(shown) or not parts.path.strip("/"):
        raise Mistake(f"{_quote_url(given)} is not the URL of a git repository; {USABLE}")
    if parts.scheme == "http" and host not in LOOPBACK:
        raise Mistake(f"{_quote_url(given)} is not encrypted; use https or ssh for a remote on another machine")
    place = f"{_find_ssh_user(parts)}{shown}{'' if port is None else f':{port}'}"
    protocol: Protocol = "ssh" if parts.scheme == "ssh" else "https" if parts.scheme == "https" else "http"
    return RemoteUrl(f"{protocol}://{place}{parts.path}", protocol)


def _find_ssh_user(parts: SplitResult) -> str:
    """Return the user in an ssh URL, as `user@`, or an empty string. Raise Mistake if the user name is invalid.

    The user in other URLs is left out, because it is a credential and may be a token.
    """
    if parts.scheme != "ssh" or not parts.username:
        return ""
    if not USER.fullmatch(parts.username):
        raise Mistake(f"{_quote_url(parts.geturl())} has an invalid user name; {USABLE}")
    return f"{parts.username}@"


def _parse_path(given: str, root: Path | None) -> RemoteUrl:
    path = Path(given)
    if not path.is_absolute():
        if root is None:
            raise Mistake(f"{_quote_url(given)} is a relative path, which does not work from other folders; {USABLE}")
        path = root / path
    return RemoteUrl(os.path.normpath(path), "file")


def _quote_url(given: str) -> str:
    """Return a URL for a message, without credentials."""
    return quote_text(hide_credentials(given))


def hide_credentials(text: str) -> str:
    """Return the text without the user names and passwords in its URLs."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote of a repository."""

    name: str
    url: RemoteUrl


async def find_remote(place: GitLocation) -> Remote | None:
    """Return the remote that is used to exchange code: `origin`, or the only remote. Return None if there is none.

    Raise Mistake if there are several remotes without an `origin`, or if the URL cannot be used.
    """
    listed = await call_git(place, "config", "--null", "--get-regexp", r"^remote\..*\.url$")
    urls: dict[str, str] = {}
    for item in os.fsdecode(listed.out).split("\0"):
        key, _, url = item.partition("\n")
        if key and url:
            urls.setdefault(key.removeprefix("remote.").removesuffix(".url"), url)
    if not urls:
        return None
    if ORIGIN not in urls and len(urls) > 1:
        raise Mistake(
            f"{root_folder(place)} has several remotes ({', '.join(sorted(urls))}) and none of them is called origin; "
            f"rename one with git remote rename"
        )
    name = ORIGIN if ORIGIN in urls else next(iter(urls))
    return Remote(name=name, url=parse_remote_url(urls[name], root=root_folder(place)))
