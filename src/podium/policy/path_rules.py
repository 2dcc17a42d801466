"""Paths as rules see them: by their text alone, in gitignore syntax, relative to the checkout.

Nothing here looks at a file. What a path leads to through links is settled before it comes here;
names that a file system may take for the same name count as the same where that is the safer way.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from ..values.errors import Mistake

Root = Literal["checkout", "/", "~", "nowhere"]


@dataclass(frozen=True, slots=True)
class PathLocation:
    """Where a path leads: below the checkout, below `/`, below the home folder, or nobody can tell from its text."""

    root: Root
    path: str

    @property
    def is_inside(self) -> bool:
        """Whether it stays in the checkout."""
        return self.root == "checkout"


@lru_cache(maxsize=4096)
def locate_path(text: str) -> PathLocation:
    """The place that a path names; `.` is the checkout itself."""
    if _UNCLEAR.search(text) or (".." in text and ".." in re.split(r"[/\\]", text)):
        return PathLocation("nowhere", text)
    if text.startswith("/"):
        return PathLocation("/", posixpath.normpath(text).lstrip("/") or ".")
    if text == "~" or text.startswith("~/"):
        return PathLocation("~", posixpath.normpath(text[2:] or "."))
    if text.startswith("~"):
        return PathLocation("nowhere", text)
    return PathLocation("checkout", posixpath.normpath(text or "."))


# Control characters, and the roots of other systems: `C:\`, `\\host`.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f]|^[A-Za-z]:[\\/]|^\\")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A specifier such as `/src/**`, `./.env` or `~/.ssh/**`."""

    root: Root
    exact: re.Pattern[str]
    wide: re.Pattern[str]

    def covers(self, where: PathLocation) -> bool:
        """Whether it names this very path, or a folder above it."""
        return where.root == self.root and self.exact.search(where.path) is not None

    def touches(self, where: PathLocation) -> bool:
        """Whether it may name this path, in another spelling too, or something below it."""
        if where.root != self.root:
            return False
        path = normalise_spelling(where.path)
        return self.wide.search(path) is not None or self.wide.search(f"{path}/-") is not None


def compile_path_pattern(specifier: str) -> PathPattern:
    """The compiled specifier; a mistake where it could never match what its writer meant."""
    root: Root = "checkout"
    pattern = specifier
    if specifier.startswith("//"):
        root, pattern = "/", specifier[1:]
    elif specifier.startswith("~/"):
        root, pattern = "~", specifier[1:]
    elif specifier.startswith("./"):
        pattern = specifier[1:]
    return PathPattern(
        root,
        re.compile(_gitignore_to_regex(pattern)),
        re.compile(_gitignore_to_regex(normalise_spelling(pattern)), re.IGNORECASE),
    )


def escape_path(path: str) -> str:
    """The specifier that names this path of the checkout and no other, whatever characters it has."""
    if not path.strip("/"):
        raise Mistake("the checkout as a whole has no path of its own; a rule for all of it is /**")
    escaped = re.sub(r"([\\*?\[\]!#])", r"\\\1", path.strip("/"))
    return "/" + re.sub(r"\s$", lambda space: f"\\{space[0]}", escaped)


def _gitignore_to_regex(pattern: str) -> str:
    """Gitignore's pattern as a regular expression."""
    # Only commands that judge paths pay for this import.
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    if pattern.startswith("!"):
        raise Mistake("a path with ! in front takes nothing away from a rule; put the path under deny or ask instead")
    for found in _CLASS.finditer(pattern):
        if found["set"] is not None and not _PLAIN_CLASS.fullmatch(found["set"]):
            raise Mistake(f"{found['set']} is no set of letters, digits and ranges; write \\[ for a bracket in a name")
    try:
        regex, _ = GitIgnoreSpecPattern.pattern_to_regex(pattern)
        re.compile(regex or "")
    except (ValueError, re.error) as error:
        raise Mistake("it is no gitignore pattern; write \\ before a character that is meant as such") from error
    if regex is None:
        raise Mistake("it matches nothing in gitignore syntax; write \\ before a leading # and close every [")
    # A set of characters never stands for the slash between folders.
    return re.sub(r"(\\.)|\[(?!\^/\])", lambda found: found[1] or "(?!/)[", regex)


