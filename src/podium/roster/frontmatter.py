"""An agent's file: YAML between two lines `---`, then the prompt.

Whatever the file holds, reading it gives findings and never an exception: these files come from
other people, other programs and half-finished edits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ..agent import Agent, Source
from . import file
from .finding import Finding
from .keys import Described, read_keys
from .name import is_name, slug
from .place import one_line, shown
from .slot import Page, Slot
from .written import Fields, Items, Scalar, TooLarge, Written, described, quoted, scalar, shortened

DEEPEST = 40
FIRST_LINE = 2  # the frontmatter begins below its opening line
LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one, where PyYAML was built with it

_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # an escape in quotes may bring these
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
        data = file.contents(path, root=root)
    except file.Unreadable as error:
        page.note("error", f"{error}")
        return _finished(page, None)
    return _parsed(page, data, source=source)


def parse(data: bytes, *, path: Path, source: Source, foreign: bool = False) -> Read:
    """The agent in `data`, as if that stood in the file at `path`."""
    return _parsed(Page(file=path, path=shown(path), foreign=foreign), data, source=source)


def _parsed(page: Page, data: bytes, *, source: Source) -> Read:
    """The page's agent, with every refusal as a finding."""
    try:
        halves = split(file.decoded(data))
        if halves is None:
            page.note("notice" if page.foreign else "error", "has no frontmatter; its first line would be ---")
            return _finished(page)
        top = Slot(page=page, key="", written=compose(halves.frontmatter))
    except file.Unreadable as error:
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


