"""Exact amounts of resources: resource vectors, and what a pod requests.

Invariant: an amount is a Python int, never a float: milli-CPU for `cpu`, base units (bytes, counts)
for all other resources. A fraction of a unit is rounded away from zero, as in the API server's
`Quantity`. A vector is sorted by name and has neither zeros nor negatives, so equal requests
compare equal. This module does *not* compare requests with nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from kubernetes_cel.amounts import (
    BINARY_FACTOR,
    DECIMAL_EXPONENT,
    NANOS,
    QuantityError,
    parse_quantity,
)

ResourceVector: TypeAlias = tuple[tuple[str, int], ...]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGEPAGES_PREFIX: Final = "hugepages-"

AMOUNT_LIMIT: Final = 2**48
"""Entries of a vector saturate here (256 TiB): 32,767 nodes that offer as much still sum up within
int64.
"""
OVERFULL: Final = -(2**62)
"""Free room saturates here: pods bound past the scheduler may ask any sum of one node, which then
is simply full.
"""

_ACCELERATOR_NAMES: Final = frozenset(
    {
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/pgpu",
        "nvidia.com/vgpu",
        "amd.com/gpu",
        "google.com/tpu",
        "habana.ai/gaudi",
        "metax-tech.com/gpu",
        "mthreads.com/gpu",
        "mthreads.com/vgpu",
        "aliyun.com/gpu-mem",
        "aliyun.com/gpu-count",
        "volcano.sh/vgpu-number",
        "cambricon.com/mlu",
        "cambricon.com/vmlu",
        "hygon.com/dcu",
        "hygon.com/dcunum",
        "enflame.com/gcu",
        "iluvatar.ai/gpu",
        "kunlunxin.com/xpu",
        "tenstorrent.com/n150",
        "tenstorrent.com/n300",
        "qualcomm.com/qaic",
        "cerebras.net/cs",
        "furiosa.ai/npu",
    }
)
_ACCELERATOR_PREFIXES: Final = (
    "nvidia.com/mig-",
    "nvidia.com/gpu-",
    "nvidia.com/GH",
    "amd.com/gpu-",
    "amd.com/cpx",
    "amd.com/spx",
    "gpu.intel.com/",
    "habana.ai/gaudi",
    "huawei.com/Ascend",
    "huawei.com/npu",
    "aws.amazon.com/neuron",
    "cloud-tpus.google.com/",
    "koordinator.sh/gpu",
    "rebellions.ai/",
    "furiosa.ai/",
)


def is_accelerator(name: str) -> bool:
    """Whether `name` is a GPU, a slice of one, a TPU or an NPU."""
    return "/" in name and (name in _ACCELERATOR_NAMES or name.startswith(_ACCELERATOR_PREFIXES))


def parse_resources(raw: Mapping[str, object] | None) -> ResourceVector:
    """The vector of a resource list of the API (requests, allocatable, minResources); negative
    amounts count as 0.

    Raises `QuantityError` naming the first resource whose amount is not a quantity.
    """
    if not raw:
        return ()

    amounts = []
    for name, text in raw.items():
        if text is None:  # the API's decoder reads null as zero
            continue

        try:
            amount = parse_quantity(text, milli=name == CPU)  # type: ignore[arg-type]  # it refuses other types itself
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from None

        if amount > 0:
            amounts.append((name, min(amount, AMOUNT_LIMIT)))

    amounts.sort()
    return tuple(amounts)


def from_dict(amounts: Mapping[str, int]) -> ResourceVector:
    """The vector of these amounts (milli-CPU, base units) without zeros and negatives."""
    return tuple(
        sorted((name, min(amount, AMOUNT_LIMIT)) for name, amount in amounts.items() if amount > 0)
    )


def to_dict(vector: ResourceVector) -> dict[str, int]:
    """The vector as a new dictionary."""
    return dict(vector)


def add(a: ResourceVector, b: ResourceVector) -> ResourceVector:
    """The sum of two vectors, resource by resource."""
    if not a:
        return b
    if not b:
        return a

    total = dict(a)
    _add_into(total, b)
    return from_dict(total)


def pod_requests(
    *,
    containers: Iterable[ResourceVector],
    init_containers: Sequence[tuple[ResourceVector, bool]] = (),
    pod_level: ResourceVector = (),
    overhead: ResourceVector = (),
) -> ResourceVector:
    """Resources that a pod uses on its node, including `pods`: 1, as in kube-scheduler
    (PodRequests, KEP-753).

    `init_containers` are pairs (requests, restartPolicy is Always) in the pod's order. A plain init
    container runs together with the sidecars before it and ends before the containers start; a
    sidecar keeps running. `pod_level` (KEP-2837) replaces cpu, memory and hugepages only; the API
    server rejects values below the sum of the containers.
    """
    total: dict[str, int] = {}
    for requests in containers:
        _add_into(total, requests)

    if init_containers:
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}

        for requests, restart_always in init_containers:
            # A sidecar starts before the init containers after it and runs beside them, so it is in
            # both sums.
            if restart_always:
                _add_into(total, requests)
                _add_into(sidecars, requests)
            else:
                running = dict(sidecars)
                _add_into(running, requests)
                _raise_to(peak, running)

        _raise_to(total, peak)

    # As the API server validates it: these may be stated for the whole pod, and replace the sum of
    # the containers.
    total.update(
        (name, amount)
        for name, amount in pod_level
        if name in {CPU, MEMORY} or name.startswith(HUGEPAGES_PREFIX)
    )
    _add_into(total, overhead)
    total[PODS] = 1

    return from_dict(total)


def _add_into(total: dict[str, int], vector: ResourceVector) -> None:
    for name, amount in vector:
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, 0):
            total[name] = amount


# Every refusal names about four amounts, mostly those of the refusals before it: this was a tenth
# of a refusal's time.
@lru_cache(maxsize=1_024)
def format_quantity(name: str, amount: int) -> str:
    """`amount` of resource `name` as the shortest exact text ("2500m" or "3" cpu, "16Gi" or "5G"
    memory).
    """
    if name == CPU:
        if amount % 1000 == 0:
            return str(amount // 1000)

        return f"{amount}m"

    if name not in {MEMORY, EPHEMERAL_STORAGE} and not name.startswith(HUGEPAGES_PREFIX):
        return str(amount)

    candidates = [str(amount)]
    if amount:
        candidates += [
            f"{amount // factor}{unit}"
            for unit, factor in BINARY_FACTOR.items()
            if amount % factor == 0
        ]
        candidates += [
            f"{amount // 10**exponent}{unit}"
            for unit, exponent in DECIMAL_EXPONENT.items()
            if exponent > 0 and amount % 10**exponent == 0
        ]

    return min(candidates, key=len)


def format_nanos(amount: int) -> str:
    """An amount in billionths as the exact text of a quantity, which `parse_nanos` reads."""
    for factor, unit in ((NANOS, ""), (10**6, "m"), (10**3, "u")):
        if amount % factor == 0:
            return f"{amount // factor}{unit}"

    return f"{amount}n"
