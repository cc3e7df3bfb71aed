"""A real API server on which the cases are played, and what objects say there.

Invariant: one case after the other, under the same names; each leaves nothing behind, and the next
begins once the daemon has forgotten it. What is said is read from the API server, as `kubectl`
would.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.checks import gang_of
from control_plane.daemon import Daemon

from tests.e2e.conftest import delete_all
from tests.newcomer.case import COLLECTIONS, GANG, Case, until
from tests.newcomer.room import HIGH
from tests.tuned import command

EVENTS = "/apis/events.k8s.io/v1/events"
LEFT_BY_A_CASE = (
    "/api/v1/pods",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/resourcequotas",
    "/api/v1/nodes",
)
#: One object's budgets of writes are made for one job's life, not for forty of the same name.
BUDGETS = {"object_burst": 10_000, "event_burst": 10_000}
READY_WITHIN_S = 120.0
LASTING = {"InvalidGang", "Degraded", "MixedSchedulers", "KubeletRejected"}
SAMPLE_TIME = "2026-11-22T22:30Z"
_SAID = re.compile(r"(?:Pod|Pods|PodGroup)[^:]*: \w+=\w+, \w+: (.+)")
_SAME_EVENT = re.compile(r"Event \w+: the same")
DELETING = re.compile(r"; \d+ (?:is|are) being deleted and (?:does|do) not count")
"""What an Event may say besides: the API server removes a pod without a node in two steps, and
whether somebody is told between them is chance."""
LONG_WORDS = 8
OFTEN = re.compile(
    r"Preemption: no pods of lower priority run on eligible nodes\. Not reserved[^.]*\."
)
"""What most refusals for lack of room end with; the page says once what it is."""
LACK = re.compile(
    r"(?:; (?:not all found a node|it found no node)|: fewer than \d+ are ready)(?=$|\. )"
)
"""What pods say in place of the counts, which only one object has."""


class Stage:
    """The API server and the daemon beside it."""

    def __init__(self, plane: ControlPlane, api: Api, daemon: Daemon) -> None:
        self.plane, self.api, self.daemon = plane, api, daemon

    # --- playing ---------------------------------------------------------------------------------

    def play(self, case: Case) -> None:
        """Do everything of a case up to its mend."""
        make.create_all(self.api, case.nodes, connections=1)
        until(
            lambda: self.daemon.metrics().get("gangsched_nodes") == len(case.nodes),
            "its nodes are known",
        )
        for deed in case.before:
            deed(self.api)
        last = [body for body in case.applied if body["kind"] == "PodGroup"]
        first = [body for body in case.applied if body["kind"] != "PodGroup"]
        for part in (last, first) if case.group_first else (first,):
            make.create_all(self.api, part, connections=1)
        ours = sum(
            body["kind"] == "Pod" and body["spec"]["schedulerName"] == "gangsched" for body in first
        )
        until(lambda: self._known() >= ours, "its pods are known")
        if not case.group_first:
            make.create_all(self.api, last, connections=1)
        if case.starts_first:
            self.wait_bound(case.starts_first)
        for deed in case.deeds:
            deed(self.api)

    def wait_bound(self, number: int) -> float:
        """Until so many pods of ours are bound and nothing is said against any; returns how long
        that took.
        """
        return until(
            lambda: self._bound() >= number and not self._complaints(), f"{number} pods are bound"
        )

    def clear(self) -> None:
        """Take everything away, until it is gone (a claim may stay a while) and the daemon knows of
        nothing.
        """
        delete_all(self.api, *LEFT_BY_A_CASE)
        until(
            lambda: not any(self.api.list(path).items for path in LEFT_BY_A_CASE),
            "everything is gone",
        )
        until(
            lambda: not self._gangs() and not self.daemon.metrics().get("gangsched_nodes"),
            "everything is forgotten",
        )
        delete_all(self.api, EVENTS)

    # --- what is said ----------------------------------------------------------------------------

    def said(self) -> list[str]:
        """What pods, PodGroups and Events say, one line each; Events of what is over are
        left out.
        """
        pods = [pod for pod in self._list("Pod") if not _elsewhere(pod)]
        groups = self._list("PodGroup")
        lines = _of_pods(pods)
        for group in groups:
            lines += [shortened(line, lines) for line in _of_group(group)]
        lines += _of_events(self.api.list(EVENTS).items, pods, groups)
        return once([normal(line) for line in lines])

    # --- inside ----------------------------------------------------------------------------------

    def _list(self, kind: str) -> list[Object]:
        try:
            found = self.api.list(COLLECTIONS[kind]).items
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise
            return []  # the kind is not defined
        return sorted(found, key=lambda body: str(body["metadata"]["name"]))

    def _gangs(self) -> list[Object]:
        found: list[Object] = json.loads(
            self.daemon.http("/debug/gangs", port=self.daemon.debug_port)[1]
        )["gangs"]
        return found

    def _known(self) -> int:
        """How many pods of ours the daemon knows; of a plain pod it tells no more once it
        is bound.
        """
        told = self._gangs()
        members = sum(sum(gang["counts"].values()) for gang in told if not gang["plain"])
        plain = {gang["gang"].removeprefix("pod:") for gang in told if gang["plain"]}
        plain |= {
            f"default/{pod['metadata']['name']}"
            for pod in self._list("Pod")
            if pod["spec"].get("nodeName")
            and pod["spec"]["schedulerName"] == "gangsched"
            and not gang_of(pod)
        }
        return members + len(plain)

    def _bound(self) -> int:
        return sum(
            bool(pod["spec"].get("nodeName")) and not _elsewhere(pod) for pod in self._list("Pod")
        )

    def _complaints(self) -> list[str]:
        """What PodGroups still say against themselves."""
        return [
            condition["message"]
            for group in self._list("PodGroup")
            for condition in group.get("status", {}).get("conditions", ())
            if condition["status"] == ("False" if condition["type"] == "Scheduled" else "True")
        ]


@contextmanager
def stage() -> Iterator[Stage]:
    """A control plane with the manifests, and the daemon once it hears of PodGroups as
    they come.
    """
    with ControlPlane(kcm=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.namespace("team-b"), HIGH])
        with Daemon(plane, command=command(BUDGETS), ready_timeout_s=READY_WITHIN_S) as daemon:
            built = Stage(plane, api, daemon)
            api.post(COLLECTIONS["PodGroup"], make.pod_group("first", min_member=1))
            make.create_all(api, [make.node("first"), make.pod("first", gang="first")])
            built.wait_bound(1)
            built.clear()
            yield built


def normal(line: str) -> str:
    """Times as the page has them."""
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?Z", SAMPLE_TIME, line)


def shortened(line: str, before: list[str]) -> str:
    """A PodGroup's line, with "the same" for the text that it begins with and that its pods have as
    well; what these say without counts, the PodGroup says with them.
    """
    head, scheduled, text = line.partition(": Scheduled=False, ")
    for pods in before:
        said = pods.partition(": PodScheduled=False, ")[2].partition("; see PodGroup")[0]
        need = LACK.split(said)[0]
        if need and text.startswith(need):
            return f"{head}{scheduled}the same{text.removeprefix(need)}"
    return line


def once(lines: list[str]) -> list[str]:
    """The lines, each long message in full only where it is first said, `[…]` for `OFTEN`, and
    `(Event)` behind a condition of which an Event says the same.
    """
    found: list[str] = []
    messages: list[str] = []
    for line in lines:
        known = [message for message in messages if message in line]
        longest = max(known, key=len, default="")
        new = line.replace(longest, "the same") if known else line
        found.append(OFTEN.sub("[…]", new))

        said = _SAID.fullmatch(line)
        stable = said[1].partition("; see PodGroup")[0] if said else ""
        if len(stable.split()) >= LONG_WORDS:
            messages.append(stable)

    for event in [line for line in found if _SAME_EVENT.fullmatch(line)]:
        reason = event.split()[1].removesuffix(":")
        texts = (f"=False, {reason}:", f" {reason}=True, ")
        saying = [n for text in texts for n, line in enumerate(found) if text in line]
        if saying:
            found[saying[0]] += " (Event)"
            found.remove(event)

    return [brief(line) for line in found]


def brief(line: str) -> str:
    """A line without the condition that is looked at first, where its status follows from its
    reason, and without the name of the gang.
    """
    line = line.replace(": PodScheduled=True", ": bound").replace(": PodScheduled=False, ", ": ")
    line = re.sub(r": Scheduled=(True, Scheduled|Unknown, NoPods):", _reason_alone, line)
    line = re.sub(r": Scheduled=False, (?!Scheduled:|NoPods:)", ": ", line)
    return line.replace(f"PodGroup {GANG}: ", "PodGroup: ", 1)


def _reason_alone(found: re.Match[str]) -> str:
    return f": {found[1].partition(', ')[2]}:"


def _elsewhere(pod: Object) -> bool:
    """Whether a pod stands for the work of others: it came with its node."""
    return not pod["metadata"].get("labels") and pod["spec"]["schedulerName"] == "default-scheduler"


def _of_pods(pods: list[Object]) -> list[str]:
    """What is said of each pod; those of which the same is said share a line, without their names
    where these are all pods.
    """
    by_text: dict[str, list[str]] = {}
    for pod in pods:
        by_text.setdefault(_scheduled(pod), []).append(pod["metadata"]["name"])
    if len(by_text) == 1 < len(pods):
        return [f"Pods: {text}" for text in by_text]
    return [
        f"Pod{'s' * (len(names) > 1)} {', '.join(names)}: {text}" for text, names in by_text.items()
    ]


def _scheduled(pod: Object) -> str:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled":
            if condition["status"] == "True":
                return "PodScheduled=True"
            return f"PodScheduled=False, {condition.get('reason')}: {condition.get('message')}"
    return "no condition"


def _of_group(group: Object) -> list[str]:
    name = group["metadata"]["name"]
    conditions = group.get("status", {}).get("conditions", ())
    return [
        f"PodGroup {name}: {each['type']}={each['status']}, {each['reason']}: {each['message']}"
        for each in conditions
        if each["type"] == "Scheduled" or (each["status"] == "True" and each["type"] != "Reserved")
    ]


def _of_events(events: list[Object], pods: list[Object], groups: list[Object]) -> list[str]:
    """Our Events about gangs, without what no condition says any more, and without what is said of
    single pods.

    Whether one is on the PodGroup or on the oldest pod depends on which was there first. Of what is
    told of a loss, the newest counts: between the deletion of a pod and the creation of the next,
    one may be told that is none a moment later.
    """
    now = [
        (condition["reason"], condition["message"])
        for each in (*pods, *groups)
        for condition in each.get("status", {}).get("conditions", ())
        if condition["status"] == "False" or condition["type"] != "Scheduled"
        if "reason" in condition
    ]
    ours = [event for event in events if event.get("reportingController") == "gangsched"]
    in_order = sorted(ours, key=lambda event: str(event["eventTime"]))
    losses = [event for event in in_order if event["reason"] == "Degraded"]
    lines = set()
    for event in in_order:
        reason, note = event["reason"], DELETING.sub("", event["note"])
        stays = note.partition(": ")[0]
        is_true = any(reason == of and text.partition(": ")[0] == stays for of, text in now)
        lasts = reason in LASTING and event not in losses[:-1]
        if is_true or lasts:
            said = "the same" if (reason, note) in now else note
            lines.add(f"Event {reason}: {said}")
    return sorted(lines)
