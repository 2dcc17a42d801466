"""Limit the length, word count and nesting depth of the shell commands that are parsed.

Nothing else can run while a command is parsed, so the limits keep the parsing time short.
"""

from __future__ import annotations

import re

READABLE = 100_000
SHORT = 200
DEEPEST_BRACKETS = 50
MOST_SIGNS = 300
MOST_COSTLY_SIGNS = 100
MOST_BLANKS = 2_000


def find_parse_objection(text: str) -> str:
    """Return the reason why a command must not be parsed, or an empty string if it can be parsed.

    Parsing time grows faster than the number of special characters, so these are counted first. The contents of
    quoted strings and quoted here-documents do not count, because they are fast to parse, however long they are.
    """
    if len(text) > READABLE:
        return f"it has {len(text)} characters, and at most {READABLE} can be checked"
    if "\0" in text:
        return "it contains a NUL character, which no command can contain"
    if len(text) <= SHORT and _OPENING.search(text) is None:
        return ""
    bare = _cut_quoted_text(text)
    if len(_COSTLY_SIGN.findall(bare)) > MOST_COSTLY_SIGNS or len(_SIGN.findall(bare)) > MOST_SIGNS:
        return "it has too many operators, brackets and quotes to check"
    if len(_BLANKS.findall(bare)) > MOST_BLANKS:
        return f"it has more than {MOST_BLANKS} words, which is too many to check"
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth = depth + 1 if bracket in "({" else max(depth - 1, 0)
        if depth > DEEPEST_BRACKETS:
            return f"its brackets are nested more than {DEEPEST_BRACKETS} levels deep, which is too deep to check"
    return ""


def _cut_quoted_text(text: str) -> str:
    """Return a command without the contents of its quoted strings and quoted here-documents.

    After a comment, a substitution or an unquoted here-document, nothing is removed, because quotes may have
    a different meaning there.
    """
    kept: list[str] = []
    at = 0
    while (found := _QUOTED.search(text, at)) is not None and found.lastgroup != "unclear":
        kept += (text[at : found.start()], "'", found["rest"] or "")
        at = found.end()
    return "".join((*kept, text[at:]))


_QUOTED = re.compile(
    r"""'[^']*'|"(?:[^"\\$`]|\\[^\n])*"|\\[^\n]"""
    r"""|<<-?[ ]*(?P<quote>['"])(?P<end>\w+)(?P=quote)(?P<rest>[^\n'"`#<\\$(]*)\n(?:.*?\n)??\t*(?P=end)(?=\n|$)"""
    r"""|(?P<unclear>["'`#\\]|<<|\$['"(])""",
    re.DOTALL,
)
_OPENING = re.compile(r"[({`\[<]")
_BRACKET = re.compile(r"[(){}]")
_BLANKS = re.compile(r"\s+")
_SIGN = re.compile(r"[;&|(){}<>$`\n\"'\[\]!~*\\=#@]")
_COSTLY_SIGN = re.compile(r"\||=\(|\$\[|\$\{|=~|<<|\[\[|`|\b(?:case|if|for|while|until|select|function|do|then|in)\b")
