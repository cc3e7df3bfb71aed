"""OpenAPI v3 for `kubectl explain`, and the part of v2 that the API server merges into its own."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from gangsched import __version__
from gangsched.visibility.fact_schemas import FACTS
from gangsched.visibility.ports import API_VERSION, GROUP, VERSION, Json
from gangsched.visibility.schemas import flag, listed, number, record, text, texts

PREFIX = "dev.gangsched.visibility.v1alpha1"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


GANG_SPEC = record(
    "What its members or its PodGroup declare, as the scheduler reads it.",
    declaredBy=text(
        "How the gang is declared: a PodGroup and its version, or the key on its pods that"
        " names it."
    ),
    min=number("Members that must have a node before any is started."),
    mode=text(
        "Strict: all that are needed start at once or none; NonStrict: members hold room for the"
        " others."
    ),
    waitTimeSeconds={"type": "number", "description": "How long the gang may hold room."},
    group=texts(
        "The gangs (namespace/name) that start together with this one, itself among them; none if"
        " it is alone."
    ),
)
DOMAINS = listed(
    "The best domains of required levels, while it does not start; for users who may list nodes.",
    record(
        "A domain.",
        domain=text("The labels of its nodes."),
        holds=number("How many of the needed pods the sums of free room allow."),
        lacks=number("How many more it would have to hold."),
        refutedBy=text("sums or search; empty if free room alone does not refute it."),
    ),
)
GANG_STATUS = record(
    "What the scheduler knows of the gang, and what it decided last.",
    phase=text(
        "The phase of a PodGroup: Pending, PreScheduling, Scheduling, Scheduled, Running, Finished"
        " or Failed."
    ),
    members=record(
        "Its pods.",
        total=number("How many there are."),
        byState={
            "type": "object",
            "description": (
                "How many are in each state: pending, held, binding, bound, gated, succeeded,"
                " failed, …"
            ),
            "additionalProperties": {"type": "integer", "format": "int64"},
        },
    ),
    reason=text(
        "Reason of the last decision, as in the condition of its pods; New before the first."
    ),
    message=text("The last decision in a sentence."),
    facts=FACTS,
    priority={
        "type": "integer",
        "format": "int32",
        "description": "The priority by which its group is ordered.",
    },
    parent=text("The name of its parent in a tree."),
    needs=listed(
        "Its pods by what they ask for, the most common first, at most eight kinds.",
        record(
            "Pods that ask for the same.",
            pods=number("How many there are."),
            requests={
                "type": "object",
                "description": "What each of them asks for.",
                "additionalProperties": {"type": "string"},
            },
        ),
    ),
    startedAt=text("When the first of its pods that run started.", format="date-time"),
    runTimeSeconds=number("The run time that is declared; absent if it is unknown."),
    expectedEnd=text(
        "Its start plus its run time, in the past if it runs longer.", format="date-time"
    ),
    queue=text("The part of the queue, while it waits: active, parked or backoff."),
    position=number(
        "Place among the groups that wait, in the order of the queue, from 1; absent if it does not"
        " wait."
    ),
    before=number("How many groups are before it."),
    waitingSince=text("Since when its minimum is there and waits.", format="date-time"),
    next=text("What happens next if nobody does anything."),
    lastDecisionAgeSeconds=number("Age of the last decision."),
    lacks=record(
        "What it lacks; absent if that is nothing, or not a matter of amounts.",
        resource=text("The resource that stops its pods first."),
        amount=text("How much of it is missing on the nodes that they may use."),
        freeOnOneNode=text("The most of it that is free on one node."),
        largestHole=text("Deprecated: freeOnOneNode by its former name."),
    ),
    reserved=record(
        "The room that is reserved for it; absent if none is.",
        kind=text("timed: it has a start; fence: nodes are kept until they are empty."),
        startTime=text("When it starts, as far as run times are known.", format="date-time"),
        promised=flag("The start time is a promise: it starts then at the latest."),
        message=text("The reservation in a sentence, as in conditions."),
        nodes=texts("Its nodes; of a single gang, for users who may list nodes."),
    ),
    waitsFor=record(
        "What must end before the reserved room is free.",
        own=texts("Gangs and pods of its namespace, at most 20."),
        ownCount=number("How many of its namespace there are."),
        others=number("How many of other namespaces there are."),
    ),
    nodes=texts("The nodes that its members are on, or hold room on."),
    domains=DOMAINS,
    yields=number("How often it gave up held room for another group since the scheduler started."),
    preemptions=number("How often it was evicted whole since the scheduler started."),
    broken=flag("It started, and fewer members than its minimum are left."),
    problems=texts("What is wrong with its declaration."),
    servedBy=record(
        "Which replica answered. A standby decides nothing: it knows no held room, no reservations"
        " and no counts.",
        role=text("leader or standby."),
        identity=text("The name of the replica."),
    ),
)


TEMPLATE: Json = {
    "type": "object",
    "description": "A pod template, as in a Job.",
    "x-kubernetes-preserve-unknown-fields": True,
}
REVIEW_SPEC = record(
    "The pods that are asked about.",
    gang=record(
        "What the gang is to be, where its pods do not say.",
        existing=text(
            "Name of a gang that exists: the review is about it as it is, and the spec has nothing"
            " else."
        ),
        name=text("Its name, for messages."),
        min=number(
            "Members that must have a node before any is started; all, if nothing says otherwise."
        ),
        mode=text("Strict or NonStrict."),
        priority={"type": "integer", "format": "int32", "description": "Priority of its pods."},
        priorityClassName=text("PriorityClass of its pods."),
    ),
    parts=listed(
        "The gangs and parents of a tree, at most 64; each set of pods then names one of them.",
        record(
            "A gang, or a parent of others.",
            name=text("Its name."),
            parent=text("The name of its parent."),
            min=number("Members of the gang that start together; all, if nothing says otherwise."),
            minChildren=number(
                "Children of the parent that start together; all, if nothing says otherwise."
            ),
            topology=text("Node labels of each of which one domain holds it."),
        ),
    ),
    podSets=listed(
        "1 to 32 sets of like pods, at most 1,000 pods together.",
        record(
            "Pods of one template.",
            name=text("Name of the set."),
            count={"type": "integer", "format": "int32", "description": "How many pods."},
            part=text("The part of a tree that its pods are members of."),
            template=TEMPLATE,
        ),
    ),
)
COUNT = number("How many.")
REVIEW_STATUS = record(
    "The answer of this moment. Nothing is reserved.",
    fits=flag("Whether it would start now, if need be after what it preempts has gone."),
    reason=text("Reason of the decision."),
    message=text("The decision in a sentence."),
    nodes=listed(
        "On how many nodes of which kinds.",
        record("Nodes of a kind.", kind=text("Their accelerators."), count=COUNT),
    ),
    assignments=listed(
        "Which pods on which node; only for users who may list nodes.",
        record("Pods on a node.", podSet=text("The set."), node=text("The node."), count=COUNT),
    ),
    domains=DOMAINS,
    parts=listed(
        "The parts of a tree, each before those below it.",
        record(
            "A part.",
            name=text("Its name."),
            parent=text("The name of its parent."),
            min=number("Members that the gang needs."),
            minChildren=number("Children that the parent needs."),
            ready=number("Members that exist, or children that may start."),
            placed=number("Members with a node, or children that would start."),
            fits=flag("Whether it would start."),
            reason=text("Why a gang would not."),
            message=text("What it lacks, in a sentence."),
            domain=text("The domain that it requires and gets; only for users who may list nodes."),
        ),
    ),
    preempts=listed(
        "Which pods would be evicted for it, by gang; those of other namespaces are only counted.",
        record(
            "Pods of a gang, or plain ones.",
            kind=text("gang or pod."),
            namespace=text("Its namespace, if it is that of the review."),
            name=text("Its name, if it is in the namespace of the review."),
            count=COUNT,
        ),
    ),
    holders=record(
        "Of a gang that lacks room: who uses the scarcest resource on nodes that it may use.",
        resource=text("The resource."),
        own=listed(
            "Gangs and plain pods of its namespace, those that use most first.",
            record(
                "A gang, or a plain pod.",
                kind=text("gang or pod."),
                name=text("Its name."),
                amount=text("What it uses."),
            ),
        ),
        ownCount=COUNT,
        others=record(
            "Those of other namespaces together.", count=COUNT, amount=text("What they use.")
        ),
    ),
    suggestions=texts("The smallest changes that would let it start; each was planned."),
    problems=texts("What is wrong with its declaration."),
    servedBy=GANG_STATUS["properties"]["servedBy"],
)


HISTORY_ENTRY = record(
    "Something that happened, perhaps several times.",
    what=text(
        "Started, BindRefused, Waits, TimedOut, Yielded, Preempting, Preempted, Reserved,"
        " MemberLost, SetAside, …"
    ),
    firstTime=text("When it happened first.", format="date-time"),
    lastTime=text("When it happened last.", format="date-time"),
    times=number("How often it happened."),
    reason=text("The reason of the decision, as in conditions and Events."),
    message=text("The decision in a sentence, at most 400 characters."),
    uid=text("The uid of its PodGroup, else of its oldest pod."),
    plan=number("The number of the plan since the leader started; 0 for what no plan decided."),
    objects=listed(
        "The first five pods or nodes that it is about; victims of a preemption.",
        record("An object.", name=text("Its name."), uid=text("Its uid; empty for a node.")),
    ),
    objectCount=number("How many there are."),
)


def kind(name: str, description: str, **fields: Json) -> Json:
    """Schema of one of this API's kinds."""
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-group-version-kind": [{"group": GROUP, "kind": name, "version": VERSION}],
        "properties": {
            "apiVersion": text("Version of the schema of this object."),
            "kind": text("Kind of this object."),
            "metadata": {
                "description": "Standard object's metadata.",
                "allOf": [{"$ref": f"#/components/schemas/{OBJECT_META}"}],
                "default": {},
            },
            **fields,
        },
    }


