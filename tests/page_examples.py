"""Documents of the page for tests and for looking at it: the demo cluster, and a large one.

`python -m tests.page_examples demo FILE` writes a document as JSON; `big` has 5,000 nodes of 8
accelerators and 10,000 gangs that wait.
"""

from __future__ import annotations

import base64
import gzip
import random
import sys
from collections import Counter
from pathlib import Path

import msgspec

from gangsched.model.verdict_facts import (
    Amounts,
    ExcludedNodes,
    GangNeed,
    NodeCounts,
    RoomShort,
    Shortage,
)
from gangsched.sentences.lack_of_room import room_short
from gangsched.sentences.times import by
from kubectl_gangsched.page.changes import between
from kubectl_gangsched.page.document import (
    Bar,
    Detail,
    Devices,
    Document,
    Health,
    Lack,
    Moment,
    Need,
    PageEvent,
    PageFinding,
    PageGang,
    PageMember,
    PageNode,
    Place,
    Promise,
    Reservation,
    Total,
)
from kubectl_gangsched.page.moments import remark, sentence, totals_of

GPU = "nvidia.com/gpu"
NOW_S = 1_795_874_700
"""2026-11-28T14:05:00Z."""
HOUR_S = 3_600
CLOSED = {
    "not ready": "node(s) had untolerated taint(s)",
    "cordoned": "node(s) were unschedulable",
}
LEVELS = ["topology.kubernetes.io/zone", "topology.kubernetes.io/rack"]


def demo() -> Document:
    """Twelve nodes of eight GPUs: two gangs run, a pod as well, and one gang waits; five minutes
    earlier that one did not exist.
    """
    after = _demo_moment()
    before = msgspec.convert(msgspec.to_builtins(after), Moment)
    before.at_s = NOW_S - 25 * 60
    before.gangs.pop("demo/llm")
    before.bars.pop("demo/llm")
    before.details.pop("demo/llm")
    before.queue = []
    before.sentence = sentence(before.totals, before.queue, before.gangs)

    for node in before.nodes.values():
        node.reserved = []

    return Document(
        source="snapshot",
        title="demo",
        user="alice",
        namespace="demo",
        made_by="0.1.0",
        moment=before,
        changes=[between(before, after)],
    )


