"""Parse a shell command without running it. Find its parts, its paths, and why it may need approval.

A command counts as plain only if two parsers agree on it: a full shell parser, and a small scanner that knows only
words, quotes and the operators between commands. Any other command needs a person's approval. Deny and ask rules are
matched against every command that can be found, including commands in substitutions, commands that other programs
run, and strings that a shell would run.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from .command_limits import READABLE, find_parse_objection
from .command_words import Words, split_names
from .inert_commands import find_plain_inner_start, runs_no_command
from .path_rules import is_protected
from .shell_program import (
    EXEC_OPTIONS,
    STARTS_ELSEWHERE,
    TEXT_READERS,
    WRAPPERS,
    decode_text,
    decode_word,
    find_changed_paths,
    find_mentioned_paths,
    get_program_name,
    is_glob,
    is_runner,
    list_start_folders,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LONGEST = 10_000
MOST_PARTS = 50
DEEPEST = 4
MOST_NODES = 6_000
MOST_CANDIDATES = 1_000
MOST_WORDS = 200
MOST_FOLDERS = 16
MOST_PLACED = 8_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShellCommand:
    """A parsed shell command.

    `parts` contains the simple commands of a plain command. If the command is not plain, `odd` is the reason. If it
    could not be checked at all, `unread` is the reason. `simple` contains all simple commands, and `nested` those in
    strings that a program may run. `values` contains the values that variables get, and `globs` the patterns that the
    shell expands to names of files. `candidates` contains all commands that may run, including commands that other
    programs run; `match_texts` contains the same commands as strings for matching. `sources` contains the files in
    input redirections. `writes` contains the paths that the command changes, and `mentions` all words that may be
    paths. Both contain each path as written and resolved against the `folders` that the command enters.
    `names_protected` says whether any of these paths is protected.
    """

    text: str
    parts: tuple[Words, ...] = ()
    odd: str = ""
    unread: str = ""
    simple: tuple[Words, ...] = ()
    nested: tuple[Words, ...] = ()
    values: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    candidates: tuple[Words, ...] = ()
    match_texts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    names_protected: bool = False


def parse_command(text: str) -> ShellCommand:
    """Parse a command for evaluation by rules."""
    return _parse_command_cached(text) if len(text) <= LONGEST else _parse_command(text)


def _parse_command(text: str) -> ShellCommand:
    found = _Findings()
    if unread := find_parse_objection(text):
        found.simple = [words[:MOST_WORDS] for words in _split_roughly(text[:READABLE])]
        found.candidates.extend(_split_roughly(text[:READABLE]))
    elif not _inspect_text(text, found, depth=0):
        unread = "it does not parse as a shell command"
    # A search for `cd` and `pushd` is reliable only in text without quotes and escapes, which could hide the names.
    is_hidden = "'" in text or '"' in text or "\\" in text
    is_moving = is_hidden or "cd" in text or "pushd" in text or (".." in text and STARTS_ELSEWHERE.search(text))
    folders = _follow_folders(found) if is_moving else ()
    is_placed = bool(folders) or is_hidden or ".." in text
    if found.is_too_much or len(found.candidates) > MOST_CANDIDATES:
        unread = unread or "it is too deeply nested or has too many commands to be checked"
    candidates = tuple(dict.fromkeys(found.candidates))
    names = list(map(get_program_name, candidates))
    writes = _merge_unique(found.redirected, map(find_changed_paths, candidates, names))
    mentions = _merge_unique(found.sources, map(find_mentioned_paths, candidates, names))
    if len(mentions) * (1 + len(folders)) > MOST_PLACED:
        unread, folders = unread or "it has too many paths in too many folders to be checked", folders[:1]
    parts = () if unread else _scan_commands(text)
    odd = unread or _find_oddity(text, found, parts)
    if is_placed:
        writes, mentions = place_in_folders(writes, folders), place_in_folders(mentions, folders)
    return ShellCommand(
        text=text,
        parts=() if odd else parts,
        odd=odd,
        unread=unread,
        simple=tuple(found.simple),
        nested=tuple(found.nested),
        values=tuple(found.values),
        globs=place_in_folders(tuple(found.globs), folders),
        candidates=candidates,
        match_texts=tuple(dict.fromkeys(list_match_texts(candidates, names))),
        sources=tuple(found.sources),
        writes=writes,
        mentions=mentions,
        folders=folders,
        names_protected=any(map(is_protected, writes)) or any(map(is_protected, mentions)),
    )


def _follow_folders(found: _Findings) -> tuple[str, ...]:
    """Return the folders where the commands may run, relative to the checkout and excluding the checkout itself."""
    folders = {"": None}
    for words in found.candidates:
        is_entering = get_program_name(words) in ("cd", "pushd")
        for word in words[1:] if is_entering else list_start_folders(words):
            # Each word can double the number of folders, so the number is limited here, too.
            if not word.startswith("-") and len(folders) <= 2 * MOST_FOLDERS:
                folders |= {posixpath.normpath(posixpath.join(folder, word)): None for folder in folders}
        if len(folders) > MOST_FOLDERS:
            found.is_too_much = True
            break
    return tuple(folder for folder in folders if folder not in ("", "."))[:MOST_FOLDERS]


def place_in_folders(paths: tuple[str, ...], folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths themselves, plus each path resolved against the checkout and against each of these folders."""
    placed = (posixpath.normpath(posixpath.join(folder, path)) for folder in ("", *folders) for path in paths)
    return _merge_unique(paths, (placed,))


