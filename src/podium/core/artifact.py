"""Store texts from a run as artifacts. Identical content is stored once; timeline entries refer to it by digest."""

from __future__ import annotations

import hashlib

from ..values.event import ArtifactKind, ArtifactStored
from .scope import Scope


def store_artifact(place: Scope, kind: ArtifactKind, name: str, text: str, *, author: str = "", step: str = "") -> None:
    """Store text as an artifact and record it, unless it is blank or already recorded."""
    own = place.child(f"artifact:{name}")
    if not text.strip() or own.has_outcome:
        return
    data = place.timeline.redaction.redact_text(text).encode(errors="replace")
    digest = hashlib.sha256(data).hexdigest()
    place.timeline.links.store_artifact(digest, data)
    own.record_outcome(ArtifactStored(kind=kind, name=name, digest=digest, size=len(data), author=author, step=step))