SCHEMAS: Json = {
    f"{PREFIX}.Gang": kind(
        "Gang",
        "Gang is a group of pods that start together or not at all, as the scheduler knows it. It"
        " is computed when it is asked for; nothing is stored.",
        spec=GANG_SPEC,
        status=GANG_STATUS,
    ),
    f"{PREFIX}.PlacementReview": kind(
        "PlacementReview",
        "PlacementReview asks whether pods would start now. It is answered when it is created;"
        " nothing is stored.",
        spec=REVIEW_SPEC,
        status=REVIEW_STATUS,
    ),
    f"{PREFIX}.GangHistory": kind(
        "GangHistory",
        "GangHistory is what was decided about a gang, also if it is gone. The leader keeps it in"
        " memory.",
        completeSince=text(
            "Since when no entry is missing: the start of the leader at the earliest.",
            format="date-time",
        ),
        servedBy=GANG_STATUS["properties"]["servedBy"],
        entries=listed("What happened, oldest first.", HISTORY_ENTRY),
    ),
    f"{PREFIX}.GangQueue": record(
        "The gangs that wait, in the order of the queue: lists of gangs with view=queue, limit and"
        " offset.",
        apiVersion=text("Version of the schema of this object."),
        kind=text("GangQueue"),
        total=number("How many gangs wait that may be listed."),
        offset=number("How many of them are before these."),
        items=listed(
            "At most 5,000 of them.",
            record(
                "A gang that waits.",
                namespace=text("Its namespace."),
                name=text("Its name."),
                position=number("Its position in the queue of all groups, from 1."),
            ),
        ),
        servedBy=GANG_STATUS["properties"]["servedBy"],
    ),
    OBJECT_META: record(
        "ObjectMeta is metadata that all persisted resources must have.",
        name=text("Name of the object, unique within a namespace."),
        namespace=text("Namespace of the object."),
        uid=text(
            "Identity of the object: that of its PodGroup, else made from namespace and name."
        ),
        creationTimestamp=text(
            "When the PodGroup, or the oldest member, was created.",
            format="date-time",
        ),
        resourceVersion=text("Version of the object in the replica that answered."),
    ),
}


