"""What can be seen of one scenario, and whether it is as expected.

Invariant: `complaints` is a pure function of a `View`; an empty list means that everything is as
the table says. Names in a table are pods (`a-0`, also with `*`), gangs (`a`: all pods made as
`a-…`), or start with `podgroup` or `events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from control_plane.api import Object

from gangsched.api.keys import TIMEOUT
from gangsched.api.podgroup import PodGroupStatus
from tests.scenarios.objects import Maker
from tests.scenarios.preempted import Preempted, evicted, sequence

_COUNTED: Final = re.compile(r"(\d+) bound")
_POD_WORDS: Final = frozenset(
    {"bound", "pending", "running", "reason", "message", "on", "nodes", "timed_out", "gone"}
)
_START_WORDS: Final = frozenset({"by", "after", "within"})
_PROMISE: Final = re.compile(r"starts at (\S+) at the latest")
RESERVED: Final = "Reserved"
#: Conditions of these kinds have no observedGeneration.
WITHOUT_GENERATION: Final = ("scheduling.volcano.sh/", "scheduler.grove.io/")
_GROUP_WORDS: Final = frozenset(str(field.alias) for field in PodGroupStatus.model_fields.values())


@dataclass(slots=True)
class View:
    """Objects by `namespace/name`, Events in the order seen, and pods (`namespace/name`) in the
    order bound.

    `created` has the uid of every pod ever seen, also of those that are gone. `bound_s` and
    `ended_s` are when a pod was seen bound and ended, in epoch seconds, `slack_s` how much later
    than it happened that may be. `said` has the texts that a condition of an object has had.
    """

    pods: dict[str, Object] = field(default_factory=dict)
    pod_groups: dict[str, Object] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)
    bound_order: list[str] = field(default_factory=list)
    created: set[str] = field(default_factory=set)
    slack_s: float = 0.0
    bound_s: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    preempted: Preempted = field(default_factory=Preempted)

    def pod_changed(self, kind: str, pod: Object, wall_s: float) -> None:
        """Take in a change of a pod, seen at `wall_s`."""
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        self.created.add(pod["metadata"]["uid"])
        if kind != "DELETED":
            self.pods[key] = pod
        elif self.pods.get(key, pod)["metadata"]["uid"] == pod["metadata"]["uid"]:
            self.pods.pop(key, None)
        if is_bound(pod) and key not in self.bound_order:
            self.bound_order.append(key)
            self.bound_s[key] = wall_s
        if kind == "DELETED" or pod["status"].get("phase") in {"Succeeded", "Failed"}:
            self.ended_s.setdefault(key, wall_s)
        self._note(f"pod {key}", pod)
        self.preempted.pod_changed(pod)

    def pod_group_changed(self, kind: str, group: Object) -> None:
        """Take in a change of a PodGroup."""
        key = f"{group['metadata']['namespace']}/{group['metadata']['name']}"
        self._note(f"podgroup {key}", group)
        if kind == "DELETED":
            self.pod_groups.pop(key, None)
        else:
            self.pod_groups[key] = group

    def _note(self, name: str, body: Object) -> None:
        """Keep what its conditions say, if that is new."""
        for entry in (body.get("status") or {}).get("conditions") or ():
            texts = self.said.setdefault((name, str(entry["type"])), [])
            if not texts or texts[-1] != _text(entry):
                texts.append(_text(entry))


def _text(entry: Object) -> str:
    """A condition as one text."""
    return f"{entry['status']} {entry.get('reason', '')} {entry.get('message', '')}"


def is_bound(pod: Object) -> bool:
    """Whether a pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def select(view: View, name: str, maker: Maker) -> dict[str, Object]:
    """The pods of a name, by `namespace/name`: itself, or those that match it, or those of
    a gang.
    """
    key = maker.key(name)
    if key in view.pods:
        return {key: view.pods[key]}
    pattern = key if {"*", "["} & set(key) else f"{key}-*"
    return {each: pod for each, pod in view.pods.items() if fnmatchcase(each, pattern)}


def complaints(view: View, expected: Mapping[str, Any], maker: Maker) -> list[str]:
    """What is not (yet) as expected, one sentence each."""
    found: list[str] = []
    for name, wanted in expected.items():
        kind, _, rest = name.partition(" ")
        if name == "order":
            found += _order(view, wanted, maker)
        elif name == "sequence":
            found += sequence(view.preempted, wanted, maker)
        elif kind == "evicted" and rest:
            found += [f"{name}: {text}" for text in evicted(view.preempted, rest, wanted, maker)]
        elif kind == "podgroup" and rest:
            found += [
                f"{name}: {text}" for text in _pod_group(view, maker.key(rest), wanted, maker)
            ]
        elif kind == "start" and rest:
            found += [f"{name}: {text}" for text in _start(view, rest, wanted, maker)]
        elif kind == "writes" and rest:
            found += [f"{name}: {text}" for text in _writes(view, rest, wanted, maker)]
        elif kind == "events" and rest:
            found += [f"{name}: {text}" for text in _events(view, rest, wanted, maker)]
        else:
            if isinstance(wanted, Mapping):
                found += [
                    f"{name}: {text}" for text in _facts(view, name, wanted.get("facts", ()), maker)
                ]
            found += [f"{name}: {text}" for text in _pods(select(view, name, maker), wanted, maker)]
    return found