def _demo_moment() -> Moment:
    start_s = NOW_S + 51 * 60
    reservation = Reservation(gang="demo/llm", start_s=start_s, kind="timed")
    taints = {
        10: ["node.kubernetes.io/unschedulable=:NoSchedule"],
        12: ["node.kubernetes.io/not-ready=:NoSchedule"],
    }
    nodes = {}
    for number in range(1, 13):
        users = {}
        if number <= 6:
            users = {"demo/resnet": 8}
        elif number <= 8:
            users = {"demo/bert": 8}
        elif number == 9:
            users = {"pod:demo/notebook": 1}

        closed = {10: "cordoned", 12: "not ready"}.get(number, "")
        free = 0 if closed else 8 - sum(users.values())
        nodes[f"node-{number:02d}"] = PageNode(
            path=["a" if number <= 8 else "b", f"r{(number + 3) // 4}"],
            product="A100" if number > 10 else "H100",
            devices=[Devices(resource=GPU, total=8, free=free, users=users)],
            closed=closed,
            taints=taints.get(number, []),
            reserved=[reservation] if number <= 5 else [],
        )

    excluded = [(reason, 1) for reason in CLOSED.values()]
    refusal = _refusal("demo/llm", 5, nodes=12, free=15, room=1, excluded=excluded)
    moment = Moment(
        at_s=NOW_S,
        levels=LEVELS,
        totals=[
            Total(
                resource=GPU,
                total=96,
                free=15,
                most_free=8,
                nodes=12,
                closed={"cordoned": 8, "not ready": 8},
            )
        ],
        nodes=nodes,
        gangs={
            "demo/resnet": _running("resnet", 6, 8, NOW_S - 6_000, NOW_S + 3_000),
            "demo/bert": _running("bert", 4, 4, NOW_S - 2_400, NOW_S + 12_000),
            "demo/llm": PageGang(
                namespace="demo",
                name="llm",
                waits=True,
                sentence=refusal,
                phase="Pending",
                reason="Unschedulable",
                pods=5,
                min_member=5,
                priority=0,
                needs=[Need(pods=5, requests={GPU: "8"})],
                lacks=Lack(resource=GPU, amount="25", free_on_one_node="8"),
                created_s=NOW_S - 23 * 60,
                waiting_since_s=NOW_S - 23 * 60,
                run_time_s=8 * HOUR_S,
                promised_s=start_s,
                promise=(
                    f"Room on 5 nodes (node-01, node-02, 3 more) is reserved; starts at"
                    f" {by(start_s)} at the latest, when demo/resnet has ended."
                ),
                reserved=reservation,
            ),
        },
        queue=[("demo/llm", 1)],
        bars={
            "demo/resnet": _bars(NOW_S - 6_000, NOW_S + 3_000, 1, 6),
            "demo/bert": _bars(NOW_S - 2_400, NOW_S + 12_000, 7, 8),
            "pod:demo/notebook": [
                Bar(kind="happened", from_s=NOW_S - 7_020, nodes=["node-09"]),
                Bar(kind="expected"),
            ],
            "demo/llm": [
                Bar(kind="waited", from_s=NOW_S - 23 * 60),
                Bar(
                    kind="promised",
                    from_s=start_s,
                    to_s=start_s + 8 * HOUR_S,
                    nodes=[f"node-{number:02d}" for number in range(1, 6)],
                ),
            ],
        },
        details={
            "demo/llm": Detail(
                members=[PageMember(name=f"llm-{place}", state="pending") for place in range(5)],
                events=[
                    PageEvent(at_s=NOW_S - 23 * 60, what="Created"),
                    PageEvent(at_s=NOW_S - 22 * 60, what="Reserved", message="Room on 5 nodes."),
                ],
                events_from="the leader",
                events_since_s=NOW_S - 12 * HOUR_S,
                holders="nvidia.com/gpu is used by gang resnet (48), gang bert (16).",
                source="the gangs API",
            ),
            "demo/resnet": Detail(
                members=[
                    PageMember(name=f"resnet-{place}", state="bound", node=f"node-{place + 1:02d}")
                    for place in range(6)
                ],
                source="the gangs API",
            ),
        },
        health=Health(
            findings=[
                PageFinding(
                    check="scheduler",
                    sentence="No replica of Deployment gangsched-system/gangsched is ready.",
                    todo="kubectl -n gangsched-system describe deployment/gangsched",
                )
            ],
            not_checked={"the Lease": "You (user alice) may not get leases in namespace x"},
            facts={"API server": "v1.36.3", "Leader": "gangsched-1"},
            promises=[Promise(gang="demo/bert", promised_s=NOW_S - 2_400, started_s=NOW_S - 2_460)],
        ),
    )
    moment.sentence = sentence(moment.totals, moment.queue, moment.gangs)
    moment.remark = remark(moment.totals)
    return moment


def _refusal(
    gang: str,
    pods: int,
    *,
    nodes: int,
    free: int,
    room: int,
    excluded: list[tuple[str, int]],
) -> str:
    """What the scheduler says of a gang whose pods ask for 8 GPUs each, of which there is room for
    so many.
    """
    counts = [ExcludedNodes(reason, number, eligible=False) for reason, number in excluded]
    eligible = nodes - sum(number for _, number in excluded)
    lack = ExcludedNodes(f"Insufficient {GPU}", eligible)
    amounts = Amounts(
        resource=GPU,
        asked=8,
        offered=8,
        offered_in_all=8 * eligible,
        free_on_one=8 if room else 7,
        free_in_all=free,
        takes=room,
    )
    requests = ((GPU, 8),)
    fact = RoomShort(
        need=GangNeed(gang=gang, pods=pods, requests=requests),
        pod=f"{gang}-0",
        requests=requests,
        short=Shortage(amounts, eligible, eligible),
        room=room,
        exact=True,
        empty_room=eligible,
        nodes=NodeCounts(total=nodes, excluded=(*counts, lack)),
    )
    text = room_short(fact, never=False).text
    return f"G{text[1:]}"


