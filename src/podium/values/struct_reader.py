"""Read mappings of a file as structs, whose fields say what their keys mean; see `Key`."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct

from .field_reader import FieldReader, read_command, to_camel_case
from .key import Key
from .plain_text import join_words

Reader = Callable[[FieldReader], Any]
Kinds = Mapping[str, Reader]
"""The functions that read the values of keys with a `kind`."""

COMMAND = "a command, or `[program, argument, …]`"


def read_secrets(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings that may be secret."""
    expected = "a mapping of names to strings, such as TOKEN: ${TOKEN}"
    return {name: entry.read_secret() for name, entry in reader.iter_entries(expected)}


def read_text_table(reader: FieldReader) -> dict[str, str]:
    """Read a mapping of names to strings, which may be blank."""
    entries = reader.iter_entries("a mapping of names to strings")
    return {name: entry.read_text(allow_blank=True) for name, entry in entries}


def read_prose(reader: FieldReader) -> str:
    """Read a string, which may be blank."""
    return reader.read_text(allow_blank=True)


def read_models(reader: FieldReader) -> tuple[str, ...]:
    """Read the names of models."""
    return reader.read_texts("a list of models")


KINDS: Kinds = {
    "line": FieldReader.read_single_line,
    "prose": read_prose,
    "words": FieldReader.read_comma_list,
    "models": read_models,
    "url": FieldReader.read_url,
    "size": FieldReader.read_size,
    "command": read_command,
    "secrets": read_secrets,
}
"""The kinds of values that every file can contain."""

READERS: Mapping[Any, Reader] = {
    str: FieldReader.read_text,
    bool: FieldReader.read_bool,
    float: FieldReader.read_positive_number,
    tuple[str, ...]: FieldReader.read_texts,
    dict[str, str]: read_text_table,
}
"""The functions that read the values of these types."""

VALUES = {
    bool: "true or false",
    float: "seconds",
    "prose": "text",
    "models": "a list of models",
    "command": COMMAND,
    tuple: "a list of strings",
    "words": "a list of strings",
    dict: "a mapping of names to strings",
}
"""What can be given for a kind or a type, in the documentation."""


class FileKey(Struct, frozen=True, kw_only=True):
    """A key of a file: the field that it sets, the function that reads it, and what is said about it.

    The value is a mapping with the keys `keys`, or with `is_table` a mapping of names to such mappings. A group has no
    field of its own: its keys set several fields.
    """

    field: str
    read: Reader
    key: Key
    value: str = ""
    default: str = ""
    keys: Mapping[str, "FileKey"] = {}
    is_table: bool = False
    is_group: bool = False


Keys = Mapping[str, FileKey]
"""The keys of a mapping, as they are spelled in Python."""


def list_keys(struct: type[Struct], kinds: Kinds = KINDS) -> Keys:
    """Return the keys that set the fields of a struct, in the order of the fields."""
    found: dict[str, FileKey] = {}
    groups: dict[str, dict[str, FileKey]] = {}
    for name, hint, default in _iter_fields(struct):
        key = next((one for one in get_args(hint)[1:] if isinstance(one, Key)), None)
        if get_origin(hint) is not Annotated or key is None:
            continue
        made = _make_key(name, get_args(hint)[0], key, default, kinds)
        group, _, below = (key.name or name).partition(".")
        if below:
            groups.setdefault(group, {})[below] = made
            found.setdefault(group, made)
        else:
            found[group] = made
    return found | {name: _make_group(name, found[name], keys) for name, keys in groups.items()}


def read_struct(reader: FieldReader, struct: type[Struct], keys: Keys) -> Any:
    """Read a mapping with these keys as a struct, all of whose fields have defaults."""
    return struct(**read_values(reader, keys))


def read_values(reader: FieldReader, keys: Keys) -> dict[str, Any]:
    """Return the fields that a mapping with these keys sets."""
    also = {key.field: name for name, key in keys.items() if name == to_camel_case(key.field)}
    return read_each(reader.read_fields(keys, also=also), keys)


def read_each(fields: Mapping[str, FieldReader], keys: Keys) -> dict[str, Any]:
    """Return the fields that these entries of a mapping set."""
    values: dict[str, Any] = {}
    for name, key in keys.items():
        if name in fields:
            value = key.read(fields[name])
            values |= value if key.is_group else {key.field: value}
    return values


