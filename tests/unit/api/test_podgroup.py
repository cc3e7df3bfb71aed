"""PodGroup objects are always readable; their status is written without noise (semantics
E3, E4).
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.keys import MODE, NAME, NATIVE, SIGS, X_K8S
from gangsched.api.podgroup import (
    Condition,
    PodGroupPhase,
    PodGroupStatus,
    parse_pod_group,
    stored_conditions,
    with_condition,
)
from gangsched.model.objects import ClaimEntry

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "minMember",
    "scheduleTimeoutSeconds",
    "minResources",
    "schedulingPolicy",
    "gang",
    "basic",
    "minCount",
    "cpu",
]
SPECS = st.dictionaries(
    st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON)
)


def body(
    spec: object, api_version: str = f"{X_K8S}/v1alpha1", **metadata: object
) -> dict[str, Any]:
    """A PodGroup ns/g as the API server returns it."""
    named = {
        "namespace": "ns",
        "name": "g",
        "uid": "u",
        "creationTimestamp": "2024-05-01T12:00:01Z",
        **metadata,
    }
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": named, "spec": spec}


@pytest.mark.parametrize("api_group", [X_K8S, SIGS])
def test_spec_of_both_crd_groups(api_group: str) -> None:
    """I3: minMember, minResources and scheduleTimeoutSeconds are read alike in both API groups."""
    spec = {
        "minMember": 3,
        "scheduleTimeoutSeconds": 90,
        "minResources": {"cpu": "1500m", "nvidia.com/gpu": 8},
    }
    group = parse_pod_group(
        body(spec, f"{api_group}/v1alpha1", annotations={MODE[0]: "NonStrict", NAME: "x"})
    )
    assert (group.api_group, group.version, group.id) == (api_group, "v1alpha1", "ns/g")
    assert (group.min_member, group.schedule_timeout_s) == (3, 90)
    assert group.min_resources == (("cpu", 1500), ("nvidia.com/gpu", 8))
    assert group.creation_s == 1714564801
    assert group.gang_metadata == ((MODE[0], "NonStrict"),)
    assert group.problems == ()


def test_absent_and_zero_values_are_no_problem() -> None:
    """I3: no spec at all, nulls, and a timeout of 0 are normal; minMember 0 is a minimum."""
    for spec in (
        None,
        {},
        {"minMember": None, "minResources": None, "scheduleTimeoutSeconds": 0, "queue": "x"},
    ):
        group = parse_pod_group(body(spec))
        assert (group.min_member, group.schedule_timeout_s, group.min_resources) == (None, None, ())
        assert group.problems == ()
    assert parse_pod_group(body({"minMember": 0})).min_member == 0


@pytest.mark.parametrize(
    ("policy", "min_member"),
    [
        ({"gang": {"minCount": 4}}, 4),
        ({"basic": {}}, 0),
        ({}, None),
        (None, None),
        ({"gang": {}}, None),
    ],
)
@pytest.mark.parametrize("version", ["v1alpha2", "v1alpha3", "v1beta1"])
def test_native_policy_is_a_minimum(policy: object, min_member: int | None, version: str) -> None:
    """I3: a native gang policy gives its minCount, the basic policy 0, whatever version
    serves it.
    """
    group = parse_pod_group(body({"schedulingPolicy": policy}, f"{NATIVE}/{version}"))
    assert group.min_member == min_member
    assert group.problems == ()


@pytest.mark.parametrize(
    ("mode", "indivisible", "singly"),
    [
        ("PodGroup", True, False),
        ({"all": {}}, True, False),
        ("Pod", False, True),
        ({"single": {}}, False, True),
        (None, False, False),
    ],
)
def test_native_disruption_mode_and_preemption_policy_count(
    mode: object, indivisible: bool, singly: bool
) -> None:
    """V2, V6: the mode is a word in Kubernetes 1.36 and an object later; other PodGroups have
    neither.
    """
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "disruptionMode": mode,
        "preemptionPolicy": "Never",
    }
    group = parse_pod_group(body(spec, f"{NATIVE}/v1alpha2"))
    assert (group.indivisible, group.disrupted_singly) == (indivisible, singly)
    assert (group.never_preempts, group.problems) == (True, ())
    other = parse_pod_group(body({"minMember": 2, **spec}))
    assert (other.indivisible, other.disrupted_singly, other.never_preempts) == (
        False,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schedulingConstraints", {"topology": [{"key": "rack", "mode": "Spread"}]}),
        ("schedulingConstraints", {"topology": [{"key": "rack"}], "other": [1]}),
        ("schedulingConstraints", {"topology": [{"key": "no label"}]}),
        ("resourceClaims", [{"name": "c"}]),
        (
            "resourceClaims",
            [
                {"name": "c", "resourceClaimName": "c"},
                {"name": "d", "resourceClaimName": "d", "x": 1},
            ],
        ),
        (
            "resourceClaims",
            [{"name": "c", "resourceClaimName": "c", "resourceClaimTemplateName": "c"}],
        ),
    ],
)
def test_native_fields_that_cannot_be_honoured_are_named(field: str, value: object) -> None:
    """A gang must not start as if its PodGroup asked for less than it does; what is empty asks for
    nothing.
    """
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    (refused,) = parse_pod_group(body({**spec, field: value}, f"{NATIVE}/v1alpha2")).unsupported
    assert refused.startswith(
        f"spec.{field} of PodGroup ns/g is not supported by gangsched yet: remove it"
    )
    empty = {
        "schedulingConstraints": {"topology": []},
        "resourceClaims": [],
        "parentCompositePodGroupName": "",
    }
    assert parse_pod_group(body({**spec, **empty}, f"{NATIVE}/v1alpha2")).unsupported == ()
    assert parse_pod_group(body({"minMember": 2, field: value})).unsupported == ()


def test_the_claims_of_a_native_group_are_read() -> None:
    """By name or by template."""
    claims = [
        {"name": "a", "resourceClaimName": "x"},
        {"name": "b", "resourceClaimTemplateName": "t"},
    ]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": claims}
    group = parse_pod_group(body(spec, f"{NATIVE}/v1beta1"))
    assert (group.claims, group.unsupported) == (
        (ClaimEntry("a", claim="x"), ClaimEntry("b", template="t")),
        (),
    )


def test_the_levels_of_a_native_group_are_read() -> None:
    """Every level that its scheduling constraints name is required."""
    levels = [{"key": "zone"}, {"key": "example.com/rack"}]
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": levels},
    }
    group = parse_pod_group(body(spec, f"{NATIVE}/v1alpha2"))
    assert (group.topology, group.unsupported) == (("example.com/rack", "zone"), ())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("minMember", -1),
        ("minMember", "3"),
        ("minMember", 2**31),
        ("minMember", True),
        ("minMember", 1.5),
        ("scheduleTimeoutSeconds", -5),
        ("scheduleTimeoutSeconds", "30s"),
        ("minResources", [1]),
    ],
)
def test_bad_value_is_left_out_and_told_and_its_neighbours_stay(key: str, value: object) -> None:
    """E4: a bad spec value is named with key, value and object, and the values beside it still
    count.
    """
    spec = {"minMember": 2, "scheduleTimeoutSeconds": 60, "minResources": {"cpu": "1"}}
    group = parse_pod_group(body({**spec, key: value}))
    taken = {
        "minMember": group.min_member,
        "scheduleTimeoutSeconds": group.schedule_timeout_s,
        "minResources": group.min_resources,
    }
    good = {"minMember": 2, "scheduleTimeoutSeconds": 60, "minResources": (("cpu", 1000),)}
    assert taken == {**good, key: () if key == "minResources" else None}
    (problem,) = group.problems
    assert problem.startswith(f"spec.{key} of PodGroup ns/g ")
    assert str(value) in problem


def test_bad_amounts_spoil_only_themselves() -> None:
    """E4: of minResources the good entries count; bad and negative ones are each told."""
    group = parse_pod_group(
        body({"minResources": {"cpu": "2", "memory": "lots", "pods": "-1", "x/y": [1]}})
    )
    assert group.min_resources == (("cpu", 2000),)
    assert [problem.split(" ")[0] for problem in group.problems] == [
        "spec.minResources.memory",
        "spec.minResources.pods",
        "spec.minResources.x/y",
    ]


def test_bad_native_count_is_told_by_its_path() -> None:
    """E4: a nested value is named by its whole path."""
    group = parse_pod_group(
        body({"schedulingPolicy": {"gang": {"minCount": "x"}}}, f"{NATIVE}/v1alpha2")
    )
    assert group.min_member is None
    assert group.problems[0].startswith("spec.schedulingPolicy.gang.minCount of PodGroup ns/g ")


@given(JSON | SPECS, st.sampled_from([X_K8S, NATIVE]))
def test_any_spec_is_readable(spec: object, api_group: str) -> None:
    """E4: no spec raises, however wrong; what is read is within bounds; each problem is one bounded
    sentence.
    """
    group = parse_pod_group(body(spec, f"{api_group}/v1alpha1"))
    assert group.min_member is None or group.min_member >= 0
    assert group.schedule_timeout_s is None or group.schedule_timeout_s > 0
    assert all(problem.endswith(".") and len(problem) < 500 for problem in group.problems)


@pytest.mark.parametrize("raw", [None, "", "yesterday", "2024-13-01T00:00:00Z", 5])
def test_bad_creation_time_is_told(raw: object) -> None:
    """Q1 needs a creation time; a bad one makes the oldest group, and says so."""
    group = parse_pod_group(body({}, creationTimestamp=raw))
    assert group.creation_s == 0
    assert group.problems[0].startswith("metadata.creationTimestamp ")


@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
@pytest.mark.parametrize("value", [None, "", 5])
def test_object_without_identity_is_an_error(key: str, value: object) -> None:
    """What has no name, namespace or uid is not an object of the API: the caller reports and skips
    it.
    """
    with pytest.raises(ValueError, match=r"^A PodGroup without"):
        parse_pod_group({**body({}), "metadata": {**body({})["metadata"], key: value}})


def test_list_items_take_their_version_from_the_list() -> None:
    """Items of a list may lack apiVersion; the caller then says it, and without either it is an
    error.
    """
    item = body({"minMember": 1}, "")
    group = parse_pod_group(item, api_group=SIGS, version="v1alpha1")
    assert (group.api_group, group.version) == (SIGS, "v1alpha1")
    with pytest.raises(ValueError, match="has no apiVersion"):
        parse_pod_group(item)


def test_status_leaves_out_what_it_does_not_know() -> None:
    """E3: a status patch names only what is known, in the API's spelling."""
    status = PodGroupStatus(phase=PodGroupPhase.PRE_SCHEDULING, scheduled=0, occupied_by="ns/job")
    assert status.to_dict() == {"phase": "PreScheduling", "scheduled": 0, "occupiedBy": "ns/job"}
    assert PodGroupStatus().to_dict() == {}