@lru_cache(maxsize=1024)
def join_words(words: Words) -> str:
    """Join words into one string with unambiguous word boundaries."""
    joined = "\0".join(words) + "\0"
    if joined.count("\0") == len(words):  # no word contains a NUL
        return joined
    return "\0".join([word.replace("\0", "\ufffd") for word in words]) + "\0"


def _merge_unique(first: Iterable[str], others: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(first, *others)))


def list_match_texts(candidates: Iterable[Words], names: Iterable[str]) -> Iterator[str]:
    """Yield each command as a string for matching.

    If the program is given as a path or in upper case, also yield the command with the program's base name in lower
    case: `rm` for `/bin/RM`.
    """
    for words, name in zip(candidates, names, strict=True):
        yield join_words(words)
        if name != words[0]:
            yield join_words((name, *words[1:]))


_parse_command_cached = lru_cache(maxsize=512)(_parse_command)


def _find_oddity(text: str, found: _Findings, parts: tuple[Words, ...]) -> str:
    """Return why no rule can allow a command, or an empty string for a plain command."""
    if not text.strip():
        return "it is empty"
    if len(text) > LONGEST:
        return f"it has {len(text)} characters, more than {LONGEST}"
    if not text.isascii() or not text.isprintable():
        return "it contains control characters or non-ASCII characters"
    if len(found.simple) > MOST_PARTS:
        return f"it has {len(found.simple)} parts, more than {MOST_PARTS}"
    # The scanner accepts no other redirections than those that write no file.
    if other := found.kinds - PLAIN_NODES - (HARMLESS_REDIRECT_NODES if parts else frozenset()):
        said = next((said for kind, said in ODD_NODES.items() if kind in other), "")
        return f"it has {said or 'a ' + min(other).replace('_', ' ')}"
    if not parts:
        return "it contains a pattern, a brace, a backslash or another character that the shell would interpret"
    if parts != tuple(found.simple) or any("=" in words[0] or not words[0] for words in parts):
        return "it can be parsed in more than one way"
    programs = set(map(get_program_name, parts))
    if "git" in programs and programs & {"cd", "pushd", "popd"}:
        return "it changes the current folder and runs git, which reads settings from there"
    return ""


ODD_NODES = {
    "command_substitution": "a substitution",
    "process_substitution": "a substitution",
    "simple_expansion": "a variable",
    "expansion": "a variable",
    "arithmetic_expansion": "an arithmetic expansion",
    "ansi_c_string": "a quoted string with escapes",
    "translated_string": "a translated string",
    "heredoc_redirect": "a here-document",
    "herestring_redirect": "a here-string",
    "file_redirect": "a redirection",
    "|&": "a pipe that includes standard error",
    "variable_assignment": "an assignment",
    "variable_assignments": "an assignment",
    "declaration_command": "a declaration",
    "unset_command": "an unset command",
    "brace_expression": "a brace expansion",
    "&": "a background job",
    "subshell": "a subshell",
    "compound_statement": "a group of commands",
    "negated_command": "a negation",
    "function_definition": "a function",
    "comment": "a comment",
}
PLAIN_NODES = split_names(
    'program list pipeline command command_name word number raw_string string string_content concatenation && || | ; "'
)
HARMLESS_REDIRECT_NODES = split_names("redirected_statement file_redirect file_descriptor > >&")

# The scanner -----------------------------------------------------------------------------------------