def _running(name: str, pods: int, each: int, started_s: int, end_s: int) -> PageGang:
    return PageGang(
        namespace="demo",
        name=name,
        sentence=f"Gang demo/{name} has its nodes: all {pods} pods are bound.",
        phase="Running",
        reason="Scheduled",
        pods=pods,
        bound=pods,
        min_member=pods,
        priority=0,
        needs=[Need(pods=pods, requests={GPU: str(each)})],
        created_s=started_s - 60,
        started_s=started_s,
        run_time_s=end_s - started_s,
        expected_end_s=end_s,
    )


def _bars(from_s: int, to_s: int, first: int, last: int) -> list[Bar]:
    nodes = [f"node-{number:02d}" for number in range(first, last + 1)]
    return [
        Bar(kind="happened", from_s=from_s, nodes=nodes),
        Bar(kind="expected", to_s=to_s, nodes=nodes),
    ]


def big(
    nodes: int = 5_000,
    waiting: int = 10_000,
    moments: int = 2,
    seed: int = 0,
) -> Document:
    """A large cluster: racks of 16 nodes, zones of 1,000; gangs of 1 to 16 nodes run on 95 % of
    them, and a pod on each other one, so that `waiting` gangs wait. In each later moment 200 nodes
    have another gang.
    """
    chance = random.Random(seed)
    moment = _big_moment(chance, nodes, waiting)
    first = moment
    changes = []

    for number in range(1, moments):
        later = _some_later(chance, moment, number)
        changes.append(between(moment, later))
        moment = later

    return Document(
        source="snapshot",
        title=f"{nodes} nodes",
        namespace="team-0",
        made_by="0.1.0",
        moment=first,
        changes=changes,
    )


def _big_moment(chance: random.Random, nodes: int, waiting: int) -> Moment:
    moment = Moment(at_s=NOW_S, levels=LEVELS)
    for number in range(nodes):
        closed = "" if chance.random() > 0.01 else chance.choice(["cordoned", "not ready"])
        moment.nodes[f"node-{number:04d}"] = PageNode(
            path=[f"zone-{number // 1_000}", f"rack-{number // 16:03d}"],
            product="H100" if number % 3 else "A100",
            devices=[Devices(resource=GPU, total=8, free=0 if closed else 8)],
            closed=closed,
        )

    names = list(moment.nodes)
    place = 0
    while place < nodes * 0.95:
        size = chance.choice([1, 1, 2, 4, 8, 16])
        own = [name for name in names[place : place + size] if not moment.nodes[name].closed]
        place += size
        if own:
            _run(chance, moment, own)

    for name in names[place:]:
        _use_a_part(chance, moment, name)

    _sum(moment)
    shut = _closed(moment)
    for number in range(waiting):
        _wait(chance, moment, shut, number)

    _promise(chance, moment)
    _sum(moment)
    return moment


def _promise(chance: random.Random, moment: Moment) -> None:
    """Reserve room for three gangs of the queue."""
    for number, (gang, _) in enumerate(moment.queue[50:53]):
        start_s = NOW_S + (25 + 20 * number) * 60
        waiting = moment.gangs[gang]
        waiting.promised_s = start_s
        waiting.reserved = Reservation(gang=gang, start_s=start_s, kind="timed")
        moment.bars[gang].append(
            Bar(kind="promised", from_s=start_s, to_s=start_s + int(waiting.run_time_s or 0))
        )
        used = [name for name, node in moment.nodes.items() if node.devices[0].users]
        for name in chance.sample(used, min(waiting.pods, len(used))):
            moment.nodes[name].reserved = [waiting.reserved]


def _use_a_part(chance: random.Random, moment: Moment, name: str) -> None:
    """A pod of its own on a node that takes some."""
    (devices,) = moment.nodes[name].devices
    if not devices.free:
        return

    used = chance.randrange(1, 8)
    devices.users = {f"pod:team-{chance.randrange(50)}/notebook-{name.removeprefix('node-')}": used}
    devices.free = 8 - used


