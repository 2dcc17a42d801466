"""Start and stop the processes of coding agents. Sessions of the same agent can share one process.

Each process belongs to a task that starts and stops it. A process is stopped when its last session is closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager

from anyio import TASK_STATUS_IGNORED, Event, Lock
from anyio.abc import TaskGroup, TaskStatus

from .agent_process import AgentProcess


class HeldProcess:
    """A running agent, and how many sessions use it."""

    def __init__(self, agent: AgentProcess, key: Hashable) -> None:
        self.agent = agent
        self.key = key
        self.users = 1
        self.released = Event()
        self.stopped = Event()


class AgentProcesses:
    """The running agents of one app. Their tasks run in `group`, which must outlive all sessions."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._shared: dict[Hashable, HeldProcess] = {}
        self._starting: dict[Hashable, Lock] = {}

    async def acquire(self, opening: AbstractAsyncContextManager[AgentProcess], *, key: Hashable = None) -> HeldProcess:
        """Return the running process with this key, or start one. If the key is None, the process is not shared.

        Raise OutsideFailed if the agent cannot be started.
        """
        if key is None:
            return await self._start_process(opening, key)
        async with self._starting.setdefault(key, Lock()):
            held = self._shared.get(key)
            if held is None or held.agent.is_over:
                held = self._shared[key] = await self._start_process(opening, key)
            else:
                held.users += 1
            return held

    async def _start_process(self, opening: AbstractAsyncContextManager[AgentProcess], key: Hashable) -> HeldProcess:
        started = await self._group.start(self._hold_process, opening, key)
        assert isinstance(started, HeldProcess)
        return started

    async def release(self, held: HeldProcess) -> None:
        """Release a process. When its last user releases it, stop the process and wait until it has stopped."""
        held.users -= 1
        if held.users == 0:
            if self._shared.get(held.key) is held:
                del self._shared[held.key]
            held.released.set()
            await held.stopped.wait()

    async def _hold_process(
        self,
        opening: AbstractAsyncContextManager[AgentProcess],
        key: Hashable,
        *,
        task_status: TaskStatus[HeldProcess] = TASK_STATUS_IGNORED,
    ) -> None:
        held: HeldProcess | None = None
        try:
            async with opening as agent:
                held = HeldProcess(agent, key)
                task_status.started(held)
                await held.released.wait()
        except Exception:
            # Raise only errors at the start. A later error affects only the sessions of this process, and their open
            # calls have already failed.
            if held is None:
                raise
        finally:
            if held is not None:
                held.stopped.set()
