"""`podium results`: everything that a run has brought so far, whether it goes on, rests or has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, to_builtins

from ...runs.run_lookup import looking
from ...runs.run_state import State, state
from ...setup.settings import Settings
from ...values.event import SCHEMA, Evaluated, ReflectEnd
from ...views.run_report import Discussion, OpenPoint, Reflection, Report, Share
from ..terminal import exit_codes, results_synthesis
from ..terminal.budget_text import limits_told
from ..terminal.measure import counted, cut, span, used
from ..terminal.quoted_markdown import bullets, inline, quotation
from ..terminal.results_synthesis import Author
from ..terminal.say import say
from ..terminal.text import as_json, visible
from ..workers import report as workers_report
from ..workers.worker_lookup import NOBODY, There, in_repo

LONGEST_LINE = 200
UNFINISHED: frozenset[State] = frozenset({"running", "queued", "paused", "resumable"})

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
"""How a loop ended, as a sign, and as one that every terminal has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A report as programs, people and Markdown have it, and who would sum it up.

    `nothing` is what is said to people in place of a report that has nothing to show.
    """

    fields: dict[str, Any]
    lines: list[str]
    blocks: list[str]
    has_results: bool
    author: Callable[[str | None], Author]
    nothing: str = ""


@click.command("results")
@click.argument("run", required=False)
@click.option("--workers", "is_workers", is_flag=True, help="All workers of this repository in one report.")
@click.option("--synthesis", "is_summed_up", is_flag=True, help="Have the lead sum it up, in a run of its own.")
@click.option("--agent", help="Who sums it up; by default the lead of RUN, or worker for --workers.")
@in_repo
@click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
@click.option("--markdown", "is_markdown", is_flag=True, help="Print it as Markdown that can be pasted anywhere.")
def command(
    run: str | None,
    is_workers: bool,
    is_summed_up: bool,
    agent: str | None,
    repo: Path | None,
    is_json: bool,
    is_markdown: bool,
) -> int:
    """Show everything that RUN has brought so far: the answer or why there is none, and each agent's part.

    It can be asked at any time, also while the run is being worked on. Workers that it sent are told of, too.
    """
    if is_json and is_markdown:
        raise click.UsageError("--json and --markdown exclude each other")
    if (run is None) != is_workers:
        raise click.UsageError("name a run, or say --workers for all workers of this repository")
    if agent is not None and not is_summed_up:
        raise click.UsageError("--agent says who writes the --synthesis; give both")
    page = page_of_workers(There(repo)) if run is None else page_of_run(run, repo)
    author = page.author(agent) if is_summed_up else None
    if page.nothing and not is_json:
        say(page.nothing)
    elif not is_json:
        click.echo("\n\n".join(page.blocks) if is_markdown else visible("\n".join(page.lines)))
    if author is not None and page.has_results:
        return _summed_up(page, author, is_json=is_json, is_markdown=is_markdown)
    if author is not None and not page.nothing:
        say("there is nothing to sum up yet")
    if is_json:
        click.echo(as_json({**page.fields, "synthesis": None}))
    return exit_codes.GOAL_MET


def _summed_up(page: Page, author: Author, *, is_json: bool, is_markdown: bool) -> int:
    """Have a report summed up, and show that; the exit code."""
    synthesis = results_synthesis.made(author, page.blocks)
    if is_json:
        click.echo(as_json({**page.fields, "synthesis": synthesis.fields()}))
    elif is_markdown:
        click.echo("\n" + "\n\n".join(synthesis.markdown()))
    else:
        click.echo(visible("\n".join(["", *synthesis.rendered()])))
    return synthesis.code


def page_of_run(run: str, repo: Path | None) -> Page:
    """What a run has brought."""
    store = Settings.load(repo=repo).store
    with looking(store) as reader:
        id = reader.find(run)
        summary = reader.summary(id)
        entries = reader.entries(id)
    word, report, helped = state(summary), Report.of(entries), workers_report.brought_by(store, entries)
    return Page(
        fields={**fields(word, report), **workers_report.fields(helped)},
        lines=rendered(word, report, icons_in(sys.stdout.encoding)) + workers_report.rendered(helped),
        blocks=markdown(word, report) + workers_report.markdown(helped),
        has_results=report.has_results or helped.has_results,
        author=lambda named: results_synthesis.lead(entries, named),
    )


def page_of_workers(there: There) -> Page:
    """What all workers of a repository have brought."""
    told = workers_report.brought(there.store, (worker.run for worker in there.workers()))
    return Page(
        fields={"schema": SCHEMA, "repo": there.root, **workers_report.fields(told)},
        lines=workers_report.rendered(told)[1:],
        blocks=workers_report.markdown(told),
        has_results=told.has_results,
        author=lambda named: results_synthesis.anyone(there.place, named),
        nothing="" if told.force.workers else NOBODY,
    )


def fields(word: State, report: Report) -> dict[str, Any]:
    """The report for programs, every field of it there."""
    told: dict[str, Any] = _full(report)
    told["reflections"] = [
        {**one, "icon": ICONS[reflection.end][0]}
        for one, reflection in zip(told["reflections"], report.reflections, strict=True)
    ]
    return {"schema": SCHEMA, **told, "state": word}


def _full(value: Any) -> Any:
    """Plain values with what `to_builtins` would leave out because it is usual."""
    if isinstance(value, Struct):
        return {name: _full(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_full(one) for one in value]
    return to_builtins(value)


def icons_in(encoding: str | None) -> int:
    """Which of the signs can be shown in an encoding: the first ones, or those that every terminal has."""
    try:
        "".join(sign for sign, _ in ICONS.values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return 1
    return 0


# For people


def rendered(word: State, report: Report, icons: int) -> list[str]:
    """The report in lines."""
    lines = [
        f"run {report.run}  {word}",
        f"{report.agent} was asked: {cut(report.request, LONGEST_LINE)}",
        f"used {used(report.usage)} in {span(report.seconds)}; budget {limits_told(report.budget)}",
        "",
        *_answer(word, report),
    ]
    lines += _section("Parts", (line for share in report.parts for line in _part(share, report)))
    for reflection in report.reflections:
        lines += _section(_loop_line(reflection, icons), _judged(reflection))
    for discussion in report.discussions:
        lines += _section(_talk_line(discussion), _voted(discussion))
    lines += _section("Open points", map(_point_line, report.open_points))
    lines += _section("Changed files", (f"  {one.path} ({', '.join(one.agents)})" for one in report.changed_files))
    return lines


def _section(title: str, lines: Iterable[str]) -> list[str]:
    told = list(lines)
    if told:
        return ["", f"{title}:", *told]
    return [] if title in ("Parts", "Open points", "Changed files") else ["", f"{title}."]


def _answer(word: State, report: Report) -> list[str]:
    if report.answer is not None:
        return ["Answer:", report.answer.rstrip("\n")]
    lines = [f"There is no answer{' yet' if word in UNFINISHED else ''}: {report.why}."]
    if word in ("queued", "paused", "resumable"):
        lines.append(f"podium resume {report.run} goes on with it.")
    if report.draft.strip():
        lines += [f"What {report.agent} said last:", report.draft.rstrip("\n")]
    return lines


def _part(share: Share, report: Report) -> list[str]:
    indent = "  " * share.depth
    lines = [f"{indent}--- {_part_line(share, report)}"]
    if share.text.strip():
        lines.append(share.text.rstrip("\n"))
    if share.why:
        lines.append(f"{indent}no result: {share.why}")
    return lines


def _part_line(share: Share, report: Report) -> str:
    if share.state == "not_begun":
        return f"{share.agent} (not begun)"
    is_talk = any(one.operation == share.operation.rpartition("/")[0] for one in report.discussions)
    place = f", {'round' if is_talk else 'iteration'} {share.number}" if share.number else ""
    how = share.state if share.state in ("succeeded", "unfinished") else f"{share.state}, not finished"
    facts = [how, span(share.seconds), used(share.usage)]
    return f"{share.agent} ({share.trigger}{place}): {', '.join(facts)}"


def _loop_line(one: Reflection, icons: int) -> str:
    return f"{ICONS[one.end][icons]} Loop of {one.lead}: {_loop_facts(one)}"


def _loop_facts(one: Reflection) -> str:
    goal = cut(one.goal, 60)
    return f'"{goal}", {one.iterations}/{one.most} iterations, {span(one.seconds)}, {one.end or "not over"}'


def _judged(one: Reflection) -> list[str]:
    lines = [f"  {_verdict_line(verdict)}" for verdict in one.evaluations]
    lines += [f"  checks {'passed' if check.passed else 'failed'}: {'; '.join(check.commands)}" for check in one.checks]
    return lines + [f"  proposed: {proposal.text}" for proposal in one.proposals]


def _verdict_line(verdict: Evaluated) -> str:
    how = "complete" if verdict.is_complete else " ".join(verdict.held_back.split()) or "not complete"
    why = " ".join(verdict.rationale.split())
    told = f"iteration {verdict.iteration}: {verdict.score:.2f} ({verdict.trend}) by {verdict.by}: {how}"
    return f"{told}; {why}" if why and why != how else told


def _talk_line(one: Discussion) -> str:
    ended = f"ended by {_ended_by(one)}" if one.end else "not over"
    messages = counted(len(one.said), "message")
    return f"Discussion led by {one.lead}: {counted(one.rounds, 'round')}, {messages}, {ended}"


def _ended_by(one: Discussion) -> str:
    return f"{one.lead} (coordinator)" if one.end == "coordinator" else one.end or ""


def _voted(one: Discussion) -> list[str]:
    return [
        f"  {vote.author}: {'ready' if vote.ready else 'not ready'} in round {vote.round}"
        + (f", {cut(vote.reason, LONGEST_LINE)}" if vote.reason else "")
        for vote in one.votes
    ]


def _point_line(point: OpenPoint) -> str:
    return f"  {_point_facts(point)} {cut(point.text, LONGEST_LINE)}"


def _point_facts(point: OpenPoint) -> str:
    match point.kind:
        case "request":
            return f"request {point.id} of {point.agent}, not answered:"
        case "question":
            return f"question {point.id} of {point.agent}, not answered:"
        case "message":
            return f"message for {point.agent}, not heard:"
        case "claim":
            return f"{point.agent} called it complete, which was held back:"


# For pasting


def markdown(word: State, report: Report) -> list[str]:
    """The report as blocks of Markdown. What agents said is quoted and acts on nothing around it."""
    blocks = [
        f"# Run {report.run}: {word}",
        f"{inline(report.agent)} was asked:\n{quotation(report.request)}",
        f"Used {used(report.usage)} in {span(report.seconds)}; budget {limits_told(report.budget)}.",
    ]
    if report.answer is not None:
        blocks += ["## Answer", quotation(report.answer)]
    else:
        blocks += ["## No answer", f"There is none: {inline(report.why)}."]
        blocks += [f"{inline(report.agent)} said last:\n{quotation(report.draft)}"] if report.draft.strip() else []
    blocks += ["## Parts"] if report.parts else []
    for share in report.parts:
        blocks += [f"### {inline(_part_line(share, report))}"]
        blocks += [quotation(share.text)] if share.text.strip() else []
        blocks += [f"No result: {inline(share.why)}"] if share.why else []
    for reflection in report.reflections:
        heading = f"## {ICONS[reflection.end][0]} Loop of {inline(reflection.lead)}"
        blocks += [heading, inline(_loop_facts(reflection)), *bullets(_judged(reflection))]
    for discussion in report.discussions:
        blocks += [f"## {inline(_talk_line(discussion))}", *bullets(_voted(discussion))]
    if report.open_points:
        blocks += ["## Open points", *bullets(map(_point_line, report.open_points))]
    if report.changed_files:
        files = [f"{one.path} ({', '.join(one.agents)})" for one in report.changed_files]
        blocks += ["## Changed files", *bullets(files)]
    return blocks
