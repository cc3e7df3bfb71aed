"""Random histories: what users, nodes, kubelets and the API server may do, as lists of small steps.

Invariant: a step is a tuple of plain numbers and texts, so that hypothesis can shrink a history;
steps that make no sense at their place do nothing. Others never over-commit a node by themselves:
nodes do not shrink and pods of other schedulers go only where there is room, so that every
over-commit found is ours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from gangsched.api import keys
from gangsched.model.gang import MatchPolicy, Mode
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import PreemptionSettings
from gangsched.model.protocol import Bind, Evict, PreemptionOrder
from gangsched.state.rule_set import Rules
from tests.builders import GPU, NAMESPACE, gang_metadata, node, pod, pod_group
from tests.world import World

GANGS = 5
NODES = 4
Step = tuple[Any, ...]

_index = st.integers(0, 30)
_gang = st.integers(0, GANGS - 1)
_gpus = st.sampled_from([1, 1, 1, 2, 3, 4])

kinds = st.fixed_dictionaries(
    {
        "min": st.integers(0, 4),
        "mode": st.sampled_from([Mode.STRICT, Mode.NON_STRICT, Mode.NON_STRICT]),
        "policy": st.sampled_from(
            [MatchPolicy.ONCE_SATISFIED, MatchPolicy.ONCE_SATISFIED, *MatchPolicy]
        ),
        "pod_group": st.booleans(),
        "present": st.sampled_from([2, 3, 4, 1, 0]),
        "gpus": st.sampled_from([1, 1, 2, 3]),
        "wait": st.sampled_from([5, 30]),
        "priority": st.integers(0, 1),
    }
)
"""What one gang declares, and how many members it has to begin with."""

pairs = st.sampled_from(
    [(), (), ((0, 1), (1, 0)), ((0, 1), (1, 0), (2, 3), (3, 2)), ((0, 1),), ((4, 99),)]
)
"""Which gang lists which other one in its groups; most of them agree."""

steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("members"), _gang, st.integers(1, 4), _gpus),
    st.tuples(st.just("members"), _gang, st.integers(1, 4), _gpus),
    st.tuples(st.just("plain"), _gpus),
    st.tuples(
        st.just("node"),
        st.integers(0, NODES - 1),
        st.integers(0, 6),
        st.sampled_from([False, False, True]),
    ),
    st.tuples(st.just("node gone"), st.integers(0, NODES - 1)),
    st.tuples(st.just("foreign"), st.integers(0, NODES - 1), _gpus),
    st.tuples(st.just("delete"), _index),
    st.tuples(st.just("delete"), _index),
    st.tuples(st.just("terminate"), _index),
    st.tuples(st.just("gate"), _index),
    st.tuples(st.just("ungate"), _index),
    st.tuples(st.just("finish"), _index, st.sampled_from(["", "", "OutOfcpu"])),
    st.tuples(st.just("relabel"), _index, _gang),
    st.tuples(st.just("clear marks")),
    st.tuples(
        st.just("declare"),
        _gang,
        st.integers(0, 4),
        st.sampled_from([Mode.STRICT, Mode.NON_STRICT]),
    ),
    st.tuples(st.just("withdraw"), _gang),
    st.tuples(
        st.just("fate"),
        st.sampled_from(["bound", "bound", "bound", "failed", "gone", "later", "mixed"]),
    ),
    st.tuples(st.just("answer")),
    st.tuples(st.just("advance"), st.sampled_from([0.3, 1.0, 6.0, 31.0, 61.0])),
    st.tuples(st.just("restart")),
)


RULES = Rules(preemption=PreemptionSettings(hold_back_s=2))
"""Nobody is held back for as long as it takes until all are looked at anyway: its end must wake who
was held back.
"""


@dataclass(slots=True)
class History:
    """A world, and which gangs were meddled with so that all-or-nothing may not hold for them any
    more.
    """

    kinds: list[dict[str, Any]]
    partners: dict[int, int]
    world: World = field(default_factory=lambda: World(rules=RULES, preempts=True))
    blemished: set[str] = field(default_factory=set)
    serial: int = 0
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self.world.fate = self._fate
        self.fate = "bound"

    fate: str = "bound"

    def do(self, step: Step) -> None:
        """Take one step."""
        name, *rest = step
        getattr(self, f"_{name.replace(' ', '_')}")(*rest)

    def gang_marks(self, number: int) -> tuple[tuple[str, str], ...]:
        """What members of a gang carry."""
        kind = self.kinds[number]
        name, other = f"g{number}", self.partners.get(number)
        groups = (
            sorted({f"{NAMESPACE}/{name}", f"{NAMESPACE}/g{other}"}) if other is not None else ()
        )
        if kind["pod_group"]:
            return gang_metadata(
                name, pod_group=True, groups=groups, policy=kind["policy"], wait=f"{kind['wait']}s"
            )
        return gang_metadata(
            name,
            min_member=kind["min"],
            mode=kind["mode"],
            groups=groups,
            policy=kind["policy"],
            wait=f"{kind['wait']}s",
        )

    def gang_of(self, each: Pod) -> str:
        """The gang a pod names; "" for a plain one."""
        named = dict(each.gang_metadata)
        return named.get(keys.NAME) or named.get("scheduling.x-k8s.io/pod-group", "")

    # --- steps -----------------------------------------------------------------------------------

    def _members(self, gang: int, number: int, gpus: int) -> None:
        kind = self.kinds[gang]
        for _ in range(number):
            self._create(
                f"g{gang}-{self.serial}",
                gpus,
                gang_metadata=self.gang_marks(gang),
                priority=kind["priority"],
            )

    def _plain(self, gpus: int) -> None:
        self._create(f"plain-{self.serial}", gpus)

    def _foreign(self, number: int, gpus: int) -> None:
        name = f"n{number}"
        picture = self.world.state.snapshot()
        index = picture.table.index.get(name)
        if index is None or picture.free[picture.resources[GPU], index] < gpus:
            return
        self._create(
            f"foreign-{self.serial}",
            gpus,
            node_name=name,
            scheduler_name="other",
            phase=Phase.RUNNING,
        )

    def _node(self, number: int, gpus: int, closed: bool) -> None:
        name = f"n{number}"
        known = self.world.nodes.get(name) or self._known_nodes.get(name)
        had = dict(known.allocatable).get(GPU, 0) if known else 0
        made = node(name, max(had, gpus, 1), unschedulable=closed)
        self._known_nodes[name] = made
        self.world.add_nodes(made)

    _known_nodes: dict[str, Any] = field(default_factory=dict)

    def _node_gone(self, number: int) -> None:
        self.world.remove_node(f"n{number}")

    def _delete(self, index: int) -> None:
        if each := self._pick(index):
            self._blemish(each)
            self.world.delete(each)

    def _terminate(self, index: int) -> None:
        if each := self._pick(index):
            self._blemish(each)
            self.world.update(each, deleting=True)

    def _gate(self, index: int) -> None:
        each = self._pick(index)
        if each and not each.node_name:
            self._blemish(each)
            self.world.update(each, gated=True)

    def _ungate(self, index: int) -> None:
        if each := self._pick(index):
            self.world.update(each, gated=False)

    def _finish(self, index: int, reason: str) -> None:
        each = self._pick(index)
        if each and each.node_name:
            self._blemish(each)
            phase = Phase.FAILED if reason else Phase.SUCCEEDED
            self.world.update(each, phase=phase, status_reason=reason)

    def _relabel(self, index: int, gang: int) -> None:
        each = self._pick(index)
        if each and each.scheduler_name == "gangsched":
            self._blemish(each)
            self._blemish(self.world.update(each, gang_metadata=self.gang_marks(gang)))

    def _clear_marks(self) -> None:
        for each in list(self.world.pods.values()):
            if each.timed_out:
                self.world.update(each, timed_out=False)

    def _declare(self, gang: int, min_member: int, mode: Mode) -> None:
        self.blemished.add(f"g{gang}")
        self.serial += 1
        annotations = ((keys.MODE[0], mode.value),) if mode is Mode.NON_STRICT else ()
        self.world.declare(
            pod_group(f"g{gang}", min_member, gang_metadata=annotations, generation=self.serial)
        )

    def _withdraw(self, gang: int) -> None:
        self.blemished.add(f"g{gang}")
        found = self.world.pod_groups.get((keys.X_K8S, f"{NAMESPACE}/g{gang}"))
        if found is not None:
            self.world.withdraw(found)

    def _fate(self, what: Any) -> Any:
        """As a step: how binds end from now on. As an answer: how this bind ends."""
        if isinstance(what, PreemptionOrder):
            return self._fate_of_preemption(what)
        if not isinstance(what, Bind):
            self.fate = what
            return None
        fate = (
            self.dice.choice(["bound", "bound", "failed", "gone", "later"])
            if self.fate == "mixed"
            else self.fate
        )
        if fate in {"failed", "gone"} and what.uid in self.world.pods:
            self._blemish(self.world.pods[what.uid])
        return fate

    def _fate_of_preemption(self, order: PreemptionOrder) -> str:
        """A gang of which an eviction fails may lose a part of its members, and so may one that
        others meddle with.
        """
        if self.fate != "mixed":
            return "bound"
        fate = self.dice.choice(["bound", "bound", "bound", "failed", "later"])
        if fate == "failed" and isinstance(order, Evict):
            self.blemished.update(f"g{number}" for number in range(GANGS))
        return fate

    def _turn(self) -> None:
        self.world.turn()

    def _answer(self) -> None:
        self.world.answer()

    def _settle(self) -> None:
        self.world.settle()

    def _advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _restart(self) -> None:
        self.fate = "bound"
        self.world.restart()

    # --- their tools -----------------------------------------------------------------------------

    def _create(self, name: str, gpus: int, **fields: Any) -> None:
        self.serial += 1
        self.world.create(
            pod(name, gpus=gpus, uid=name, creation_s=100 + self.serial // 3, **fields)
        )

    def _pick(self, index: int) -> Pod | None:
        pods = list(self.world.pods.values())
        return pods[index % len(pods)] if pods else None

    def _blemish(self, each: Pod) -> None:
        self.blemished.add(self.gang_of(each))


paces = st.sampled_from(["settle", "settle", "turn", ""])
"""What gangsched does after a step."""


@dataclass(frozen=True, slots=True)
class Script:
    """All that is drawn for one history."""

    kinds: list[dict[str, Any]]
    pairs: tuple[tuple[int, int], ...]
    occupied: tuple[int, int]
    steps: list[tuple[Step, str]]


scripts = st.builds(
    Script,
    kinds=st.lists(kinds, min_size=GANGS, max_size=GANGS),
    pairs=pairs,
    occupied=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    steps=st.lists(st.tuples(steps, paces), min_size=5, max_size=20),
)


def started(script: Script) -> History:
    """A history at its beginning: two half occupied nodes, PodGroups, and the members the gangs
    begin with.
    """
    history = History(script.kinds, dict(script.pairs))
    for number in range(2):
        history.do(("node", number, 4, False))
        if script.occupied[number]:
            history.do(("foreign", number, script.occupied[number]))
    for number, kind in enumerate(script.kinds):
        if kind["pod_group"]:
            annotations = ((keys.MODE[0], kind["mode"].value),)
            history.world.declare(pod_group(f"g{number}", kind["min"], gang_metadata=annotations))
        if kind["present"]:
            history.do(("members", number, kind["present"], kind["gpus"]))
    return history


def played(script: Script) -> Iterator[History]:
    """The history at its beginning and after each step."""
    history = started(script)
    yield history
    for step, pace in script.steps:
        history.do(step)
        if pace:
            history.do((pace,))
        yield history