# In double quotes, a backslash before an ordinary character is an ordinary character, too.
# A tilde is an ordinary character only inside a word, as in HEAD~1. Elsewhere, it means a home folder.
_WORD = r"""(?:'[^']*'|"(?:[^"$`\\]|\\(?!["$`\\]))*+"|[A-Za-z0-9_@%+=:,./^-]++|(?<=[A-Za-z0-9])~)++"""
_REDIRECT = r"2>&1|[12]?> ?/dev/null"
_TOKEN = re.compile(rf" *(?:(?P<sign>&&|\|\|?|;)|(?<= )(?P<redirect>{_REDIRECT})|(?P<word>{_WORD}))(?= |&&|\||;|$)| +$")


def _scan_commands(text: str) -> tuple[Words, ...]:
    """Return the words of each simple command. The commands are separated by `&&`, `||`, `|` or `;`.

    Return an empty tuple if a command is empty, or if the text contains other characters that a shell may interpret.
    """
    parts: list[Words] = []
    words: list[str] = []
    has_quotes = "'" in text or '"' in text
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return ()
        at = token.end()
        kind = token.lastgroup
        if kind == "word":
            words.append(_remove_quotes(token["word"]) if has_quotes else token["word"])
        elif kind == "sign":
            parts.append(tuple(words))
            words = []
    if words or not text.rstrip().endswith(";"):
        parts.append(tuple(words))
    return tuple(parts) if all(parts) else ()


def _remove_quotes(word: str) -> str:
    if "'" not in word and '"' not in word:
        return word
    return re.sub(r"""'([^']*)'|"([^"]*)\"""", lambda quoted: quoted[1] or quoted[2] or "", word)


# The grammar -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Findings:
    """What the parser found in a command."""

    simple: list[Words] = field(default_factory=list)
    nested: list[Words] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    globs: list[str] = field(default_factory=list)
    candidates: list[Words] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    redirected: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    backquoted: list[str] = field(default_factory=list)
    is_too_much: bool = False


_of_thread = threading.local()


def get_parser() -> Parser:
    """Return this thread's parser. Two threads must not use one parser at the same time."""
    parser: Parser | None = getattr(_of_thread, "parser", None)
    if parser is None:
        # Imported here to keep start-up fast: only callers that parse shell commands need it.
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        parser = _of_thread.parser = Parser(Language(tree_sitter_bash.language()))
    return parser


def _inspect_text(text: str, found: _Findings, *, depth: int) -> bool:
    """Parse `text` and add its commands and paths to `found`. Return False if the text does not parse."""
    if depth > DEEPEST or len(found.candidates) > MOST_CANDIDATES or (depth and find_parse_objection(text)):
        found.is_too_much = True
        return True
    root = get_parser().parse(text.encode("utf-8", "surrogatepass")).root_node
    before, texts_before, backquoted_before = len(found.candidates), len(found.texts), len(found.backquoted)
    simple = _find_simple_commands(root, found, is_top=not depth)
    if root.has_error or found.is_too_much:
        simple += _split_roughly(text)
    if depth:
        found.nested += simple
    else:
        found.simple = list(simple)
    for words in simple:
        heard = len(found.candidates)
        if heard > MOST_CANDIDATES:
            found.is_too_much = True
            break
        found.candidates.extend(_expand_variants(words))
        found.is_too_much |= len(words) > MOST_WORDS and len(found.candidates) - heard > 1
    inner = [word.partition("!")[2] for words in simple if words[0] == "git" for word in words if "!" in word]
    inner += found.backquoted[backquoted_before:]
    if not TEXT_READERS.isdisjoint(map(get_program_name, found.candidates[before:])):
        inner += found.texts[texts_before:]
        inner += [word for words in simple for word in words if re.search(r"[\s;|&$`(]", word)]
    if not depth and "\\\n" in text:
        inner.append(text.replace("\\\n", ""))  # the shell joins these lines, even within a word
    for piece in inner:
        if piece != text:
            _inspect_text(piece, found, depth=depth + 1)
    return not root.has_error


def _split_roughly(text: str) -> list[Words]:
    """Return the possible commands in a string that does not parse or must not be parsed."""
    split = re.split(r"[;&|\n(){}<>`$]+", text, maxsplit=MOST_CANDIDATES)[:MOST_CANDIDATES]
    pieces = (re.sub(r"[\\'\"]", "", piece) for piece in split if piece)
    return [words for piece in pieces if (words := tuple(piece.replace(",", " ").split()))]


