"""Match scripts of awk, sed, jq and printf against fixed shapes that are known to be harmless.

The scripts are not interpreted: the programs, and versions of one program, disagree on where a string, a regular
expression or a comment ends. Each shape therefore consists only of text that all of them split at the same places:
no quote, slash or backslash where one program could end a string and another could not. Any other script needs a
person's approval, or a rule that contains it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

LONGEST_SCRIPT = 300


def has_sed_shape(script: str) -> bool:
    """Return whether a sed script only selects, prints and deletes lines, and substitutes words."""
    return _has_shape(_compile_sed_shape, script)


def has_jq_shape(text: str) -> bool:
    """Return whether a jq filter consists only of paths, literals, operators and functions on its input."""
    return _has_shape(_compile_jq_shape, text)


def has_printf_shape(text: str) -> bool:
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


def has_awk_shape(program: str) -> bool:
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
