"""Check whether an option's value or an operand of a known program is harmless. Each kind of word has its own check.

`safe_options` uses these kinds. A word whose kind is in `PATH_KINDS` can name a file, so it is also checked as a path.

Scripts of awk, sed, jq and printf are matched against fixed shapes. They are not interpreted: the programs, and
versions of one program, disagree on where a string, a regular expression or a comment ends. Each shape therefore
consists only of text that all of them split at the same places: no quote, slash or backslash where one program could
end a string and another could not. Any other script needs a person's approval, or a rule that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from .path_rules import is_sensitive

LONGEST_SCRIPT = 300


def _has_sed_shape(script: str) -> bool:
    """Return whether a sed script only selects, prints and deletes lines, and substitutes words."""
    return _has_shape(_compile_sed_shape, script)


def _has_jq_shape(text: str) -> bool:
    """Return whether a jq filter consists only of paths, literals, operators and functions on its input."""
    return _has_shape(_compile_jq_shape, text)


def _has_printf_shape(text: str) -> bool:
    """Return whether a format for the shell's printf has only conversions that print. `%n` assigns a variable."""
    return _has_shape(_compile_printf_shape, text)


def _has_shape(compile_shape: Callable[[], re.Pattern[str]], text: str) -> bool:
    return len(text) <= LONGEST_SCRIPT and compile_shape().fullmatch(text) is not None


# Regular expressions of sed and awk: no escape but these, and no bracket that contains a delimiter.
_WORD_CHARS = r"A-Za-z0-9_ .@&=<>'~^$+*?()!\-"
_ESCAPE = r"\\[.()+?*|$^sSwWb-]"
_BRACKET = r"\[\^?[A-Za-z0-9_ -]++\]"

# sed -------------------------------------------------------------------------------------------------
_DELIMITERS = "/|,:@%"
_LITERAL_BRACKET = r"\\[\[\]]"
"""A bracket after a backslash. No sed takes it for the start of a set."""


def _write_substitution(delimiter: str) -> str:
    """Return the shape of `s/words/words/` with this delimiter."""
    others = re.escape(_DELIMITERS.replace(delimiter, ""))
    chars = rf"[{_WORD_CHARS.replace(delimiter, '')}#\"{others}]"
    escape = _ESCAPE if delimiter == "/" else rf"(?!\\{re.escape(delimiter)}){_ESCAPE}"
    pattern = rf"(?:{chars}|{escape}|\\/|{_LITERAL_BRACKET}|{_BRACKET})*+"
    replacement = rf"(?:{chars}|\\[&0-9nt/])*+"
    return rf"s{re.escape(delimiter)}{pattern}{re.escape(delimiter)}{replacement}{re.escape(delimiter)}"


@cache
def _compile_sed_shape() -> re.Pattern[str]:
    address = rf"(?:[0-9]{{1,9}}|\$|/(?:[{_WORD_CHARS}#\"|,:%]|{_ESCAPE}|\\/|{_LITERAL_BRACKET}|{_BRACKET})++/I?)"
    addresses = rf"(?:{address}(?:,(?:{address}|\+[0-9]{{1,9}}))?+ *!? *)?+"
    substitution = "|".join(map(_write_substitution, _DELIMITERS))
    step = rf"{addresses}(?:[pdq=]|(?:{substitution})[gpiI0-9]{{0,4}})"
    return re.compile(rf" *{step}(?: *; *{step})*+ *;? *")


# awk -------------------------------------------------------------------------------------------------
_AWK_RULE = re.compile(r"(?P<pattern>[^{};]*+)(?:\{(?P<action>[^{}]*+)\}|$) *;? *")


