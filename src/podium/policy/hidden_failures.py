"""Find how a line for the shell can hide that a command in it failed, such as `tests || true` or `tests; exit 0`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .command_limits import find_parse_objection
from .command_words import split_names
from .shell_command import get_parser
from .shell_program import SHELLS, decode_text

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 10_000
DEEPEST = 4
PREPARING = split_names(
    "cd pushd popd export set shopt source . mkdir touch umask ulimit unset declare local readonly alias echo printf "
    "true : sleep trap kill wait"
)
"""Commands that prepare a check or report about it. It does not matter if they fail."""
SUCCEEDING = split_names("true : echo printf")
"""Commands that practically always succeed."""
ASKING = split_names("[ [[ test grep egrep fgrep rg ag diff cmp command which type hash pgrep")
"""Commands whose exit code is an answer, so that a condition or a negation hides nothing."""
_BODIES = frozenset(("program", "compound_statement", "subshell", "do_group", "else_clause", "command_substitution"))
_ERREXIT = re.compile(r"(?:^|[;&|\s(])set\s+(?:-\w*e|-\w*o\s+errexit)|^\s*(?:ba)?sh\s+-\w*e")


def find_hidden_exits(text: str) -> list[str]:
    """Return what in a line for the shell can hide that a command failed, each as it is named to a person.

    The line runs with `pipefail`, so a pipe hides nothing unless another shell runs it.
    """
    return list(dict.fromkeys(_find_in_text(text, depth=0)))


def _find_in_text(text: str, *, depth: int) -> Iterator[str]:
    if len(text) > LONGEST or depth > DEEPEST or find_parse_objection(text):
        return
    root = get_parser().parse(text.encode()).root_node
    yield from _find_in_node(root, stops=bool(_ERREXIT.search(text)), depth=depth)
    for last in _list_statements(root)[-1:]:
        if _succeeds(last) and any(_walk(last, "command_substitution")):
            yield "its last command"


def _find_in_node(node: Node, *, stops: bool, depth: int) -> Iterator[str]:
    """Yield what hides an exit code in a part of the line. With `stops`, the shell stops after a failing command."""
    match node.type:
        case "command":
            yield from _find_in_command(node, depth)
        case "list" if _get_operator(node) == "||" and _succeeds(node.named_children[-1]):
            yield "||"
        case "negated_command" if not _is_condition(node) and _get_name(node.named_children[-1]) not in ASKING:
            yield "!"
        case "if_statement" if _hides_condition(node):
            yield "if"
        case "while_statement" if _get_name(node.named_children[0]) not in ASKING | SUCCEEDING:
            yield decode_text(node.children[0])
        case "process_substitution":
            yield "<(…)"
        case "pipeline" if depth:
            yield "a pipe in another shell"
    if node.type in _BODIES:
        yield from _find_in_sequence(node, stops=stops)
    for child in node.named_children:
        yield from _find_in_node(child, stops=stops, depth=depth)


def _find_in_sequence(node: Node, *, stops: bool) -> Iterator[str]:
    """Yield what hides the exit code of a statement that is not the last one."""
    statements = _list_statements(node)
    for place, one in enumerate(statements):
        is_background = one.next_sibling is not None and one.next_sibling.type == "&"
        rest = " ".join(map(decode_text, statements[place + 1 :]))
        if is_background:
            if not re.search(r"\bwait\s+(?:-n|[$%\d\"'])", rest):
                yield "& at its end" if not rest else "&"
        elif rest and not stops and not _prepares(one) and "$?" not in decode_text(statements[place + 1]):
            yield "its last command" if _succeeds(statements[-1]) else ";"


def _find_in_command(node: Node, depth: int) -> Iterator[str]:
    name, words = _get_name(node), [decode_text(one) for one in node.named_children[1:]]
    if name == "trap" and any(re.search(r"\bexit\b", word) for word in words):
        yield "a trap"
    if name == "set" and re.search(r"(?:^|\s)\+(?:\w*e\b|\w*o\s+(?:pipefail|errexit))", " ".join(words)):
        yield "set +"
    takes_line = name == "eval" or (name in SHELLS and any(re.fullmatch(r"-\w*c", word) for word in words))
    for one in node.named_children[1:] if takes_line else ():
        if one.type in ("string", "raw_string"):
            yield from _find_in_text(decode_text(one)[1:-1], depth=depth + 1)


def _is_condition(node: Node) -> bool:
    return node.parent is not None and node.parent.type in ("if_statement", "elif_clause", "while_statement")


def _hides_condition(node: Node) -> bool:
    """Return whether an `if` succeeds although the command in its condition failed."""
    if _get_name(node.named_children[0]) in ASKING:
        return False
    otherwise = [one for one in node.named_children if one.type in ("else_clause", "elif_clause")]
    return not otherwise or _succeeds(otherwise[-1])


def _prepares(node: Node) -> bool:
    if node.type in ("variable_assignment", "variable_assignments", "declaration_command", "function_definition"):
        return True
    if node.type == "list":
        return all(map(_prepares, node.named_children)) or _ends_on_failure(node)
    if node.type in ("unset_command", "if_statement", "case_statement"):
        return True
    return _get_name(node) in PREPARING


def _ends_on_failure(node: Node) -> bool:
    """Return whether a statement ends the line if it fails, as `a || exit 1` does."""
    last = node.named_children[-1]
    return _get_operator(node) == "||" and any(_get_name(one) in ("exit", "return") for one in _walk(last, "command"))


def _succeeds(node: Node) -> bool:
    """Return whether a statement always succeeds."""
    if node.type in ("compound_statement", "subshell", "else_clause", "list", "redirected_statement"):
        parts = _list_statements(node)
        if node.type == "redirected_statement":
            return bool(parts) and _succeeds(parts[0])
        return bool(parts) and _succeeds(parts[-1])
    if _get_name(node) in ("exit", "return"):
        return [decode_text(one) for one in node.named_children[1:]] == ["0"]
    return _get_name(node) in SUCCEEDING


def _list_statements(node: Node) -> list[Node]:
    return [one for one in node.named_children if one.type not in ("comment", "heredoc_body", "file_redirect")]


def _walk(node: Node, kind: str) -> Iterator[Node]:
    if node.type == kind:
        yield node
    for child in node.named_children:
        yield from _walk(child, kind)


def _get_operator(node: Node) -> str:
    return next((one.type for one in node.children if one.type in ("&&", "||")), "")


def _get_name(node: Node) -> str:
    """Return the name of the program that a statement runs, or an empty string if it is not a simple command."""
    while node.type in ("redirected_statement", "negated_command", "pipeline") and node.named_children:
        node = node.named_children[0]
    if node.type == "test_command":
        return "["
    if node.type != "command":
        return ""
    name = node.child_by_field_name("name")
    return "" if name is None else decode_text(name).rpartition("/")[2]
