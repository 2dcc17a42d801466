"""Describe a list of things as columns. The terminal, JSON output, the API and the dashboard show the same columns.

A column says how to get its value from a row, and where and how the value is shown. Each surface has one renderer for
all lists, so a further column is one line in the list's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

from msgspec import UNSET, Struct, structs

from .event import SCHEMA
from .usage import FullUsage, Usage


class DocumentPart(Struct, frozen=True, kw_only=True):
    """A part of a JSON document."""

    @classmethod
    def of(cls, source: object, **computed: Any) -> Self:
        """Return a part with the computed fields; the others are the attributes of `source` with the same names.

        A usage gets all of its fields, also those that are 0.
        """
        names = [name for name in cls.__struct_fields__ if name not in computed and hasattr(source, name)]
        fields = {name: getattr(source, name) for name in names} | computed
        return cls(**{name: FullUsage.of(value) if type(value) is Usage else value for name, value in fields.items()})


class Document(DocumentPart, frozen=True, kw_only=True):
    """A JSON document, with the version of its format."""

    schema: int = SCHEMA


Row = TypeVar("Row", contravariant=True)
Kind = Literal["text", "number", "money", "usage", "size", "age", "duration", "data"]
"""How a value is formatted: `age` is a time, shown as how long ago it was; `data` is a value of any other type."""


class Column(Struct, Generic[Row], frozen=True):
    """A column of a list: its name in JSON, its heading, its value in a row, and how the value is formatted.

    A value of UNSET is left out of the JSON. All columns are in the JSON; `shown` says which of the terminal and the
    dashboard show the column too.
    """

    name: str
    heading: str
    get: Callable[[Row], object]
    kind: Kind = "text"
    shown: Literal["everywhere", "terminal", "page", "nowhere"] = "everywhere"
    text: Callable[[Row], str] | None = None
    """Formats the value in the terminal if `kind` is not enough."""
    spare: int = 0
    """On a narrow terminal, the columns with the highest number are dropped first. 0 means never."""
    fills: bool = False
    """Whether the column comes last in the terminal and is cut to the remaining width."""

    @property
    def is_in_terminal(self) -> bool:
        return self.shown in ("everywhere", "terminal")

    @property
    def is_on_page(self) -> bool:
        return self.shown in ("everywhere", "page")


class RowColumns:
    """Says, beside the type of a row as a JSON object, which columns the row has: `Annotated[dict, RowColumns(…)]`."""

    def __init__(self, *lists: Sequence[Column[Any]]) -> None:
        self.columns = [column for columns in lists for column in columns]


class PageColumn(Struct, frozen=True, kw_only=True):
    """What the dashboard needs to draw a column."""

    name: str
    heading: str
    kind: Kind


def encode_row(row: Row, columns: Iterable[Column[Row]]) -> dict[str, object]:
    """Return a row as a JSON object. A usage has all of its fields, also those that are 0."""
    fields: dict[str, object] = {}
    for column in columns:
        value = column.get(row)
        if value is not UNSET:
            fields[column.name] = structs.asdict(value) if type(value) is Usage else value
    return fields


def encode_rows(rows: Iterable[Row], columns: Sequence[Column[Row]]) -> list[dict[str, object]]:
    """Return rows as JSON objects."""
    return [encode_row(row, columns) for row in rows]


def list_page_columns(columns: Sequence[Column[Row]]) -> list[PageColumn]:
    """Return the columns that the dashboard shows."""
    return [PageColumn(name=one.name, heading=one.heading, kind=one.kind) for one in columns if one.is_on_page]
