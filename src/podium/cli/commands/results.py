"""`podium results`: show the current results of a run, whether the run is active, paused or finished."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, structs, to_builtins

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...values.event import SCHEMA, Evaluated, ReflectEnd
from ...values.phase import FINAL_PHASES, IDLE_PHASES, Phase
from ...values.plain_text import format_count, join_some
from ...views.quoted_markdown import escape_inline, format_bullets, quote_block
from ...views.run_report import DiscussionReport, OpenPoint, ReflectionReport, Report, ReportPart
from ...views.worker_state import WorkerState
from ...workers.queries.worker_listing import NO_WORKERS, format_line_count
from ...workers.queries.worker_lookup import RepoContext
from ...workers.queries.workers_report import (
    WorkersReport,
    _reason_not_started,
    build_sent_workers_report,
    build_workers_report,
    build_workers_results,
)
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..output import exit_codes, results_synthesis
from ..output.agent_text import AgentText, format_output
from ..output.budget_text import format_limits
from ..output.command_options import repo_option
from ..output.merge_report import format_forecast
from ..output.results_synthesis import SynthesisAuthor
from ..output.text import as_json, format_duration, format_usage, print_to_stderr, truncate_line
from . import results as workers_report

LONGEST_TASK = 200
MOST_WORKER_FILES = 50


LONGEST_LINE = 200

ICONS: dict[ReflectEnd | None, tuple[str, str]] = {
    "goal_met": ("✓", "+"),
    "max_iterations": ("↻", "n"),
    "stalled": ("≈", "="),
    "error_budget": ("✗", "x"),
    "budget_exhausted": ("¤", "$"),
    "cancelled": ("■", "#"),
    "paused": ("‖", "|"),
    None: ("●", "*"),
}
"""The symbols, in Unicode and in ASCII, for each way a loop can end and for a loop that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPage:
    """A report in three formats: JSON fields, lines of text and blocks of Markdown.

    `make_author` chooses the agent that summarises the report. `empty_message` is printed if the report is empty.
    """

    fields: dict[str, Any]
    lines: list[str]
    blocks: list[str]
    has_results: bool
    make_author: Callable[[str | None], SynthesisAuthor]
    empty_message: str = ""


@click.command("results")
@click.argument("run", required=False)
@click.option("--workers", "is_workers", is_flag=True, help="Report on all workers in this repository.")
@click.option("--synthesis", "is_summed_up", is_flag=True, help="Have the lead summarise the report in a new run.")
@click.option(
    "--agent", help='Agent for --synthesis; default: the lead of RUN or, with --workers, the agent named "worker".'
)
@repo_option
@click.option("--json", "is_json", is_flag=True, help="Print the report as JSON.")
@click.option("--markdown", "is_markdown", is_flag=True, help="Print the report as Markdown that is safe to paste.")
def results_command(
    run: str | None,
    is_workers: bool,
    is_summed_up: bool,
    agent: str | None,
    repo: Path | None,
    is_json: bool,
    is_markdown: bool,
) -> int:
    """Show the results of RUN so far: the answer, or why there is none, and each agent's results.

    This works at any time, even while the run is in progress. The report includes workers that the run started.
    """
    if is_json and is_markdown:
        raise click.UsageError("--json and --markdown cannot be combined; give one of them")
    if (run is None) != is_workers:
        raise click.UsageError("give either a run, or --workers for all workers in this repository")
    if agent is not None and not is_summed_up:
        raise click.UsageError("--agent needs --synthesis; give both")
    page = _build_workers_page(RepoContext(repo)) if run is None else _build_run_page(run, repo)
    author = page.make_author(agent) if is_summed_up else None
    if page.empty_message and not is_json:
        print_to_stderr(page.empty_message)
    elif not is_json:
        click.echo("\n\n".join(page.blocks) if is_markdown else format_output(page.lines, sys.stdout))
    if author is not None and page.has_results:
        return _print_synthesis(page, author, is_json=is_json, is_markdown=is_markdown)
    if author is not None and not page.empty_message:
        print_to_stderr("there is nothing to summarise yet")
    if is_json:
        click.echo(as_json({**page.fields, "synthesis": None}))
    return exit_codes.GOAL_MET


def _print_synthesis(page: ResultsPage, author: SynthesisAuthor, *, is_json: bool, is_markdown: bool) -> int:
    """Have an agent summarise a report, print the summary and return the exit code."""
    synthesis, code = results_synthesis.run_synthesis(author, page.blocks)
    if is_json:
        click.echo(as_json({**page.fields, "synthesis": synthesis}))
    elif is_markdown:
        click.echo("\n" + "\n\n".join(synthesis.format_markdown()))
    else:
        click.echo(format_output(["", *synthesis.format_lines()], sys.stdout))
    return code


