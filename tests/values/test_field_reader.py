"""Fields of a file: each value has the type that its reader expects, or one sentence says why not."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Struct

from podium.values.agent import Budget
from podium.values.field_reader import (
    MAX_DIAGNOSTICS,
    FieldReader,
    ParseContext,
    to_camel_case,
)
from podium.values.key import Key
from podium.values.struct_reader import list_keys, read_struct, read_values
from podium.values.yaml_parser import parse_yaml_mapping


def read_top(text: str, *, ignores_unknown_keys: bool = False) -> FieldReader:
    context = ParseContext(
        file=Path("x.yaml"), display_path="~/x.yaml", root=None, ignores_unknown_keys=ignores_unknown_keys
    )
    return FieldReader(context=context, node=parse_yaml_mapping(text))


def read_field(value: str) -> FieldReader:
    return read_top(f"key: {value}").read_fields(("key",))["key"]


def list_sentences(reader: FieldReader) -> list[str]:
    return [str(diagnostic) for diagnostic in reader.context.diagnostics]


read_limits = partial(read_struct, struct=Budget, keys=list_keys(Budget))

COLOURS = ("red", "green", "blue")


@pytest.mark.parametrize(
    ("value", "read", "expected"),
    [
        ("' a b '", FieldReader.read_text, "a b"),
        ("''", lambda field: field.read_text(allow_blank=True), ""),
        ('"a\\n  b"', FieldReader.read_single_line, "a b"),
        ("''", FieldReader.read_single_line, ""),
        ("' s3cret '", FieldReader.read_secret, " s3cret "),
        ("https://host.example/v1/", FieldReader.read_url, "https://host.example/v1"),
        ("no", FieldReader.read_bool, False),
        ("1_000", FieldReader.read_int, 1000),
        ("0", lambda field: field.read_int(least=0), 0),
        ("0.5", FieldReader.read_positive_number, 0.5),
        ("3", FieldReader.read_positive_number, 3.0),
        ("20GB", FieldReader.read_size, 20 * 10**9),
        ("1_000", FieldReader.read_size, 1000),
        ("green", lambda field: field.read_choice(COLOURS), "green"),
        ("verde", lambda field: field.read_choice(COLOURS, also={"verde": "green"}), "green"),
        ("a, b", FieldReader.read_texts, ("a, b",)),
        ("[a, b]", FieldReader.read_texts, ("a", "b")),
        ("['', a]", lambda field: field.read_texts(allow_blank=True), ("a",)),
        ("'a, , b(c, d)'", FieldReader.read_comma_list, ("a", "b(c, d)")),
        ("['a, b', c]", FieldReader.read_comma_list, ("a, b", "c")),
        ("''", FieldReader.read_comma_list, ()),
        ("{usd: 2, tokens: 5, files_changed: 0}", read_limits, Budget(usd=2.0, tokens=5, files_changed=0)),
    ],
)
def test_a_valid_value_is_read(value: str, read: Callable[[FieldReader], object], expected: object) -> None:
    field = read_field(value)

    assert read(field) == expected
    assert list_sentences(field) == []


@pytest.mark.parametrize(
    ("value", "read", "sentence"),
    [
        ("5", FieldReader.read_text, "expected a string, got the number 5"),
        ("' '", FieldReader.read_text, 'expected a string, got the string " "'),
        ("[a]", lambda field: field.read_text("a command"), "expected a command, got a list"),
        ("2024-01-01", FieldReader.read_single_line, "expected a string, got the date 2024-01-01"),
        ("4444", FieldReader.read_secret, "expected a string, got another type"),
        ("me:4444@host", FieldReader.read_url, "not a valid URL; expected one such as https://host.example/v1"),
        ("maybe", FieldReader.read_bool, 'expected true or false, got the string "maybe"'),
        ("0", FieldReader.read_int, "expected an integer of at least 1, got the number 0"),
        ("1.5", FieldReader.read_int, "expected an integer of at least 1, got the number 1.5"),
        ("0", FieldReader.read_positive_number, "expected a number above 0, got the number 0"),
        (
            "soon",
            lambda field: field.read_positive_number("a number of seconds or never"),
            'expected a number of seconds or never, got the string "soon"',
        ),
        (
            "20GiB",
            FieldReader.read_size,
            'expected a size such as 20GB, 500MB or a number of bytes, got the string "20GiB"',
        ),
        (
            "pink",
            lambda field: field.read_choice(COLOURS),
            'unknown value "pink"; expected red, green or blue',
        ),
        ("''", lambda field: field.read_choice(COLOURS), 'expected red, green or blue, got the string ""'),
        ("true", lambda field: field.read_choice(COLOURS), "expected red, green or blue, got the boolean true"),
        ("5", lambda field: field.read_texts("a list of models"), "expected a list of models, got the number 5"),
        ("[a, 5]", lambda field: field.read_texts("a list of models"), "expected a string, got the number 5"),
        ("[a, '']", FieldReader.read_texts, 'expected a string, got the string ""'),
        ("{a: b}", FieldReader.read_comma_list, "expected a list of strings, got a mapping"),
        (
            "[a]",
            lambda field: field.read_fields(COLOURS),
            "expected a mapping with keys such as red, green or blue, got a list",
        ),
        (
            "[a]",
            lambda field: list(field.iter_entries("names with strings")),
            "expected names with strings, got a list",
        ),
        ("5", read_limits, "expected a mapping with keys such as usd, tokens or seconds, got the number 5"),
    ],
)
def test_an_invalid_value_is_one_sentence_with_the_file_the_line_and_the_key(
    value: str, read: Callable[[FieldReader], object], sentence: str
) -> None:
    field = read_field(value)

    read(field)

    assert list_sentences(field) == [f"~/x.yaml:1: key: {sentence}"]
    assert field.context.has_error


def test_a_key_is_found_by_every_spelling_and_named_as_it_is_spelled() -> None:
    top = read_top("team: {maxRounds: 0, ende: 1}\nconsult: {timeout: -1}\n")

    fields = top.read_fields(("team", "advisors"), also={"consult": "advisors"})
    fields["team"].read_fields(("max_rounds", "end"), also={"ende": "end"})["max_rounds"].read_int()
    fields["advisors"].read_fields(("timeout",))["timeout"].read_positive_number()

    assert list_sentences(top) == [
        "~/x.yaml:1: team.maxRounds: expected an integer of at least 1, got the number 0",
        "~/x.yaml:2: consult.timeout: expected a number above 0, got the number -1",
    ]
    assert top.context.lines == {"team": 1, "team.max_rounds": 1, "team.end": 1, "advisors": 2, "advisors.timeout": 2}


class Worker(Struct):
    name: Annotated[str, Key("the name")] = ""
    max_turns: Annotated[int | None, Key("how long it works")] = None
    budget: Annotated[Budget | None, Key("what it may spend")] = None
    secret: str = ""


def test_each_value_of_a_mapping_is_read_as_the_type_of_its_field_says() -> None:
    top = read_top("maxTurns: 3\nname: a\nnam: 1\n")

    values = read_values(top, list_keys(Worker))

    assert values == {"name": "a", "max_turns": 3}
    assert list_sentences(top) == ["~/x.yaml:3: nam: unknown key, ignored; the closest known key is name"]


def test_two_spellings_of_one_key_are_an_error() -> None:
    top = read_top("max_turns: 3\nmaxTurns: 4\n")

    fields = top.read_fields(("max_turns",))

    assert fields["max_turns"].read_int() == 3
    assert list_sentences(top) == ["~/x.yaml:2: maxTurns: same key as max_turns on line 1; remove one of them"]


def test_an_unknown_key_is_a_warning_with_the_closest_known_key() -> None:
    top = read_top("modle: a\nmodel:\n")

    assert top.read_fields(("model", "workers")) == {}
    assert list_sentences(top) == ["~/x.yaml:1: modle: unknown key, ignored; the closest known key is model"]
    assert not top.context.has_error


def test_unknown_keys_in_a_file_of_several_programs_are_ignored() -> None:
    top = read_top("theirs: a\nmodel: b\n", ignores_unknown_keys=True)

    assert list(top.read_fields(("model",))) == ["model"]
    assert list_sentences(top) == []


def test_entries_of_a_mapping_are_read_by_name() -> None:
    top = read_top("names:\n  ' one ': a\n  two:\n  '': b\n")
    names = top.read_fields(("names",))["names"]

    found = {name: entry.read_text() for name, entry in names.iter_entries("names with strings")}

    assert found == {"one": "a"}
    assert list_sentences(top) == [
        "~/x.yaml:3: names.two: the value is missing; enter a value, or remove the entry",
        "~/x.yaml:4: names.: the name is empty; enter a name",
    ]
    assert top.context.lines["names.one"] == 2


def test_an_error_is_kept_even_after_very_many_warnings() -> None:
    unknown = "\n".join(f"key{number}: 1" for number in range(MAX_DIAGNOSTICS + 20))
    top = read_top(f"{unknown}\nmodel: 5\nrole: 6\n")

    fields = top.read_fields(("model", "role"))
    fields["model"].read_text()
    fields["role"].read_text()

    assert len(top.context.diagnostics) == MAX_DIAGNOSTICS + 1
    assert top.context.diagnostics[-1].key == "model"


def test_a_long_key_and_a_long_value_are_shortened_in_a_sentence() -> None:
    top = read_top(f"{'k' * 100}: {'v' * 100}\n")

    next(top.iter_entries("names"))[1].read_bool()

    [diagnostic] = top.context.diagnostics
    assert diagnostic.key == "k" * 59 + "…"
    assert diagnostic.message == f'expected true or false, got the string "{"v" * 59}…"'


def test_camel_case_has_no_underscores() -> None:
    assert [to_camel_case(key) for key in ("max_turns", "mode", "mcpServers")] == ["maxTurns", "mode", "mcpServers"]
