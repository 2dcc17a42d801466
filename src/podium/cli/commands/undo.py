"""`podium undo`: restore the files that a run changed in your checkout."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import anyio
import click
import msgspec

from ...files.settings import Settings
from ...runs import find
from ...runs.run_undo import UndoPlan, plan_undo, save_ref, undo_run
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..output.command_options import (
    get_command_actor,
    json_option,
)
from ..output.exit_codes import GOAL_MET, GOAL_NOT_MET
from ..output.terminal_input import confirm_action
from ..output.text import as_json, escape_for_terminal, print_to_stderr


@click.command("undo")
@click.argument("run")
@click.option("--dry-run", "is_trial", is_flag=True, help="Show what would be undone, and change nothing.")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask for confirmation.")
@json_option
def undo_command(run: str, is_trial: bool, is_agreed: bool, is_json: bool) -> int:
    """Undo the changes that RUN made to files in your checkout.

    A file that was changed after RUN ended, or is not a regular file, is not restored; the exit code is then 1.
    """
    store = Settings.load().store
    plan = anyio.run(plan_undo, store, find.resolve(store, run).run)
    if not is_json:
        click.echo(escape_for_terminal("\n".join(format_plan(plan))))
    if plan.undoable and not is_trial:
        confirm_action(f"Restore {format_count(len(plan.undoable), 'file')}?", is_agreed=is_agreed)
        shown, plan = plan, anyio.run(partial(undo_run, store, plan, by=get_command_actor()))
        if not is_json:
            click.echo(escape_for_terminal("\n".join(format_outcome(shown, plan))))
            print_to_stderr(f"to see the files as they were before this command: git diff HEAD {save_ref(plan.run)}")
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "run": plan.run, "files": msgspec.to_builtins(plan.files)}))
    is_left = any(file.state in ("changed since", "not a regular file") for file in plan.files)
    return GOAL_NOT_MET if is_left else GOAL_MET


def format_plan(plan: UndoPlan) -> Iterator[str]:
    """Yield a line for each file that the run changed."""
    if not plan.files:
        yield f"run {plan.run} left no changes in your checkout"
    for file in plan.files:
        origin = "" if file.is_certain else " (by a command in the run, or by someone else while the run was active)"
        yield f"{file.path}: {file.change}{origin}: {file.state}"


def format_outcome(shown: UndoPlan, done: UndoPlan) -> Iterator[str]:
    """Yield a line with the number of restored files, and a line for each file that was to be restored but was not."""
    undone = {file.path for file in done.files if file.state == "undone"}
    yield f"restored {format_count(len(undone), 'file')} to the state before run {done.run}"
    states = {file.path: file.state for file in done.files}
    for file in shown.undoable:
        if file.path not in undone:
            yield f"{file.path}: not restored: {states.get(file.path, 'already as before')}"
