"""Merge workers' branches as a train, run the checks after each merge, and report the result.

A branch that a hook denies is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import msgspec

from ...core.gate import InvalidCall
from ...core.run_hooks import describe_denial
from ...files.settings import Settings
from ...runs.assembly.hook_calls import HookCalls
from ...runs.assembly.sandbox_choice import choose_sandbox
from ...system.program_folders import select_programs
from ...tools.run_checks import CHECK_OUTPUT_TAIL, CHECK_TIMEOUT, describe_hidden_exit, make_check_command
from ...tools.shell import CommandOutput, run_command_line
from ...values.actor import Actor
from ...values.column import Document, DocumentPart
from ...values.event import HookRan
from ...values.worker_task import RunCheckout
from ...workspace.git.repository import Repository
from ...workspace.git.revision import HEADS, branch_tip
from ...workspace.merging.merge_train import (
    CheckResult,
    LeftOutBranch,
    MergedBranch,
    Permit,
    Train,
    TrainBranch,
    build_train,
)
from ...workspace.merging.overlap_forecast import BranchChanges, FileChange, Forecast, read_commit_changes
from ...workspace.merging.trial_merge import name_integration_branch
from .branch_forecast import ForecastReport, build_forecast_report, forecast_branches
from .conflict_resolution import ResolverRun
from .merge_candidates import MergeCandidate

Checks = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutcome:
    """The forecast, the result of the merge train, the changes to the target, and the resolvers that were started.

    `programs` lists the changed files in folders whose programs the user runs without looking at them.
    """

    forecast: Forecast
    train: Train
    changes: BranchChanges
    resolving: tuple[ResolverRun, ...] = ()
    programs: tuple[str, ...] = ()


class MergedChanges(DocumentPart, frozen=True, kw_only=True):
    """The changes that a merge makes to its target."""

    added: int
    removed: int
    files: tuple[FileChange, ...]


class MergeReport(Document, frozen=True, kw_only=True):
    """The forecast and the result of a merge. `branch` is the integration branch, if there is one."""

    target: str
    base: str
    commit: str
    tree: str
    branch: str | None
    checks: tuple[str, ...]
    changes: MergedChanges
    programs: tuple[str, ...]
    forecast: ForecastReport
    coupled: tuple[MergedBranch, ...]
    left_out: tuple[LeftOutBranch, ...]
    resolving: tuple[ResolverRun, ...]

    @classmethod
    def of(cls, source: object, **computed: Any) -> Self:
        """Return the report of the outcome of a merge."""
        assert isinstance(source, TrainOutcome)
        train = source.train
        return super().of(
            train,
            branch=None if train.ref is None else train.ref.removeprefix(HEADS),
            changes=MergedChanges.of(source.changes),
            programs=source.programs,
            forecast=build_forecast_report(source.forecast),
            coupled=train.merged,
            resolving=source.resolving,
            **computed,
        )


async def run_merge_train(
    repository: Repository,
    candidates: Sequence[MergeCandidate],
    target: str,
    check: CheckRunner,
    *,
    by: Actor,
    on_forecast: Callable[[Forecast], object] | None = None,
    excluded: Mapping[str, str] | None = None,
    needs_branch: bool = True,
) -> TrainOutcome:
    """Merge branches one after another into a new integration branch, after calling `on_forecast` with the forecast.

    `excluded` maps each branch that must be left out to the reason. If `needs_branch` is False, no integration branch
    is created: pull requests only need to know that the merges succeed.
    """
    train_branches = [await _make_train_branch(repository, one) for one in candidates]
    bases = {one.branch: one.base for one in candidates}
    parts = {one.branch: one.part for one in train_branches if one.part}
    expected = await forecast_branches(repository.main_folder, bases, onto=target, parts=parts)
    assert expected is not None, "at least one branch must exist and differ from the target"
    if on_forecast is not None:
        on_forecast(expected)
    name = name_integration_branch(datetime.now()) if needs_branch else None
    permit = _make_merge_permit(check.settings, repository, target, check.tell)
    train = await build_train(
        repository, train_branches, onto=target, integration=name, check=check, permit=permit, excluded=excluded, by=by
    )
    changes = await read_commit_changes(repository, train.base, train.commit)
    programs = select_programs(repository.main_folder, sorted(changes.all_paths), os.environ)
    return TrainOutcome(forecast=expected, train=train, changes=changes, programs=programs)


async def _make_train_branch(repository: Repository, candidate: MergeCandidate) -> TrainBranch:
    branch, after, part = candidate.branch, candidate.after, candidate.part
    if part is not None:
        return TrainBranch(branch=branch, commit=part.source, after=after, part=part.commit)
    return TrainBranch(branch=branch, commit=await branch_tip(repository, branch), after=after)


class CheckRunner:
    """Runs the checks after a merge.

    Checks execute workers' code, so they run in the sandbox unless it is turned off.
    """

    def __init__(self, settings: Settings, checks: Checks, tell: Callable[[str], object]) -> None:
        self.settings = settings
        self.tell = tell
        self._checks = checks
        self._last_notice = ""

    async def __call__(self, path: Path) -> CheckResult:
        if not self._checks:
            return CheckResult(passed=True)
        settings = self.settings
        sandbox = await choose_sandbox(
            [path], settings.home, settings.store, is_wanted=settings.sandbox, hosts=settings.network, report=self.tell
        )
        if sandbox.notice and sandbox.notice != self._last_notice:
            self.tell(sandbox.notice)
            self._last_notice = sandbox.notice
        try:
            for name, argv in self._checks.items():
                self.tell(f"checking: {name}")
                output = CommandOutput(start=0, end=CHECK_OUTPUT_TAIL)
                try:
                    command = make_check_command(argv)
                    ended = await run_command_line(command, path, CHECK_TIMEOUT, output, sandbox.wrap)
                except InvalidCall as error:
                    return CheckResult(passed=False, command=name, output=str(error))
                if ended.code != 0 or ended.has_timed_out:
                    how = f"stopped after {CHECK_TIMEOUT:g} s" if ended.has_timed_out else str(ended)
                    return CheckResult(passed=False, command=f"{name} [{how}]", output=str(output))
                if hidden := describe_hidden_exit(argv):
                    self.tell(f"the check {name} passed, but {hidden}")
        finally:
            sandbox.clean_up()
        return CheckResult(passed=True, checks=tuple(self._checks))


def _make_merge_permit(
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
