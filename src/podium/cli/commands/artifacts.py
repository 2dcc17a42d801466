"""`podium artifacts`: list the artifacts that a team's steps produced, or print one of them."""

from __future__ import annotations

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.queries.work_lookup import list_work_runs
from ...values.errors import Mistake
from ...values.event import SCHEMA, ArtifactStored
from ..terminal.text import align_columns, as_json, escape_for_terminal, print_to_stderr


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
