"""What a gang is, from its pods and its PodGroup: identity (semantics I2), values (I3), problems
(E4).
"""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api import keys, values
from gangsched.api.dialects.kueue import KUEUE_PLACES
from gangsched.api.gang_identity import GangRef, gang_id
from gangsched.api.gang_spec import GangDefaults, GangSpec, MatchPolicy, Mode, gang_spec
from gangsched.api.slice_layers import parse_slices
from gangsched.model.objects import Pod, PodGroup, Shape

ROOT = Path(__file__).parents[3]
SHAPE = Shape(requests=(("pods", 1),))
DEFAULTS = GangDefaults()
MIN, TOTAL, MODE, WAIT, GROUPS, POLICY = (
    names[0]
    for names in (keys.MIN, keys.TOTAL, keys.MODE, keys.WAIT_TIME, keys.GROUPS, keys.MATCH_POLICY)
)


def pod(
    name: str = "a",
    gang_metadata: Mapping[str, str] | None = None,
    *,
    age: int = 0,
    native_group: str = "",
) -> Pod:
    """A pod ns/name, created at second `age`."""
    return Pod(
        uid=name,
        namespace="ns",
        name=name,
        creation_s=age,
        shape=SHAPE,
        gang_metadata=tuple(sorted((gang_metadata or {}).items())),
        native_group=native_group,
    )


def pod_group(
    gang_metadata: Mapping[str, str] | None = None,
    *,
    min_member: int | None = None,
    timeout_s: int | None = None,
    problems: tuple[str, ...] = (),
) -> PodGroup:
    """A PodGroup ns/g as it was read."""
    return PodGroup(
        api_group=keys.X_K8S,
        version="v1alpha1",
        namespace="ns",
        name="g",
        uid="u",
        creation_s=0,
        gang_metadata=tuple(sorted((gang_metadata or {}).items())),
        min_member=min_member,
        schedule_timeout_s=timeout_s,
        min_resources=(("cpu", 1000),),
        problems=problems,
    )


def spec_of(*pods: Pod, group: PodGroup | None = None, needs: bool = False) -> GangSpec:
    """The spec of gang ns/g."""
    return gang_spec("ns/g", pods, group, needs_pod_group=needs, defaults=DEFAULTS)


def source(spec: GangSpec, value: str) -> str:
    """Where a value of the spec comes from."""
    return dict(spec.sources)[value]


def test_plain_pod_is_in_no_gang() -> None:
    """I2: without a name there is no gang, even with a minimum."""
    assert gang_id(pod()) is None
    assert gang_id(pod(gang_metadata={MIN: "3"})) is None


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(keys.IDENTITIES, 2)))
def test_first_identity_wins(stronger: keys.GangKey, weaker: keys.GangKey) -> None:
    """I2: of several names the first in the table counts, and it says whether a PodGroup must
    exist.
    """
    gang_metadata = {stronger.key: "strong", weaker.key: "weak"}
    of = (stronger.needs_pod_group, stronger.api_groups)
    assert gang_id(pod(gang_metadata=gang_metadata)) == GangRef("ns/strong", *of)
    assert gang_id(pod(gang_metadata={weaker.key: "weak"})) == GangRef(
        "ns/weak", weaker.needs_pod_group, weaker.api_groups
    )


def test_names_that_need_a_pod_group() -> None:
    """I2: as its table says, some marks name an object; the others are complete in themselves."""
    page = (ROOT / "docs" / "semantics" / "identity.md").read_text()
    rows = re.findall(r"(?m)^\| \d+ \| (\w+) \| `([^`]+)`[^|]* \| (\w+)", page)
    told = [(where, key.replace("K/", keys.K), needs == "yes") for where, key, needs in rows]
    known = [
        ("label" if mark.label else "annotation", mark.key, mark.needs_pod_group)
        for mark in keys.IDENTITIES
    ]
    assert told == known
    assert 4 <= sum(needs for _, _, needs in told) < len(told)


def test_native_group_is_the_last_identity() -> None:
    """I2: spec.schedulingGroup names a native PodGroup, unless a mark names a gang."""
    assert gang_id(pod(native_group="n")) == GangRef("ns/n", True, (keys.NATIVE,))
    assert gang_id(pod(gang_metadata={keys.NAME: "g"}, native_group="n")) == GangRef(
        "ns/g", False, (keys.X_K8S, keys.SIGS)
    )


