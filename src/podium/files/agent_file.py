"""Read an agent's file: YAML frontmatter between two `---` lines, then the prompt.

Reading returns diagnostics and never raises, whatever the file contains: other people or programs may have
written it, and it may be half edited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..system import whole_file as bounded_file
from ..system.locations import escape_file_name, format_path
from ..values.agent import Agent, Source
from ..values.errors import Diagnostic
from ..values.field_reader import FieldReader, ParseContext
from ..values.located_yaml import MalformedText
from ..values.plain_text import truncate_text
from .agent_keys import FrontmatterAgent, read_keys
from .agent_name import is_agent_name, to_agent_name

FIRST_LINE = 2  # the frontmatter starts below the opening ---

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """The result of reading one file.

    `name` is the agent's name, or the best guess if the file has an error. `lines` maps each key to
    its line number. A file with neither an agent nor an error is not an agent file.
    """

    path: str
    name: str
    agent: Agent | None
    diagnostics: tuple[Diagnostic, ...]
    lines: Mapping[str, int]

    @property
    def is_broken(self) -> bool:
        """Whether the file is an agent file with an error."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


def read_agent_file(
    path: Path, *, source: Source, foreign: bool = False, display_path: str = "", root: Path | None = None
) -> AgentFile:
    """Read the agent file at `path` and return the agent with all diagnostics.

    If `root` is given, the file and any schema file that it refers to are read only if they are inside `root`.
    """
    context = ParseContext(
        file=path,
        display_path=display_path or format_path(path),
        root=root,
        foreign=foreign,
        is_yours=source == "user",
    )
    try:
        data = bounded_file.read_file_bytes(path, root=root)
    except bounded_file.UnreadableFile as error:
        context.add_diagnostic("error", f"{error}")
        return _build_agent_file(context, None)
    return _parse_agent(context, data, source=source)


def parse_agent_file(data: bytes, *, path: Path, source: Source, foreign: bool = False) -> AgentFile:
    """Parse `data` as if it were the content of the agent file at `path`."""
    context = ParseContext(file=path, display_path=format_path(path), foreign=foreign, is_yours=source == "user")
    return _parse_agent(context, data, source=source)


def _parse_agent(context: ParseContext, data: bytes, *, source: Source) -> AgentFile:
    """Parse the file's content. Errors become diagnostics."""
    from ..values.yaml_parser import parse_yaml_mapping  # imported here for start-up time: importing PyYAML is slow

    try:
        parts = split_frontmatter(bounded_file.decode_text(data))
        if parts is None:
            context.add_diagnostic(
                "notice" if context.foreign else "error", "no frontmatter; the first line must be ---"
            )
            return _build_agent_file(context)
        top = FieldReader(context=context, node=parse_yaml_mapping(parts.frontmatter, first_line=FIRST_LINE))
    except bounded_file.UnreadableFile as error:
        context.add_diagnostic("error", f"{error}")
    except MalformedText as error:
        context.add_diagnostic("error", f"{error}", line=error.line, key=error.key)
    else:
        sentence = extract_first_sentence(parts.prompt)
        found = read_keys(
            top, stem=_strip_agent_suffix(context.file), prompt=parts.prompt, description=sentence, source=source
        )
        return _build_agent_file(context, found)
    return _build_agent_file(context)


def _build_agent_file(context: ParseContext, found: FrontmatterAgent | None = None) -> AgentFile:
    """Build an `AgentFile` from the diagnostics in `context` and the agent in `found`, if any."""
    guess = _strip_agent_suffix(context.file)
    name = guess if is_agent_name(guess) else to_agent_name(guess) or context.display_path
    agent = None
    context.diagnostics.sort(key=lambda finding: finding.line or 0)
    if found is not None:
        name, agent = found.name or name, found.agent
    return AgentFile(
        path=context.display_path, name=name, agent=agent, diagnostics=tuple(context.diagnostics), lines=context.lines
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The two parts of an agent's file."""

    frontmatter: str
    prompt: str


def split_frontmatter(text: str) -> FileParts | None:
    """Split a file into its frontmatter and the text below. Return None if the file has no frontmatter."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None
    for number in range(1, len(lines)):
        if lines[number].rstrip() == "---":
            return FileParts(frontmatter="\n".join(lines[1:number]), prompt="\n".join(lines[number + 1 :]).strip())
    raise MalformedText("the frontmatter that starts here is not closed; add a line --- below its last key", line=1)


def _strip_agent_suffix(path: Path) -> str:
    """Return the file's name without the suffix `.md` or `.agent.md`."""
    return escape_file_name(path.name).removesuffix(".md").removesuffix(".agent")


def extract_first_sentence(prompt: str) -> str:
    """Return the first sentence of the first paragraph that does not start with a heading, or else the first heading.

    The result is on one line and truncated if it is long.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", prompt[:10_000])]
    prose = [paragraph for paragraph in paragraphs if paragraph and not paragraph.startswith("#")]
    text = (prose or [paragraphs[0].lstrip("# ")])[0]
    if end := _SENTENCE_END.search(text):
        text = text[: end.end()]
    return truncate_text(text, _LONGEST_DESCRIPTION)