def _find_simple_commands(root: Node, found: _Findings, *, is_top: bool) -> list[Words]:
    """Return the simple commands below a node, in order, and add the other findings to `found`."""
    simple: list[Words] = []
    waiting = [root]
    left = MOST_NODES
    while waiting:
        node = waiting.pop()
        left -= 1
        if not left:
            found.is_too_much = True
            break
        kind = node.type
        if is_top:
            found.kinds.add(kind)
        if kind in _LEAVES:
            continue
        children = node.children
        if kind == "command":
            if words := tuple([decode_word(child) for child in children if child.type not in _NOT_WORDS]):
                simple.append(words)
                found.globs += [decode_word(child) for child in children if is_glob(child)]
        elif kind in _NOTED:
            _note_node(node, kind, found, simple)
        if children:
            waiting.extend(reversed(children))
    return simple


_LEAVES = frozenset(("word", "raw_string", "string_content", '"', "&&", "||", "|", ";"))
_NOTED = split_names(
    "declaration_command unset_command test_command file_redirect heredoc_body herestring_redirect variable_assignment "
    "expansion command_substitution for_statement"
)


def _note_node(node: Node, kind: str, found: _Findings, simple: list[Words]) -> None:
    """Record a syntax node: the files or text of a redirection in `found`, or the words of a command in `simple`."""
    if kind == "file_redirect":
        _note_redirect(node.children, found)
    elif kind == "command_substitution":
        if "\\`" in (said := decode_text(node)):  # backquotes within backquotes
            found.backquoted.append(said.strip("`").replace("\\`", "`"))
    elif kind == "expansion":
        _note_backquotes(decode_text(node), found)
        if default := _DEFAULT.match(decode_text(node)):
            found.values.append(default[1])
    elif kind == "for_statement":
        found.values += [decode_word(child) for child in node.children_by_field_name("value")]
        found.globs += [decode_word(child) for child in node.children_by_field_name("value") if is_glob(child)]
    elif kind == "heredoc_body":
        found.texts.append(decode_text(node))
        before = node.parent.children if node.parent else []
        if not any(child.type == "heredoc_start" and _QUOTE.search(decode_text(child)) for child in before):
            _note_backquotes(decode_text(node), found)
    elif kind == "variable_assignment":
        found.values.append(decode_word(node.children[-1]))
    elif kind == "herestring_redirect":
        found.texts.append(said := decode_word(node.children[-1]))
        found.values += [said] if len(said.split()) == 1 else []
    else:
        simple.append(tuple(decode_text(node).split()))
        found.values += [decode_word(child).partition("=")[2] for child in node.children if child.type in _QUOTED_WORDS]


def _note_backquotes(text: str, found: _Findings) -> None:
    """Record the commands in text that the shell expands, but in which the parser finds no backquotes."""
    if "`" in text or "<(" in text:
        found.backquoted += filter(None, re.split(r"`|[<>]\(|[)}]", text)[1:])


_DEFAULT = re.compile(r"\$\{!?\w*+:?[-=+]([^}]++)")
_QUOTE = re.compile(r"['\"\\]")
_QUOTED_WORDS = frozenset(("string", "raw_string", "ansi_c_string", "concatenation"))
_NOT_WORDS = frozenset(("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment"))


def _note_redirect(children: list[Node], found: _Findings) -> None:
    signs = {child.type for child in children if not child.is_named}
    for child in children:
        if child.is_named and child.type != "file_descriptor":
            said = decode_word(child)
            found.globs += [said] if is_glob(child) else []
            if signs == {"<"}:
                found.sources.append(said)
            elif not (signs & {">&", "<&"} and said.isdigit()):
                found.redirected.append(said)


def _expand_variants(words: Words) -> Iterator[Words]:
    """Yield a command, the same command without its leading options, and every command that it may run."""
    yield words
    if _UNSPLIT.search(words[0]):
        words = (*(piece for piece in re.split(r"\$\{?IFS\}?|[{},]", words[0]) if piece), *words[1:]) or words
        yield words
    # Longer commands are reported as too long to check, so the rest of their words can be ignored.
    words = words[: 2 * MOST_WORDS]
    for at in range(1, min(len(words) - 1, MOST_WORDS)):
        if not words[at].startswith("-") and not (at > 1 and words[at - 1].startswith("-")):
            break
        yield (words[0], *words[at + 1 :])
    name = get_program_name(words)
    if name == "find":
        first = next((at + 1 for at, word in enumerate(words) if word in EXEC_OPTIONS), len(words))
    elif name in WRAPPERS or is_runner(words, name):
        first = 1
    else:
        return
    if runs_no_command(words):
        return
    inner = find_plain_inner_start(words)
    is_only_one = inner and runs_no_command(words[inner:])
    for start in [inner] if is_only_one else range(first, min(len(words), MOST_WORDS)):
        yield words[start:]


_UNSPLIT = re.compile(r"\$\{?IFS|^\{.*,")
