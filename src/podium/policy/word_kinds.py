"""Check whether an option's value or an operand of a known program is harmless. Each kind of word has its own check.

`safe_options` uses these kinds. A word whose kind is in `PATH_KINDS` can name a file, so it is also checked as a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from .path_rules import is_sensitive

PATH_KINDS = frozenset(
    (
        *("path", "folder", "pattern-file", "revision", "archive", "package"),
        *("target", "remote", "refspec", "branch", "script", "requirement", "spec"),
    )
)


def is_harmless_word(kind: str, word: str) -> bool:
    """Return whether a word is a harmless value of this kind."""
    return _CHECKS[kind](word)


def _accept(_: str) -> bool:
    return True


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use, because compiling all of them takes longer than checking most commands."""
    return re.compile(pattern, re.DOTALL)


def _matching(pattern: str) -> Callable[[str], bool]:
    return lambda word: _compile(pattern).fullmatch(word) is not None


def _is_plain_path(word: str) -> bool:
    """Return whether a word is a plain path, and not a URL or a reference to a file of options, such as `@file`."""
    return not word.startswith("@") and "://" not in word


def _is_local_archive(word: str) -> bool:
    """Return whether an archive is a local file. With `host:file`, tar and rsync start another program."""
    return ":" not in word and not word.startswith("@")


_EXCLUDED = r":[!^][\w./*-]+"


def _is_revision(word: str) -> bool:
    """Return whether a word is harmless as a git revision or path.

    A leading colon refers to the index or starts a special syntax; only an exclusion such as `:!docs` is harmless.
    Two consecutive colons make git run a program to access a repository.
    """
    if word.startswith(":"):
        return _compile(_EXCLUDED).fullmatch(word) is not None
    return "::" not in word and "://" not in word and ":(" not in word


def _is_git_format(word: str) -> bool:
    """Return whether a format is harmless. Formats that verify signatures or run `git describe` are not."""
    return "%G" not in word and "signature" not in word and "%(describe" not in word


_GLOB = r"[\w./-]*(?:\*\*?/)*[\w./-]*\*?[\w-]*\.[A-Za-z0-9]+|[\w-][\w./-]*/\*\*?(?:/\*\.[A-Za-z0-9]+)?"


def _is_search_glob(word: str) -> bool:
    """Return whether a glob for rg is harmless: it excludes files, or selects files that are unlikely to be secret.

    Files that a glob selects are searched even if they are hidden or ignored.
    """
    if word.startswith("!"):
        return True
    is_hidden = word.startswith(".") or "/." in word
    return _compile(_GLOB).fullmatch(word) is not None and not is_hidden and not is_sensitive(word)


# Small languages -------------------------------------------------------------------------------------

_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\[]|\\[^cn]|\[[^\]/\\]+\])+/I?)"
# Labels, files and `e` are not accepted, so each step is a complete command, and splitting at `;` is safe.
_SED_STEP = (
    rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))?\s*!?\s*)?"
    r"(?:[pdqDPnNgGhHx=]|s(?P<by>[/|#,@%])(?:(?!(?P=by))[^\\]|\\.)*(?P=by)(?:(?!(?P=by))[^\\]|\\.)*(?P=by)[gpIi\d]*)"
)


def _is_harmless_sed(script: str) -> bool:
    """Return whether a sed script only prints, deletes and substitutes."""
    return all(_compile(_SED_STEP).fullmatch(step.strip()) for step in script.split(";"))


_AWK_TOKEN = (
    r"""(?P<space>\s+)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<regex>/(?:[^/\\\[\n]|\\.|\[\^?[^\]/\\\[]+\])+/)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)|(?P<sign>&&|\|\||==|!=|<=|>=|\+\+|--|[-+*/%]=|[-{}()\[\];,~!=+*/%$?:^])"""
)
_AWK_NAMES = frozenset(("NR", "NF", "FNR", "FS", "OFS", "ORS", "RS", "RLENGTH", "RSTART", "FILENAME", "BEGIN", "END"))
_AWK_ACTING = frozenset(("system", "getline", "close", "fflush", "function", "func", "delete"))
# After one of these, a slash starts a regular expression; elsewhere it is a division sign.
_BEFORE_REGEX = frozenset(("", "(", ",", "~", "!", "{", "}", ";", "&&", "||", "?", ":"))


def _is_harmless_awk(program: str) -> bool:
    """Return whether an awk program only computes and prints, and neither opens files nor runs other programs."""
    at, before = 0, ""
    while at < len(program):
        token = _compile(_AWK_TOKEN).match(program, at)
        if token is not None and token["regex"] and before not in _BEFORE_REGEX:
            token = _compile("(?P<sign>/)").match(program, at)
        if token is None:
            return False
        kind = token.lastgroup
        if kind == "name" and (token[0] in _AWK_ACTING or (not token[0].islower() and token[0] not in _AWK_NAMES)):
            return False
        if kind != "space":
            before = token[0]
        at = token.end()
    return bool(program.strip())


