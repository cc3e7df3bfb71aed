"""Volumes in the core: what claims allow, what they take, and how refusals read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.filter.volumes.claim_needs import UNITS_PER_NEEDS
from gangsched.core.filter.volumes.storage_use import StorageUse
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Group
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, Node, NodeSelectorTerm, Pod
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.storage import (
    NO_PROVISIONER,
    Claim,
    ClaimRef,
    CsiNode,
    Storage,
    StorageClass,
    StorageObject,
    Volume,
    storage_key,
)
from gangsched.sentences import say
from tests.builders import NAMESPACE, gang, group, node, pod, snapshot, verdict_on, where

ZONE = "topology.kubernetes.io/zone"
LATE = StorageClass(name="late", provisioner="csi.test", waits=True)
LOCAL = StorageClass(name="local", provisioner=NO_PROVISIONER, waits=True)
NOW = StorageClass(name="now", provisioner="csi.test")
Placed = Iterable[tuple[Pod, str]]


def in_zone(*zones: str) -> tuple[NodeSelectorTerm, ...]:
    """Node affinity of a volume in these zones."""
    return (NodeSelectorTerm(labels=(Requirement(ZONE, "In", zones),)),)


def on_node(name: str) -> tuple[NodeSelectorTerm, ...]:
    """Node affinity of a local volume."""
    return (NodeSelectorTerm(labels=(Requirement("kubernetes.io/hostname", "In", (name,)),)),)


def claim(name: str, **fields: Any) -> Claim:
    """A claim of 1 GiB, bound to the volume `v-<name>` unless a class is given."""
    bound = {} if "storage_class" in fields else {"volume_name": f"v-{name}", "bound": True}
    given = {"uid": f"uid-{name}", "request_bytes": 2**30, "access_modes": ("ReadWriteOnce",)}
    return Claim(namespace=NAMESPACE, name=name, **{**given, **bound, **fields})


def volume(name: str, **fields: Any) -> Volume:
    """A free volume of 1 GiB."""
    given = {"capacity_bytes": 2**30, "access_modes": ("ReadWriteOnce",), "available": True}
    return Volume(name=name, **{**given, **fields})


def storage(*items: StorageObject, placed: Placed = (), shared: Iterable[str] = ()) -> Storage:
    """These objects, used by these pods."""
    kinds: dict[type, dict[str, Any]] = {Claim: {}, Volume: {}, StorageClass: {}, CsiNode: {}}
    for each in (*items, LATE, LOCAL, NOW):
        kinds[type(each)][storage_key(each)] = each
    users = {each.uid: (each, name) for each, name in placed}
    return Storage(
        kinds[Claim],
        kinds[Volume],
        kinds[StorageClass],
        kinds[CsiNode],
        users=users,
        shared={f"{NAMESPACE}/{name}": 2 for name in shared},
    )


def using(name: str, *claims: str, **fields: Any) -> Pod:
    """A pod with these claims; `volume:name` is one that is made for it."""
    uses = tuple(
        ClaimUse(each.removeprefix("volume:"), each.startswith("volume:")) for each in claims
    )
    return pod(name, claims=uses, **fields)


def decide(
    nodes: Sequence[Node], store: Storage, *pods: Pod, placed: Placed = (), **fields: Any
) -> Verdict:
    """The verdict on a Strict gang of these pods."""
    seen = structs.replace(snapshot(nodes, placed), storage=store)
    queue: list[Group] = [group(gang("ns/g", pods, **fields))]
    return verdict_on(plan(seen, queue, now_s=0.0), "ns/g")


def alone(nodes: Sequence[Node], store: Storage, one: Pod, *, placed: Placed = ()) -> Verdict:
    """The verdict on a plain pod."""
    return decide(nodes, store, one, placed=placed, plain=True, min_member=1)


TWO_ZONES = [node("a1", labels={ZONE: "a"}), node("b1", labels={ZONE: "b"})]


def test_bound_volumes_keep_members_in_their_zones() -> None:
    """Each member goes where the node affinity of its bound volume lets it, whatever
    packs better.
    """
    store = storage(
        *(claim(f"c{i}") for i in range(4)),
        *(volume(f"v-c{i}", required=in_zone("b" if i % 2 else "a")) for i in range(4)),
    )
    verdict = decide(TWO_ZONES, store, *(using(f"p{i}", f"c{i}") for i in range(4)))
    assert where(verdict) == {"p0": "a1", "p1": "b1", "p2": "a1", "p3": "b1"}
    assert all(placement.claims == () for placement in verdict.binds)


def test_a_volume_out_of_reach_is_said_as_kube_scheduler_says_it() -> None:
    """Room comes before volumes, and each node counts once."""
    store = storage(claim("c"), volume("v-c", required=in_zone("z")))
    full = node("full", gpus=0)
    assert (
        say(alone([*TWO_ZONES, full], store, using("p", "c")).told).now
        == "no node takes it. 0/3 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "2 node(s) didn't match PersistentVolume's node affinity."
    )


def test_zone_labels_of_bound_volumes() -> None:
    """Zone labels count on nodes that have any; old labels are met by new ones, `a__b` means
    either.
    """
    old = "failure-domain.beta.kubernetes.io/zone"
    bare, both = node("bare"), volume("v-c", zones=((old, ("a", "z")),))
    assert where(alone(TWO_ZONES, storage(claim("c"), both), using("p", "c"))) == {"p": "a1"}
    no = storage(claim("c"), volume("v-c", zones=((ZONE, ("z",)),)))
    assert (
        say(alone(TWO_ZONES, no, using("p", "c")).told).text
        == "0/2 nodes are available: 2 node(s) had no available volume zone."
    )
    assert where(alone([*TWO_ZONES, bare], no, using("p", "c"))) == {"p": "bare"}


PROBLEMS: dict[str, tuple[tuple[StorageObject, ...], str, str]] = {
    "missing": ((), "c", 'persistentvolumeclaim "c" not found'),
    "ephemeral missing": (
        (),
        "volume:p-data",
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data"',
    ),
    "deleting": ((claim("c", deleting=True),), "c", 'persistentvolumeclaim "c" is being deleted'),
    "lost": (
        (claim("c", lost=True),),
        "c",
        'persistentvolumeclaim "c" bound to non-existent persistentvolume "v-c"',
    ),
    "immediate": (
        (claim("c", storage_class="now"),),
        "c",
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "no class": (
        (claim("c", storage_class=""),),
        "c",
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "half bound": (
        (claim("c", bound=False),),
        "c",
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "no volume": ((claim("c"),), "c", 'persistentvolume "v-c" not found'),
    "not its own": (
        (claim("p-data", owner_uid="other"),),
        "volume:p-data",
        "PVC ns/p-data was not created for pod ns/p (pod is not owner)",
    ),
}


def test_claims_that_rule_out_every_node() -> None:
    """What VolumeBinding's PreFilter refuses is told instead of the nodes, and a new node is not
    asked for (E1).
    """
    for name, (items, use, said) in PROBLEMS.items():
        verdict = alone([node("full", gpus=0)], storage(*items), using("p", use))
        assert say(verdict.told).text == f"0/1 nodes are available: {said}.", name
        assert verdict.notes[0][1].reason is Reason.WAITING_FOR_VOLUMES, name
    store = storage(claim("c0"), volume("v-c0"), claim("c1", storage_class="now"))
    verdict = decide([node("n")], store, using("p0", "c0"), using("p1", "c1"))
    assert (verdict.reason, verdict.binds) == (Reason.WAITING_FOR_VOLUMES, ())
    assert (
        say(verdict.told).text
        == "gang ns/g waits for pod ns/p1: pod has unbound immediate PersistentVolumeClaims"
    )


def test_claims_that_wait_for_a_node_are_provisioned_for_it() -> None:
    """Each member's claim is selected for the member's node, in the topologies its class allows."""
    only_b = StorageClass(
        name="b", provisioner="csi.test", waits=True, topologies=(in_zone("b")[0].labels,)
    )
    store = storage(only_b, claim("c0", storage_class="late"), claim("c1", storage_class="b"))
    verdict = decide(TWO_ZONES, store, using("p0", "c0"), using("p1", "c1", gpus=8))
    assert where(verdict) == {"p0": "a1", "p1": "b1"}
    assert {
        each.pod.name: (each.claims[0].name, each.claims[0].node) for each in verdict.binds
    } == {"p0": ("c0", "a1"), "p1": ("c1", "b1")}
    nowhere = alone([TWO_ZONES[0]], store, using("p", "c1"))
    assert (
        say(nowhere.told).text
        == "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )


def test_a_selected_node_binds_whoever_comes_next() -> None:
    """A claim that is already being provisioned for a node is of use only there."""
    store = storage(claim("c", storage_class="late", selected_node="b1"))
    assert where(alone(TWO_ZONES, store, using("p", "c"))) == {"p": "b1"}
    assert (
        "1 node(s) didn't find available persistent volumes"
        in say(alone(TWO_ZONES[:1], store, using("p", "c")).told).text
    )


def test_members_share_a_claim_that_is_to_be_provisioned() -> None:
    """One node at a time may write: the second follows the first. Many may: it goes where it likes,
    and waits.
    """
    once = storage(claim("c", storage_class="late"), shared=["c"])
    many = storage(claim("c", storage_class="late", access_modes=("ReadWriteMany",)), shared=["c"])
    pods = using("p0", "c", gpus=5), using("p1", "c", gpus=5)
    assert decide(TWO_ZONES, once, *pods).binds == ()
    verdict = decide(TWO_ZONES, many, *pods)
    assert sorted(where(verdict).values()) == ["a1", "b1"]
    assert sorted(each.claims[0].node for each in verdict.binds) == ["", "a1"]


def test_members_share_a_claim_that_gets_an_existing_volume() -> None:
    """The volume that the first member's node decides is the second's too: it follows into the
    zone, or none starts.
    """
    shared = claim("c", storage_class="late", access_modes=("ReadWriteMany",))
    disk = volume(
        "disk", storage_class="late", access_modes=("ReadWriteMany",), required=in_zone("a")
    )
    pods = using("p0", "c", gpus=5), using("p1", "c", gpus=5)
    store = storage(shared, disk, shared=["c"])
    refused = decide(TWO_ZONES, store, *pods)
    assert refused.binds == ()
    assert "didn't find available persistent volumes to bind" in say(refused.told).text
    verdict = decide([*TWO_ZONES, node("a2", labels={ZONE: "a"})], store, *pods)
    assert sorted(where(verdict).values()) == ["a1", "a2"]
    assert sorted(each.claims[0].volume for each in verdict.binds) == ["", "disk"]


def test_existing_volumes_are_given_away_once() -> None:
    """Local volumes: the smallest that fits, each to one member, on its own node; too many members
    are refused.
    """
    nodes = [node(f"n{i}") for i in range(3)]
    disks = [
        volume("big", storage_class="local", capacity_bytes=2**40, required=on_node("n0")),
        volume("small", storage_class="local", required=on_node("n0")),
        volume("other", storage_class="local", required=on_node("n1")),
        volume("tiny", storage_class="local", capacity_bytes=2**20, required=on_node("n2")),
        volume(
            "kept",
            storage_class="local",
            claim=ClaimRef(NAMESPACE, "someone"),
            required=on_node("n2"),
        ),
    ]
    pods = [using(f"p{i}", f"c{i}") for i in range(4)]
    store = storage(*disks, *(claim(f"c{i}", storage_class="local") for i in range(4)))
    verdict = decide(nodes, store, *pods[:3])
    chosen = {each.claims[0].volume: each.node for each in verdict.binds}
    assert chosen == {"small": "n0", "big": "n0", "other": "n1"}
    refused = decide(nodes, store, *pods)
    assert refused.binds == ()
    assert "3 of 4 could be placed" in say(refused.told).text


def test_a_volume_kept_for_a_claim_is_the_one_it_gets() -> None:
    """A claimRef made beforehand beats a smaller free volume, and ties the pod to where that volume
    is.
    """
    store = storage(
        claim("c", storage_class="local"),
        volume("free", storage_class="local", required=on_node("a1")),
        volume(
            "mine",
            storage_class="local",
            capacity_bytes=2**40,
            claim=ClaimRef(NAMESPACE, "c"),
            required=on_node("b1"),
        ),
    )
    verdict = alone(TWO_ZONES, store, using("p", "c"))
    assert [(each.node, each.claims[0].volume) for each in verdict.binds] == [("b1", "mine")]


def test_two_claims_of_one_pod_need_two_volumes_on_one_node() -> None:
    """The claims of a pod are served together: n0 has one free volume, n1 has two."""
    disks = [
        volume(f"d{i}", storage_class="local", required=on_node("a1" if i == 0 else "b1"))
        for i in range(3)
    ]
    store = storage(*disks, *(claim(f"c{i}", storage_class="local") for i in range(2)))
    assert where(alone(TWO_ZONES, store, using("p", "c0", "c1"))) == {"p": "b1"}


def test_one_pod_at_a_time() -> None:
    """A ReadWriteOncePod claim in use anywhere refuses every node; two members that share one never
    start together.
    """
    store: list[StorageObject] = [claim("c", access_modes=("ReadWriteOncePod",)), volume("v-c")]
    placed = [(using("old", "c"), "a1")]
    mode = "PersistentVolumeClaim with ReadWriteOncePod access mode"
    text = f"node(s) unavailable due to {mode} already in-use by another pod"
    verdict = alone(TWO_ZONES, storage(*store, placed=placed), using("p", "c"), placed=placed)
    assert say(verdict.told).text == f"0/2 nodes are available: 2 {text}."
    twins = decide(TWO_ZONES, storage(*store, shared=["c"]), using("p0", "c"), using("p1", "c"))
    assert twins.binds == ()
    assert twins.told.never
    assert say(twins.told).headline == (
        "gang ns/g can never start: 2 of its pods need claim c, which only one pod may use"
        " (ReadWriteOncePod)"
    )


def test_attach_limits_count_different_volumes() -> None:
    """A node takes as many volumes of a driver as its CSINode says; a shared one counts once, a
    gang is spread.
    """
    nodes = [node("n0"), node("n1")]
    disks = [volume(f"v-c{i}", driver="csi.test", handle=f"h{i}") for i in range(6)]
    claims = [claim(f"c{i}") for i in range(6)]
    limits = [CsiNode("n0", (("csi.test", 2),)), CsiNode("n1", (("csi.test", 3),))]
    placed = [(using("old", "c5"), "n0")]
    store = storage(*disks, *claims, *limits, placed=placed, shared=["c5"])
    verdict = decide(nodes, store, *(using(f"p{i}", f"c{i}") for i in range(4)), placed=placed)
    assert sorted(where(verdict).values()) == ["n0", "n1", "n1", "n1"]
    refused = decide(nodes, store, *(using(f"p{i}", f"c{i}") for i in range(5)), placed=placed)
    assert "2 node(s) exceed max volume count" in say(refused.told).text
    sharing = decide([nodes[0]], store, using("p0", "c0"), using("again", "c5"), placed=placed)
    assert len(sharing.binds) == 2


def test_what_was_picked_survives_other_tries() -> None:
    """A refused gang gives its volumes back: the next one gets the same as if it had been alone."""
    disks = [volume(f"d{i}", storage_class="local", required=on_node("a1")) for i in range(2)]
    store = storage(*disks, *(claim(f"c{i}", storage_class="local") for i in range(5)))
    seen = structs.replace(snapshot(TWO_ZONES), storage=store)
    greedy = group(gang("ns/big", [using(f"p{i}", f"c{i}") for i in range(3)]), priority=9)
    modest = group(gang("ns/small", [using(f"q{i}", f"c{i + 3}") for i in range(2)]))
    decided = plan(seen, [greedy, modest], now_s=0.0)
    assert verdict_on(decided, "ns/big").binds == ()
    assert [each.claims[0].volume for each in verdict_on(decided, "ns/small").binds] == ["d0", "d1"]


def test_a_gang_of_many_claims_is_decided_over_several_plans() -> None:
    """Q4: each plan goes on from what those before derived of the claims."""
    disks = [
        each
        for n in range(360)
        for each in (claim(f"c{n}"), volume(f"v-c{n}", required=in_zone("z")))
    ]
    seen = structs.replace(snapshot([node("n", 0, labels={ZONE: "z"})]), storage=storage(*disks))
    pods = [using(f"p{n}", *(f"c{4 * n + i}" for i in range(4)), gpus=0) for n in range(90)]
    many, unfinished, plans = group(gang("ns/g", pods)), None, 1
    while not (
        made := plan(seen, [many], now_s=0.0, limits=Limits(work=4_000), unfinished=unfinished)
    ).verdicts:
        unfinished, plans = made.unfinished, plans + 1
        assert unfinished is not None
    assert plans > 1
    assert len(made.verdicts[0].binds) == 90, say(made.verdicts[0].told).text


def test_what_claims_need_is_charged_once() -> None:
    """Q4: deriving it for 2,000 pods is half of a plan's work; the next plan goes on from what this
    one derived.
    """
    table = snapshot([node("a")]).table
    claims = {
        f"ns/c{n}": Claim(namespace="ns", name=f"c{n}", uid=f"c{n}", storage_class="slow")
        for n in range(40)
    }
    storage = Storage(claims=claims)
    pods = [pod(f"p{n}", claims=(ClaimUse(f"c{n}"),)) for n in range(40)]
    plans, use = 0, StorageUse(table, storage)
    while True:
        plans, known, use = (
            plans + 1,
            use.needs.known,
            StorageUse(table, storage, Work(10 * UNITS_PER_NEEDS)),
        )
        use.needs.known.update(known)
        try:
            found = [use.needs(each) for each in pods]
        except OutOfWork:
            continue
        break
    assert plans == 4
    assert [each.unbound for each in found] == [(claim,) for claim in claims.values()]
