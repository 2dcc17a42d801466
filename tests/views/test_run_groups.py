from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from podium.values.errors import Mistake, NoSuchRun
from podium.views.run_groups import (
    MAX_NAME_LENGTH,
    Arrangement,
    Group,
    GroupedRun,
    GroupKey,
    RunOrigin,
    build_sections,
    find_main_repository,
    reconcile_groups,
    validate_name,
)

REPOS = ("", "/a/app", "/b/app", "/c/lib")
TEAMS = ("", "squad", "pair")
RUNS = [f"{number:02x}" for number in range(12)]

run_origins = st.lists(
    st.builds(RunOrigin, st.sampled_from(RUNS), st.sampled_from(REPOS), st.sampled_from(TEAMS)),
    unique_by=lambda run: run.id,
)


@st.composite
def arrangements(draw: st.DrawFn) -> Arrangement:
    """Generate any state that a person, other processes or older releases could have left."""
    homes = draw(
        st.lists(st.builds(lambda run: run.group_key, st.builds(RunOrigin, st.just(""), *_ORIGIN_FIELDS)), unique=True)
    )
    flags = {"is_pinned": st.booleans(), "is_archived": st.booleans(), "position": st.none() | st.integers(1, 9)}
    groups = {
        id: Group(id=id, home=home, name=home.default_name, **{key: draw(value) for key, value in flags.items()})  # type: ignore[arg-type]  # mypy sees one type for all
        for id, home in enumerate(homes, 1)
    }
    group_ids = st.none() | st.integers(1, len(homes) + 2)  # some point to nothing
    grouped_runs = draw(
        st.lists(st.builds(GroupedRun, run=st.sampled_from(RUNS), group=group_ids, is_manual=st.booleans(), **flags))
    )
    return Arrangement(groups=groups, grouped_runs={grouped_run.run: grouped_run for grouped_run in grouped_runs})


_ORIGIN_FIELDS = (st.sampled_from(REPOS), st.sampled_from(TEAMS))


def reconcile(runs: list[RunOrigin], now: Arrangement) -> Arrangement:
    return now.with_changes(reconcile_groups(runs, now, next_id=100))


@given(run_origins, arrangements())
def test_reconciling_again_changes_nothing(runs: list[RunOrigin], now: Arrangement) -> None:
    after = reconcile(runs, now)

    again = reconcile_groups(runs, after, next_id=200)

    assert (again.groups, again.grouped_runs) == ((), ())


@given(run_origins, arrangements())
def test_every_run_is_in_one_group_unless_it_was_deleted(runs: list[RunOrigin], now: Arrangement) -> None:
    deleted = {run for run, grouped_run in now.grouped_runs.items() if grouped_run.group is None}

    after = reconcile(runs, now)

    listed = Counter(run for part in build_sections((run.id for run in runs), after) for run in part.runs)
    assert listed == Counter(run.id for run in runs if run.id not in deleted)
    assert all(after.grouped_runs[run].group is None for run in deleted)


@given(run_origins, arrangements())
def test_runs_of_a_team_and_runs_placed_by_hand_are_never_moved(runs: list[RunOrigin], now: Arrangement) -> None:
    teams = {run.id for run in runs if run.team}

    after = reconcile(runs, now)

    for run, grouped_run in now.grouped_runs.items():
        group = now.group_of(run)
        if group is not None and (run in teams or group.home.kind == "team" or grouped_run.is_manual):
            assert after.grouped_runs[run] == grouped_run


@given(run_origins, arrangements())
def test_no_group_goes_and_each_home_has_one(runs: list[RunOrigin], now: Arrangement) -> None:
    after = reconcile(runs, now)

    assert now.groups.keys() <= after.groups.keys()
    assert GroupKey("default") in {group.home for group in after.groups.values()}
    assert max(Counter(group.home for group in after.groups.values()).values()) == 1


@given(run_origins, arrangements())
def test_in_any_order_and_in_any_portions_the_outcome_is_the_same(runs: list[RunOrigin], now: Arrangement) -> None:
    whole = reconcile(runs, now)

    piecewise = now
    for run in reversed(runs):
        piecewise = piecewise.with_changes(
            reconcile_groups([run], piecewise, next_id=max(100, *piecewise.groups, 0) + 1)
        )

    for run in runs:
        one, other = whole.group_of(run.id), piecewise.group_of(run.id)
        assert (one and one.home) == (other and other.home)


@given(run_origins, arrangements())
def test_the_order_is_pinned_then_by_hand_then_newest(runs: list[RunOrigin], now: Arrangement) -> None:
    after = reconcile(runs, now)
    newest_first = [run.id for run in runs]

    parts = build_sections(newest_first, after)

    assert parts == build_sections(newest_first, after)
    for inside in (part.runs for part in parts):
        ranked = [after.grouped_runs[run] for run in inside]
        assert [one.is_pinned for one in ranked] == sorted((one.is_pinned for one in ranked), reverse=True)
        plain = [one.run for one in ranked if not one.is_pinned and one.position is None]
        assert plain == sorted(plain, key=newest_first.index)
    pinned = [part.group.is_pinned for part in parts]
    assert pinned == sorted(pinned, reverse=True)


