"""Decode slices, classes, claims and taint rules of resource.k8s.io/v1 into the model.

Invariant: as in `decode`, but no field is ignored: fields that are not read here are recorded in
`unknown`, so that gangsched allocates no devices for objects that set such fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gangsched.kube.read.decode import DecodeFault, seconds
from gangsched.kube.read.shapes import selector_terms
from gangsched.kube.read.wire import NodeSelector
from gangsched.model.bounds import check_entries
from gangsched.model.devices import (
    Attribute,
    Capacity,
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    DeviceTaintRule,
    NodeScope,
    RequestPolicy,
    ResourceSlice,
)
from gangsched.model.objects import Taint, Toleration
from kubernetes_cel.amounts import QuantityError, parse_nanos

Wired: TypeAlias = Mapping[str, Any]
T = TypeVar("T")

_KINDS: Final = frozenset({"int", "bool", "string", "version"})
_SCOPE: Final = frozenset({"nodeName", "nodeSelector", "allNodes"})
_SLICE: Final = _SCOPE | {"driver", "pool", "devices", "perDeviceNodeSelection", "sharedCounters"}
_BINDING: Final = frozenset({"bindsToNode", "bindingConditions", "bindingFailureConditions"})
_DEVICE: Final = (
    _SCOPE
    | _BINDING
    | {"name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"}
)
_EXACTLY: Final = frozenset(
    {
        "deviceClassName",
        "selectors",
        "allocationMode",
        "count",
        "adminAccess",
        "tolerations",
        "capacity",
    }
)


def decode_slice(wire: Wired) -> ResourceSlice:
    """The slice. Raises DecodeFault."""
    return _decoded("resource slice", wire, _slice)


def decode_device_class(wire: Wired) -> DeviceClass:
    """The class. Raises DecodeFault."""
    return _decoded("device class", wire, _class)


def decode_taint_rule(wire: Wired) -> DeviceTaintRule:
    """Decode the rule; a rule without a selector gets the driver "", which no device has. Raises
    DecodeFault.
    """
    return _decoded("device taint rule", wire, _rule)


def decode_device_claim(wire: Wired) -> DeviceClaim:
    """The claim. Raises DecodeFault."""
    return _decoded("resource claim", wire, _claim)


def claim_asks(namespace: str, name: str, uid: str, spec: Wired, status: Wired) -> DeviceClaim:
    """Requests and allocated devices of a claim; if it cannot be decoded, its `unknown` says so."""
    meta = {"namespace": namespace, "name": name, "uid": uid}
    try:
        return decode_device_claim({"metadata": meta, "spec": spec, "status": status})
    except DecodeFault as fault:
        return DeviceClaim(namespace=namespace, name=name, uid=uid, unknown=str(fault))


def has_more(spec: Wired) -> bool:
    """Whether an allocation would need driver configs or tolerations of the claim, which are not
    decoded.
    """
    devices = spec.get("devices") or {}
    asked = [request.get("exactly") or {} for request in devices.get("requests") or ()]
    asked += [
        sub
        for request in devices.get("requests") or ()
        for sub in request.get("firstAvailable") or ()
    ]

    return bool(devices.get("config")) or any(request.get("tolerations") for request in asked)


def _decoded(noun: str, wire: Wired, decode: Callable[[str, Wired], T]) -> T:
    name = (wire.get("metadata") or {}).get("name", "")
    try:
        for part in ("spec", "status"):
            check_entries(_without_parameters(wire.get(part)), part)

        return decode(name, wire)
    except (
        QuantityError,
        msgspec.ValidationError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
    ) as error:
        raise DecodeFault(f"The {noun} {name} cannot be understood: {error}") from error


def _without_parameters(part: Any) -> Any:
    """A spec or status without what is passed on to drivers unread."""
    devices = part.get("devices") if isinstance(part, dict) else None
    if isinstance(devices, dict):
        return {**part, "devices": {**devices, "config": None}}

    return part


def _unknown(wire: Wired, *known: str) -> str:
    """The first field that is set, and is none of these."""
    # The alphabetically first, so that the message does not depend on the order of fields.
    return min(
        (name for name, value in wire.items() if name not in known and value not in (None, [], {})),
        default="",
    )


def _slice(name: str, wire: Wired) -> ResourceSlice:
    spec = wire["spec"]
    pool = wire["spec"]["pool"]
    unknown = _unknown(spec, *_SLICE)
    sets = tuple(
        (counter_set["name"], _amounts(counter_set.get("counters")))
        for counter_set in spec.get("sharedCounters") or ()
    )
    devices = spec.get("devices") or ()

    return ResourceSlice(
        name=name,
        driver=spec["driver"],
        pool=pool["name"],
        generation=pool.get("generation", 0),
        slices=pool.get("resourceSliceCount", 0),
        scope=_scope(spec),
        per_device=bool(spec.get("perDeviceNodeSelection")),
        devices=tuple(_device(device, unknown) for device in devices),
        counters=sets,
        ignored=any(
            part.get("compatibilityGroups")
            for device in devices
            for part in device.get("consumesCounters") or ()
        ),
    )


def _scope(wire: Wired) -> NodeScope:
    selector = wire.get("nodeSelector")
    terms = None if selector is None else selector_terms(msgspec.convert(selector, NodeSelector))
    return NodeScope(wire.get("nodeName") or "", bool(wire.get("allNodes")), terms)


def _amounts(wire: Mapping[str, Wired] | None) -> tuple[tuple[str, int], ...]:
    return tuple((name, parse_nanos(amount["value"])) for name, amount in (wire or {}).items())


def _device(wire: Wired, unknown: str) -> Device:
    counters: dict[tuple[str, str], int] = {}
    for part in wire.get("consumesCounters") or ():
        unknown = unknown or _unknown(part, "counterSet", "counters")
        for name, amount in _amounts(part.get("counters")):
            counters[part["counterSet"], name] = (
                counters.get((part["counterSet"], name), 0) + amount
            )

    attributes: dict[str, Attribute] = {}
    for name, value in (wire.get("attributes") or {}).items():
        kinds = [kind for kind, content in value.items() if content is not None]
        if len(kinds) == 1 and kinds[0] in _KINDS:
            attributes[name] = (kinds[0], value[kinds[0]])
        else:
            # A list attribute of a newer API: the device is no candidate, rather than a device
            # without the attribute.
            unknown = unknown or f"attribute {name} of kind {', '.join(sorted(kinds)) or 'none'}"

    capacity = {}
    for name, value in (wire.get("capacity") or {}).items():
        policy = value.get("requestPolicy") or {}
        unknown = unknown or _unknown(value, "value", "requestPolicy")
        unknown = unknown or _unknown(policy, "default", "validValues", "validRange")
        unknown = unknown or _unknown(policy.get("validRange") or {}, "min", "max", "step")
        capacity[name] = Capacity(parse_nanos(value["value"]), _policy(policy) if policy else None)

    return Device(
        name=wire["name"],
        attributes=attributes,
        capacity=capacity,
        counters=tuple(counters.items()),
        scope=_scope(wire),
        taints=tuple(map(_taint, wire.get("taints") or ())),
        shared=bool(wire.get("allowMultipleAllocations")),
        binds_to_node=bool(wire.get("bindsToNode")),
        conditional=bool(wire.get("bindingConditions")),
        unknown=unknown or _unknown(wire, *_DEVICE),
    )


def _policy(wire: Wired) -> RequestPolicy:
    bounds = wire.get("validRange") or {}
    default, least, most, step = (
        None if bound is None else parse_nanos(bound)
        for bound in (wire.get("default"), bounds.get("min"), bounds.get("max"), bounds.get("step"))
    )
    return RequestPolicy(
        default,
        tuple(map(parse_nanos, wire.get("validValues") or ())),
        least,
        most,
        step,
    )


def _taint(wire: Wired) -> Taint:
    return Taint(wire.get("key", ""), wire.get("value", ""), wire.get("effect", ""))


def _rule(name: str, wire: Wired) -> DeviceTaintRule:
    spec = wire["spec"]
    chosen = spec.get("deviceSelector")
    unknown = _unknown(spec, "deviceSelector", "taint") or _unknown(
        chosen or {},
        "driver",
        "pool",
        "device",
    )

    # A rule without a selector taints no device; "" is no driver's name.
    if chosen is None:
        return DeviceTaintRule(name, _taint(spec["taint"]), driver="", unknown=unknown)

    driver, pool, device = (chosen.get(field) for field in ("driver", "pool", "device"))
    return DeviceTaintRule(name, _taint(spec["taint"]), driver, pool, device, unknown)


def _class(name: str, wire: Wired) -> DeviceClass:
    spec = wire.get("spec") or {}
    selectors, unknown = _selectors(spec)
    unknown = unknown or _unknown(spec, "selectors", "config", "extendedResourceName")

    # As text: opaque parameters are passed on unchanged, and the class stays hashable.
    configs = tuple(msgspec.json.encode(config).decode() for config in spec.get("config") or ())
    creation_s = seconds((wire.get("metadata") or {}).get("creationTimestamp") or "")
    return DeviceClass(
        name,
        selectors,
        spec.get("extendedResourceName") or "",
        unknown,
        configs,
        creation_s,
    )


def _selectors(wire: Wired) -> tuple[tuple[str, ...], str]:
    expressions = []
    unknown = ""

    for number, selector in enumerate(wire.get("selectors") or ()):
        other = _unknown(selector, "cel") or _unknown(selector.get("cel") or {}, "expression")
        if other or not selector.get("cel"):
            unknown = unknown or f"selector #{number} of kind {other or 'none'}"
        else:
            expressions.append(selector["cel"]["expression"])

    return tuple(expressions), unknown


def _claim(name: str, wire: Wired) -> DeviceClaim:
    meta = wire["metadata"]
    devices = wire["spec"].get("devices") or {}
    unknown = _unknown(wire["spec"], "devices") or _unknown(
        devices,
        "requests",
        "constraints",
        "config",
    )
    requests = []

    for part in devices.get("requests") or ():
        unknown = unknown or _unknown(part, "name", "exactly", "firstAvailable")
        if part.get("firstAvailable"):
            requests.append(
                tuple(_request(sub, sub, part["name"]) for sub in part["firstAvailable"])
            )
        else:
            requests.append((_request(part, part["exactly"], ""),))

    constraints = []
    for number, part in enumerate(devices.get("constraints") or ()):
        attribute = part.get("matchAttribute") or part.get("distinctAttribute")
        other = _unknown(part, "requests", "matchAttribute", "distinctAttribute")
        if other or not attribute:
            unknown = unknown or f"constraint #{number} of kind {other or 'none'}"
        else:
            distinct = not part.get("matchAttribute")
            constraints.append(
                DeviceConstraint(attribute, distinct, tuple(part.get("requests") or ()))
            )

    return DeviceClaim(
        namespace=meta.get("namespace", ""),
        name=name,
        uid=meta.get("uid", ""),
        requests=tuple(requests),
        constraints=tuple(constraints),
        results=_results((wire.get("status") or {}).get("allocation")),
        unknown=unknown,
    )


def _request(named: Wired, wire: Wired, parent: str) -> DeviceRequest:
    selectors, unknown = _selectors(wire)
    tolerations = wire.get("tolerations") or ()
    mode = wire.get("allocationMode") or "ExactCount"
    capacity = wire.get("capacity") or {}

    if mode not in {"ExactCount", "All"}:
        unknown = unknown or f"allocation mode {mode}"

    return DeviceRequest(
        name=named["name"],
        class_name=wire.get("deviceClassName", ""),
        parent=parent,
        selectors=selectors,
        mode=mode,
        count=wire.get("count") or 1,
        admin=bool(wire.get("adminAccess")),
        tolerations=tuple(
            Toleration(
                toleration.get("key", ""),
                toleration.get("operator") or "Equal",
                toleration.get("value", ""),
                toleration.get("effect", ""),
            )
            for toleration in tolerations
        ),
        amounts=tuple(
            (name, parse_nanos(amount)) for name, amount in (capacity.get("requests") or {}).items()
        ),
        unknown=unknown or _unknown(wire, *_EXACTLY, "name") or _unknown(capacity, "requests"),
    )


def _results(allocation: Wired | None) -> tuple[DeviceResult, ...] | None:
    if allocation is None:
        return None

    return tuple(map(_result, (allocation.get("devices") or {}).get("results") or ()))


def _result(wire: Wired) -> DeviceResult:
    amounts = tuple(
        (name, parse_nanos(amount)) for name, amount in (wire.get("consumedCapacity") or {}).items()
    )
    device = (wire["driver"], wire["pool"], wire["device"])
    return DeviceResult(
        wire["request"],
        device,
        bool(wire.get("adminAccess")),
        wire.get("shareID") or "",
        amounts,
    )
