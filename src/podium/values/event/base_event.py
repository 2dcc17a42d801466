"""The base classes of events."""

from typing import ClassVar, Self

from msgspec import Struct, structs

from ..actor import Actor


class EventBase(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """An event. With `survives_power_loss`, it is flushed to disk before anything acts on it."""

    survives_power_loss: ClassVar[bool] = False


class ActorEvent(EventBase, frozen=True, kw_only=True):
    """An event that somebody caused. Its field `by` is their name, and `channel` is the interface that they used.

    Each event declares both itself, because the order of its fields is stored.
    """

    def with_actor(self, actor: Actor) -> Self:
        """Return the event with the name and the channel of the one who causes it."""
        return structs.replace(self, by=actor.name, channel=actor.channel)
