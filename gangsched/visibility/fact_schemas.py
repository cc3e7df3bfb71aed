"""OpenAPI schema of `status.facts`: what `gangsched.sentences.fields` makes."""

from __future__ import annotations

from typing import Final

from gangsched.visibility.ports import Json
from gangsched.visibility.schemas import flag, listed, number, record, text, texts


def amounts(description: str) -> Json:
    """Schema of quantities by resource."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "string"},
    }


def counts(description: str) -> Json:
    """Schema of numbers by name."""
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "integer", "format": "int64"},
    }


NEEDS: Final = record(
    "What the gang needs to start.",
    pods=number("Pods that must have a node."),
    further=flag("Other members have a node already."),
    requests=amounts("What each of them requests; absent if they differ."),
    levels=texts("Node labels of each of which one domain must hold them."),
    slices=text("The slices that its members form: size and node label of each layer."),
)
SCARCEST: Final = record(
    "The resource that runs out first on the nodes that the pods may use.",
    resource=text("Its name."),
    nodes=number("Nodes that the pods may use."),
    asked=text("What each pod requests."),
    free=text("What is free on these nodes together."),
    freeOnOneNode=text("The most that is free on one of them."),
    offered=text("What these nodes offer together."),
    offeredOnOneNode=text("The most that one of them offers."),
    largerNodes=texts("Why nodes that offer enough may not be used."),
    instead=texts("Extended resources that the cluster offers, if it has none of this one."),
)
DEVICES: Final = record(
    "The devices that the pods claim, if nothing else is lacking.",
    **{"class": text("The DeviceClass.")},
    asked=number("How many each pod claims."),
    needed=number("How many all pods claim that must start."),
    free=number("How many that match are free on the nodes that the pods may use."),
    freeOnOneNode=number("The most that are free on one of them."),
)
NODES: Final = record(
    "Why no node takes the pod.",
    total=number("Nodes of the cluster."),
    eligible=number("Those that the pod could use if other pods were not there."),
    cause=text("A cause that no node can help."),
    excluded=listed(
        "Nodes by cause, in kube-scheduler's words. A node that lacks two resources is in both.",
        record(
            "Nodes that a cause excludes.",
            reason=text("The cause."),
            nodes=number("How many nodes."),
            eligible=flag("Whether they could be used if other pods were not there."),
        ),
    ),
)
LIMITED_BY: Final = texts("The resources by which alone no more pods would fit.")
WHEN_EMPTY: Final = record(
    "The best domain if all its nodes were empty; present if even that is too little.",
    best=text("The domain."),
    takes=number("How many of the pods it would take."),
    limitedBy=LIMITED_BY,
)
REQUIRED_DOMAINS: Final = record(
    "The domains of the levels that the gang requires.",
    levels=texts("The node labels."),
    total=number("How many domains there are."),
    tooSmall=number("In how many of them the free room is too little."),
    best=text("The domain that takes most of the pods."),
    takes=number("How many of the pods it takes."),
    atMost=flag("Whether `takes` is an upper limit."),
    needed=number("How many pods one domain must take."),
    proven=flag("Whether a full search showed that none of the other domains takes them."),
    home=flag("Whether other members are in `best` already."),
    whenEmpty=WHEN_EMPTY,
)
SLICES: Final = record(
    "What the slices of the gang lack.",
    levels=texts("The node labels of their domains."),
    total=number("0 if no node has the label."),
    size=number("Pods of a slice."),
    needed=number("How many slices are needed."),
    fits=number("How many slices have room by totals."),
    best=text("The domain with most room for a slice, or the one where its other members are."),
    takes=number("Pods of a slice that `best` takes."),
    missing=number("Pods that wait for room there."),
    atMost=flag("Whether `fits` and `takes` are upper limits."),
    whenEmpty=WHEN_EMPTY,
)
CHILDREN: Final = record(
    "The children of a tree that must start together.",
    name=text("The parent."),
    needed=number("How many children are needed."),
    ready=number("How many are ready."),
    waitsFor=text("The first child that is not ready; the other facts are about it."),
    proven=flag("Whether it is proven that no choice of ready children fits."),
)
MEMBERS: Final = record(
    "The members of a gang that is below its minimum; each is counted once.",
    min=number("Its minimum."),
    ready=number("Members that count."),
    gated=number("Members with a scheduling gate."),
    otherScheduler=number("Members of another scheduler."),
    missing=number("Members that nobody has created."),
    terminating=number("Members that are being deleted."),
    matchPolicy=text("The match policy that leaves some members out."),
)
CLAIMS: Final = listed(
    "The claims that it waits for.",
    record(
        "A claim; unnamed if it is of another namespace.",
        kind=text("PersistentVolumeClaim or ResourceClaim."),
        name=text("Its name."),
        storageClass=text("Its StorageClass."),
        pods=number("Members that must use it."),
        free=number("How many more pods may use it."),
        most=number("How many pods may use it at most."),
    ),
)
HOLDS: Final = record(
    "The room that its members hold while they wait.",
    pods=number("Members that hold a node."),
    nodes=texts("The nodes."),
    missing=counts("Members that are still needed, by gang."),
    lost=texts("Nodes whose room was lost."),
    released=number("How many were released."),
)
HOME: Final = record(
    "The domain that the pod must not leave, since its gang runs there.",
    domain=text("The domain."),
    nodes=number("Its nodes."),
    free=number("Nodes with room for the pod."),
    closed=number("Nodes that take no such pod whatever runs there."),
    usedByLower=number("Nodes with pods of lower priority."),
)
STARTS: Final = record(
    "Where it starts once the pods that it preempts have ended.",
    nodes=texts("The nodes."),
    pods=number("How many pods are still to end."),
    after=listed(
        "The first ten of them that are of its namespace, most pods first.",
        record(
            "A gang or a pod.",
            kind=text("gang or pod."),
            name=text("Its name, with its namespace."),
            pods=number("How many pods are still to end."),
        ),
    ),
    givesUpAt=text("When it stops to wait for them.", format="date-time"),
)
PREEMPTION: Final = listed(
    "Why preemption does not help.",
    record(
        "An obstacle.",
        obstacle=text(
            "NothingLower, TooLittle, Budget, PolicyNever, TooYoung, OtherSchedulers, BackOff,"
            " Delayed, Forbidden, TooMany, TooMuchWork or Later."
        ),
        name=text("The member, PodDisruptionBudget or resource that it is about."),
        pods=number("Pods that could be evicted, or would have to be."),
        fits=number("Pods that would fit then."),
        needed=number("Pods that must fit, or evictions that are needed."),
        allowed=number("Evictions that are allowed."),
        running=number("Gangs and pods that have not run for long enough."),
        seconds=number("How long they have to run."),
        priority=number("The priority below which pods may be evicted."),
        amount=text("What pods of other schedulers use."),
        until=text("When the delay ends.", format="date-time"),
    ),
)
FACTS: Final = record(
    "The facts that `message` words. A field is absent if it says nothing.",
    gang=text("The gang that the facts are about."),
    sibling=text("The gang of the same group that is waited for; the facts are about it."),
    never=flag("It is proven that it cannot start on these nodes, even if they were empty."),
    needs=NEEDS,
    fits=number("How many of the pods have room."),
    atMost=flag("Whether `fits` is an upper limit."),
    proven=flag("Whether no other choice of nodes takes more pods than `fits`."),
    fitsWhenEmpty=number("How many would have room at most if the nodes were empty."),
    limitedBy=LIMITED_BY,
    pod=text("The pod that `requests`, `nodes` and `scarcest` are about."),
    requests=amounts("What it requests."),
    nodes=NODES,
    scarcest=SCARCEST,
    devices=DEVICES,
    apart=texts("Rules by which its members exclude each other, in kube-scheduler's words."),
    requiredDomains=REQUIRED_DOMAINS,
    slices=SLICES,
    minResources=record(
        "Its minResources.",
        requests=amounts("What must be free at the same time."),
        missing=amounts("What is not."),
        whenEmpty=amounts("What the nodes offer of those that are missing even if all were empty."),
    ),
    home=HOME,
    children=CHILDREN,
    members=MEMBERS,
    claims=CLAIMS,
    since=text("Since when it waits.", format="date-time"),
    binds=number("Binds that are not answered."),
    holds=HOLDS,
    starts=STARTS,
    yieldedTo=text("The group that it gave way to, if that is of its namespace."),
    timedOut=record(
        "How it timed out.",
        pods=number("Members with the timeout annotation."),
        seconds={"type": "number", "description": "The wait time that has expired."},
        missing=counts("Members that were still needed, by gang."),
    ),
    unsupported=texts("What the pod uses that is not supported."),
    internalError=text("The reference of an internal error in the log."),
    work=record(
        "The decision is too large for one plan.",
        pods=number("Its pods."),
        shapes=number("Their different specifications."),
    ),
    pausedFor=text("Why an administrator paused scheduling."),
    preemption=PREEMPTION,
)
