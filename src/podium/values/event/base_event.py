"""The base of all events."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class EventBase(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """`survives_power_loss` marks the kinds that are on the disk itself before anything follows from them."""

    survives_power_loss: ClassVar[bool] = False