def test_missing_pod_group_keeps_a_gang_waiting() -> None:
    """I2: a gang whose PodGroup must exist is uninitialised without it, whatever its pods say."""
    spec = spec_of(pod(gang_metadata={MIN: "2"}), needs=True)
    assert spec.pod_group_missing
    assert spec.waiting_for == "PodGroup ns/g does not exist"
    assert spec_of(pod(gang_metadata={MIN: "2"}), needs=True, group=pod_group()).waiting_for is None


def test_gang_without_any_minimum_waits_and_says_how_to_go_on() -> None:
    """I3: no minimum anywhere is not guessed: the gang is uninitialised and the sentence names the
    cure.
    """
    spec = spec_of(pod(gang_metadata={keys.NAME: "g"}))
    assert spec.min_member is None
    assert not spec.pod_group_missing
    assert spec.waiting_for is not None
    assert MIN in spec.waiting_for
    assert source(spec, "min") == "none"


def test_defaults_of_a_bare_gang() -> None:
    """I3: everything but the minimum has a default, and the default is named as the source."""
    spec = spec_of(pod(gang_metadata={keys.NAME: "g", MIN: "3"}))
    assert (spec.min_member, spec.total, spec.mode, spec.wait_time_s) == (3, 3, Mode.STRICT, 600.0)
    assert (spec.group, spec.match_policy, spec.min_resources) == (
        ("ns/g",),
        MatchPolicy.ONCE_SATISFIED,
        (),
    )
    assert spec.sources == (
        ("min", f"{MIN} of pod ns/a"),
        ("total", "min"),
        ("mode", "default"),
        ("wait time", "default"),
        ("groups", "default"),
        ("match policy", "default"),
        ("minResources", "none"),
        ("shared GPUs", "none"),
        ("GPU product", "none"),
        ("topology", "none"),
        ("topology for Kueue", "none"),
        ("preferred topology", "none"),
        ("slices", "none"),
        ("preemption delay", "default"),
        ("parent", "none"),
        ("min children", "none"),
    )
    assert spec.problems == ()


def test_the_longest_preemption_delay_of_the_members_counts() -> None:
    """V28: whoever is older; else the PodGroup's, else the setting; a longer one than is allowed is
    cut.
    """
    ours, kais = keys.PREEMPTION_DELAY
    two = [pod("a", gang_metadata={ours: "1m"}), pod("b", gang_metadata={ours: "5m"})]
    assert spec_of(*two, group=pod_group({ours: "10m"})).preemption_delay_s == 300
    assert (
        spec_of(pod(gang_metadata={kais: "2m"}), group=pod_group({ours: "10m"})).preemption_delay_s
        == 120
    )
    assert spec_of(pod(gang_metadata={ours: "5", kais: "2m"})).preemption_delay_s == 120
    assert spec_of(pod(), group=pod_group({kais: "10m"})).preemption_delay_s == 600
    assert spec_of(*two).problems == ()
    cut = spec_of(pod(gang_metadata={ours: "48h"}))
    assert (cut.preemption_delay_s, [problem.key for problem in cut.problems]) == (3600, [ours])


def test_zero_is_a_minimum() -> None:
    """I3: min 0 means that every member goes alone; it is not a missing minimum."""
    spec = spec_of(pod(gang_metadata={MIN: "0"}))
    assert (spec.min_member, spec.total, spec.waiting_for) == (0, 0, None)


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.pairwise(keys.MIN)))
def test_first_minimum_key_wins(stronger: str, weaker: str) -> None:
    """I3: of several keys for the minimum on one pod the first in the table counts."""
    assert spec_of(pod(gang_metadata={stronger: "4", weaker: "5"})).min_member == 4
    assert spec_of(pod(gang_metadata={weaker: "5"})).min_member == 5