def _facts(view: View, name: str, fragments: Any, maker: Maker) -> Iterator[str]:
    """What moves stands in one place of a gang: on its PodGroup, else on its oldest waiting pod
    (semantics E1).
    """
    gang = name if maker.key(name) not in view.pods else name.rpartition("-")[0]
    pods = {key: pod for key, pod in select(view, gang, maker).items() if not is_bound(pod)}
    pods = {key: pod for key, pod in pods.items() if not pod["spec"].get("schedulingGates")}
    group = view.pod_groups.get(maker.key(gang))
    place = (
        f"podgroup {gang}"
        if group
        else min(pods, key=lambda key: (_created(pods[key]), key), default="")
    )
    said = {key: _said(pod, "PodScheduled") for key, pod in pods.items()}
    if group:
        said[place] = _said(group, "Scheduled")
    for fragment in _list(fragments):
        filled = _fill(fragment, maker)
        if filled not in said.get(place, ""):
            yield f"{place} says {said.get(place)!r}, not {filled!r}"
        yield from (
            f"{key} says {filled!r} as well"
            for key, text in said.items()
            if key != place and filled in text
        )


def _created(pod: Object) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def _said(body: Object, kind: str) -> str:
    """The message of a condition."""
    conditions = body.get("status", {}).get("conditions", ())
    return next(
        (str(entry.get("message", "")) for entry in conditions if entry["type"] == kind), ""
    )


def _pods(pods: Mapping[str, Object], wanted: Any, maker: Maker) -> Iterator[str]:
    if isinstance(wanted, str):
        counted = _COUNTED.fullmatch(wanted)
        words: Mapping[str, Any] = {"bound": int(counted[1])} if counted else {wanted: "all"}
    else:
        words = {word: value for word, value in wanted.items() if word != "facts"}
    if unknown := words.keys() - _POD_WORDS:
        raise ValueError(f"unknown expectation of pods: {', '.join(sorted(unknown))}")
    if "gone" in words:
        if pods:
            yield f"still there: {', '.join(pods)}"
        return
    if not pods:
        yield "no such pods"
    yield from _counts(pods, words)
    waiting = {key: pod for key, pod in pods.items() if not is_bound(pod)}
    for key, pod in waiting.items():
        yield from (f"{key} {text}" for text in _told(pod, words, maker))
    if {"reason", "message", "timed_out"} & words.keys() and not waiting:
        yield "all are bound"
    if "on" in words:
        allowed = {maker.node_name(node) for node in words["on"]}
        yield from (
            f"{key} is on {pod['spec']['nodeName']}"
            for key, pod in pods.items()
            if is_bound(pod) and pod["spec"]["nodeName"] not in allowed
        )
    if "nodes" in words:
        used = {pod["spec"]["nodeName"] for pod in pods.values() if is_bound(pod)}
        if len(used) != words["nodes"]:
            yield f"uses {len(used)} nodes: {sorted(used)}"


def _counts(pods: Mapping[str, Object], words: Mapping[str, Any]) -> Iterator[str]:
    bound = sum(is_bound(pod) for pod in pods.values())
    running = sum(pod.get("status", {}).get("phase") == "Running" for pod in pods.values())
    for word, count in (("bound", bound), ("pending", len(pods) - bound), ("running", running)):
        wanted = len(pods) if words.get(word) == "all" else words.get(word)
        if wanted is not None and count != wanted:
            yield f"{count} of {len(pods)} {word}, not {wanted}"


def _told(pod: Object, words: Mapping[str, Any], maker: Maker) -> Iterator[str]:
    """The condition of a waiting pod, and its timeout annotation."""
    conditions = pod.get("status", {}).get("conditions", ())
    told: Object = next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})
    if "reason" in words and told.get("reason") != words["reason"]:
        yield f"says {told.get('reason')} ({told.get('message')}), not {words['reason']}"
    for fragment in _list(words.get("message", ())):
        if _fill(fragment, maker) not in told.get("message", ""):
            yield f"says {told.get('message')!r}, not {_fill(fragment, maker)!r}"
    if "timed_out" in words:
        is_marked = pod["metadata"].get("annotations", {}).get(TIMEOUT) == "true"
        if is_marked != words["timed_out"]:
            yield f"is {'' if is_marked else 'not '}marked as timed out"