_CLASS = re.compile(r"\\.|(?P<set>\[[!^]?\]?[^\]]*\]?)", re.DOTALL)
_PLAIN_CLASS = re.compile(r"\[[!^]?(?:(?![\[\]\\/&~|-])[ -~\w]-(?![\[\]\\/&~|-])[ -~\w]|(?![\[\]\\/&~|^-])[ -~\w])+\]")


@lru_cache(maxsize=4096)
def normalise_spelling(text: str) -> str:
    """One spelling for the names that some file system takes for the same: composed, without invisible characters."""
    if text.isascii():
        return text
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible)


@lru_cache(maxsize=4096)
def is_protected(path: str) -> bool:
    """Whether changing it could change what runs later, or who may do what: no allow rule covers that."""
    return _compile_guards().protected.search(_normalise_path(path)) is not None


@lru_cache(maxsize=4096)
def is_sensitive(path: str) -> bool:
    """Whether its content is likely to be a secret."""
    parts = _normalise_path(path)
    if _HARMLESS.search(parts):
        return False
    if _compile_guards().sensitive.search(parts) is not None:
        return True
    # A pattern that a program fills in itself, such as `.e*`.
    last = parts.rstrip("/").rpartition("/")[2]
    return (
        re.search(r"[*?\[]", last) is not None
        and re.search("[a-z]", last) is not None
        and any(fnmatchcase(name, last) for name in (".env", "id_rsa", "id_ed25519", ".netrc"))
    )


@lru_cache(maxsize=4096)
def _normalise_path(path: str) -> str:
    """The path as `/a/b/`, one spelling for all that mean the same on some file system."""
    names = normalise_spelling(path).casefold().replace("\\", "/").split("/")
    # Windows drops dots and spaces at the end of a name and what follows a colon.
    kept = (name if name in (".", "..") else name.partition(":")[0].rstrip(". ") for name in names)
    return "/" + "/".join(name for name in kept if name and name != ".") + "/"


class _GuardPatterns(NamedTuple):
    protected: re.Pattern[str]
    sensitive: re.Pattern[str]


@cache
def _compile_guards() -> _GuardPatterns:
    """The names to guard, compiled when first needed, since that takes longer than most commands have."""
    return _GuardPatterns(_compile_any_of(PROTECTED + KEYS), _compile_any_of(KEYS + SECRETS))


def _compile_any_of(names: tuple[str, ...]) -> re.Pattern[str]:
    """Any of these names or runs of names, as whole parts of a path; `*` stands for letters of one name."""
    return re.compile("/(?:" + "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in names) + ")/")


PROTECTED = (
    *(".git", "git~*", ".gitmodules", ".gitconfig", ".husky", ".githooks", ".pre-commit-config.yaml", "lefthook.yml"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile"),
    *(".config/fish", ".config/git", ".podium", "podium.yaml", ".claude", ".claude.json", ".mcp.json", ".codex"),
    *(".gemini", ".cursor", ".vscode", ".idea", ".envrc", ".direnv", ".ripgreprc", ".devcontainer"),
)
KEYS = (
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.pem", "*.key", "*.p12"),
    *("*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", ".ssh", ".gnupg", "authorized_keys"),
)
SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc"),
    *(".git-credentials", ".git/config", ".git/credentials", ".htpasswd", ".vault-token", ".aws", ".azure", ".kube"),
    *(".docker/config.json", ".config/gcloud", ".config/gh", "credentials"),
    *(f"{name}.{kind}" for name in ("credentials", "secret", "secrets") for kind in ("json", "yaml", "yml", "toml")),
    *("service-account*.json", "*.tfstate", "*.ovpn", "proc/*/environ", "etc/shadow"),
)
_HARMLESS = re.compile(r"/(?:\.env\.(?:example|sample|template|dist)|[^/]*\.pub)/$")
