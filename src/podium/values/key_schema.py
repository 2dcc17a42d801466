"""Build a JSON schema for a file from its keys, with which editors complete and check the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from .field_reader import FieldReader, read_command, to_camel_case
from .struct_reader import FileKey, Keys, Reader, read_models, read_prose, read_secrets, read_text_table

Schema = Mapping[str, object]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

STRING: Schema = {"type": "string"}
STRINGS: Schema = {"anyOf": [{"type": "array", "items": STRING}, STRING]}
STRING_TABLE: Schema = {"type": "object", "additionalProperties": STRING}
# Editors read YAML 1.2, in which only true and false are booleans.
BOOLEAN: Schema = {"enum": [True, False, "on", "off", "yes", "no"]}
POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}

Function = TypeVar("Function", bound=Reader)


def accepts(schema: Schema) -> Callable[[Function], Function]:
    """Declare what a reader accepts. For a key with keys of its own: what can be given instead of a mapping."""

    def declare(read: Function) -> Function:
        read.__dict__["podium_schema"] = schema
        return read

    return declare


def _get_schema(read: Reader) -> Schema | None:
    """Return what a reader has declared that it accepts."""
    found: Schema | None = getattr(read, "podium_schema", None)
    return found


_OF_READER: Mapping[object, Schema] = {
    FieldReader.read_text: STRING,
    FieldReader.read_single_line: STRING,
    FieldReader.read_url: STRING,
    FieldReader.read_bool: BOOLEAN,
    FieldReader.read_positive_number: POSITIVE,
    FieldReader.read_size: {"type": ["string", "integer"]},
    FieldReader.read_texts: STRINGS,
    FieldReader.read_comma_list: STRINGS,
    read_command: STRINGS,
    read_models: STRINGS,
    read_prose: STRING,
    read_secrets: STRING_TABLE,
    read_text_table: STRING_TABLE,
}


def build_file_schema(title: str, keys: Keys) -> Schema:
    """Return the schema of a file whose top level is a mapping with these keys."""
    return {"$schema": DIALECT, "title": title, **_build_mapping(keys)}


def _build_mapping(keys: Keys) -> Schema:
    properties = {name: _describe(key, _build_value(key)) for name, key in _iter_spellings(keys)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _iter_spellings(keys: Keys) -> Iterator[tuple[str, FileKey]]:
    for name, key in keys.items():
        yield from ((spelled, key) for spelled in dict.fromkeys((name, to_camel_case(name))))


def _describe(key: FileKey, schema: Schema) -> Schema:
    told = ": ".join(text for text in (key.key.meaning, key.value) if text)
    return {"description": told, **schema} if told else schema


def _build_value(key: FileKey) -> Schema:
    """Return the schema of a key's value. A key without a value is treated as absent, so null is valid too."""
    options: list[object] = [{"type": "null"}]
    if key.keys:
        mapping = _build_mapping(key.keys)
        short = [found] if (found := _get_schema(key.read)) is not None else []
        one = {"anyOf": [mapping, *short]} if key.is_table else mapping
        options += [{"type": "object", "additionalProperties": one}] if key.is_table else [one, *short]
    else:
        options.append(_find_reader_schema(key.read))
    return {"anyOf": options}


def _find_reader_schema(read: Reader) -> Schema:
    """Return what a reader accepts. Raise TypeError if it is not known."""
    if isinstance(read, partial) and read.func is FieldReader.read_choice:
        return {"enum": [*read.keywords["words"], *(read.keywords.get("also") or ())]}
    least = read.keywords.get("least", 1) if isinstance(read, partial) else 1
    function = read.func if isinstance(read, partial) else read
    if function is FieldReader.read_int:
        return {"type": "integer", "minimum": least}
    found = _get_schema(function)
    if found is None and (found := _OF_READER.get(function)) is None:
        raise TypeError(f"it is not known what {function} accepts; decorate it with accepts")
    return found
