"""An agent's file: YAML between two lines `---`, then the prompt.

Whatever the file holds, reading it gives findings and never an exception: these files come from
other people, other programs and half-finished edits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..system.locations import escape_file_name, format_path
from ..values.agent import Agent, Source
from ..values.diagnostic import Diagnostic
from ..values.located_yaml import MalformedText, parse_yaml_mapping, truncate_text
from . import bounded_file
from .agent_field import ParseContext, ValueReader
from .agent_keys import FrontmatterAgent, read_keys
from .agent_name import is_agent_name, to_agent_name

FIRST_LINE = 2  # the frontmatter begins below its opening line

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFile:
    """What came of reading one file.

    `name` is the agent's, or the best guess where the file has an error; `lines` tells where each
    key stands. Without an agent and without an error, the file is none of ours.
    """

    path: str
    name: str
    agent: Agent | None
    diagnostics: tuple[Diagnostic, ...]
    lines: Mapping[str, int]

    @property
    def is_broken(self) -> bool:
        """Whether the file is meant to be an agent and cannot be one."""
        return any(diagnostic.severity == "error" for diagnostic in self.diagnostics)


def read_agent_file(
    path: Path, *, source: Source, foreign: bool = False, display_path: str = "", root: Path | None = None
) -> AgentFile:
    """The agent in the file at `path`, and everything there is to say about the file.

    Neither the file nor a schema that it names is read when it leads out of `root`.
    """
    context = ParseContext(file=path, display_path=display_path or format_path(path), root=root, foreign=foreign)
    try:
        data = bounded_file.read_file_bytes(path, root=root)
    except bounded_file.UnreadableFile as error:
        context.add_diagnostic("error", f"{error}")
        return _build_agent_file(context, None)
    return _parse_agent(context, data, source=source)


def parse_agent_file(data: bytes, *, path: Path, source: Source, foreign: bool = False) -> AgentFile:
    """The agent in `data`, as if that stood in the file at `path`."""
    return _parse_agent(ParseContext(file=path, display_path=format_path(path), foreign=foreign), data, source=source)


def _parse_agent(context: ParseContext, data: bytes, *, source: Source) -> AgentFile:
    """The page's agent, with every refusal as a finding."""
    try:
        parts = split_frontmatter(bounded_file.decode_text(data))
        if parts is None:
            context.add_diagnostic(
                "notice" if context.foreign else "error", "has no frontmatter; its first line would be ---"
            )
            return _build_agent_file(context)
        top = ValueReader(context=context, key="", node=parse_yaml_mapping(parts.frontmatter, first_line=FIRST_LINE))
    except bounded_file.UnreadableFile as error:
        context.add_diagnostic("error", f"{error}")
    except MalformedText as error:
        context.add_diagnostic("error", f"{error}", line=error.line, key=error.key)
    else:
        sentence = extract_first_sentence(parts.prompt)
        found = read_keys(
            top, stem=strip_agent_suffix(context.file), prompt=parts.prompt, description=sentence, source=source
        )
        return _build_agent_file(context, found)
    return _build_agent_file(context)


def _build_agent_file(context: ParseContext, found: FrontmatterAgent | None = None) -> AgentFile:
    """What is known about the page at the end."""
    guess = strip_agent_suffix(context.file)
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
    """A file's two parts."""

    frontmatter: str
    prompt: str


def split_frontmatter(text: str) -> FileParts | None:
    """The part between the first line `---` and the next, and the part below; None without frontmatter."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None
    for number in range(1, len(lines)):
        if lines[number].rstrip() == "---":
            return FileParts(frontmatter="\n".join(lines[1:number]), prompt="\n".join(lines[number + 1 :]).strip())
    raise MalformedText(
        "the frontmatter that begins here has no end; a line --- below its last key would be right", line=1
    )


def strip_agent_suffix(path: Path) -> str:
    """The file's name without what says that it is an agent."""
    return escape_file_name(path.name).removesuffix(".md").removesuffix(".agent")


def extract_first_sentence(prompt: str) -> str:
    """The first sentence of the first paragraph, on one line; of the first heading where there is only that."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", prompt[:10_000])]
    prose = [paragraph for paragraph in paragraphs if paragraph and not paragraph.startswith("#")]
    text = (prose or [paragraphs[0].lstrip("# ")])[0]
    if end := _SENTENCE_END.search(text):
        text = text[: end.end()]
    return truncate_text(text, _LONGEST_DESCRIPTION)
