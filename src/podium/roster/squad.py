"""The public names of squads, which `files.squad` defines."""

from ..files.squad import *  # noqa: F403 -- the names in its __all__
