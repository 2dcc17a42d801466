"""Claims of issues: one winner per issue, changes only from the state that was read, and lists of what is open."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

from podium.store.issue_rows import IssueClaim, IssueClaims
from podium.values.store_address import StoreAddress


def make_claim(**fields: Any) -> IssueClaim:
    given: dict[str, Any] = {"source": "github:o/r", "issue": "7", "token": "t", "claimed": 1.5}
    return IssueClaim(**(given | {"root": "/r", "title": "Ä", "body": "text"} | fields))


def test_of_many_at_once_one_claims_the_issue(address: StoreAddress) -> None:
    claims, won, start = IssueClaims(address), [], Barrier(8)
    claims.add(make_claim(issue="other"))

    def claim_once(token: str) -> None:
        start.wait()
        if claims.add(make_claim(token=token)):
            won.append(token)

    threads = [Thread(target=claim_once, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    [found] = [one for one in claims.list_open("github:o/r") if one.issue == "7"]
    assert found == make_claim(token=won[0])
    assert claims.find_known("github:o/r", ["7", "8", "other"]) == {"7", "other"}
    assert claims.find_known("github:o/other", ["7"]) == set()


def test_a_change_counts_only_from_the_state_that_was_read(address: StoreAddress) -> None:
    claims, claim = IssueClaims(address), make_claim(comment="wanted")
    claims.add(claim)

    assert claims.update(claim, state="succeeded", body="")
    assert not claims.update(claim, state="failed")
    ended = replace(claim, state="succeeded", body="")
    assert claims.update(ended, comment="posting", comment_tries=1, comment_at=2.5)
    assert not claims.update(ended, comment="posting", comment_tries=1, comment_at=3.5)

    posting = replace(ended, comment="posting", comment_tries=1, comment_at=2.5)
    assert claims.list_open("github:o/r") == [posting]
    assert claims.update(posting, comment="posted", comment_url="https://x/1")
    assert claims.list_open("github:o/r") == []
    [listed] = claims.list_all(most=5)
    assert (listed.comment, listed.comment_url) == ("posted", "https://x/1")


def test_the_ids_of_runs_follow_from_the_claim_and_a_new_claim_has_others(address: StoreAddress) -> None:
    claims, claim = IssueClaims(address), make_claim()
    claims.add(claim)
    claims.remove(claim)
    again = make_claim(token="u")

    assert claims.add(again)
    assert claim.run == make_claim().run
    assert len({claim.run, claim.triage_run, again.run, again.triage_run}) == 4


def test_a_store_that_does_not_exist_has_no_claims(address: StoreAddress) -> None:
    claims = IssueClaims(address)

    assert claims.find_known("s", ["1"]) == set()
    assert claims.list_open("s") == claims.list_all(most=9) == []
