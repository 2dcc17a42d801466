"""Define what the agents of a run are told about the repository that they work in."""

from msgspec import Struct


class Guidance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What agents are told about their repository. A run records it, so that a resumed run uses the same texts."""

    instructions: str = ""
    """The repository's instruction files, quoted and with a heading."""