def _has_awk_shape(program: str) -> bool:
    """Return whether an awk program only selects lines, prints fields and literals, adds up and counts.

    No string and no regular expression of the shapes contains a brace or a semicolon, so the program can be split at
    these.
    """
    if not program.strip() or len(program) > LONGEST_SCRIPT:
        return False
    if program.count("/") == 1:
        # One slash cannot enclose a regular expression. As a division, it has the shape of a multiplication.
        program = program.replace("/", "*")
    # In this regular expression, which finds the end of a block, no awk takes the brace for the end of an action.
    program = program.replace("/^}/", "/^x/")
    patterns, statements = _compile_awk_shapes()
    at = 0
    while at < len(program):
        rule = _AWK_RULE.match(program, at)
        if rule is None:
            return False
        pattern, action = rule["pattern"].strip(" "), rule["action"]
        if (pattern and not patterns.fullmatch(pattern)) or (action is None and pattern in ("", "BEGIN", "END")):
            return False
        if action is not None and not all(map(statements.fullmatch, action.rstrip(" ;").split(";"))):
            return False
        at = rule.end()
    return True


@cache
def _compile_awk_shapes() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the shapes of a pattern and of a statement."""
    name = r"(?:[a-z]|sum|total|count|cnt|seen|max|min|key|val|arr|line|len)\b"
    number = r"[0-9]{1,9}+(?:\.[0-9]{1,9}+)?+"
    field = r"\$(?:[0-9]{1,3}+|NF\b|\(NF *- *[0-9]{1,3}\))"
    string = r"\"(?:[A-Za-z0-9_ .,:@=+~|<>()!?*^$&%'-]|\\[tn])*+\""
    text_format = r"\"(?:[A-Za-z0-9_ .,:@=+~|<>()!?*^$&'-]|\\[tn]|%%|%-?[0-9]{0,3}(?:\.[0-9]{1,2})?[sdifgxc])*+\""
    regex = rf"/(?:[{_WORD_CHARS}|,:%]|{_ESCAPE}|{_BRACKET})++/"
    indexed = rf"{name}\[(?:{field}|{name}) *(?:, *{field} *)?\]"
    length = rf"length\b(?:\({field}\))?+"
    value = rf"(?:{field}|{string}|(?:NR|FNR|NF|FILENAME)\b|{length}|{indexed}|{name}|{number})"
    term = rf"{value}(?: *[-+*] *(?:{field}|{name}|NR|{number}))?+"
    listed = rf"(?:{term} *(?:, *)?+)++"
    compared = rf"(?:{field}|(?:NR|FNR|NF)\b(?: *% *{number})?+|{length}|{name})"
    condition = (
        rf"(?:!? *{regex}|{field} *!?~ *{regex}|!{indexed}\+\+"
        rf"|{compared} *(?:[=!<>]=|[<>]) *(?:{number}|{string}|{compared})|NF|{field})"
    )
    conditions = rf"{condition}(?: *(?:&&|\|\|) *{condition})*+"
    statement = (
        rf"printf +{text_format}(?: *, *{listed})?+|print\b(?: *{listed})?+|exit|next"
        rf"|(?:for *\({name} in {name}\) *)print +{listed}|(?:{indexed}|{name}) *(?:\+\+|[-+]?= *{term})"
        rf"|O?FS *= *{string}"
    )
    return re.compile(rf"BEGIN|END|{conditions}(?: *, *{conditions})?+"), re.compile(rf" *(?:{statement}) *")


# jq --------------------------------------------------------------------------------------------------
_JQ_WORDS = (
    "add all and any arrays as ascii_downcase ascii_upcase booleans capture ceil contains del elif else empty end "
    "endswith explode first flatten floor from_entries fromdate fromjson group_by has if implode in index input inputs "
    "inside isvalid iterables join keys keys_unsorted last length limit ltrimstr map map_values match max max_by min "
    "min_by not now nth null nulls numbers objects or path paths range recurse reduce reverse round rtrimstr scalars "
    "scan select sort sort_by split sqrt startswith strings sub gsub test then to_entries todate tojson tonumber "
    "tostring transpose true false type unique unique_by values walk with_entries"
)


@cache
def _compile_jq_shape() -> re.Pattern[str]:
    word = rf"(?:{'|'.join(_JQ_WORDS.split())})\b"
    name = r"[A-Za-z_][A-Za-z0-9_]*+"
    path = rf"(?:\.{name}|\.?\[[0-9]*+\])++"
    string = rf"\"(?:[^\"\\]|\\[nt\"]|\\\\[.dwsb$^+*?|-]|\\\({path}\))*+\""
    key = rf"(?:{name}|{string})"
    entry = rf"{key}(?: *: *(?:{path}(?: *\| *{word})?+|{word}))?+"
    flat_object = rf"\{{ *{entry}(?: *, *{entry})*+ *\}}"
    # A name is a token of its own, so `$ ENV`, `1env` and a slice such as `.[env:2]` do not pass for a path or a key.
    token = (
        rf" ++|\.\.|\.{name}|\.?{string}|{word}|\$(?!__)[a-z_][a-z0-9_]*+(?![A-Za-z0-9_])"
        rf"|@(?:csv|tsv|json|text|html|uri|sh|base64d?)\b|[0-9]++(?:\.[0-9]++)?+(?![A-Za-z0-9_])|{flat_object}"
        r"|[].\[(),|:;?=<>!+*/%-]"
    )
    return re.compile(rf"(?:{token})++")


# printf ----------------------------------------------------------------------------------------------
@cache
def _compile_printf_shape() -> re.Pattern[str]:
    return re.compile(r"(?:[^%]|%%|%[-+ 0#]{0,3}[0-9]{0,4}(?:\.[0-9]{0,3})?[sbqdiuoxXcfeEgG])*+")


PATH_KINDS = frozenset(
    (
        *("path", "folder", "pattern-file", "revision", "archive", "package"),
        *("module", "target", "remote", "refspec", "branch", "script", "requirement", "spec"),
    )
)

LONGEST_WORD = 1_000
"""A longer word is not harmless, except as free text. No pattern is compared with it."""
FREE_TEXT = frozenset(("anything", "text", "pattern"))
"""The kinds that accept every word."""


def is_harmless_word(kind: str, word: str) -> bool:
    """Return whether a word is a harmless value of this kind."""
    if kind in FREE_TEXT:
        return True
    return len(word) <= LONGEST_WORD and _CHECKS[kind](word)


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


# Each piece takes all that it can and gives nothing back, so that matching takes linear time.
_GLOB = r"(?:[\w./-]*+(?:\*\*?/)++)?[\w./-]*+(?P<star>\*[\w-]*+\.[A-Za-z0-9]++)?"
_FOLDER_GLOB = r"[\w-][\w./-]*+(?<=/)\*\*?(?:/\*\.[A-Za-z0-9]++)?"


def _selects_by_ending(word: str) -> bool:
    """Return whether a glob selects files with one ending, such as `src/**/*.py`."""
    found = _compile(_GLOB).fullmatch(word)
    if found is None or found["star"]:
        return found is not None
    ending = word.rpartition(".")[2] if "." in word else ""
    return ending.isascii() and ending.isalnum()


def _is_search_glob(word: str) -> bool:
    """Return whether a glob for rg is harmless: it excludes files, or selects files that are unlikely to be secret.

    Files that a glob selects are searched even if they are hidden or ignored.
    """
    if word.startswith("!"):
        return True
    is_hidden = word.startswith(".") or "/." in word
    if is_hidden or not (_selects_by_ending(word) or _compile(_FOLDER_GLOB).fullmatch(word)):
        return False
    return not is_sensitive(word)


# SQL -------------------------------------------------------------------------------------------------

# These read only the schema. Queries evaluate views, integrity checks evaluate constraints, and both can call edit().
_SQL_SCHEMA = (
    r"(?i) *(?:\.(?:tables|schema|indexes|indices|databases|fullschema|show|version)(?: +[\w.%*-]+)?"
    r"|pragma +(?:\w+_(?:list|info|xinfo) *(?:\(['\"]?\w+['\"]?\))?|\w+_version|encoding) *;?) *"
)
_SQL_CALLABLE = (
    "abs and as avg by case coalesce count date datetime else exists from group_concat having ifnull in join length "
    "like lower max min not nullif on or over round select strftime substr sum then total trim typeof upper using "
    "values when where"
)
LONGEST_QUERY = 1_000
_SQL_ACTING = r"(?i)readfile|fsdir|lsdir|zipfile|sqlar|sqlite_dbpage|fts\d|attach"


def _is_schema_query(text: str) -> bool:
    """Return whether a statement or dot command of sqlite3 reads only the schema of the database."""
    return _compile(_SQL_SCHEMA).fullmatch(text) is not None


def _is_harmless_sql(text: str) -> bool:
    """Return whether an SQL statement only reads the database if sqlite3 runs in its safe mode.

    Names can be followed by a parenthesis only if they are known functions or keywords. Comments and quoted names,
    which could stand between a name and its parenthesis, are not accepted.
    """
    if len(text) > LONGEST_QUERY:
        return False
    if _is_schema_query(text):
        return True
    is_reading = _compile(_write_select_shape()).fullmatch(text) is not None
    return is_reading and _compile(_SQL_ACTING).search(text) is None


@cache
def _write_select_shape() -> str:
    callable_name = rf"(?:{'|'.join(_SQL_CALLABLE.split())})\b"
    name = r"[a-z_][a-z0-9_]*+(?! *\()"
    token = rf" ++|{name}|{callable_name}|[0-9]++|'[^']*+'(?! *\()|-(?!-)|[(),.*<>=!%+|]"
    return rf"(?i) *(?:explain +(?:query +plan +)?)?select\b(?:{token})*+;? *"


_CHECKS: dict[str, Callable[[str], bool]] = {
    "anything": _accept,
    "text": _accept,
    "pattern": _accept,
    "path": _is_plain_path,
    "module": _matching(r"(?![a-z]+:|@).+"),  # deno runs code from `npm:` and `data:` addresses
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
    "date": lambda word: "TZ=" not in word,  # `TZ="FILE"` reads a file
    "date-format": _matching(r"\+.*"),
    "ps-format": _matching(r"a?u?x?u?"),
    "glob": _is_search_glob,
    "revision": _is_revision,
    "git-format": _is_git_format,
    "git-sort": _matching(r"-?(?:v(?:ersion)?:)?(?!.*signature)[a-z:*-]+"),
    "merge-format": _matching("off|none|on|first-parent|1|separate|m|combined|c|dense-combined|cc"),
    "commit": _matching(r"[\w^~@{}/.-]+"),
    "branch": _matching(r"[A-Za-z0-9][\w./-]*"),
    "remote": _matching(r"[A-Za-z0-9][\w.-]*"),
    "refspec": _matching(r"[A-Za-z0-9][\w./-]*(?::[A-Za-z0-9][\w./-]*)?"),
    "target": _matching(r"[\w./%-]+"),
    "package": _matching(r"[\w.][\w./-]*"),
    "script": _matching(
        r"(?!(?:env|(?:ba|da|k|z)?sh|node|python3?|perl|ruby|php|sudo|xargs)$)(?!.*://)[\w@][\w.:/@-]*"
    ),
    # If there is no such script, bun runs the program of this name. No program is named like these.
    "script-only": _matching(
        r"(?:test|tests|build|dev|start|lint|format|fmt|check|typecheck|type-check|types|tsc|unit|e2e|coverage|ci|clean"
        r"|docs|generate|codegen|preview|release|prepare|compile|bundle|bench|storybook|migrate|seed|prettier|eslint)"
        r"(?:[:-][\w:.-]+)?"
    ),
    "label": _matching(r"(?!-)(?:@?[\w.-]*//|:)?[\w./:+-]*"),
    "flake": _matching(r"(?:\.|(?=#))(?:#[\w.-]+)?"),
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
    "sed": _has_sed_shape,
    "awk": _has_awk_shape,
    "jq": _has_jq_shape,
    "printf-format": _has_printf_shape,
    "schema-query": _is_schema_query,
    "sql": _is_harmless_sql,
}
