"""`podium plan` and `artifacts`: show what a team planned and produced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from ...core.plan_state import StepProgress
from ...files.settings import Settings
from ...runs import find
from ...runs.answers import NewAnswer, get_shown
from ...runs.plan_document import find_team_members, parse_plan_document, render_plan_document
from ...runs.queries.run_lookup import open_reader
from ...runs.queries.work_lookup import WorkRun, list_work_runs
from ...store.request_list import OpenRequest, list_run_requests
from ...system.locations import find_home_folder
from ...system.unsandboxed_program import build_unsandboxed_environment, find_current_checkouts
from ...values.errors import Mistake
from ...values.event import SCHEMA, ArtifactStored, QuestionAsked
from ...values.operation_path import parse_agent_name
from ...values.plan import WorkPlan
from ...values.store_address import find_local_folder
from ...views.plan_text import format_plan
from ...views.run_state.plans import TeamWork
from ..commands.answer import submit_answer
from ..output.text import align_columns, as_json, escape_for_terminal, print_to_stderr, truncate_line

LONGEST_DESCRIPTION = 60


@click.command("plan")
@click.argument("run")
@click.option(
    "--edit", "is_edited", is_flag=True, help="Use $EDITOR to edit the plan that needs approval, and approve it."
)
@click.option("--full", "is_full", is_flag=True, help="Show the full text of every step.")
@click.option("--json", "is_json", is_flag=True, help="Print the plan as JSON.")
def plan_command(run: str, is_edited: bool, is_full: bool, is_json: bool) -> None:
    """Show the plan of RUN and the state of its steps.

    With --edit, a plan that needs your approval opens in your editor. When you save and close it, your version of the
    plan is approved. If you change nothing, the plan still needs your approval.
    """
    settings = Settings.load()
    with open_reader(settings.store) as reader:
        id = find.resolve(reader, run).run
        runs = list_work_runs(reader, id)
        requests = [one for work in runs for one in list_run_requests(reader, reader.read_summary(work.id))]
    waiting = [one for one in requests if _is_plan(one)]
    if is_edited:
        if not waiting:
            raise Mistake(f"run {id} has no plan that needs approval; see podium plan {id}")
        asked = waiting[0]
        _edit_plan(settings, next(one for one in runs if one.id == asked.summary.id), asked)
        return
    teams = [team for work in runs for team in work.teams]
    if not teams:
        raise Mistake(f"run {id} has no plan; only teams in collaborate mode make plans")
    if is_json:
        plans = [one for work in runs for one in work.list_plans()]
        click.echo(as_json({"schema": SCHEMA, "run": id, "teams": plans}))
        return
    for team in teams:
        for line in _format_team_work(team, is_full=is_full):
            click.echo(escape_for_terminal(line))
    for one in waiting:
        print_to_stderr(
            f"the plan needs your approval: podium answer {one.asked.id} approve, or podium plan {id} --edit"
        )


def _is_plan(one: OpenRequest) -> bool:
    return isinstance(one.asked, QuestionAsked) and one.asked.kind == "plan" and one.asked.plan is not None


def _edit_plan(settings: Settings, run: WorkRun, one: OpenRequest) -> None:
    """Open a plan that needs approval in the editor, and approve the version that the user saves.

    Raise Mistake, and keep the text in a file, if the edited plan is invalid.
    """
    assert isinstance(one.asked, QuestionAsked)
    plan = one.asked.plan
    assert plan is not None
    text = render_plan_document(plan)
    # An editor is not looked up in a checkout, where agents' commands can write.
    environ = build_unsandboxed_environment(os.environ, find_current_checkouts(find_home_folder()))
    edited = click.edit(text, extension=".yaml", env={"PATH": environ["PATH"], "PYTHONSAFEPATH": "1"})
    if edited is None or edited == text or not edited.strip():
        print_to_stderr("the plan was not changed, so it still needs your approval")
        return
    team = next((team for team in run.teams if team.operation == one.entry.operation), None)
    done = [] if team is None else [id for id, step in team.progress.steps.items() if step.state == "done"]
    members = find_team_members(run.started, one.entry.operation)
    try:
        changed = parse_plan_document(edited, plan.goal, members, done=done)
    except Mistake as error:
        kept = find_local_folder(settings.store) / f"plan-{run.id}.yaml"
        kept.write_text(edited, encoding="utf-8")
        raise Mistake(f"{error}; your changes are kept in {kept}, and the plan still needs your approval") from None
    submit_answer(settings, one, NewAnswer(shown=get_shown(one.asked), text="approve"), plan=changed)


def _format_team_work(work: TeamWork, *, is_full: bool) -> Iterator[str]:
    """Yield lines about a team's work: its state, then its steps or, before the plan is approved, the draft."""
    progress = work.progress
    goal = "" if progress.formed is None else truncate_line(" ".join(progress.formed.goal.split()), LONGEST_DESCRIPTION)
    yield f"{parse_agent_name(work.operation)}: {progress.state.replace('_', ' ')}; {goal}"
    if progress.plan is None:
        if work.draft is not None:
            yield f"draft {work.draft.version} by {work.draft.by}:"
            yield from format_plan(work.draft.plan).splitlines()
        return
    if is_full:
        yield from _iter_full_lines(progress.plan, progress.steps.values())
        return
    rows = [
        (
            one.state,
            id,
            one.owner,
            truncate_line(" ".join(one.step.description.split()), LONGEST_DESCRIPTION),
            _format_details(one),
        )
        for id, one in progress.steps.items()
    ]
    yield from ("  ".join(row).rstrip() for row in align_columns(rows))


