"""No text of one namespace has a name of another (semantics I4, E1).

Random clusters with several namespaces. All names in a namespace, and its own, begin with a word
that no text of another namespace may have. Exception: ids of gangs that a gang itself lists.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindFailed,
    RecordEvent,
    Report,
    SetPodCondition,
    SetPodGroupStatus,
)
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.rule_set import Rules
from gangsched.state.visibility import Moment, describe, visible_gangs
from tests.builders import members, node, pod, pod_group, running
from tests.sizes import of_size
from tests.world import World

SEED = 48
HISTORIES = of_size(40, 3_000)
WORDS = ("alfa", "bravo", "charlie")
"""Each begins the names of a namespace."""


def texts(report: Report) -> Iterator[tuple[str, str]]:
    """The texts of a report, each with the namespace in which it is told."""
    match report:
        case SetPodCondition():
            yield report.namespace, report.message
        case RecordEvent():
            yield report.regarding.namespace, report.message
        case SetPodGroupStatus():
            yield report.namespace, msgspec.json.encode(report.status).decode()


def foreign_words(namespace: str, text: str, listed: set[str]) -> list[str]:
    """The words of other namespaces in a text, apart from ids that somebody in the
    namespace lists.
    """
    for each in sorted(listed, key=len, reverse=True):
        text = text.replace(each, "")
    return [word for word in WORDS if not namespace.startswith(word) and word in text]


class _History:
    """What happens in one random cluster."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        rules = Rules(reservations=ReservationLimits(small_head_after_s=0.0))
        nodes = [
            node(f"n-{i}", gpus=rng.choice([1, 2, 4]), labels={"rack": f"r-{i % 2}"})
            for i in range(3)
        ]
        self.world = World(*nodes, rules=rules, preempts=True)
        self.world.say(Applied(StorageClass(name="waits", waits=True, provisioner="p")))
        #: Ids that a gang of a namespace lists, by namespace.
        self.listed: dict[str, set[str]] = {f"{word}-ns": set() for word in WORDS}
        self.number = 0

    def step(self) -> None:
        """Something happens, and gangsched takes a turn or a few."""
        word = self.rng.choice(WORDS)
        steps = [
            self.gang,
            self.group,
            self.group,
            self.tree,
            self.plain,
            self.end,
            self.budget,
            self.claims,
            self.wait,
        ]
        self.rng.choice(steps)(word)
        self.world.turn()

    def name(self, word: str) -> str:
        """A new name."""
        self.number += 1
        return f"{word}-{self.number}"

    def create(self, word: str, name: str, **stated: Any) -> None:
        """A gang's members; uids are no names, as API servers make them."""
        self.add(
            members(
                name,
                self.rng.randint(1, 3),
                gpus=self.rng.choice([0, 1, 2, 3]),
                namespace=f"{word}-ns",
                priority=self.rng.choice([0, 0, 5, 10]),
                labels={"app": name},
                **stated,
            )
        )

    def add(self, pods: list[Pod]) -> None:
        """Pods with uids that name nothing."""
        self.world.create(
            msgspec.structs.replace(each, uid=f"u-{self.rng.random()}") for each in pods
        )

    def gang(self, word: str) -> None:
        """A gang, perhaps of a PodGroup, in one rack, or with a run time."""
        name = self.name(word)
        if self.rng.random() < 0.3:
            self.world.declare(
                pod_group(
                    name,
                    self.rng.randint(1, 4),
                    namespace=f"{word}-ns",
                    uid=f"pg-{self.rng.random()}",
                )
            )
            self.create(word, name, pod_group=True)
        else:
            topology = {"topology": "rack"} if self.rng.random() < 0.3 else {}
            self.create(word, name, mode=self.rng.choice(["Strict", "NonStrict"]), **topology)

    def group(self, word: str) -> None:
        """A group of gangs of two namespaces, of which the other side may not agree."""
        other = self.rng.choice([each for each in WORDS if each != word])
        name, others = self.name(word), self.name(other)
        ids = [f"{word}-ns/{name}", f"{other}-ns/{others}"]
        for each in (word, other):
            self.listed[f"{each}-ns"].update(ids)
        # One side may wait for what the other one must not know, such as a claim that does not
        # exist.
        use = ClaimUse(f"{word}-claim-{name}")
        claims = {"claims": (use,)} if self.rng.random() < 0.4 else {}
        self.create(word, name, groups=json.dumps(ids), **claims)
        if self.rng.random() < 0.8:
            self.create(other, others, groups=json.dumps(ids))

    def tree(self, word: str) -> None:
        """Children of a parent, whose name another namespace may use as well."""
        parent = self.rng.choice(["shared", self.name(word)])
        for _ in range(2):
            self.create(word, self.name(word), parent=parent, min_children="2")

    def plain(self, word: str) -> None:
        """A pod of ours, or one of another scheduler that runs."""
        new = pod(self.name(word), gpus=1, namespace=f"{word}-ns", priority=self.rng.choice([0, 5]))
        if self.rng.random() < 0.4:
            new = running(
                msgspec.structs.replace(new, scheduler_name="other"), f"n-{self.rng.randrange(3)}"
            )
        self.add([new])

    def claims(self, word: str) -> None:
        """A gang whose members have claims that wait for their node, or that do not exist."""
        name = self.name(word)
        use = ClaimUse(f"{word}-claim-{name}")
        if self.rng.random() < 0.7:
            claim = Claim(
                namespace=f"{word}-ns",
                name=use.name,
                uid=f"claim-{self.number}",
                storage_class="waits",
                request_bytes=1,
            )
            self.world.say(Applied(claim))
        self.create(word, name, claims=(use,))

    def budget(self, word: str) -> None:
        """A budget that protects everything of its namespace."""
        self.world.say(
            Applied(PodDisruptionBudget(f"{word}-ns", self.name(word), selector=(), allowed=0))
        )

    def end(self, word: str) -> None:
        """A pod ends."""
        own = [each for each in self.world.pods.values() if each.namespace == f"{word}-ns"]
        if own:
            self.world.delete(self.rng.choice(own))

    def wait(self, word: str) -> None:
        """Time passes, and binds fail."""
        del word
        self.world.fate = lambda _: "later"
        self.world.turn()
        if self.rng.random() < 0.5:
            for bind in [each for each in self.world.unanswered if isinstance(each, Bind)]:
                if self.rng.random() < 0.5:
                    continue
                self.world.unanswered.remove(bind)
                self.world.say(BindFailed(bind.uid, bind.node, f'pods "{bind.name}" is forbidden'))
        self.world.turn()
        self.world.fate = lambda _: "bound"
        self.world.advance(self.rng.choice([1.0, 31.0, 700.0]))