def _build_run_page(run: str, repo: Path | None) -> ResultsPage:
    """Build the report on a run and the workers that it started."""
    store = Settings.load(repo=repo).store
    with open_reader(store) as reader:
        id = find.resolve(reader, run, repo=repo).run
        summary = reader.read_summary(id)
        entries = reader.read_entries(id)
    run_state, report = summary.phase, Report.from_entries(entries)
    workers = build_sent_workers_report(store, id)
    return ResultsPage(
        fields={**_encode_report(run_state, report), **structs.asdict(build_workers_results(workers))},
        lines=_format_report(run_state, report, _choose_icon_index(sys.stdout.encoding))
        + workers_report.format_workers_report(workers),
        blocks=_format_report_markdown(run_state, report) + workers_report.format_workers_markdown(workers),
        has_results=report.has_results or workers.has_results,
        make_author=lambda named: results_synthesis.choose_run_author(entries, named),
    )


def _build_workers_page(context: RepoContext) -> ResultsPage:
    """Build the report on all workers in a repository."""
    workers = build_workers_report(context.store, (worker.run for worker in context.load_workers()))
    return ResultsPage(
        fields={"schema": SCHEMA, "repo": context.root, **structs.asdict(build_workers_results(workers))},
        lines=workers_report.format_workers_report(workers)[1:],
        blocks=workers_report.format_workers_markdown(workers),
        has_results=workers.has_results,
        make_author=lambda named: results_synthesis.choose_workers_author(context.folder, named),
        empty_message="" if workers.summary.workers else NO_WORKERS,
    )


def _encode_report(run_state: Phase, report: Report) -> dict[str, Any]:
    """Return the report as JSON, including default values."""
    values: dict[str, Any] = _to_full_builtins(report)
    values["reflections"] = [
        {**one, "icon": ICONS[reflection.end][0]}
        for one, reflection in zip(values["reflections"], report.reflections, strict=True)
    ]
    return {"schema": SCHEMA, **values, "state": run_state}