def test_a_pod_overrides_the_pod_group_and_its_annotation_the_spec() -> None:
    """I3: pod, then PodGroup annotation, then PodGroup spec, then default, for each value on its
    own.
    """
    said = {
        MIN: "7",
        WAIT: "7s",
        MODE: "NonStrict",
        POLICY: "only-waiting",
        TOTAL: "9",
        GROUPS: '["ns/g", "ns/h"]',
    }
    annotated = pod_group({MIN: "5", WAIT: "5s"}, min_member=3, timeout_s=3)
    bare = pod_group(min_member=3, timeout_s=3)

    strongest = spec_of(pod(gang_metadata=said), group=annotated)
    assert (strongest.min_member, strongest.wait_time_s, strongest.total) == (7, 7.0, 9)
    assert (strongest.mode, strongest.match_policy) == (Mode.NON_STRICT, MatchPolicy.ONLY_WAITING)
    assert strongest.group == ("ns/g", "ns/h")
    assert source(strongest, "wait time") == f"{WAIT} of pod ns/a"

    middle = spec_of(pod(), group=annotated)
    assert (middle.min_member, middle.wait_time_s) == (5, 5.0)
    assert source(middle, "min") == f"{MIN} of PodGroup ns/g"

    weakest = spec_of(pod(), group=bare)
    assert (weakest.min_member, weakest.wait_time_s) == (3, 3.0)
    assert source(weakest, "min") == "spec.minMember of PodGroup ns/g"
    assert source(weakest, "wait time") == "spec.scheduleTimeoutSeconds of PodGroup ns/g"
    assert weakest.min_resources == (("cpu", 1000),)
    assert strongest.problems == middle.problems == weakest.problems == ()


def test_gang_without_pods_is_what_its_pod_group_says() -> None:
    """I2: a PodGroup may come before its pods."""
    spec = spec_of(group=pod_group({MODE: "NonStrict"}, min_member=2), needs=True)
    assert (spec.min_member, spec.mode, spec.waiting_for) == (2, Mode.NON_STRICT, None)


@pytest.mark.parametrize("bad", ["abc", "-1", "", "1.5"])
def test_bad_minimum_spoils_only_its_source(bad: str) -> None:
    """I3, E4: a bad minimum is told with key, value and replacement, and the next source counts."""
    spec = spec_of(pod(gang_metadata={MIN: bad}), group=pod_group(min_member=3))
    assert spec.min_member == 3
    (problem,) = spec.problems
    assert (problem.key, problem.value, problem.pod) == (MIN, f'"{bad}"', "ns/a")
    assert problem.used == "3 (spec.minMember of PodGroup ns/g)"
    assert problem.text == (
        f"{MIN} of pod ns/a is not an integer from 0 to 2147483647: "
        f'"{bad}". Used instead: 3 (spec.minMember of PodGroup ns/g).'
    )


@pytest.mark.parametrize("text", ["3" + " " * 4096, "ü" * 2049])
def test_value_over_four_kib_is_bad(text: str) -> None:
    """I3, E4: however it would parse, a longer text counts as bad, and is shown cut."""
    spec = spec_of(pod(gang_metadata={MIN: text, MODE: text}), group=pod_group(min_member=3))
    assert (spec.min_member, spec.mode) == (3, Mode.STRICT)
    assert [problem.key for problem in spec.problems] == [MIN, MODE]
    assert all("is longer than 4096 bytes" in problem.text for problem in spec.problems)
    assert all(len(problem.text) < 400 for problem in spec.problems)


def test_gang_with_a_name_over_four_kib_waits() -> None:
    """I2: no object has such a name; the gang is uninitialised and the sentence says why."""
    spec = gang_spec(
        "ns/" + "g" * 5000,
        [pod(gang_metadata={MIN: "1"})],
        None,
        needs_pod_group=False,
        defaults=DEFAULTS,
    )
    assert spec.waiting_for is not None
    assert spec.waiting_for.endswith("is longer than 4096 bytes")
    assert len(spec.waiting_for) < 500


def test_second_key_replaces_a_bad_first_one() -> None:
    """I3: "first that is present and valid" holds among the keys of one pod, too."""
    spec = spec_of(pod(gang_metadata={keys.MIN[0]: "x", keys.MIN[1]: "4"}))
    assert spec.min_member == 4
    assert [problem.key for problem in spec.problems] == [keys.MIN[0]]