def _iter_full_lines(plan: WorkPlan, steps: Any) -> Iterator[str]:
    for one in steps:
        yield f"[{one.state}] {_format_details(one)}".rstrip()
        yield from format_plan(WorkPlan(goal=plan.goal, steps=(one.step,))).splitlines()
        yield from (
            f"    {'met' if found.is_met else 'NOT MET'} ({found.by}): {found.criterion} {found.reason}".rstrip()
            for found in one.findings
        )


def _format_details(one: StepProgress) -> str:
    """Return details of a step, such as its dependencies, attempt number, number of criteria met, or why it failed."""
    parts = [f"after {', '.join(one.step.depends_on)}"] if one.step.depends_on and one.state == "planned" else []
    if one.attempt > 1:
        parts.append(f"attempt {one.attempt}")
    if one.findings:
        parts.append(f"{sum(found.is_met for found in one.findings)}/{len(one.findings)} met")
    if one.reason and one.state in ("blocked", "failed", "reopened"):
        parts.append(truncate_line(" ".join(one.reason.split()), LONGEST_DESCRIPTION))
    return "; ".join(parts)


@click.command("artifacts")
@click.argument("run")
@click.argument("name", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def artifacts_command(run: str, name: str | None, is_json: bool) -> None:
    """List the artifacts that RUN produced: diffs, documents, logs and test results. With NAME, print that artifact.

    NAME is the name of an artifact, or the beginning of its digest.
    """
    with open_reader(Settings.load().store) as reader:
        id = find.resolve(reader, run).run
        artifacts = [one for work in list_work_runs(reader, id) for one in work.plans.artifacts]
        if name is not None:
            found = _find_artifact(id, artifacts, name)
            data = reader.read_artifact(found.digest)
            if data is None:
                raise Mistake(f"the content of {found.name} is no longer in the store")
            click.echo(escape_for_terminal(data.decode(errors="replace")), nl=False)
            return
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "run": id, "artifacts": artifacts}))
    elif not artifacts:
        print_to_stderr(f"run {id} has no artifacts; only teams in collaborate mode store artifacts")
    else:
        rows = [(one.kind, one.name, one.step, one.author, f"{one.size:,} bytes", one.digest[:12]) for one in artifacts]
        for row in align_columns(rows):
            click.echo(escape_for_terminal("  ".join(row).rstrip()))


def _find_artifact(run: str, artifacts: list[ArtifactStored], name: str) -> ArtifactStored:
    found = [one for one in artifacts if one.name == name] or [one for one in artifacts if one.digest.startswith(name)]
    if not found:
        names = ", ".join(dict.fromkeys(one.name for one in artifacts)) or "none"
        raise Mistake(f"run {run} has no artifact {name!r}; artifacts: {names}")
    return found[-1]
