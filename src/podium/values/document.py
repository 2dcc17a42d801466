"""The JSON documents that Podium sends: the output of commands with `--json`, and the responses of the API."""

from typing import Any, Self

from msgspec import Struct

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
