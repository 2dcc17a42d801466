"""Where a run stands: its phase, and the activity of its agents while a process works on it."""

from __future__ import annotations

from typing import Literal

Lease = Literal["held", "lost", "none"]
"""Whether a process works on a run: a live one does, the last one died, or none does."""

Phase = Literal["queued", "running", "waiting", "paused", "resumable", "succeeded", "failed", "timed_out", "cancelled"]
"""The phase of a run: whether it has started, whether a process works on it, and how it ended.

A `queued` run belongs to a worker that has not started. A `waiting` run continues by itself when a provider's limit
resets, and a `paused` one when somebody resumes it. A `resumable` run has neither ended nor paused, and no process
works on it.
"""

FINAL_PHASES: frozenset[Phase] = frozenset({"succeeded", "failed", "timed_out", "cancelled"})
"""The phases of a run that has ended. They never change."""

IDLE_PHASES: frozenset[Phase] = frozenset({"queued", "waiting", "paused", "resumable"})
"""The phases of a run that has not ended, but that no process works on."""

Activity = Literal["waiting", "tool", "thinking", "workers", "idle", "starting"]
"""What an agent, or a run as a whole, does while a process works on the run.

It waits for a person, calls a tool, calls a model, waits for its workers, is between two turns, or has not begun its
first turn.
"""
