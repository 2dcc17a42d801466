"""Call the hooks for branches that are about to be merged. A branch that a hook denies is left out."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...core.run_hooks import describe_denial
from ...files.settings import Settings
from ...runs.assembly.hook_calls import HookCalls
from ...values.event import HookRan
from ...values.worker_task import RunCheckout
from ...workspace.git.repository import Repository
from ...workspace.merging.merge_train import Permit, TrainBranch


def make_merge_permit(
    settings: Settings, repository: Repository, target: str, tell: Callable[[str], object]
) -> Permit | None:
    """Return a function that asks the `before_merge` hooks whether a branch may be merged.

    Return None if there are no such hooks. `tell` is called with any context that a hook adds.
    """
    hooks = settings.hooks.get("before_merge", ())
    if not hooks:
        return None

    async def ask_hooks(train_branch: TrainBranch, onto: str) -> str:
        """Return why a branch must not be merged, or an empty string if it may be merged."""
        fields = {
            "event": "before_merge",
            "repo": str(repository.main_folder),
            "branch": train_branch.branch,
            "commit": train_branch.merged_commit,
            "target": target,
            "onto": onto,
        }
        calls = HookCalls(settings, [RunCheckout(root=fields["repo"], path=fields["repo"])])
        try:
            for hook in hooks:
                result = await calls.call(hook, "before_merge", msgspec.json.encode(fields) + b"\n")
                if result.outcome != "passed":
                    ran = HookRan(event="before_merge", hook=hook.label, outcome=result.outcome, reason=result.reason)
                    return describe_denial(ran)
                if result.context:
                    tell(f"{train_branch.branch}: {result.context}")
        finally:
            calls.close()
        return ""

    return ask_hooks