@pytest.mark.parametrize(
    ("key", "bad", "value", "expected"),
    [
        (MODE, "strict", "mode", Mode.STRICT),
        (MODE, "", "mode", Mode.STRICT),
        (WAIT, "soon", "wait_time_s", 600.0),
        (WAIT, "-5s", "wait_time_s", 600.0),
        (GROUPS, "ns/g,ns/h", "group", ("ns/g",)),
        (POLICY, "sometimes", "match_policy", MatchPolicy.ONCE_SATISFIED),
        (TOTAL, "many", "total", 2),
        (TOTAL, "1", "total", 2),
    ],
)
def test_bad_value_falls_back_as_documented(
    key: str, bad: str, value: str, expected: object
) -> None:
    """I3, E4: each bad value has the fallback of the table and one problem that names it."""
    spec = spec_of(pod(gang_metadata={MIN: "2", key: bad}))
    assert getattr(spec, value) == expected
    (problem,) = spec.problems
    assert (problem.key, problem.value) == (key, f'"{bad}"')
    assert problem.used in problem.text


def test_a_value_for_which_the_gang_waits_is_told_once() -> None:
    """E4: while a gang waits for a valid topology, nothing is used instead of the bad one."""
    spec = spec_of(pod(gang_metadata={MIN: "2", keys.TOPOLOGY[0]: "no label", TOTAL: "many"}))
    assert spec.waiting_for is not None
    assert 'Correct or remove "no label"' in spec.waiting_for
    assert [problem.key for problem in spec.problems] == [TOTAL]


def test_zero_wait_time_means_the_default_without_a_word() -> None:
    """I3: 0 is what operators write for "default"."""
    spec = spec_of(pod(gang_metadata={MIN: "2", WAIT: "0"}), group=pod_group(timeout_s=90))
    assert spec.wait_time_s == 90.0
    assert spec.problems == ()


def test_wait_time_is_capped_and_the_cap_is_told() -> None:
    """T2: nobody holds room for days; the setting says for how long, and the gang is told."""
    assert spec_of(pod(gang_metadata={MIN: "2", WAIT: "1h"})).problems == ()
    spec = spec_of(pod(gang_metadata={MIN: "2", WAIT: "8760h"}))
    assert spec.wait_time_s == 3600.0
    (problem,) = spec.problems
    assert "wait time 31536000s" in problem.text
    assert "Used instead: 3600s (hold_max_s)" in problem.text
    stated = spec_of(pod(gang_metadata={MIN: "2"}), group=pod_group(timeout_s=7200))
    assert (stated.wait_time_s, len(stated.problems)) == (3600.0, 1)


def test_settings_are_the_defaults() -> None:
    """I3: wait time and match policy default to what the administrator set."""
    defaults = GangDefaults(wait_time_s=30.0, match_policy=MatchPolicy.WAITING_AND_RUNNING)
    spec = gang_spec(
        "ns/g", [pod(gang_metadata={MIN: "1"})], None, needs_pod_group=False, defaults=defaults
    )
    assert (spec.wait_time_s, spec.match_policy) == (30.0, MatchPolicy.WAITING_AND_RUNNING)


def test_oldest_pod_decides_and_the_others_are_named() -> None:
    """I3: of pods that disagree the oldest decides, by creation and then by name, and a problem
    names the others.
    """
    pods = [pod("b", {MIN: "3"}, age=1), pod("a", {MIN: "4"}, age=1), pod("0", {MIN: "5"}, age=2)]
    spec = spec_of(*pods)
    assert spec.min_member == 4
    (problem,) = spec.problems
    assert (problem.key, problem.pod, problem.used) == (MIN, "ns/b", f"4 ({MIN} of pod ns/a)")
    assert "ns/b, ns/0" in problem.text


def test_pods_that_spell_one_value_differently_do_not_disagree() -> None:
    """I3: it is values that disagree, not texts."""
    pods = [pod("a", {MIN: "2", WAIT: "60s"}), pod("b", {MIN: "+2", WAIT: "1m"}, age=1)]
    assert spec_of(*pods).problems == ()


def test_pod_that_says_nothing_disagrees_with_nobody() -> None:
    """I3: a younger pod's value counts when the oldest and the PodGroup state none, and silence is
    not a problem.
    """
    silent, said = pod("a"), pod("b", {MIN: "3", MODE: "NonStrict"}, age=1)
    spec = spec_of(silent, said)
    assert (spec.min_member, spec.mode, spec.problems) == (3, Mode.NON_STRICT, ())
    assert (
        spec_of(pod("a", {MIN: "3"}), pod("b", age=1), group=pod_group(min_member=2)).problems == ()
    )


