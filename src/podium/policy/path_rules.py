"""Match paths against rules in gitignore syntax, relative to the checkout. Only the text of a path is considered.

This module opens no files. Callers resolve links first. Some file systems treat different names as equal, for example
names that differ only in case. Such names count as equal here wherever that is the safer choice.
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
    """The location of a path: its root (the checkout, `/` or the home folder) and its path below that root.

    The root of an ambiguous path is `nowhere`.
    """

    root: Root
    path: str

    @property
    def is_inside(self) -> bool:
        """Whether the path is inside the checkout."""
        return self.root == "checkout"


@lru_cache(maxsize=4096)
def locate_path(text: str) -> PathLocation:
    """Return the location of a path. `.` is the checkout itself."""
    if _UNCLEAR.search(text) or (".." in text and ".." in re.split(r"[/\\]", text)):
        return PathLocation("nowhere", text)
    if text.startswith("/"):
        return PathLocation("/", posixpath.normpath(text).lstrip("/") or ".")
    if text == "~" or text.startswith("~/"):
        return PathLocation("~", posixpath.normpath(text[2:] or "."))
    if text.startswith("~"):
        return PathLocation("nowhere", text)
    return PathLocation("checkout", posixpath.normpath(text or "."))


# Control characters, and roots of other operating systems: `C:\`, `\\host`.
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f]|^[A-Za-z]:[\\/]|^\\")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A compiled specifier such as `/src/**`, `./.env` or `~/.ssh/**`."""

    root: Root
    exact: re.Pattern[str]
    wide: re.Pattern[str]
    literal: str = ""

    def is_named_by(self, glob: str) -> bool:
        """Return whether a pattern of the shell may expand to the one path that this pattern names."""
        names, patterns = self.literal.split("/"), posixpath.normpath(glob).split("/")
        return (
            bool(self.literal)
            and self.root == "checkout"
            and len(names) == len(patterns)
            and len(glob) <= LONGEST_NAME
            and not any(
                name.startswith(".") > one.startswith((".", "[")) for name, one in zip(names, patterns, strict=True)
            )
            and all(map(fnmatchcase, names, patterns))
        )

    def covers(self, where: PathLocation) -> bool:
        """Return whether the pattern matches this path, exactly as it is spelled, or one of its parent folders."""
        return where.root == self.root and self.exact.search(where.path) is not None

    def touches(self, where: PathLocation) -> bool:
        """Return whether the pattern may match this path, another spelling of it, or a path below it."""
        if where.root != self.root:
            return False
        path = _normalise_spelling(where.path)
        return self.wide.search(path) is not None or self.wide.search(f"{path}/-") is not None


def compile_path_pattern(specifier: str) -> PathPattern:
    """Compile a specifier. Raise Mistake if it is not a valid pattern or would match nothing."""
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
        re.compile(_gitignore_to_regex(_normalise_spelling(pattern)), re.IGNORECASE),
        "" if re.search(r"[*?\[\\]", pattern) else pattern.strip("/"),
    )


def escape_path(path: str) -> str:
    """Return the specifier that matches this path in the checkout and everything below it.

    Special characters are escaped. Raise Mistake if the path is the checkout itself, because a rule cannot name it.
    """
    if not path.strip("/"):
        raise Mistake("a rule cannot name the checkout itself; use /** to cover everything in it")
    escaped = re.sub(r"([\\*?\[\]!#])", r"\\\1", path.strip("/"))
    return "/" + re.sub(r"\s$", lambda space: f"\\{space[0]}", escaped)


def _gitignore_to_regex(pattern: str) -> str:
    """Convert a gitignore pattern to a regular expression."""
    # Imported here to keep start-up fast: only callers that match paths need it.
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    if pattern.startswith("!"):
        raise Mistake("a leading ! does not exclude a path from a rule; put the path under deny or ask instead")
    for found in _CLASS.finditer(pattern):
        if found["set"] is not None and not _PLAIN_CLASS.fullmatch(found["set"]):
            raise Mistake(f"{found['set']} is not a set of letters, digits and ranges; write \\[ for a literal bracket")
    try:
        regex, _ = GitIgnoreSpecPattern.pattern_to_regex(pattern)
        re.compile(regex or "")
    except (ValueError, re.error) as error:
        raise Mistake("it is not a valid gitignore pattern; write \\ before a literal special character") from error
    if regex is None:
        raise Mistake("as a gitignore pattern, it matches no path; write \\ before a leading # and close every [")
    # A set of characters never matches the slash between folders.
    return _limit_backtracking(re.sub(r"(\\.)|\[(?!\^/\])", lambda found: found[1] or "(?!/)[", regex))


def _limit_backtracking(regex: str) -> str:
    """Change the regular expression of a gitignore pattern so that a search takes time linear in the path's length.

    If one wildcard is followed by another, the earliest match for the text between them is as good as any other, so
    the group never backtracks.
    """
    first, *others = regex.split(_SOME_FOLDERS)
    if others:
        start = "^(?:.+/)?"
        if first.startswith(start):
            first = f"^(?>(?:.+?/)??{first.removeprefix(start)}(?=/))"
        inner = (f"(?>(?:/.+?)??{piece}(?=/))" for piece in others[:-1])
        regex = _SOME_FOLDERS.join(("".join((first, *inner)), others[-1]))
    first, *others = regex.split("[^/]*")
    pieces = [first]
    for number, piece in enumerate(others, 1):
        is_within_name = number < len(others) and "/" not in piece.replace("(?!/)", "").replace("[^/]", "")
        pieces.append(f"(?>[^/]*?{piece})" if is_within_name else f"[^/]*{piece}")
    return "".join(pieces)


