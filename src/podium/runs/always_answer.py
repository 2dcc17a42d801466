"""Save the rule from an "always" answer, for the repository of the run that asked or for all repositories.

For a run without a repository, the rule is saved only if the user wants it for all repositories. Otherwise, it applies
only for the rest of that run.
"""

from __future__ import annotations

import time
from pathlib import Path

from ..files.always_allow_rules import AllowedRule, identify_repo, load_allowed_rules, save_allowed_rule
from ..policy import generalised
from ..store.reader import StoreReader
from ..store.run_creators import find_person_run
from ..store.saved_rules import PublishedRule, publish_rules
from ..system.host_id import read_host_id
from ..values.errors import Mistake
from ..values.event import KINDS, PermissionAsked
from ..values.store_address import PostgresAddress, StoreAddress


def save_always_answer(
    home: Path, store: StoreAddress, *, rule: str, run: str, by: str, is_everywhere: bool = False
) -> AllowedRule | None:
    """Save the rule from an "always" answer, and return the saved rule.

    If the run has no repository, save nothing and return None, unless `is_everywhere` is set. Raise Mistake if the run
    asked with a rule that does not follow from the action: a host of a fleet can write anything into its requests.
    """
    if isinstance(store, PostgresAddress):
        _require_derived_rule(store, rule, run)
    repo = "" if is_everywhere else _find_run_repo(store, run)
    if not repo and not is_everywhere:
        return None
    saved = AllowedRule(rule=rule, at=time.time(), by=by, run=run, repo=repo)
    save_allowed_rule(home, saved)
    publish_saved_rules(home, store)
    return saved


def _require_derived_rule(store: PostgresAddress, rule: str, run: str) -> None:
    with StoreReader(store) as reader:
        events = [entry.event for entry in reader.read_entries(run, kinds=(KINDS[PermissionAsked],))]
    if not any(isinstance(one, PermissionAsked) and generalised(one.action) == rule for one in events):
        raise Mistake(
            f"the rule {rule} was not saved, because it does not follow from any action that run {run} asked for; if "
            "you want it, add it to your settings"
        )


def publish_saved_rules(home: Path, store: StoreAddress) -> None:
    """Publish this machine's saved rules in a PostgreSQL store.

    The rules then also apply to workers on other hosts whose tasks were delegated from this machine.
    """
    if isinstance(store, PostgresAddress):
        rules = [PublishedRule(one.rule, one.repo) for one in load_allowed_rules(home)]
        publish_rules(store, read_host_id(home), rules)


def _find_run_repo(store: StoreAddress, run: str) -> str:
    """Return the repository of a run. For a worker, this is the repository that its checkout belongs to.

    For a worker that a host delegated, it is the repository of the person's run that led to it.
    """
    if not (run := find_person_run(store, run)):
        return ""
    with StoreReader(store) as reader:
        started = reader.read_summary(run).started
    folder = started.errand.root if started.errand is not None else started.repo
    return identify_repo(Path(folder)) if folder else ""
