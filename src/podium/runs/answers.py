"""Answer a request from an agent: a permission request, a question, or a plan, a decision or a review to approve.

An answer is a message in the run's mailbox with the request's id as its `ref`, so only the first answer counts.

An "always" answer saves a rule. For a run without a repository, the rule is saved only if the user wants it for all
repositories. Otherwise, it applies only for the rest of that run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from ..core.open_requests import Answered, Asked
from ..files.always_allow_rules import AllowedRule, identify_repo, load_allowed_rules, save_allowed_rule
from ..policy import generalised
from ..store.mailbox import post_to_mailbox
from ..store.reader import StoreReader
from ..store.request_list import as_answered_error, find_posted_answer
from ..store.run_creators import find_person_run
from ..store.saved_rules import PublishedRule, publish_rules
from ..system.identity import read_host_id
from ..values.actor import Actor, act
from ..values.errors import Mistake
from ..values.event import KINDS, Decision, PermissionAnswered, PermissionAsked, QuestionAnswered, QuestionAsked
from ..values.plain_text import truncate_text
from ..values.plan import WorkPlan
from ..values.request import replace_surrogates
from ..values.store_address import PostgresAddress, StoreAddress


class NewAnswer(Struct, forbid_unknown_fields=True):
    """An answer to a request.

    For a permission request, `decision` is required, and `shown` is the `action_id` of the action that the person saw.
    For a question, `text` is required, and `shown` is the `digest` of the text that the person saw, if it has one.
    With the decision `always`, `everywhere` saves the rule for all repositories.
    """

    shown: str
    decision: Decision | UnsetType = UNSET
    text: str | UnsetType = UNSET
    comment: str = ""
    everywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """An answer that counts. `saved` is the rule that was saved with it, if any."""

    answered: Answered
    saved: AllowedRule | None = None


@act("approve")
def answer_request(
    store: StoreAddress,
    run: str,
    asked: Asked,
    answer: NewAnswer,
    *,
    by: Actor,
    home: Path | None,
    plan: WorkPlan | None = None,
    rule: str | None = None,
) -> GivenAnswer:
    """Answer a request of a run.

    The rule of an `always` answer is saved in `home`, for the run's repository or for all repositories. Without `home`,
    it applies to the rest of the run only, and `rule` can replace the rule that the request offers. `plan` is the plan
    as the person edited it. Raise Mistake if the request cannot be answered like this, and AlreadyAnswered if somebody
    else was faster.
    """
    if isinstance(asked, PermissionAsked):
        offered = asked.always if rule is None else rule
        answered: Answered = _make_permission_answer(asked, answer, offered, is_saved=home is not None)
    else:
        answered = _make_question_answer(asked, answer, plan)
    answered = answered.with_actor(by)
    if not post_to_mailbox(store, run, answered, ref=asked.id):
        counts = find_posted_answer(store, asked.id, run=run)
        if counts is not None and counts != answered:
            raise as_answered_error(counts)
    saved = None
    if home is not None and isinstance(answered, PermissionAnswered) and answered.rule:
        saved = save_always_answer(
            home, store, rule=answered.rule, run=run, by=by.name, is_everywhere=answer.everywhere
        )
    return GivenAnswer(answered=answered, saved=saved)


def get_shown(asked: Asked) -> str:
    """Return what identifies the action or the text of a request that a person has seen."""
    return asked.action.id if isinstance(asked, PermissionAsked) else asked.digest


def _make_permission_answer(
    asked: PermissionAsked, answer: NewAnswer, rule: str, *, is_saved: bool
) -> PermissionAnswered:
    if answer.decision is UNSET:
        raise Mistake(f"{asked.id} is a permission request, not a question; give a decision, e.g. with podium approve")
    if answer.shown != get_shown(asked):
        raise Mistake(f"{asked.id} is for a different action than the one that was shown; read the request again")
    if answer.decision == "always" and is_saved and not rule:
        raise Mistake(
            f'{asked.id} cannot be answered with "always", because no safe rule covers it; '
            "approve it once or for the run"
        )
    return PermissionAnswered(
        id=asked.id,
        decision=answer.decision,
        comment=replace_surrogates(answer.comment),
        rule=rule if answer.decision == "always" else "",
        at=time.time(),
    )


def _make_question_answer(asked: QuestionAsked, answer: NewAnswer, plan: WorkPlan | None) -> QuestionAnswered:
    if answer.text is UNSET:
        raise Mistake(
            f"{asked.id} is a question, not a permission request; give a text, e.g. with podium answer {asked.id} TEXT"
        )
    if answer.shown != asked.digest:
        raise Mistake(f"{asked.id} has changed since it was shown; read the request again")
    text = resolve_choice(asked, answer.text) if asked.kind == "decision" else answer.text
    return QuestionAnswered(id=asked.id, text=replace_surrogates(text), digest=asked.digest, plan=plan)


def resolve_choice(asked: QuestionAsked, text: str) -> str:
    """Return the choice with this number or name, or the text itself as a free answer.

    Raise Mistake if no choice has this number or, for a decision, if the text is not one of the choices.
    """
    word = text.strip()
    names = {choice.casefold(): choice for choice in asked.choices}
    is_decision = asked.kind == "decision" and bool(asked.choices)
    if is_decision and word.casefold() in names:
        return names[word.casefold()]
    if not asked.choices or word in asked.choices or not (word.isdecimal() or is_decision):
        return text
    if not word.isdecimal() or not 1 <= int(word) <= len(asked.choices):
        there_are = ", ".join(f"{number} ({choice})" for number, choice in enumerate(asked.choices, 1))
        or_text = "" if is_decision else ", or type your own answer"
        what = f"{truncate_text(word)!r} is not one of the choices for {asked.id}"
        raise Mistake(f"{what}; choose from {there_are}{or_text}")
    return asked.choices[int(word) - 1]


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