_JQ_ACTING = (
    r"\b(?:env|import|include|input_filename|getpath|modulemeta|get_search_list|halt\w*|debug|stderr)\b|\$(?:ENV|__)"
)


def _is_harmless_jq(text: str) -> bool:
    """Return whether a jq filter reads neither the environment nor other files."""
    return _compile(_JQ_ACTING).search(text) is None


_SQL_ACTING = r"(?i)load_extension|writefile|readfile|fsdir|edit\s*\(|attach|fts\d_tokenizer|sqlar|zipfile|;\s*\S"
_SQL_READING = (
    r"(?i)\s*(?:(?:select|explain)\b.*"
    r"|pragma\s+(?:\w+_(?:list|info|xinfo)\s*(?:\(['\"]?\w+['\"]?\))?|\w+_(?:version|check)|encoding)\s*;?\s*)"
)
_SQL_DOT = r"\.(?:tables|schema|indexes|indices|databases|fullschema|show|version|dbinfo)(?:\s+[\w.%*-]+)?"


def _is_harmless_sql(text: str) -> bool:
    """Return whether an SQL statement only reads the database."""
    if text.lstrip().startswith("."):
        return _compile(_SQL_DOT).fullmatch(text.strip()) is not None
    return _compile(_SQL_READING).fullmatch(text) is not None and _compile(_SQL_ACTING).search(text) is None


_CHECKS: dict[str, Callable[[str], bool]] = {
    "anything": _accept,
    "text": _accept,
    "pattern": _accept,
    "path": _is_plain_path,
    "folder": _matching(r"(?!-).+"),
    "pattern-file": _is_plain_path,
    "archive": _is_local_archive,
    "number": _matching(r"[-+]?\d+(?:\.\d+)?[A-Za-z%]*"),
    "name": _matching(r"[A-Za-z0-9_][\w.+-]*"),
    "names": _matching(r"[A-Za-z0-9_-][\w.,:+*/-]*"),
    "mode": _matching(r"[-/]?(?:0?[0-7]{3}|[ugoa]*[-+=][rwxX]+(?:,[ugoa]*[-+=][rwxX]+)*)"),
    "plain": lambda word: not word.startswith("@") and "output{" not in word,
    "header": _matching(r"[A-Za-z][\w-]*:.*"),
    "url": _matching(r"https?://[^\s@{}\[\]]+|(?:localhost|127\.0\.0\.1)(?::\d+)?(?:/[^\s@{}\[\]]*)?"),
    "stdout": _matching(r"-|/dev/null"),
    "date-format": _matching(r"\+.*"),
    "ps-format": _matching(r"a?u?x?u?"),
    "glob": _is_search_glob,
    "revision": _is_revision,
    "git-format": _is_git_format,
    "git-sort": _matching(r"-?(?:v(?:ersion)?:)?(?!.*signature)[a-z:*-]+"),
    "commit": _matching(r"[\w^~@{}/.-]+"),
    "branch": _matching(r"[A-Za-z0-9][\w./-]*"),
    "remote": _matching(r"[A-Za-z0-9][\w.-]*"),
    "refspec": _matching(r"[A-Za-z0-9][\w./-]*(?::[A-Za-z0-9][\w./-]*)?"),
    "target": _matching(r"[\w./%-]+"),
    "package": _matching(r"[\w.][\w./-]*"),
    "script": _matching(r"(?!env$)(?!.*://)[\w@][\w.:/@-]*"),
    "spec": lambda word: word != "init" and _is_plain_path(word),
    "wide": _matching("wide|name"),
    "requirement": _matching(r"\.|[A-Za-z0-9][\w.-]*(?:\[[\w,-]+\])?(?:[<>=!~]=?[\w.*]+(?:,[<>=!~]=?[\w.*]+)*)?"),
    "resource": lambda word: "secret" not in word.lower() and "://" not in word,
    "assignment": _matching(r"(?:[a-z]\w*|FS|OFS|RS|ORS)=.*"),
    "no-plugin": _matching(r"no:\S+"),
    "warning": _matching(r"(?:error|ignore|default|always|once|module)(?:::[A-Za-z]+)?"),
    "terminal-report": _matching(r"term(?:-missing)?(?::skip-covered)?"),
    "builtin-report": _matching(
        "verbose|dot|json|tap|default|basic|spec|min|list|progress|stylish|compact|unix|text|colorized|parseable|github"
    ),
    "sed": _is_harmless_sed,
    "awk": _is_harmless_awk,
    "jq": _is_harmless_jq,
    "sql": _is_harmless_sql,
}
