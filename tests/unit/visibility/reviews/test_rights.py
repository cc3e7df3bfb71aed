"""What a user may ask with a review (0044)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from control_plane.pki import Pki

from gangsched.model.objects import Taint
from gangsched.visibility.ports import ApiAnswer, Json
from gangsched.visibility.reviews.rights import NAMESPACES, PRIORITY_CLASSES, Priorities
from gangsched.visibility.statuses import RequestRefused
from tests.builders import node
from tests.unit.visibility.serving import ALICE, REVIEWS, Api, proxy, served, told
from tests.world import World

CLASSES = [
    {"metadata": {"name": "high"}, "value": 1_000},
    {"metadata": {"name": "low"}, "value": 10, "globalDefault": True},
    {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000},
]


def quota(operator: str, *values: str, **hard: str) -> Json:
    """A ResourceQuota that counts pods of some PriorityClasses."""
    expression: Json = {"scopeName": "PriorityClass", "operator": operator}
    if values:
        expression["values"] = list(values)
    return {
        "spec": {"hard": hard or {"pods": "0"}, "scopeSelector": {"matchExpressions": [expression]}}
    }


def code_of(priorities: Priorities, name: str) -> int:
    """200, or the code of the refusal."""
    try:
        priorities.of_class(name, "field")
    except RequestRefused as refused:
        return refused.code
    return 200


@pytest.mark.parametrize(
    ("quotas", "highest", "codes"),
    [
        ([], 1_000, (200, 200, 403)),
        ([quota("In", "high")], 10, (403, 200, 403)),
        ([quota("In", "high", **{"count/pods": "0"})], 10, (403, 200, 403)),
        ([quota("In", "high", pods="5")], 1_000, (200, 200, 403)),
        ([quota("NotIn", "low")], 10, (403, 200, 403)),
        ([quota("Exists")], 0, (403, 403, 403)),
        ([{"spec": {"hard": {"pods": "0"}}}], 1_000, (200, 200, 403)),
    ],
)
def test_priorities_are_those_that_the_namespace_may_use(
    quotas: list[Json], highest: int, codes: tuple[int, int, int]
) -> None:
    """A quota of its scope with no pods keeps a class out, and a number is no way around; system-
    is kube-system's.
    """
    priorities = Priorities(CLASSES, quotas, "ns", is_master=False)
    assert (
        tuple(code_of(priorities, name) for name in ("high", "low", "system-node-critical"))
        == codes
    )
    assert priorities.of_number(highest) == highest
    with pytest.raises(RequestRefused) as refused:
        priorities.of_number(highest + 1)
    assert refused.value.code == 403
    assert Priorities(CLASSES, quotas, "ns", is_master=True).of_number(2**31 - 1) == 2**31 - 1
    assert (
        code_of(Priorities(CLASSES, [], "kube-system", is_master=False), "system-node-critical")
        == 200
    )
    assert code_of(priorities, "no-such") == 422


class Rights(Api):
    """An API server where alice may only what is named: verb, resource, namespace."""

    def __init__(self, pki: Pki, *rights: tuple[str, str, str]) -> None:
        super().__init__(pki)
        self.rights = {("create", "placementreviews", "ns"), *rights}

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        if path == PRIORITY_CLASSES or path.endswith("/resourcequotas"):
            return ApiAnswer(200, {"items": CLASSES if path == PRIORITY_CLASSES else []})
        if body is None:
            return await super().__call__(method, path, body)
        asked = body["spec"]["resourceAttributes"]
        return ApiAnswer(201, {"status": {"allowed": self._key(asked) in self.rights}})

    @staticmethod
    def _key(asked: Json) -> tuple[str, str, str]:
        return asked["verb"], asked["resource"], asked.get("namespace", "")


def review(gang: Json | None = None, **spec: Any) -> bytes:
    """A review of a pod that asks for a GPU."""
    limits = {"nvidia.com/gpu": "1"}
    template = {
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
            **spec,
        }
    }
    return json.dumps({"spec": {"gang": gang or {}, "podSets": [{"template": template}]}}).encode()


def affinity(**term: Any) -> Json:
    """Required affinity to some pods."""
    whole = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"secret": "merger"}},
        **term,
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [whole]}}


async def test_pods_of_other_namespaces_count_for_who_may_list_them(pki: Pki) -> None:
    """A term names namespaces or selects them: 403 unless pods may be listed in each, or in all."""
    headers = {"Content-Type": "application/json", **ALICE}
    own, theirs = review(affinity=affinity()), review(affinity=affinity(namespaces=["theirs"]))
    everybody = review(affinity=affinity(namespaceSelector={}))
    many = review(affinity=affinity(namespaces=[f"n{number}" for number in range(NAMESPACES + 1)]))
    expected = {
        (): (201, 403, 403),
        (("list", "pods", "theirs"),): (201, 201, 403),
        (("list", "pods", ""),): (201, 403, 201),
    }
    for rights, codes in expected.items():
        async with (
            served(World(node("a")).settle(), Rights(pki, *rights), pki) as url,
            proxy(pki) as itself,
        ):
            found = [
                (await itself.post(url + REVIEWS, headers=headers, data=each)).status
                for each in (own, theirs)
            ]
            found.append((await itself.post(url + REVIEWS, headers=headers, data=everybody)).status)
            assert tuple(found) == codes, rights
            assert (await itself.post(url + REVIEWS, headers=headers, data=many)).status == 422


async def test_a_priority_above_all_is_refused(pki: Pki) -> None:
    """How much any priority would preempt is not told."""
    headers = {"Content-Type": "application/json", **ALICE}
    async with served(World(node("a")).settle(), Rights(pki), pki) as url, proxy(pki) as itself:
        status, body = await told(
            await itself.post(url + REVIEWS, headers=headers, data=review({"priority": 1_001}))
        )
        assert (status, body["message"]) == (
            403,
            (
                "spec.gang.priority: it is above 1000, the highest that may be used in the"
                " namespace ns"
            ),
        )
        assert (
            await itself.post(url + REVIEWS, headers=headers, data=review({"priority": 1_000}))
        ).status == 201


async def test_values_of_taints_are_told_to_who_may_list_nodes(pki: Pki) -> None:
    """Neither the message nor the suggestions have one for others."""
    world = World(node("a", taints=[Taint("project", "merger", "NoSchedule")]))
    headers = {"Content-Type": "application/json", **ALICE}
    for rights, shown in (((), False), ((("list", "nodes", ""),), True)):
        async with served(world.settle(), Rights(pki, *rights), pki) as url, proxy(pki) as itself:
            answer = await itself.post(url + REVIEWS, headers=headers, data=review())
            status = (await told(answer))[1]["status"]
            assert ("merger" in json.dumps(status)) is shown, status
            value = "=merger" if shown else ""
            suggested = f"a toleration of project{value}:NoSchedule would let it start now"
            assert suggested in status["suggestions"]
            assert f"project{value}:NoSchedule" in status["message"]