def make_arrangement(*names: str, runs: tuple[str, ...] = ()) -> Arrangement:
    groups = [Group(id=1, home=GroupKey("default"), name="default")]
    groups += [Group(id=id, home=GroupKey("repo", f"/{id}/{name}"), name=name) for id, name in enumerate(names, 2)]
    return Arrangement(
        groups={group.id: group for group in groups}, grouped_runs={run: GroupedRun(run=run, group=1) for run in runs}
    )


def test_a_new_run_brings_its_group_back_from_the_archive() -> None:
    now = make_arrangement("app")
    now.groups[2] = replace(now.groups[2], is_archived=True)

    after = reconcile([RunOrigin("ab", "/2/app")], now)

    assert not after.is_archived("ab")


def find_thing(now: Arrangement, name: str, *, run: str = "") -> Group | GroupedRun:
    """Return the group with this name, or `run` if there is none and the name is that of this run."""

    def resolve_run(ref: str) -> str:
        if not run:
            raise NoSuchRun(f"run {ref!r} not found")
        return run

    return now.find_group_or_run(name, resolve_run)


def test_a_group_is_found_by_its_name_whatever_its_case_and_by_its_id() -> None:
    now = make_arrangement("App")

    assert now.find_group("app") == find_thing(now, "APP") == now.find_group("g2") == find_thing(now, "G2")


def test_groups_with_the_same_name_are_listed_with_their_ids() -> None:
    now = make_arrangement("app", "app")

    with pytest.raises(
        Mistake, match=r"'app' matches several groups: g2 \(/2/app\), g3 \(/3/app\); use the id of one of them"
    ):
        find_thing(now, "app")


def test_an_unknown_group_gets_the_nearest_names() -> None:
    with pytest.raises(Mistake, match=r"group 'biling' not found; did you mean 'billing'\? run podium group list"):
        make_arrangement("billing", "web").find_group("biling")


def test_a_name_of_no_group_is_that_of_a_run() -> None:
    now = make_arrangement("app", runs=("abc1", "abd2"))

    assert find_thing(now, "feat/a", run="abc1") == now.grouped_runs["abc1"]


def test_a_name_of_both_a_group_and_a_run_is_reported_as_ambiguous() -> None:
    now = make_arrangement("beef", runs=("beef01",))

    with pytest.raises(Mistake, match=r"name of a group and the start of a run id: g2 \(/2/beef\), beef01"):
        find_thing(now, "beef")
    assert find_thing(now, "g2") == now.groups[2]
    assert find_thing(now, "beef01") == now.grouped_runs["beef01"]


def test_a_deleted_run_is_reported_as_deleted() -> None:
    now = make_arrangement(runs=("abc1",))
    now.grouped_runs["abc1"] = GroupedRun(run="abc1", group=None)

    with pytest.raises(NoSuchRun, match="podium show abc1"):
        find_thing(now, "abc1")
    with pytest.raises(Mistake, match="group or run 'abc' not found"):
        find_thing(now, "abc")


@pytest.mark.parametrize("name", ["", "  ", "\n", "a\x1b[31mb", "a\nb", "right\u202eleft", "x" * (MAX_NAME_LENGTH + 1)])
def test_names_that_would_harm_a_list_are_refused(name: str) -> None:
    with pytest.raises(Mistake):
        validate_name(name)


def test_the_error_about_a_huge_name_is_short() -> None:
    with pytest.raises(Mistake) as refused:
        validate_name("x" * 1_000_000)
    with pytest.raises(Mistake) as unknown:
        find_thing(make_arrangement("app"), "x" * 1_000_000)

    assert max(len(str(refused.value)), len(str(unknown.value))) < 300


@pytest.mark.parametrize("name", ["g7", "APP"])
def test_a_group_cannot_have_a_name_that_means_another(name: str) -> None:
    now = make_arrangement("app", "web")

    with pytest.raises(Mistake):
        now.validate_group_name(now.groups[3], name)
    assert now.validate_group_name(now.groups[2], "App") == "App"


@pytest.mark.parametrize(
    ("mark", "main"),
    [
        ("gitdir: /shop/app/.git/worktrees/fix\n", "/shop/app"),
        ("gitdir: ../app/.git/worktrees/fix\n", "/shop/app"),
        ("gitdir: /shop/app.git/worktrees/fix\n", "/shop/app.git"),
        ("gitdir: ../.git/modules/fix\n", "/shop/fix"),
        ("something else", "/shop/fix"),
        ("gitdir:", "/shop/fix"),
        ("gitdir: /a\0b/.git/worktrees/x", "/shop/fix"),
    ],
)
def test_a_worktree_belongs_to_the_repository_that_its_git_file_names(mark: str, main: str) -> None:
    assert find_main_repository("/shop/fix", mark) == main


def test_groups_are_called_after_what_they_are_for() -> None:
    assert GroupKey("repo", "/a/app").default_name == "app"
    assert GroupKey("repo", "/").default_name == "/"
    assert GroupKey("team", "/a/app", "squad").default_name == "squad"
    assert len(GroupKey("team", "", "x" * 1000).default_name) == MAX_NAME_LENGTH