def _to_full_builtins(value: Any) -> Any:
    """Convert a value to plain data, including the default values that `to_builtins` would omit."""
    if isinstance(value, Struct):
        return {name: _to_full_builtins(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_to_full_builtins(one) for one in value]
    return to_builtins(value)


def _choose_icon_index(encoding: str | None) -> int:
    """Return the index of the icon set that an encoding supports: 0 for Unicode, 1 for ASCII."""
    try:
        "".join(sign for sign, _ in ICONS.values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return 1
    return 0


# Plain text
def _format_report(run_state: Phase, report: Report, icons: int) -> list[str]:
    """Return the report as lines of text."""
    lines = [
        f"run {report.run}  {run_state}",
        f"{report.agent} was asked: {truncate_line(report.request, LONGEST_LINE)}",
        f"used {format_usage(report.usage)} in {format_duration(report.seconds)}; budget "
        f"{format_limits(report.budget)}",
        "",
        *_format_answer(run_state, report),
    ]
    lines += _format_section("Results by agent", (line for part in report.parts for line in _format_part(part, report)))
    for reflection in report.reflections:
        lines += _format_section(_format_loop_line(reflection, icons), _format_evaluations(reflection))
    for discussion in report.discussions:
        lines += _format_section(_format_discussion_line(discussion), _format_votes(discussion))
    lines += _format_section("Open points", map(_format_open_point, report.open_points))
    lines += _format_section(
        "Changed files", (f"  {one.path} ({', '.join(one.agents)})" for one in report.changed_files)
    )
    return lines


def _format_section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    if body:
        return ["", f"{title}:", *body]
    return [] if title in ("Results by agent", "Open points", "Changed files") else ["", f"{title}."]


def _format_answer(run_state: Phase, report: Report) -> list[str]:
    if report.answer is not None:
        return ["Answer:", AgentText(report.answer.rstrip("\n"))]
    lines = [f"There is no answer{'' if run_state in FINAL_PHASES else ' yet'}: {report.why}."]
    if run_state in IDLE_PHASES:
        lines.append(f"Resume it with: podium resume {report.run}")
    if report.draft.strip():
        lines += [f"Last text from {report.agent}:", AgentText(report.draft.rstrip("\n"))]
    return lines


def _format_part(part: ReportPart, report: Report) -> list[str]:
    indent = "  " * part.depth
    lines = [f"{indent}--- {_format_part_line(part, report)}"]
    if part.text.strip():
        lines.append(AgentText(part.text.rstrip("\n")))
    if why := _explain_part(part, report):
        lines.append(f"{indent}no result: {why}")
    return lines


def _explain_part(part: ReportPart, report: Report) -> str:
    """Return why a part has no result, or an empty string if it has one or if `report.why` already says this."""
    return "" if part.why in report.why else part.why


def _format_part_line(part: ReportPart, report: Report) -> str:
    if part.state == "not_begun":
        return f"{part.agent} (not started)"
    is_discussion = any(one.operation == part.operation.rpartition("/")[0] for one in report.discussions)
    place = f", {'round' if is_discussion else 'iteration'} {part.number}" if part.number else ""
    how = part.state if part.state in ("succeeded", "unfinished") else f"{part.state}, not finished"
    facts = [how, format_duration(part.seconds), format_usage(part.usage)]
    return f"{part.agent} ({part.trigger}{place}): {', '.join(facts)}"


def _format_loop_line(one: ReflectionReport, icons: int) -> str:
    return f"{ICONS[one.end][icons]} Loop led by {one.lead}: {_format_loop_facts(one)}"


def _format_loop_facts(one: ReflectionReport) -> str:
    goal = truncate_line(one.goal, 60)
    return f'"{goal}", {one.iterations}/{one.most} iterations, {format_duration(one.seconds)}, {one.end or "not ended"}'


def _format_evaluations(one: ReflectionReport) -> list[str]:
    lines = [f"  {_format_verdict(verdict)}" for verdict in one.evaluations]
    lines += [f"  checks {'passed' if check.passed else 'failed'}: {'; '.join(check.commands)}" for check in one.checks]
    return lines + [f"  proposed: {proposal.text}" for proposal in one.proposals]


def _format_verdict(verdict: Evaluated) -> str:
    how = "complete" if verdict.is_complete else " ".join(verdict.held_back.split()) or "not complete"
    why = " ".join(verdict.rationale.split())
    text = f"iteration {verdict.iteration}: {verdict.score:.2f} ({verdict.trend}) by {verdict.by}: {how}"
    return f"{text}; {why}" if why and why != how else text


def _format_discussion_line(one: DiscussionReport) -> str:
    ended = f"ended by {_format_discussion_end(one)}" if one.end else "not ended"
    messages = format_count(len(one.said), "message")
    return f"Discussion led by {one.lead}: {format_count(one.rounds, 'round')}, {messages}, {ended}"


def _format_discussion_end(one: DiscussionReport) -> str:
    return f"{one.lead} (coordinator)" if one.end == "coordinator" else one.end or ""


def _format_votes(one: DiscussionReport) -> list[str]:
    return [
        f"  {vote.author}: {'ready' if vote.ready else 'not ready'} in round {vote.round}"
        + (f", {truncate_line(vote.reason, LONGEST_LINE)}" if vote.reason else "")
        for vote in one.votes
    ]


def _format_open_point(point: OpenPoint) -> str:
    return f"  {_format_point_label(point)} {truncate_line(point.text, LONGEST_LINE)}"


def _format_point_label(point: OpenPoint) -> str:
    match point.kind:
        case "request":
            return f"request {point.id} from {point.agent}, not answered:"
        case "question":
            return f"question {point.id} from {point.agent}, not answered:"
        case "message":
            return f"message for {point.agent}, not delivered:"
        case "claim":
            return f"{point.agent} reported that the work is complete, but this was not accepted:"


# Markdown
def _format_report_markdown(run_state: Phase, report: Report) -> list[str]:
    """Return the report as blocks of Markdown. Text from agents is quoted, so that it cannot affect other blocks."""
    blocks = [
        f"# Run {report.run}: {run_state}",
        f"{escape_inline(report.agent)} was asked:\n{quote_block(report.request)}",
        f"Used {format_usage(report.usage)} in {format_duration(report.seconds)}; budget "
        f"{format_limits(report.budget)}.",
    ]
    if report.answer is not None:
        blocks += ["## Answer", quote_block(report.answer)]
    else:
        blocks += ["## No answer", f"There is no answer: {escape_inline(report.why)}."]
        blocks += (
            [f"Last text from {escape_inline(report.agent)}:\n{quote_block(report.draft)}"]
            if report.draft.strip()
            else []
        )
    blocks += ["## Results by agent"] if report.parts else []
    for part in report.parts:
        blocks += [f"### {escape_inline(_format_part_line(part, report))}"]
        blocks += [quote_block(part.text)] if part.text.strip() else []
        why = _explain_part(part, report)
        blocks += [f"No result: {escape_inline(why)}"] if why else []
    for reflection in report.reflections:
        heading = f"## {ICONS[reflection.end][0]} Loop led by {escape_inline(reflection.lead)}"
        blocks += [
            heading,
            escape_inline(_format_loop_facts(reflection)),
            *format_bullets(_format_evaluations(reflection)),
        ]
    for discussion in report.discussions:
        blocks += [
            f"## {escape_inline(_format_discussion_line(discussion))}",
            *format_bullets(_format_votes(discussion)),
        ]
    if report.open_points:
        blocks += ["## Open points", *format_bullets(map(_format_open_point, report.open_points))]
    if report.changed_files:
        files = [f"{one.path} ({', '.join(one.agents)})" for one in report.changed_files]
        blocks += ["## Changed files", *format_bullets(files)]
    return blocks


# Text and Markdown
def format_workers_report(report: WorkersReport) -> list[str]:
    """Return the report as lines: each worker, then the summary."""
    lines = [""] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        lines += [f"--- worker {worker.name} (run {worker.run}): {worker.state}", f"  task: {_format_task(worker)}"]
        lines += [f"  {fact}" for fact in _format_facts(worker, report.statuses.get(worker.run))]
        lines += [_format_worker_answer(worker) if worker.answer is None else AgentText(worker.answer.rstrip("\n"))]
    for one in report.not_started:
        lines += [
            f"--- worker {one.branch or one.run}: not started",
            f"  task: {truncate_line(one.task, LONGEST_TASK)}",
        ]
        lines += [f"no answer: {_reason_not_started(one)}"]
    return lines + [f"  {line}" if number else f"{line}:" for number, line in enumerate(_format_summary(report))]


def format_workers_markdown(report: WorkersReport) -> list[str]:
    """Return the report as blocks of Markdown."""
    blocks = ["## Workers"] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        blocks += [f"### {escape_inline(worker.name)}: {worker.state}", f"Task:\n{quote_block(worker.task)}"]
        blocks += format_bullets(_format_facts(worker, report.statuses.get(worker.run)))
        blocks += [
            quote_block(worker.answer) if worker.answer is not None else escape_inline(_format_worker_answer(worker))
        ]
    for one in report.not_started:
        blocks += [f"### {escape_inline(one.branch or one.run)}: not started", f"Task:\n{quote_block(one.task)}"]
        blocks += [escape_inline(f"no answer: {_reason_not_started(one)}")]
    together = list(_format_summary(report))
    return blocks + ([f"## {together[0]}", *format_bullets(together[1:])] if together else [])


def _format_task(worker: WorkerState) -> str:
    return truncate_line(worker.task, LONGEST_TASK)


def _format_worker_answer(worker: WorkerState) -> str:
    return f"no answer: {worker.why}" if worker.answer is None else worker.answer


def _format_facts(worker: WorkerState, status: WorktreeStatus | None) -> Iterator[str]:
    """Yield lines about a worker's usage, changes and checks. `status` is the state of its checkout, if it has one."""
    yield f"used {format_usage(worker.usage)} in {format_duration(worker.seconds)}"
    files = worker.files
    if worker.commit and not files:
        yield f"nothing changed on {worker.worker_task.branch}"
    elif worker.commit:
        commits = format_count(len(worker.commits), "commit")
        yield (
            f"{format_line_count(worker)} in {format_count(len(files), 'file')}, {commits} on "
            f"{worker.worker_task.branch}"
        )
    elif status is not None:
        yield f"{format_line_count(worker, status)} so far, not committed yet"
    if worker.commits:
        yield f"commits: {', '.join(commit[:12] for commit in worker.commits)}"
    if files:
        yield f"files: {join_some(files, MOST_WORKER_FILES)}"
    for check in worker.checks:
        yield f"checks {'passed' if check.passed else 'failed'}: {check.name}"


def _format_summary(report: WorkersReport) -> Iterator[str]:
    """Yield the totals of all workers and the merge forecast. Yield nothing if there are no workers."""
    summary = report.summary
    if not summary.workers:
        return
    yield "Total"
    workers = format_count(len(summary.workers), "worker")
    yield (
        f"{workers}, +{summary.added} -{summary.removed}, {format_usage(summary.usage)} in "
        f"{format_duration(summary.seconds)}"
    )
    for one in summary.shared:
        yield f"{one.path} was changed by {', '.join(one.workers)}"
    if report.forecast is not None:
        yield from format_forecast(report.forecast)
    if report.forecast_error:
        yield f"cannot forecast whether the branches will merge: {report.forecast_error}"