def check_reports(history: _History) -> int:
    """Fail if a text has a word of another namespace; the number of texts."""
    number = 0
    for report in history.world.reports:
        for namespace, text in texts(report):
            number += 1
            found = foreign_words(namespace, text, history.listed.get(namespace, set()))
            assert not found, f"{namespace} is told of {found}: {type(report).__name__} {text}"

    return number


def check_gangs(history: _History) -> Counter[str]:
    """Fail if a gang, as the gangs API shows it, has a word of another namespace; how many facts
    there are of each name.
    """
    world = history.world
    moment = Moment(now_s=world.now_s, wall_s=world.wall_s())
    facts: Counter[str] = Counter()

    for namespace, name in visible_gangs(world.state):
        gang = describe(world.state, namespace, name, moment)
        assert gang is not None
        status = gang["status"]
        assert isinstance(status, dict)
        facts.update([*status.get("facts", {})])
        text = msgspec.json.encode(gang).decode()
        found = foreign_words(namespace, text, history.listed[namespace])
        assert not found, f"{namespace} is shown {found}: {text}"

    return facts


@pytest.mark.long
def test_no_text_names_what_is_in_another_namespace() -> None:
    """I4, E1: in conditions, Events and statuses, and in messages and facts of the gangs API."""
    told = 0
    facts: Counter[str] = Counter()
    for number in range(HISTORIES):
        print(f"seed {SEED}-{number}")
        history = _History(random.Random(f"{SEED}-{number}"))
        for _ in range(5):
            for _ in range(5):
                history.step()
            facts += check_gangs(history)

        told += check_reports(history)

    print(f"{HISTORIES} histories, {told} texts, facts {dict(facts)}")
    assert told > 10 * HISTORIES
    assert {"needs", "preemption", "starts"} <= facts.keys()
