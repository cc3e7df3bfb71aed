"""`map`: nodes and the users of their accelerators, one character per device.

Invariant: it shows what pods request, as schedulers count it, not actual use. It needs permission
to list nodes and the pods of all namespaces. Capacity of nodes that are cordoned, not ready or
unreachable is shown but does not count as free.
"""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec

from gangsched.api.gang_identity import gang_id
from gangsched.console import DONE
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault
from gangsched.kube.read import resources as kinds
from gangsched.kube.read.decode import decode_node
from gangsched.kube.read.wire import Page, WireNode
from gangsched.model.gpu_policy import PRODUCT_LABEL, GpuPolicy
from gangsched.model.objects import Node, Pod
from gangsched.model.resources import format_quantity
from gangsched.model.text import counted
from kubectl_gangsched.claimed_devices import ClaimedDevices
from kubectl_gangsched.doctor.services import gpu_policy, scheduler_settings
from kubectl_gangsched.from_pods import pods_at
from kubectl_gangsched.outputs import MapOutput, PrintedNode
from kubectl_gangsched.session import CannotAnswer, Session, lacking
from kubectl_gangsched.terminal import Cell, Line, Output, columns, write, write_value

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
OTHER = "+"
FREE = "."
CLOSED = "x"
WIDEST = 64
"""More units of a node than this are not drawn one by one."""
COLOURS = (
    "cyan",
    "magenta",
    "yellow",
    "blue",
    "green",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_blue",
)

T = TypeVar("T")


@dataclass(slots=True)
class NodeUse:
    """Use of one resource on a node: the total units, and the units that each gang or pod uses."""

    node: Node
    total: int
    #: Why new pods get nothing there, "" if they do.
    closed: str = ""
    users: Counter[str] = field(default_factory=Counter)

    @property
    def free(self) -> int:
        """Units that a new pod could get on the node."""
        if self.closed:
            return 0

        return max(0, self.total - self.users.total())


def show(session: Session, resource: str | None, selector: str, output: Output) -> int:
    """Print the map; return the exit code. Raises Fault and CannotAnswer."""
    nodes, pods, unready = _read(session.client, selector)
    devices, missing = _devices(session.client)
    if selector and not nodes:
        raise CannotAnswer(f'No node matches the selector "{selector}".')

    of_drivers = claimed(nodes, pods, devices, unready)
    resources = [resource] if resource else _accelerators(session.client, nodes)
    if not resource:
        resources += sorted(of_drivers)

    if not resources:
        raise CannotAnswer(
            f"No accelerators are known on the {counted(len(nodes), 'node')}: name a resource with"
            f" --resource.{f' {missing}' if missing else ''}"
        )

    maps = {
        name: of_drivers[name] if name in of_drivers else use(nodes, pods, name, unready)
        for name in resources
    }
    if resource and not maps[resource]:
        raise CannotAnswer(_nowhere(nodes, resource))

    if output is not Output.TEXT:
        printed = {name: [_printed(node_use) for node_use in uses] for name, uses in maps.items()}
        write_value(MapOutput(resources=printed, missing="" if resource else missing), output)
        return DONE

    lines: list[Line | str] = []
    for name, uses in maps.items():
        lines += ["", *drawn(name, uses)] if lines else drawn(name, uses)

    if missing and not resource:
        lines += ["", missing]

    write(lines)
    return DONE


def _nowhere(nodes: Sequence[Node], resource: str) -> str:
    """The sentence for a resource that no node has, with the most similar one that some
    node has.
    """
    from difflib import get_close_matches

    had = sorted({name for node in nodes for name, amount in node.allocatable if amount})
    near = get_close_matches(resource, had, n=1)
    meant = f"; did you mean {near[0]}?" if near else "."

    return f'None of {counted(len(nodes), "node")} has the resource "{resource}"{meant}'


def _accelerators(client: BlockingClient, nodes: Sequence[Node]) -> list[str]:
    """Resources of nodes that count as accelerators by name, or by the scheduler's settings if they
    can be read.
    """
    try:
        policy = gpu_policy(scheduler_settings(client))
    except ApiFault as fault:
        if fault.status not in {FORBIDDEN, NOT_FOUND}:
            raise

        policy = GpuPolicy()

    return sorted(
        {name for node in nodes for name, _ in node.allocatable if policy.is_accelerator(name)}
    )


