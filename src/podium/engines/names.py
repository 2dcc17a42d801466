"""The names that settings and engines share."""

REHEARSAL = "rehearsal"