def test_late_pod_cannot_change_a_gang_its_pod_group_describes() -> None:
    """I3: the oldest pod, which says nothing, goes by the PodGroup; a younger one that says
    otherwise is named.
    """
    spec = spec_of(pod("a"), pod("z", {MIN: "9"}, age=5), group=pod_group(min_member=2))
    assert spec.min_member == 2
    assert [problem.pod for problem in spec.problems] == ["ns/z"]


def test_many_pods_that_disagree_make_one_bounded_problem() -> None:
    """E4: a thousand wrong pods are one Event, not a thousand."""
    pods = [pod("a", {MIN: "2"})] + [
        pod(f"p{i:03}", {MIN: "x" if i % 2 else "3"}, age=1 + i) for i in range(200)
    ]
    problems = spec_of(*pods).problems
    assert len(problems) == 2
    assert any("and 95 more" in problem.text for problem in problems)


def test_group_is_sorted_and_holds_the_gang() -> None:
    """I3: the groups list names siblings in any order, as often as it likes."""
    spec = spec_of(pod(gang_metadata={MIN: "1", GROUPS: '["x/b", "ns/g", "x/a", "x/b"]'}))
    assert (spec.group, spec.group_problem) == (("ns/g", "x/a", "x/b"), None)


def test_group_without_the_gang_itself_is_kept_for_refusal() -> None:
    """I4: a list that leaves out its own gang is not silently mended."""
    spec = spec_of(pod(gang_metadata={MIN: "1", GROUPS: '["x/b", "x/a"]'}))
    assert spec.group == ("x/a", "x/b")
    assert spec.group_problem == f'{GROUPS} of pod ns/a lists "x/a, x/b" but not ns/g itself'


def test_problems_of_the_pod_group_are_passed_on() -> None:
    """E4: what was wrong with the PodGroup's spec is told with the gang's other problems."""
    spec = spec_of(
        pod(gang_metadata={MIN: "2"}), group=pod_group(problems=("spec.minMember is bad.",))
    )
    assert [(problem.key, problem.text) for problem in spec.problems] == [
        ("spec", "spec.minMember is bad.")
    ]


VALID = {
    MIN: "2",
    TOTAL: "4",
    MODE: "NonStrict",
    WAIT: "30s",
    GROUPS: '["ns/g"]',
    POLICY: "only-waiting",
}
TEXT = st.text(st.characters(), max_size=100) | st.sampled_from(
    ["", "0", "-1", "2", *VALID.values(), "[", "1h-", "x" * 999]
)
MARKS = st.dictionaries(st.sampled_from(sorted(keys.VALUE_KEYS)), TEXT)
PODS = st.lists(st.tuples(MARKS, st.integers(0, 2)), max_size=4).map(
    lambda drawn: [
        pod(f"p{i}", gang_metadata, age=age) for i, (gang_metadata, age) in enumerate(drawn)
    ]
)
GROUPS_OR_NONE = st.none() | st.builds(
    pod_group,
    MARKS,
    min_member=st.none() | st.integers(0, 9),
    timeout_s=st.none() | st.integers(1, 99),
)
PARSERS = {
    keys.MIN: values.parse_count,
    keys.TOTAL: values.parse_count,
    keys.MODE: values.parse_mode,
    keys.WAIT_TIME: values.parse_wait_time,
    keys.GROUPS: values.parse_groups,
    keys.PARENT: values.parse_parent,
    keys.MIN_CHILDREN: values.parse_count,
    keys.DISRUPTION: values.parse_disruption,
    keys.KEEP_ROOM: values.parse_flag,
    keys.AVOID_BAD_NODES: values.parse_strikes,
    keys.MATCH_POLICY: values.parse_match_policy,
    keys.ALLOW_SHARED_GPUS: values.parse_flag,
    keys.GPU_PRODUCT: values.parse_gpu_product,
    keys.TOPOLOGY: values.parse_topology,
    keys.PREFERRED_TOPOLOGY: values.parse_level,
    keys.KUEUE_TOPOLOGY: values.parse_level,
    keys.SLICES: parse_slices,
    keys.PREEMPTION_DELAY: values.parse_delay,
    keys.PROVISIONING_CLASS: values.parse_class,
}


