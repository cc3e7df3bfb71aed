"""Plays one scenario on a cluster.

Invariant: steps are played in order; an expectation is waited for until it holds or its time is up,
and what must never happen is judged at the end from everything seen. The player does not know the
form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import count, zip_longest
from typing import Any, Final, Protocol

from control_plane.api import Object

from tests.scenarios.objects import OBJECTS, OWNERS, Maker, died, volume_of
from tests.scenarios.table import Scenario, Step
from tests.scenarios.view import View, complaints, is_bound, select

#: How long an expectation may take by default; a verdict is told after it stood for 250 ms.
WITHIN_S: Final = 2.0
FACTS_WITHIN_S: Final = 6.0
"""Facts may be 5 s old (semantics E1)."""


class Cluster(Protocol):
    """Where a scenario is played."""

    def create(self, bodies: list[Object]) -> None:
        """Create objects, in this order."""

    def delete(self, kind: str, key: str) -> None:
        """Delete an object; `key` is its name, `namespace/name` for namespaced kinds."""

    def patch(self, kind: str, key: str, body: Object, *, status: bool = False) -> None:
        """Merge-patch an object, or its status."""

    def until(self, look: Callable[[View], list[str]], *, within_s: float) -> None:
        """Wait until `look` has no complaints; 0 means: once the steps before have had their
        effect.

        Raises AssertionError with the last complaints.
        """

    def seen(self) -> View:
        """Everything seen so far."""

    def refuse_binds(self, keys: list[str]) -> None:
        """From now on binds of these pods are refused; an empty list ends that."""

    def while_binding(self, deeds: dict[str, str]) -> None:
        """At the next bind of this pod: `gone` (the pod has just been deleted) or `lost` (the
        answer is).
        """

    def restart(self) -> None:
        """The scheduler dies and comes back."""

    def wait(self, seconds: float) -> None:
        """Let time pass."""

    def recreate(self, patterns: Sequence[str]) -> None:
        """From now on a controller creates each of these pods anew at once when it is gone."""

    def while_evicting(self, intruders: Mapping[str, Callable[[], None]]) -> None:
        """Just before the first eviction of this pod is carried out somebody does this."""

    def crash_after(self, writes: int) -> None:
        """The scheduler dies after so many more writes of preemptions, and comes back at once."""

    def ago(self, seconds: float) -> str:
        """The time so long ago, in RFC 3339."""

    def every(self, seconds: float, deed: Callable[[], bool]) -> None:
        """Do this now and then every so many seconds, as long as it returns True and the scenario
        lasts.
        """


def play(scenario: Scenario, cluster: Cluster) -> None:
    """Play all steps. Raises AssertionError naming the step that failed."""
    player = _Player(scenario, cluster)
    cluster.create(
        [body for name, words in scenario.nodes.items() for body in player.maker.nodes(name, words)]
    )
    for number, step in enumerate(scenario.steps, start=1):
        try:
            player.step(step)
        except AssertionError as error:
            raise AssertionError(
                f"{scenario.name!r}, step {number} ({step.verb}): {error}"
            ) from None
    player.judge_never()


class _Player:
    def __init__(self, scenario: Scenario, cluster: Cluster) -> None:
        self.maker = Maker(scenario.slug)
        self._scenario = scenario
        self._cluster = cluster
        self._streams: set[str] = set()

    def step(self, step: Step) -> None:
        """Play one step: a verb of `_DEEDS`, or else an expectation."""
        deed = _DEEDS.get(step.verb)
        if deed is None:
            self._expect(step)
        else:
            deed(self, step.what)

    def _create(self, entries: Any) -> None:
        self._cluster.create([body for words in entries for body in self.maker.entry(words)])

    def _create_interleaved(self, entries: Any) -> None:
        lists = [self.maker.entry(words) for words in entries]
        self._cluster.create(list(_interleaved(lists)))

    def _delete_each(self, names: Any) -> None:
        for name in names:
            self._delete(name)

    def _edit_each(self, edits: Any) -> None:
        for name, words in edits.items():
            self._edit(name, words)

    def _finish(self, names: Any) -> None:
        for name in names:
            self._end(name, {"phase": "Succeeded"})

    def _reject(self, reasons: Any) -> None:
        for name, reason in reasons.items():
            status = {"phase": "Failed", "reason": reason, "message": "Node had no room"}
            self._end(name, status)

    def _die(self, reasons: Any) -> None:
        for name, reason in reasons.items():
            self._end(name, {"phase": "Failed", "containerStatuses": [died(reason)]})

    def _provision(self, names: Any) -> None:
        for name in names:
            for _, key in self._each(name):
                volume, binding = volume_of(key)
                self._cluster.create([volume])
                self._cluster.patch("PersistentVolumeClaim", key, binding)

    def _refuse_binds(self, names: Any) -> None:
        self._cluster.refuse_binds([self.maker.key(name) for name in names])

    def _while_binding(self, deeds: Any) -> None:
        self._cluster.while_binding({self.maker.key(name): deed for name, deed in deeds.items()})

    def _restart(self, _: Any) -> None:
        self._cluster.restart()

    def _wait(self, seconds: Any) -> None:
        self._cluster.wait(float(seconds))

    def _stream_each(self, streams: Any) -> None:
        for name, words in streams.items():
            self._stream(name, dict(words))

    def _stop(self, names: Any) -> None:
        self._streams -= set(names)

    def _recreate(self, names: Any) -> None:
        keys = [self.maker.key(name) for name in names]
        self._cluster.recreate([pattern for key in keys for pattern in (key, f"{key}-*")])

    def _while_evicting(self, creations: Any) -> None:
        deeds = {}
        for name, entries in creations.items():
            deeds[self.maker.key(name)] = partial(self.step, Step("create", entries))

        self._cluster.while_evicting(deeds)

    def _crash_after(self, what: Any) -> None:
        self._cluster.crash_after(what)

    def _expect(self, step: Step) -> None:
        """Wait until everything that the step says is so."""
        moves = any(
            isinstance(wanted, Mapping) and "facts" in wanted for wanted in step.what.values()
        )
        usual_s = FACTS_WITHIN_S if moves else WITHIN_S
        within_s = usual_s if step.within_s is None else step.within_s
        self._cluster.until(lambda view: complaints(view, step.what, self.maker), within_s=within_s)

    def judge_never(self) -> None:
        """Check that nothing was bound that must never be."""
        patterns = [self.maker.key(name) for name in self._scenario.never_bound]
        bound = [
            key
            for key in self._cluster.seen().bound_order
            for name in patterns
            if fnmatchcase(key, name) or fnmatchcase(key, f"{name}-*")
        ]
        assert not bound, f"{self._scenario.name!r}: {', '.join(bound)} was bound"

    def _stream(self, name: str, words: dict[str, Any]) -> None:
        """Create one pod after the other, until the stream is stopped."""
        every_s, numbers = words.pop("every"), count()
        self._streams.add(name)

        def one_more() -> bool:
            if name in self._streams:
                self._cluster.create(self.maker.entry({"pod": f"{name}-{next(numbers)}", **words}))
            return name in self._streams

        self._cluster.every(every_s, one_more)

    def _target(self, name: str) -> tuple[str, str]:
        kind, _, rest = name.rpartition(" ")
        match kind:
            case "node":
                return "Node", self.maker.node_name(rest)
            case "podgroup":
                return "PodGroup", self.maker.key(rest)
            case "pdb":
                return "PodDisruptionBudget", self.maker.key(rest)
            case "service":
                return "Service", self.maker.key(rest)
            case "":
                return "Pod", self.maker.key(rest)
            case "namespace":
                return "Namespace", self.maker.slug
            case _ if kind in {**OBJECTS, **OWNERS}:
                return {**OBJECTS, **OWNERS}[kind][1], self.maker.key(rest)
            case _:
                raise ValueError(f"what is {name!r}?")

    def _each(self, name: str) -> list[tuple[str, str]]:
        """The objects of a name: one, or the pods that match it, once they have been seen."""
        kind, key = self._target(name)
        if kind != "Pod":
            return [(kind, key)]
        chosen: list[str] = []

        def seen(view: View) -> list[str]:
            chosen[:] = select(view, name, self.maker)
            return [] if chosen else [f"there is no pod {name}"]

        self._cluster.until(seen, within_s=WITHIN_S)
        return [(kind, key) for key in chosen]

    def _delete(self, name: str) -> None:
        for kind, key in self._each(name):
            self._cluster.delete(kind, key)

    def _edit(self, name: str, words: dict[str, Any]) -> None:
        if "started" in words:  # else the kubelet would write its own time over it
            self._await_running(name)
        for kind, key in self._each(name):
            started_s = words.get("started")
            rest = {word: value for word, value in words.items() if word != "started"}
            body, status = self.maker.edit(kind, rest)
            if started_s is not None:
                status = {
                    "status": {
                        **status.get("status", {}),
                        "startTime": self._cluster.ago(started_s),
                    }
                }
            if body:
                self._cluster.patch(kind, key, body)
            if status:
                self._cluster.patch(kind, key, status, status=True)

    def _end(self, name: str, status: Object) -> None:
        """End pods once they run, as a kubelet can."""
        self._await_running(name)
        for kind, key in self._each(name):
            self._cluster.patch(kind, key, {"status": status}, status=True)

    def _await_running(self, name: str) -> None:
        def running(view: View) -> list[str]:
            pods = select(view, name, self.maker)
            idle = [
                key
                for key, pod in pods.items()
                if not is_bound(pod) or pod["status"].get("phase") != "Running"
            ]
            return [f"{', '.join(idle) or name} does not run"] if idle or not pods else []

        self._cluster.until(running, within_s=WITHIN_S)


_DEEDS: Final[Mapping[str, Callable[[_Player, Any], None]]] = {
    "create": _Player._create,
    "create_interleaved": _Player._create_interleaved,
    "delete": _Player._delete_each,
    "edit": _Player._edit_each,
    "finish": _Player._finish,
    "reject": _Player._reject,
    "die": _Player._die,
    "provision": _Player._provision,
    "refuse_binds": _Player._refuse_binds,
    "while_binding": _Player._while_binding,
    "restart": _Player._restart,
    "wait": _Player._wait,
    "stream": _Player._stream_each,
    "stop": _Player._stop,
    "recreate": _Player._recreate,
    "while_evicting": _Player._while_evicting,
    "crash_after": _Player._crash_after,
}


def _interleaved(lists: list[list[Object]]) -> Iterator[Object]:
    """PodGroups first, then the first pod of each, the second of each, …"""
    for bodies in lists:
        yield from (body for body in bodies if body["kind"] != "Pod")
    for turn in zip_longest(
        *([body for body in bodies if body["kind"] == "Pod"] for bodies in lists)
    ):
        yield from (body for body in turn if body is not None)
