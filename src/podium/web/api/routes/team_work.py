"""Serve the plans and artifacts of collaborating teams, and the decisions of a repository."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Self

from litestar import get
from litestar.params import FromPath, PathParameter
from litestar.response import Response
from msgspec import Struct

from ....runs import find
from ....runs.queries.repository_decisions import find_decision, find_decision_repo, list_decisions
from ....runs.queries.run_lookup import open_reader
from ....runs.queries.work_lookup import TeamPlan, list_work_runs
from ....store.reader import StoreReader
from ....values.column import Document, RowColumns, encode_rows
from ....values.errors import Mistake, NoSuchRun, StoreCorrupt
from ....values.event import KINDS, SCHEMA, ArtifactStored, TeamFormed
from ....views.decision_listing import DECISION_COLUMNS, encode_decision, list_decision_rows
from ..route_parameters import RepoFolder, RunPrefix, Server
from ..scopes import ApiRequest, get_token, may_read

MOST_PLANS = 50
DOWNLOAD_TYPE = "application/octet-stream"


class TeamPlans(Struct, frozen=True, kw_only=True):
    """The plans of a run's collaborating teams and the states of their steps."""

    run: str
    teams: list[TeamPlan]

    @classmethod
    def read(cls, reader: StoreReader, run: str) -> Self:
        """Return the plans of a run."""
        return cls(run=run, teams=[one for work in list_work_runs(reader, run) for one in work.list_plans()])


class PlanList(Document, frozen=True, kw_only=True):
    """The newest runs whose teams have a plan, or are making one."""

    plans: list[TeamPlans]


class PlanDocument(TeamPlans, frozen=True, kw_only=True):
    """The plans of one run."""

    schema: int = SCHEMA


class ArtifactList(Document, frozen=True, kw_only=True):
    """The artifacts that the steps of a run produced."""

    run: str
    artifacts: list[ArtifactStored]


class DecisionList(Document, frozen=True, kw_only=True):
    """A repository's decisions, newest first."""

    decisions: list[Annotated[dict[str, object], RowColumns(DECISION_COLUMNS)]]


class DecisionDocument(Document, frozen=True, kw_only=True):
    """A decision with its ballots and the text of its record."""

    decision: dict[str, Any]


@get("/api/plans", guards=[may_read], sync_to_thread=True)
def list_plans(server: Server) -> PlanList:
    """List the newest runs whose teams have a plan, or are making one, with the states of all steps."""
    found: list[TeamPlans] = []
    if server.store.exists():
        with StoreReader(server.store) as reader:
            for run in (one.id for one in reader.read_run_list().readable):
                if len(found) < MOST_PLANS and reader.read_lines(run, kinds=(KINDS[TeamFormed],)):
                    with suppress(StoreCorrupt):  # one damaged run must not hide the others
                        found.append(TeamPlans.read(reader, run))
    return PlanList(plans=found)


@get("/api/runs/{run:str}/plan", guards=[may_read], sync_to_thread=True)
def read_plan(run: RunPrefix, server: Server) -> PlanDocument:
    """Return the plans of a run's collaborating teams and the states of their steps."""
    with open_reader(server.store) as reader:
        return PlanDocument.read(reader, find.resolve(reader, run, repo=server.repo).run)


@get("/api/runs/{run:str}/artifacts", guards=[may_read], sync_to_thread=True)
def list_artifacts(run: RunPrefix, server: Server) -> ArtifactList:
    """List the artifacts that the steps of a run produced."""
    with open_reader(server.store) as reader:
        id = find.resolve(reader, run, repo=server.repo).run
        artifacts = [one for work in list_work_runs(reader, id) for one in work.plans.artifacts]
    return ArtifactList(run=id, artifacts=artifacts)


@get("/api/artifacts/{digest:str}", guards=[may_read], media_type=DOWNLOAD_TYPE, sync_to_thread=True)
def read_artifact(digest: FromPath[str], server: Server) -> Response[bytes]:
    """Return the content of an artifact as a download."""
    with open_reader(server.store) as reader:
        data = reader.read_artifact(digest)
    if data is None:
        raise NoSuchRun(f"artifact {digest[:64]!r} not found")
    # Agents wrote the content, so a browser must only download it, not display it or guess its type.
    headers = {"content-disposition": f'attachment; filename="{digest[:12]}.txt"'}
    return Response(data, headers=headers)


@get("/api/decisions", guards=[may_read], sync_to_thread=True)
def read_decisions(request: ApiRequest, server: Server, repo: RepoFolder = "") -> DecisionList:
    """List a repository's decisions, newest first."""
    place = find_decision_repo(server.find_place(repo, by=get_token(request)))
    decisions = list_decisions(server.store, place)
    rows = reversed(list_decision_rows(decisions))
    return DecisionList(decisions=encode_rows(rows, DECISION_COLUMNS))


@get("/api/decisions/{run:str}/{decision_id:str}", guards=[may_read], sync_to_thread=True)
def read_decision(
    run: RunPrefix,
    decision_id: Annotated[str, PathParameter(min_length=1)],
    request: ApiRequest,
    server: Server,
    repo: RepoFolder = "",
) -> DecisionDocument:
    """Return a decision with its ballots and the text of its record."""
    if not run:
        raise Mistake("the run id is empty; give the id of a run and the id of a decision")
    place = find_decision_repo(server.find_place(repo, by=get_token(request)))
    record = find_decision(server.store, place, f"{run}/{decision_id}")
    return DecisionDocument(decision=encode_decision(record))


ROUTES = (list_plans, read_plan, list_artifacts, read_artifact, read_decisions, read_decision)