def use(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    resource: str,
    unready: Mapping[str, str],
) -> list[NodeUse]:
    """The nodes that have the resource, by name, with their users; `unready` has words for nodes
    that are not ready.
    """
    uses = {
        node.name: NodeUse(node, amount, _closed(node, unready))
        for node in sorted(nodes, key=lambda node: node.name)
        if (amount := dict(node.allocatable).get(resource, 0))
    }
    for pod in pods:
        on = uses.get(pod.node_name)
        if on is not None and pod.live and (amount := dict(pod.shape.requests).get(resource, 0)):
            ref = gang_id(pod)
            on.users[ref.id if ref is not None else pod.key] += amount

    return list(uses.values())


def claimed(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    devices: ClaimedDevices,
    unready: Mapping[str, str],
) -> dict[str, list[NodeUse]]:
    """The same of devices of claims, by driver."""
    users = {pod.uid: gang_id(pod) or pod for pod in pods}

    def user(uid: str) -> str | None:
        user_of_device = users.get(uid)
        if user_of_device is None:
            return None

        return user_of_device.key if isinstance(user_of_device, Pod) else user_of_device.id

    maps: dict[str, list[NodeUse]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        for driver, driver_use in devices.on_node(node.name, user).items():
            total, its_users = driver_use
            node_use = NodeUse(node, total, _closed(node, unready), its_users)
            maps.setdefault(driver, []).append(node_use)

    return maps


def _closed(node: Node, unready: Mapping[str, str]) -> str:
    return unready.get(node.name) or ("cordoned" if node.unschedulable else "")


def drawn(resource: str, uses: Sequence[NodeUse]) -> list[Line | str]:
    """The map of one resource as text: totals, nodes and legend."""
    amount = partial(format_quantity, resource)
    free = sum(node_use.free for node_use in uses)
    total = sum(node_use.total for node_use in uses)
    most = max((node_use.free for node_use in uses), default=0)
    largest = f"; at most {amount(most)} on one node" if free else ""
    lines: list[Line | str] = [
        [
            Cell(
                f"{amount(free)} of {amount(total)} {resource} are free on"
                f" {counted(len(uses), 'node')}{largest}.",
                "bold",
            ),
            "",
        ]
    ]
    users: Counter[str] = Counter()
    on_nodes: dict[str, int] = defaultdict(int)

    for node_use in uses:
        users.update(node_use.users)
        for user in node_use.users:
            on_nodes[user] += 1

    letters = dict(
        zip(
            (user for user, _ in sorted(users.items(), key=lambda item: (-item[1], item[0]))),
            LETTERS,
            strict=False,
        )
    )
    styles = {letter: COLOURS[place % len(COLOURS)] for place, letter in enumerate(LETTERS)}
    width = max((len(node_use.node.name) for node_use in uses), default=4)
    products = {node_use.node.labels.get(PRODUCT_LABEL, "") for node_use in uses}
    wide = max(map(len, products), default=0)

    for use in uses:
        product = (
            f"{use.node.labels.get(PRODUCT_LABEL, '') or '-':{wide}}  " if len(products) > 1 else ""
        )
        room = f"{amount(use.free):>3} free of {amount(use.total):<3}"
        head = f"{use.node.name:{width}}  {product}{room}  "
        note = f"  ({use.closed}: takes no new pods)" if use.closed else ""
        lines.append([head, *_units(use, amount, letters, styles), note])

    if users:
        rows = [
            (Cell(letter, styles[letter]), user, amount(users[user]), str(on_nodes[user]))
            for user, letter in letters.items()
        ]
        lines += ["", *columns(("", "GANG OR POD", "HAS", "NODES"), rows)]

        if left := len(users) - len(letters):
            lines.append(f"{OTHER}  {left} more")

    return lines


def _units(
    use: NodeUse,
    amount: Callable[[int], str],
    letters: Mapping[str, str],
    styles: Mapping[str, str],
) -> list[Cell]:
    """One character a unit; of a node that is too wide, how many each user has."""
    taken = sorted(use.users.items(), key=lambda item: (letters.get(item[0], "~"), item[0]))
    left = max(0, use.total - use.users.total())

    if use.total > WIDEST:
        return [
            Cell(
                f"{letters.get(user, OTHER)}×{amount(number)} ",
                styles.get(letters.get(user, ""), ""),
            )
            for user, number in taken
        ]

    cells = [
        Cell(letters.get(user, OTHER) * number, styles.get(letters.get(user, ""), ""))
        for user, number in taken
    ]
    return [*cells, Cell((CLOSED if use.closed else FREE) * left, "dim")]


def _printed(use: NodeUse) -> PrintedNode:
    return PrintedNode(
        node=use.node.name,
        product=use.node.labels.get(PRODUCT_LABEL, ""),
        total=use.total,
        free=use.free,
        closed=use.closed,
        users=dict(use.users),
    )


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _NodeReadiness(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Meta(msgspec.Struct):
    name: str = ""


class _Conditions(msgspec.Struct):
    """A node's conditions, which the scheduler does not read: it sees the taints that
    follow them.
    """

    metadata: _Meta
    status: _NodeReadiness = msgspec.field(default_factory=_NodeReadiness)


UNREADY = {
    "node.kubernetes.io/unreachable": "unreachable",
    "node.kubernetes.io/not-ready": "not ready",
}


def unready_nodes(page: bytes) -> dict[str, str]:
    """The nodes of a page whose kubelet is not ready or does not report, with the word for that."""
    reasons = {}
    for conditions in msgspec.json.decode(page, type=Page[_Conditions]).items or ():
        word = _unready(conditions)
        if word:
            reasons[conditions.metadata.name] = word

    return reasons


def unready_of(node: bytes | msgspec.Raw) -> str:
    """The word for a node whose kubelet is not ready or does not report; "" if it is ready."""
    return _unready(msgspec.json.decode(node, type=_Conditions))


def _unready(conditions: _Conditions) -> str:
    ready = []
    for condition in conditions.status.conditions or ():
        if condition.type == "Ready":
            ready.append(condition.status)

    if not ready or ready[0] == "True":
        return ""

    return "unreachable" if ready[0] == "Unknown" else "not ready"


def _read(client: BlockingClient, selector: str) -> tuple[list[Node], list[Pod], dict[str, str]]:
    """Nodes, pods, and the word for each node that is not ready."""

    def nodes() -> tuple[list[Node], dict[str, str]]:
        return read_nodes(client, selector)

    def pods() -> list[Pod]:
        # Pods without a node use no device; large clusters have thousands of them.
        return list(pods_at(client, "/api/v1/pods", fieldSelector="spec.nodeName!="))

    with ThreadPoolExecutor(2) as pool:
        futures = pool.submit(_needed, nodes), pool.submit(_needed, pods)
        known, unready = futures[0].result()
        return known, futures[1].result(), unready


def read_nodes(client: BlockingClient, selector: str = "") -> tuple[list[Node], dict[str, str]]:
    """Nodes, and the word for each that is not ready, by its conditions or its taints.
    Raises Fault.
    """
    selected = {"labelSelector": selector} if selector else {}
    decoder = msgspec.json.Decoder(Page[WireNode])
    nodes: list[Node] = []
    unready: dict[str, str] = {}

    for page in client.pages("/api/v1/nodes", **selected):
        nodes += [decode_node(wire) for wire in decoder.decode(page).items or ()]
        unready.update(unready_nodes(page))

    for node in nodes:
        words = [UNREADY[taint.key] for taint in node.taints if taint.key in UNREADY]
        if words:
            unready.setdefault(node.name, words[0])

    return nodes, unready


def _devices(client: BlockingClient) -> tuple[ClaimedDevices, str]:
    """The devices of claims; none where they are not served, or not readable, with a sentence about
    the permission that is missing: without either list it is unknown who has which.
    """
    parts: Any = kinds.RESOURCE_SLICES
    claims: Any = kinds.RESOURCE_CLAIMS
    devices = ClaimedDevices()
    try:
        for kind, put in ((parts, devices.put_slice), (claims, devices.put_claim)):
            for page in client.pages(kind.path):
                for wire in kind.page.decode(page).items or ():
                    converted = kind.convert(wire)
                    put(getattr(converted, "key", converted.name), converted)
    except ApiFault as fault:
        if fault.status not in {FORBIDDEN, NOT_FOUND}:
            raise

        missing = f"{lacking(fault)}: devices of claims are not shown."
        return ClaimedDevices(), missing if fault.status == FORBIDDEN else ""

    return devices, ""


def _needed(read: Callable[[], T]) -> T:
    try:
        return read()
    except ApiFault as fault:
        if fault.status != FORBIDDEN:
            raise

        raise CannotAnswer(
            f"{lacking(fault)}, and the map is made of that; `why` needs no more than your"
            " namespace."
        ) from fault