def is_bad(key: str, text: str) -> bool:
    """Whether `text` is outside the grammar of `key`."""
    (parse,) = (parser for names, parser in PARSERS.items() if key in names)
    try:
        parse(text)
    except values.BadValue:
        return True
    return False


@given(PODS, GROUPS_OR_NONE, st.booleans())
def test_any_text_in_any_key_gives_a_spec(
    pods: list[Pod], group: PodGroup | None, needs: bool
) -> None:
    """E4: nothing users write raises; values are within bounds, each has a source, every text is
    bounded.
    """
    spec = gang_spec("ns/g", pods, group, needs_pod_group=needs, defaults=DEFAULTS)
    assert spec.min_member is None or spec.min_member >= 0
    assert spec.total >= (spec.min_member or 0)
    assert spec.wait_time_s > 0
    assert list(spec.group) == sorted(set(spec.group))
    assert ("ns/g" in spec.group and not (spec.parent and len(spec.group) > 1)) == (
        spec.group_problem is None
    )
    marks = [each.gang_metadata for each in pods] + ([group.gang_metadata] if group else [])
    placing = (*keys.TOPOLOGY, *keys.KUEUE_TOPOLOGY, *keys.SLICES, *keys.PARENT, *keys.MIN_CHILDREN)
    texts = [(key, dict(each).get(key)) for each in marks for key in placing]
    unreadable = any(is_bad(key, text) for key, text in texts if text is not None)
    unreadable |= any(
        len({dict(each.gang_metadata).get(key) for each in pods}) > 1 for key in KUEUE_PLACES
    )
    layers = spec.constraints.slices
    waits = spec.min_member is None or spec.pod_group_missing or unreadable
    keeps = any(dict(each).get(keys.KEEP_ROOM[0]) == "true" for each in marks)
    waits |= keeps and keys.KEEP_ROOM[0] in (spec.waiting_for or "")
    assert (spec.waiting_for is not None) == (waits or bool(layers and layers[0].size > spec.total))
    assert not (layers or spec.parent) or spec.mode is Mode.STRICT
    assert len(spec.sources) == 16 + len(spec.rare)
    assert dict(spec.rare).keys() <= dict(spec.sources).keys()
    assert all(len(problem.text) < 1000 and problem.text.isprintable() for problem in spec.problems)


def test_a_topology_that_cannot_be_read_keeps_the_gang_waiting() -> None:
    """I3: started anywhere, a gang that asked for one rack would be in two because of a typing
    error.
    """
    bad = {keys.TOPOLOGY[0]: "no label"}
    group = pod_group(min_member=2)
    for spec in (
        spec_of(pod(gang_metadata=bad), group=group),
        spec_of(pod(), group=pod_group(bad, min_member=2)),
    ):
        assert spec.waiting_for is not None
        assert "gangsched.dev/topology of " in spec.waiting_for
        assert spec.waiting_for.endswith('is not a label key. Correct or remove "no label"')
    assert spec_of(pod(gang_metadata={keys.TOPOLOGY[0]: "rack"}), group=group).waiting_for is None


@given(PODS)
def test_order_of_pods_does_not_matter(pods: list[Pod]) -> None:
    """I3: the same pods, seen in another order, make the same gang and the same problems."""
    assert spec_of(*pods) == spec_of(*reversed(pods))


@given(st.sampled_from(sorted(keys.VALUE_KEYS)), TEXT, st.booleans())
def test_every_bad_value_is_told_and_no_good_one(key: str, text: str, on_pod: bool) -> None:
    """E4: a text outside its grammar is exactly one problem, on a pod as on a PodGroup, and never
    used.
    """
    pods, group = (
        ([pod(gang_metadata={key: text})], pod_group())
        if on_pod
        else ([pod()], pod_group({key: text}))
    )
    spec = spec_of(*pods, group=group)
    assert [problem.key for problem in spec.problems] == ([key] if is_bad(key, text) else [])
    if is_bad(key, text):
        untouched = spec_of(pod(), group=pod_group())
        assert (
            spec.min_member,
            spec.total,
            spec.mode,
            spec.wait_time_s,
            spec.group,
            spec.match_policy,
        ) == (
            untouched.min_member,
            untouched.total,
            untouched.mode,
            untouched.wait_time_s,
            untouched.group,
            untouched.match_policy,
        )