def _iter_fields(struct: type[Struct]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the type and the default of each field. Types must not be written as strings."""
    # typing.get_type_hints takes longer than reading most files.
    hints: dict[str, Any] = {}
    for base in reversed(struct.__mro__):
        hints |= getattr(base, "__annotations__", {})
    names, defaults = struct.__struct_fields__, struct.__struct_defaults__
    padded = (*(NODEFAULT for _ in range(len(names) - len(defaults))), *defaults)
    if any(isinstance(hint, str) for hint in hints.values()):
        raise TypeError(f"the module of {struct.__name__} has string annotations; its keys cannot be read")
    for name, default in zip(names, padded, strict=True):
        yield name, hints[name], default


def _make_key(name: str, hint: Any, key: Key, default: Any, kinds: Kinds) -> FileKey:
    hint = _strip_none(hint)
    origin = get_origin(hint) or hint
    struct = _find_struct(hint)
    keys = {} if struct is None else list_keys(struct, kinds)
    if key.choices:
        keys = {one: keys[one] for one in key.choices if one in keys}
    words = _list_words(hint, key)
    is_table = origin is dict and get_args(hint)[1] is not str and hint is not dict[str, Any]
    return FileKey(
        field=name,
        read=_find_reader(name, hint, key, kinds, struct, keys, words),
        key=key,
        value=key.value or _describe_value(origin, key, keys, words, is_table=is_table),
        default=key.default or _describe_default(default),
        keys=keys,
        is_table=is_table,
    )


def _find_reader(
    name: str, hint: Any, key: Key, kinds: Kinds, struct: type[Struct] | None, keys: Keys, words: tuple[str, ...]
) -> Reader:
    if key.kind:
        return kinds[key.kind] if key.kind in kinds else KINDS[key.kind]
    if hint is int:
        return partial(FieldReader.read_int, least=key.least)
    if words:
        return partial(FieldReader.read_choice, words=words)
    if struct is not None and hint is struct:
        return partial(read_struct, struct=struct, keys=keys)
    if hint not in READERS:
        raise TypeError(f"it is not known how {name} is read; give its key a kind")
    return READERS[hint]


def _make_group(name: str, own: FileKey, parts: Keys) -> FileKey:
    """Return the key of a mapping whose keys set the fields of the struct `own`, if any, and fields of their own."""
    is_struct = own not in parts.values()
    keys = {**own.keys, **parts} if is_struct else parts
    struct = own.read.keywords["struct"] if is_struct and isinstance(own.read, partial) else None
    return FileKey(
        field=name,
        read=partial(_read_group, field=own.field, struct=struct, keys=keys),
        key=own.key if is_struct else Key(own.key.meaning),
        value=own.key.value if is_struct and own.key.value else _describe_mapping(keys),
        keys=keys,
        is_group=True,
    )


def _read_group(reader: FieldReader, *, field: str, struct: type[Struct] | None, keys: Keys) -> dict[str, Any]:
    values = read_values(reader, keys)
    if struct is None:
        return values
    own = {name: values.pop(name) for name in struct.__struct_fields__ if name in values}
    return values | ({field: struct(**own)} if own else {})


def _strip_none(hint: Any) -> Any:
    kept = [one for one in get_args(hint) if one is not NoneType]
    is_optional = get_origin(hint) in (Union, UnionType) and len(kept) == 1
    return kept[0] if is_optional else hint


def _find_struct(hint: Any) -> type[Struct] | None:
    """Return the struct in a type such as `dict[str, Struct]`, or None."""
    if isinstance(hint, type) and get_origin(hint) is None:
        return hint if issubclass(hint, Struct) else None
    return next((found for one in get_args(hint) if (found := _find_struct(one)) is not None), None)


def _list_words(hint: Any, key: Key) -> tuple[str, ...]:
    return key.choices or tuple(filter(None, get_args(hint))) if get_origin(hint) is Literal else ()


def _describe_value(origin: Any, key: Key, keys: Keys, words: tuple[str, ...], *, is_table: bool) -> str:
    if keys:
        return f"name: {_describe_mapping(keys)}" if is_table else _describe_mapping(keys)
    if words:
        return join_words([f"`{word}`" for word in words], last="or")
    if origin is int:
        return f"an integer, {key.least} or greater"
    return VALUES.get(key.kind) or VALUES.get(origin) or "text"


def _describe_mapping(keys: Keys) -> str:
    return f"`{{{', '.join(keys)}}}`"


def _describe_default(default: Any) -> str:
    if default is NODEFAULT:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | float):
        return f"{default:g}"
    return f"`{default}`" if isinstance(default, str) and default else "none"