def _run(chance: random.Random, moment: Moment, own: list[str]) -> None:
    number = len(moment.gangs)
    gang = f"team-{number % 50}/train-{number:05d}"
    started_s = NOW_S - chance.randrange(60, 20 * HOUR_S)
    end_s = NOW_S + chance.randrange(60, 20 * HOUR_S)

    for name in own:
        (devices,) = moment.nodes[name].devices
        devices.users = {gang: 8}
        devices.free = 0

    running = _running(gang.partition("/")[2], len(own), 8, started_s, end_s)
    running.namespace = gang.partition("/")[0]
    running.sentence = f"Gang {gang} has its nodes: all {len(own)} pods are bound."
    moment.gangs[gang] = running
    moment.bars[gang] = [
        Bar(kind="happened", from_s=started_s, nodes=own),
        Bar(kind="expected", to_s=end_s, nodes=own),
    ]


def _wait(
    chance: random.Random,
    moment: Moment,
    closed: list[tuple[str, int]],
    number: int,
) -> None:
    gang = f"team-{number % 50}/wait-{number:05d}"
    pods = chance.choice([1, 2, 4, 8, 16, 32])
    since_s = NOW_S - (20_000 - 2 * number)
    moment.gangs[gang] = PageGang(
        namespace=gang.partition("/")[0],
        name=gang.partition("/")[2],
        waits=True,
        sentence=_refusal(
            gang,
            pods,
            nodes=len(moment.nodes),
            free=moment.totals[0].free,
            room=0,
            excluded=closed,
        ),
        phase="Pending",
        reason=chance.choice(["Unschedulable", "Unschedulable", "Waiting", "Holding"]),
        pods=pods,
        min_member=pods,
        priority=0,
        needs=[Need(pods=pods, requests={GPU: "8"})],
        created_s=since_s,
        waiting_since_s=since_s,
        run_time_s=chance.randrange(600, 20 * HOUR_S),
    )
    moment.queue.append((gang, 1))
    moment.bars[gang] = [Bar(kind="waited", from_s=since_s)]


def _closed(moment: Moment) -> list[tuple[str, int]]:
    """How many nodes take no pods, in kube-scheduler's words."""
    closed = Counter(node.closed for node in moment.nodes.values() if node.closed)
    counts = []
    for word, reason in CLOSED.items():
        if closed[word]:
            counts.append((reason, closed[word]))

    return counts


def _sum(moment: Moment) -> None:
    moment.totals = totals_of(moment.nodes)
    moment.sentence = sentence(moment.totals, moment.queue, moment.gangs)
    moment.remark = remark(moment.totals)


def _some_later(chance: random.Random, moment: Moment, number: int) -> Moment:
    later = msgspec.structs.replace(
        moment,
        at_s=moment.at_s + 60,
        nodes=dict(moment.nodes),
        gangs=dict(moment.gangs),
        bars=dict(moment.bars),
    )
    for name in chance.sample(sorted(moment.nodes), min(200, len(moment.nodes))):
        node = later.nodes[name]
        (devices,) = node.devices
        users = devices.users
        if set(users.values()) == {8}:
            gang = f"team-0/new-{number}-{name}"
            users = {gang: 8}
            later.gangs[gang] = _running(gang.partition("/")[2], 1, 8, int(later.at_s), NOW_S * 2)
            later.gangs[gang].namespace = "team-0"

        later.nodes[name] = msgspec.structs.replace(
            node,
            devices=[Devices(resource=GPU, total=8, free=devices.free, users=users)],
        )

    gone: Place = moment.queue[0] if moment.queue else ("", 0)
    later.queue = moment.queue[1:]
    later.gangs.pop(gone[0], None)
    later.bars.pop(gone[0], None)
    _sum(later)

    return later


def document_in(html: str) -> Document:
    """The document in a file of the page."""
    _, _, rest = html.partition('<script type="application/json" id="document">')
    data, _, _ = rest.partition("</script>")
    return msgspec.json.decode(gzip.decompress(base64.b64decode(data)), type=Document)


EXAMPLES = {"demo": demo, "big": big}


def main() -> None:
    """Write an example to a file."""
    name, path = sys.argv[1:]
    Path(path).write_bytes(msgspec.json.encode(EXAMPLES[name]()))


if __name__ == "__main__":
    main()