def _pod_group(view: View, key: str, wanted: Mapping[str, Any], maker: Maker) -> Iterator[str]:
    if unknown := wanted.keys() - _GROUP_WORDS:
        raise ValueError(f"unknown expectation of a PodGroup: {', '.join(sorted(unknown))}")
    group = view.pod_groups.get(key)
    if group is None:
        yield "is not there"
        return
    status = group.get("status") or {}
    for name, value in wanted.items():
        if name == "conditions":
            continue
        filled = _fill(value, maker) if isinstance(value, str) else value
        if status.get(name, 0 if value == 0 else None) != filled:
            yield f"{name} is {status.get(name)}, not {filled}"
    conditions = {entry["type"]: entry for entry in status.get("conditions", ())}
    for kind, text in wanted.get("conditions", {}).items():
        entry = conditions.get(kind)
        said = _text(entry) if entry else "absent"
        for fragment in _list(text):
            if _fill(fragment, maker) not in said:
                yield f"condition {kind} is {said!r}, not {_fill(fragment, maker)!r}"
    generation = group["metadata"].get("generation", 0)
    if group["apiVersion"].startswith(WITHOUT_GENERATION):
        return
    for kind in wanted.get("conditions", {}):
        if kind in conditions and conditions[kind].get("observedGeneration", 0) != generation:
            yield (
                f"condition {kind} is of generation {conditions[kind].get('observedGeneration')},"
                f" not {generation}"
            )


def _start(view: View, name: str, wanted: Mapping[str, Any], maker: Maker) -> Iterator[str]:
    """All of it is bound: by the time that was promised (`by: promise`), or soon after others had
    ended.
    """
    if unknown := wanted.keys() - _START_WORDS:
        raise ValueError(f"unknown expectation of a start: {', '.join(sorted(unknown))}")
    pods = select(view, name, maker)
    if not pods or any(key not in view.bound_s for key in pods):
        yield "not all is bound"
        return
    started_s = max(view.bound_s[key] for key in pods)
    if "by" in wanted:
        promises = promised_s(view.said.get((f"podgroup {maker.key(name)}", RESERVED), ()))
        if not promises:
            yield "no latest start was told"
        elif started_s > promises[0] + view.slack_s:
            yield f"it started {started_s - promises[0]:.1f} s after the time that was told"
    if "after" in wanted:
        of = [key for each in wanted["after"] for key in _ever(view, each, maker)]
        left = [key for key in of if key not in view.ended_s]
        late_s = started_s - max(
            (view.ended_s[key] for key in of if key in view.ended_s), default=started_s
        )
        if left or not of:
            yield f"{', '.join(left) or wanted['after']} has not ended"
        elif not -view.slack_s <= late_s <= wanted["within"] + view.slack_s:
            yield f"it started {late_s:.1f} s after these had ended"


def promised_s(texts: Iterable[str]) -> list[float]:
    """The latest starts that a condition has named, in epoch seconds."""
    times = (match[1] for text in texts if (match := _PROMISE.search(text)))
    return [datetime.fromisoformat(time).timestamp() for time in times]


def _ever(view: View, name: str, maker: Maker) -> list[str]:
    """The pods of a name that were ever bound."""
    key = maker.key(name)
    return [each for each in view.bound_s if each == key or fnmatchcase(each, f"{key}-*")]


def _writes(view: View, name: str, wanted: Mapping[str, Any], maker: Maker) -> Iterator[str]:
    """How many texts a condition had (least and most), on an object named `podgroup a`, or each pod
    of `a`.
    """
    kind, _, bare = name.rpartition(" ")
    keys = [maker.key(bare)] if kind else list(select(view, bare, maker))
    for condition, number in wanted.items():
        least, most = (number, number) if isinstance(number, int) else number
        for key in keys:
            texts = view.said.get((f"{kind or 'pod'} {key}", condition), [])
            if not least <= len(texts) <= most:
                yield f"{condition} of {key} was written {len(texts)} times: {texts}"


def _events(view: View, about: str, wanted: Mapping[str, Any], maker: Maker) -> Iterator[str]:
    """`about` is a pod, `podgroup x`, or `x` with * for any object so named; `wanted` maps reasons
    to fragments.
    """
    kind, _, name = about.rpartition(" ")
    key = maker.key(name)
    own = [
        event
        for event in view.events
        if fnmatchcase(f"{event['regarding'].get('namespace')}/{event['regarding']['name']}", key)
        and (not kind or event["regarding"]["kind"].lower() == kind)
    ]
    for reason, text in wanted.items():
        notes = [event.get("note", "") for event in own if event["reason"] == reason]
        if text is False:
            yield from (f"there is an Event {reason}: {note}" for note in notes[:1])
        elif not notes:
            yield f"no Event {reason}; there are {sorted({event['reason'] for event in own})}"
        else:
            for fragment in _list(() if text is True else text):
                if not any(_fill(fragment, maker) in note for note in notes):
                    yield f"no Event {reason} says {_fill(fragment, maker)!r} but {notes[:3]}"


def _order(view: View, names: list[str], maker: Maker) -> Iterator[str]:
    """Each name was bound as a whole before the first pod of the next."""
    position = {key: index for index, key in enumerate(view.bound_order)}
    last = -1
    for name in names:
        places = [position.get(key) for key in select(view, name, maker)]
        known = [place for place in places if place is not None]
        if not places or len(known) < len(places):
            yield f"order: {name} is not bound yet"
            return
        if min(known) < last:
            yield f"order: {name} was bound before the one named ahead of it: {view.bound_order}"
        last = max(known)


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _fill(text: str, maker: Maker) -> str:
    return text.replace("$NS", maker.slug)
