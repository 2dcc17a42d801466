"""An agent's file: YAML between two lines `---`, then the prompt.

Whatever the file holds, reading it gives findings and never an exception: these files come from
other people, other programs and half-finished edits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..system.locations import one_line, shown
from ..values.agent import Agent, Source
from ..values.diagnostic import Finding
from ..values.located_yaml import Malformed, compose, shortened
from . import bounded_file
from .agent_field import Page, Slot
from .agent_keys import Described, read_keys
from .agent_name import is_name, slug

FIRST_LINE = 2  # the frontmatter begins below its opening line

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What came of reading one file.

    `name` is the agent's, or the best guess where the file has an error; `lines` tells where each
    key stands. Without an agent and without an error, the file is none of ours.
    """

    path: str
    name: str
    agent: Agent | None
    findings: tuple[Finding, ...]
    lines: Mapping[str, int]

    @property
    def is_broken(self) -> bool:
        """Whether the file is meant to be an agent and cannot be one."""
        return any(finding.severity == "error" for finding in self.findings)


def read(path: Path, *, source: Source, foreign: bool = False, path_shown: str = "", root: Path | None = None) -> Read:
    """The agent in the file at `path`, and everything there is to say about the file.

    Neither the file nor a schema that it names is read when it leads out of `root`.
    """
    page = Page(file=path, path=path_shown or shown(path), root=root, foreign=foreign)
    try:
        data = bounded_file.contents(path, root=root)
    except bounded_file.Unreadable as error:
        page.note("error", f"{error}")
        return _finished(page, None)
    return _parsed(page, data, source=source)


def parse(data: bytes, *, path: Path, source: Source, foreign: bool = False) -> Read:
    """The agent in `data`, as if that stood in the file at `path`."""
    return _parsed(Page(file=path, path=shown(path), foreign=foreign), data, source=source)


def _parsed(page: Page, data: bytes, *, source: Source) -> Read:
    """The page's agent, with every refusal as a finding."""
    try:
        halves = split(bounded_file.decoded(data))
        if halves is None:
            page.note("notice" if page.foreign else "error", "has no frontmatter; its first line would be ---")
            return _finished(page)
        top = Slot(page=page, key="", written=compose(halves.frontmatter, first_line=FIRST_LINE))
    except bounded_file.Unreadable as error:
        page.note("error", f"{error}")
    except Malformed as error:
        page.note("error", f"{error}", line=error.line, key=error.key)
    else:
        sentence = first_sentence(halves.prompt)
        found = read_keys(top, stem=stem(page.file), prompt=halves.prompt, description=sentence, source=source)
        return _finished(page, found)
    return _finished(page)


def _finished(page: Page, found: Described | None = None) -> Read:
    """What is known about the page at the end."""
    guess = stem(page.file)
    name = guess if is_name(guess) else slug(guess) or page.path
    agent = None
    page.findings.sort(key=lambda finding: finding.line or 0)
    if found is not None:
        name, agent = found.name or name, found.agent
    return Read(path=page.path, name=name, agent=agent, findings=tuple(page.findings), lines=page.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """A file's two parts."""

    frontmatter: str
    prompt: str


def split(text: str) -> Halves | None:
    """The part between the first line `---` and the next, and the part below; None without frontmatter."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None
    for number in range(1, len(lines)):
        if lines[number].rstrip() == "---":
            return Halves(frontmatter="\n".join(lines[1:number]), prompt="\n".join(lines[number + 1 :]).strip())
    raise Malformed("the frontmatter that begins here has no end; a line --- below its last key would be right", line=1)


def stem(path: Path) -> str:
    """The file's name without what says that it is an agent."""
    return one_line(path.name).removesuffix(".md").removesuffix(".agent")


def first_sentence(prompt: str) -> str:
    """The first sentence of the first paragraph, on one line; of the first heading where there is only that."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", prompt[:10_000])]
    prose = [paragraph for paragraph in paragraphs if paragraph and not paragraph.startswith("#")]
    text = (prose or [paragraphs[0].lstrip("# ")])[0]
    if end := _SENTENCE_END.search(text):
        text = text[: end.end()]
    return shortened(text, _LONGEST_DESCRIPTION)