_SOME_FOLDERS = "(?:/.+)?"


_CLASS = re.compile(r"\\.|(?P<set>\[[!^]?\]?[^\]]*\]?)", re.DOTALL)
_PLAIN_CLASS = re.compile(r"\[[!^]?(?:(?![\[\]\\/&~|-])[ -~\w]-(?![\[\]\\/&~|-])[ -~\w]|(?![\[\]\\/&~|^-])[ -~\w])+\]")


@lru_cache(maxsize=4096)
def _normalise_spelling(text: str) -> str:
    """Return the text in Unicode's NFKC form, without invisible characters.

    A file system may treat two names as equal if they differ only in these respects.
    """
    if text.isascii():
        return text
    visible = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", visible)


@lru_cache(maxsize=4096)
def is_protected(path: str) -> bool:
    """Return whether this path holds keys, or changing it could affect later commands or permissions.

    No rule can allow a change to such a path.
    """
    return _compile_guards().protected.search(_normalise_path(path)) is not None


@lru_cache(maxsize=4096)
def changes_what_runs(path: str) -> bool:
    """Return whether this path is a file or folder that can affect later commands or permissions, such as `.git`.

    A path inside such a folder does not count.
    """
    return _compile_guards().runs.search(_normalise_path(path)) is not None


@lru_cache(maxsize=4096)
def is_sensitive(path: str) -> bool:
    """Return whether the file at this path is likely to contain secrets."""
    parts = _normalise_path(path)
    if _HARMLESS.search(parts):
        return False
    if _compile_guards().sensitive.search(parts) is not None:
        return True
    # A program may expand a pattern such as `.e*` itself, so check whether the pattern can match a secret file.
    last = parts.rstrip("/").rpartition("/")[2]
    if _WILDCARD.search(last) is None or re.search("[a-z]", last) is None:
        return False
    # Compiling a long pattern is slow, and no name of a file is longer than this.
    return len(last) > LONGEST_NAME or any(
        fnmatchcase(name, last) for name in (".env", "id_rsa", "id_ed25519", ".netrc")
    )


LONGEST_NAME = 255


@lru_cache(maxsize=4096)
def _normalise_path(path: str) -> str:
    """Return the path in the form `/a/b/`. Names that a file system may treat as equal get the same spelling."""
    names = _normalise_spelling(path).casefold().replace("\\", "/").split("/")
    # Windows drops dots and spaces at the end of a name, and everything after a colon.
    kept = [name if name == ".." else name.partition(":")[0].rstrip(". ") for name in names if name != "."]
    return "/" + "/".join(filter(None, kept)) + "/"


class _GuardPatterns(NamedTuple):
    protected: re.Pattern[str]
    sensitive: re.Pattern[str]
    runs: re.Pattern[str]


@cache
def _compile_guards() -> _GuardPatterns:
    """Compile the guarded names on first use, because compiling them takes longer than checking most commands."""
    return _GuardPatterns(
        protected=_compile_any_of(PROTECTED + KEYS),
        sensitive=_compile_any_of(KEYS + SECRETS),
        runs=_compile_any_of(PROTECTED, end="$"),
    )


def _compile_any_of(names: tuple[str, ...], *, end: str = "") -> re.Pattern[str]:
    """Compile a pattern that matches any of these names as whole path components. `*` matches within one component."""
    # Most names share one of two prefixes. Comparing each prefix only once halves the matching time.
    ends: dict[str, list[str]] = {r"\.": [], r"[^/]*\.": [], "": []}
    for name in names:
        escaped = re.escape(name).replace(r"\*", "[^/]*")
        start = next(start for start in ends if escaped.startswith(start))
        ends[start].append(escaped.removeprefix(start))
    choices = "|".join(f"{start}(?:{'|'.join(found)})" for start, found in ends.items() if found)
    return re.compile(f"/(?:{choices})/{end}")


HOOK_FILE_KINDS = ("yml", "yaml", "toml", "json")
PROTECTED = (
    *(".git", "git~*", ".gitmodules", ".gitconfig", ".husky", ".githooks", ".pre-commit-config.yaml"),
    *(f"{dot}lefthook{local}.{kind}" for dot in ("", ".") for local in ("", "-local") for kind in HOOK_FILE_KINDS),
    *(".lefthook", ".lefthook-local", ".overcommit.yml"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xprofile"),
    *(".config/fish", ".config/git", ".podium", "podium.yaml", ".claude", ".claude.json", ".mcp.json", ".codex"),
    *(".gemini", ".cursor", ".windsurf", ".kiro", ".roo", ".opencode", "opencode.json", ".aider.conf.yml"),
    *(".vscode", ".idea", ".zed", ".fleet", ".exrc", ".nvimrc", ".nvim.lua", ".envrc", ".direnv", ".ripgreprc"),
    *(
        ".devcontainer",
        ".devcontainer.json",
        ".jj",
        ".hg",
        ".hgrc",
        ".sl",
        "_exrc",
        ".cargo/config",
        ".cargo/config.toml",
    ),
    *("rust-toolchain", "rust-toolchain.toml", "flake.nix", "shell.nix", ".pre-commit-config.yml", "prek.toml"),
    *("mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".mise", "mise/config.toml", ".config/mise"),
    *(".config/mise.toml", ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/releases", ".yarn/plugins", "bunfig.toml"),
    *(".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js"),
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
_WILDCARD = re.compile(r"[*?\[]")
_HARMLESS = re.compile(r"/(?:\.env\.(?:example|sample|template|dist)|[^/]*\.pub)/$")