class Malformed(Exception):
    """The frontmatter as a whole cannot be read, because of what stands on `line`."""

    def __init__(self, message: str, *, line: int, key: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.key = key


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


@dataclass(slots=True, kw_only=True)
class _Open:
    """A list or a mapping whose end has not come yet; `key` waits for its value."""

    line: int
    is_mapping: bool = False
    items: list[Written] = field(default_factory=list)
    fields: dict[str, Written] = field(default_factory=dict)
    key: Scalar | None = None

    def closed(self) -> Written:
        """What it is now that all of it is there."""
        if self.is_mapping:
            return Fields(line=self.line, fields=self.fields)
        return Items(line=self.line, items=tuple(self.items))


def compose(frontmatter: str, *, loader: type = LOADER) -> Fields:
    """The mapping that `frontmatter` is.

    Built from the parser's events and not by its composer, because that follows aliases, lets a
    later duplicate win, and runs out of stack on deep nesting.
    """
    open_parts = [_Open(line=FIRST_LINE)]
    try:
        for event in yaml.parse(frontmatter, Loader=loader):
            _take(event, open_parts)
    except yaml.reader.ReaderError as error:
        raise _unprintable(frontmatter) from error
    except yaml.MarkedYAMLError as error:
        raise _invalid(error, frontmatter) from error
    except (ValueError, OverflowError) as error:  # the slow loader's answer to an impossible escape
        raise Malformed(f"this is not valid YAML: {error}", line=FIRST_LINE) from error
    documents = open_parts[0].items
    if not documents or (isinstance(documents[0], Scalar) and documents[0].kind == "nothing"):
        return Fields(line=FIRST_LINE, fields={})
    if not isinstance(documents[0], Fields):
        right = "keys with their values, such as description: TEXT, would be right"
        raise Malformed(f"{described(documents[0])}; {right}", line=documents[0].line)
    return documents[0]


def _take(event: yaml.Event, open_parts: list[_Open]) -> None:
    """Add what `event` says to the innermost part that is still open."""
    here = open_parts[-1]
    if isinstance(event, yaml.NodeEvent):
        _refuse(event, open_parts)
        if isinstance(event, yaml.ScalarEvent):
            _put(_scalar(event, open_parts), open_parts)
            return
        if len(open_parts) > DEEPEST:
            raise _malformed(f"is nested more than {DEEPEST} deep; a flatter value would be right", event, open_parts)
        if here.is_mapping and here.key is None:
            raise _malformed("a list or mapping stands here as a key; text would be right", event, open_parts)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        open_parts.append(_Open(line=_line(event, open_parts), is_mapping=is_mapping))
    elif isinstance(event, yaml.CollectionEndEvent):
        _put(open_parts.pop().closed(), open_parts)
    elif isinstance(event, yaml.DocumentStartEvent) and here.items:
        raise _malformed("a second YAML document begins here; one would be right", event, open_parts)


def _refuse(event: yaml.NodeEvent, open_parts: list[_Open]) -> None:
    """No aliases, no anchors, no tags: a value says itself what it is."""
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        word = quoted(f"{sign}{event.anchor}")
        right = "the value itself, or quotes around a text, would be right"
        raise _malformed(f"{word} is a YAML alias or anchor, which is not read; {right}", event, open_parts)
    tag = getattr(event, "tag", None)
    if tag not in _TEXT_TAGS or (tag is not None and not isinstance(event, yaml.ScalarEvent)):
        word = quoted(str(tag).replace("tag:yaml.org,2002:", "!!"))
        raise _malformed(f"{word} is a YAML tag, which is not read; a plain value would be right", event, open_parts)


def _scalar(event: yaml.ScalarEvent, open_parts: list[_Open]) -> Scalar:
    """The single value that `event` brings."""
    if odd := _NO_TEXT.search(event.value):
        message = f"has the character U+{ord(odd[0]):04X}; text without it would be right"
        raise _malformed(message, event, open_parts)
    try:
        return scalar(event.value, line=_line(event, open_parts), is_plain=event.implicit[0])
    except TooLarge as error:
        right = "at most 18 digits would be right, or quotes around a text"
        raise _malformed(f"{error} is too large a number; {right}", event, open_parts) from error


def _put(value: Written, open_parts: list[_Open]) -> None:
    """Add `value` where it belongs: to a list, as a key, or under the key that waits for it."""
    here = open_parts[-1]
    if not here.is_mapping:
        here.items.append(value)
    elif here.key is not None:
        here.fields[here.key.raw] = value
        here.key = None
    elif isinstance(value, Scalar):
        first, here.key = here.fields.get(value.raw), value
        if first is not None:
            message = f"stands twice, here and on line {first.line}; once would be right"
            raise Malformed(message, line=value.line, key=_place(open_parts))


def _line(event: yaml.Event, open_parts: list[_Open]) -> int:
    """The line of the file on which the value begins, or its key."""
    if key := open_parts[-1].key:
        return key.line
    return FIRST_LINE + (event.start_mark.line if event.start_mark else 0)


def _place(open_parts: list[_Open]) -> str:
    """The keys that lead to where the parser is."""
    return ".".join(part.key.raw for part in open_parts if part.key)


def _malformed(message: str, event: yaml.Event, open_parts: list[_Open]) -> Malformed:
    return Malformed(message, line=_line(event, open_parts), key=_place(open_parts))


def _unprintable(frontmatter: str) -> Malformed:
    """What is wrong when the parser refuses a character."""
    found = _UNPRINTABLE.search(frontmatter)
    place = found.start() if found else 0
    sign = f"U+{ord(found[0]):04X}" if found else "a character"
    line = frontmatter.count("\n", 0, place) + FIRST_LINE
    return Malformed(f"has {sign}, which YAML does not allow; text without it would be right", line=line)


def _invalid(error: yaml.MarkedYAMLError, frontmatter: str) -> Malformed:
    """What is wrong when the parser refuses the text, in words that help with the usual mistakes."""
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = frontmatter.split("\n")
    line = lines[number] if number < len(lines) else ""
    problem = error.problem or "it cannot be parsed"
    if "mapping values" in problem:
        problem += "; a text with a colon in it needs quotes"
    elif "\t" in line:
        problem += "; use spaces where tabs stand"
    elif "cannot start any token" in problem:
        problem += "; a text that begins with this character needs quotes"
    key = re.match(r"\s*([A-Za-z_]\w*)\s*:", line)
    return Malformed(f"this is not valid YAML: {problem}", line=number + FIRST_LINE, key=key[1] if key else "")
