"""Define the guidance for the agents of a run: the repository's instructions, the skills and the agents' memories."""

from typing import Literal

from msgspec import Struct


class Skill(Struct, frozen=True, kw_only=True):
    """A folder with instructions for one kind of task.

    The folder of a user's skill is an absolute path; the folder of a repository's skill is relative to the repository.
    """

    name: str
    description: str
    folder: str
    source: Literal["user", "repo"]


class Memory(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent's notes from earlier runs, and the file that contains them: `path` is relative to `folder`."""

    folder: str
    path: str
    text: str = ""
    is_writable: bool = False


class Guidance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The guidance for a run's agents. The run records it, so that a resumed run uses the same texts."""

    instructions: str = ""
    """The repository's instruction files, quoted and with a heading."""
    skills: tuple[Skill, ...] = ()
    """The skills that agents can load."""
    loaded_skills: dict[str, str] = {}
    """The texts of the skills that agents get from the start, keyed by name."""
    memories: dict[str, Memory] = {}
    """The memory of each agent that has one, keyed by agent name."""