def condition(kind: str, status: str, when: str) -> Condition:
    """A condition as written at `when`."""
    return Condition(
        type=kind,
        status=status,
        reason="R",
        message="m",
        last_transition_time=when,
        observed_generation=2,
    )


def test_conditions_survive_a_round_trip() -> None:
    """E3: conditions are written as metav1 has them and read back equal; rubbish beside them is
    left out.
    """
    written = PodGroupStatus(
        conditions=(condition("Degraded", "True", "2024-05-01T00:00:00Z"),)
    ).to_dict()
    entry = {
        "type": "Degraded",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2024-05-01T00:00:00Z",
        "observedGeneration": 2,
    }
    assert written == {"conditions": [entry]}
    assert stored_conditions({"conditions": [entry, 5, {"type": "x"}]}) == (
        condition("Degraded", "True", "2024-05-01T00:00:00Z"),
    )
    assert stored_conditions({}) == stored_conditions({"conditions": "none"}) == ()


def test_transition_time_moves_only_with_the_status() -> None:
    """E3: writing the same status again keeps its lastTransitionTime and its place; other types
    stay.
    """
    old = (condition("A", "True", "t1"), condition("B", "True", "t1"))
    assert with_condition(old, condition("A", "True", "t2")) == old
    assert with_condition(old, condition("A", "False", "t2")) == (
        condition("A", "False", "t2"),
        old[1],
    )
    assert with_condition(old, condition("C", "True", "t2")) == (*old, condition("C", "True", "t2"))


def test_problems_of_one_pod_group_are_bounded() -> None:
    """E4: a thousand bad amounts under names of a kilobyte are neither told nor kept one by one."""
    bad = {f"{number}" + "x" * 500: "much" for number in range(1000)}
    read = parse_pod_group(
        {
            "apiVersion": f"{X_K8S}/v1alpha1",
            "metadata": {
                "name": "g",
                "namespace": "ns",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"minResources": bad},
        }
    )
    assert len(read.problems) == 20
    assert all(len(problem) < 1000 for problem in read.problems)
