"""The base class of all events."""

from typing import ClassVar

from msgspec import Struct


class EventBase(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """An event. With `survives_power_loss`, it is flushed to disk before anything acts on it."""

    survives_power_loss: ClassVar[bool] = False