@lru_cache(maxsize=1)
def v3() -> Json:
    """The OpenAPI document of this group and version."""
    base = f"/apis/{API_VERSION}"
    one = f"{base}/namespaces/{{namespace}}/gangs/{{name}}"
    paths = {
        f"{base}/gangs": _operation("list", "Gang"),
        f"{base}/namespaces/{{namespace}}/gangs": _operation("list", "Gang", "namespace"),
        one: _operation("get", "Gang", "namespace", "name"),
        f"{one}/history": _operation("get", "GangHistory", "namespace", "name"),
        f"{base}/namespaces/{{namespace}}/placementreviews": _operation(
            "post",
            "PlacementReview",
            "namespace",
        ),
    }

    return {
        "openapi": "3.0.0",
        "info": {"title": "gangsched visibility", "version": __version__},
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


@lru_cache(maxsize=1)
def v3_index() -> Json:
    """The document at /openapi/v3, which lists the paths of the documents; each path has a hash of
    the content.
    """
    # The API server caches the document by this hash, and reads it again only when it changes.
    digest = hashlib.sha256(json.dumps(v3(), sort_keys=True).encode()).hexdigest()[:32].upper()
    return {
        "paths": {
            f"apis/{API_VERSION}": {
                "serverRelativeURL": f"/openapi/v3/apis/{API_VERSION}?hash={digest}"
            }
        }
    }


@lru_cache(maxsize=1)
def v2() -> Json:
    """The document /openapi/v2, without definitions, because clients read definitions in v3; the
    API server requires the document.
    """
    info = {"title": "gangsched visibility", "version": __version__}
    return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}


def _operation(action: str, of: str, *parameters: str) -> Json:
    schema = {"$ref": f"#/components/schemas/{PREFIX}.{of}"}
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    found: Json = {
        "get" if action in {"get", "list"} else "post": {
            "operationId": (
                f"{action}{of}{'In' if parameters else ''}"
                + "And".join(parameter.title() for parameter in parameters)
            ),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": GROUP, "kind": of, "version": VERSION},
            "responses": {"200": answer},
        }
    }

    if parameters:
        found["parameters"] = [
            {
                "name": parameter,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "uniqueItems": True},
            }
            for parameter in parameters
        ]

    return found
