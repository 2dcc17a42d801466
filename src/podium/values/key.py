"""Describe a key of a file, on the field of the struct that the key sets.

`workers: Annotated[int, Key("how many workers run at once")] = 4` is all that there is to say about the key `workers`.
The type and the key say how the value is read and checked (`struct_reader`), what the tables in the documentation
contain (`tools/key_tables.py`), and what editors get as a JSON schema (`key_schema`). A field without a key cannot be
set in a file.
"""

from typing import Literal

from msgspec import Struct

KeyScope = Literal["repository", "trust", "user"]


class Key(Struct, frozen=True):
    """What a key means, in Markdown, and whatever its field's type does not say.

    `kind` names the function that reads the value, if it does not follow from the type. `value` says what can be
    given, and `default` what applies without the key. `scope` says who can set the key: a repository, a repository that
    the user trusts, or only the user. `name` is the key in the file if the field has another name; `a.b` is the key `b`
    of the mapping `a`. `choices` are the words, or the keys of a mapping, that can be given, if these are not all that
    the type has. `least` is the lowest integer. The key has no effect without the key `needs`.
    """

    meaning: str = ""
    value: str = ""
    default: str = ""
    kind: str = ""
    scope: KeyScope = "repository"
    name: str = ""
    choices: tuple[str, ...] = ()
    least: int = 1
    needs: str = ""
