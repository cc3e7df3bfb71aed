"""Amounts agree with the API server's Quantity and kube-scheduler's PodRequests, to the unit."""

import math
import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.model.resources import (
    AMOUNT_LIMIT,
    ResourceVector,
    add,
    format_quantity,
    from_dict,
    is_accelerator,
    parse_resources,
    pod_requests,
    to_dict,
)
from kubernetes_cel.amounts import QUANTITY_LIMIT, QuantityError, parse_quantity

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}
DIGITS = st.text(string.digits, max_size=24)


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A quantity of the grammar and its exact value, told without the parser's arithmetic."""
    sign = draw(st.sampled_from(["", "+", "-"]))
    whole = draw(DIGITS)
    fraction = draw(DIGITS) if whole else draw(st.text(string.digits, min_size=1, max_size=24))
    point = "." if fraction or draw(st.booleans()) else ""
    value = Fraction(int(whole or "0")) + Fraction(int(fraction or "0"), 10 ** len(fraction))
    if draw(st.booleans()):
        suffix = draw(st.sampled_from(sorted(FACTORS)))
        value *= FACTORS[suffix]
    else:
        exponent = draw(st.integers(-60, 60))
        suffix = draw(st.sampled_from("eE")) + draw(
            st.sampled_from([f"{exponent}", f"{exponent:+d}"])
        )
        value *= Fraction(10) ** exponent
    return sign + whole + point + fraction + suffix, -value if sign == "-" else value


@given(quantities(), st.booleans())
def test_quantity_agrees_with_fractions(quantity: tuple[str, Fraction], milli: bool) -> None:
    """Any text of the grammar is its exact value, rounded away from zero and capped as Kubernetes
    caps it.
    """
    text, value = quantity
    expected = min(math.ceil(abs(value) * (1000 if milli else 1)), QUANTITY_LIMIT)
    assert parse_quantity(text, milli=milli) == (-expected if value < 0 else expected)


@given(st.text(max_size=40) | st.text("0123456789.eE+-KMGi numk", max_size=12))
def test_any_text_is_a_number_or_one_sentence(text: str) -> None:
    """No text makes the parser do anything but answer or refuse in a sentence."""
    try:
        refusal = f"{parse_quantity(text):d}."
    except QuantityError as error:
        refusal = str(error)
    assert refusal.endswith(".")
    assert len(refusal) < 200


@pytest.mark.parametrize(
    ("text", "milli", "amount"),
    [
        ("100u", True, 1),
        ("999999u", True, 1000),
        ("1500m", False, 2),
        ("0.5", True, 500),
        ("16Gi", False, 16 * 2**30),
        ("1E", False, 10**18),
        ("1E3", False, 1000),
        ("1e3", False, 1000),
        ("5.", False, 5),
        (".5Ki", False, 512),
        ("-1.5", False, -2),
        (8, False, 8),
        (0.1, True, 100),
        (1e22, False, QUANTITY_LIMIT),
        (10**400, False, QUANTITY_LIMIT),
        ("1e999999999999999", False, QUANTITY_LIMIT),
        ("1e-999999999999999", False, 1),
        ("0e999999999999999", False, 0),
        (" 2 ", False, 2),
    ],
)
def test_quantities_worth_knowing(text: str | float, milli: bool, amount: int) -> None:
    """Rounding, both meanings of E, and absurd exponents, as a 1.36 API server reads them."""
    assert parse_quantity(text, milli=milli) == amount


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "1 Gi",
        "1K",
        "1i",
        "e3",
        "1e",
        "1e1.5",
        "nan",
        "1_000",
        "0x10",
        "١",
        "--1",
        "1" * 5000,
        True,
        None,
        [1],
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Python's wider number grammar does not leak in, and other types are refused like
    bad texts.
    """
    with pytest.raises(QuantityError):
        parse_quantity(text)


def test_true_and_one_do_not_share_a_cache_entry() -> None:
    """A quantity that was read as 1 does not make `true` one, nor 1.5 an integer."""
    assert parse_quantity(1) == 1
    with pytest.raises(QuantityError):
        parse_quantity(True)


def test_resource_list_becomes_a_sorted_vector() -> None:
    """Cpu in milli-CPU, the rest in base units, sorted by name, without zeros, nulls
    and negatives.
    """
    raw = {
        "nvidia.com/gpu": "8",
        "cpu": "1.5",
        "memory": "2Gi",
        "a/b": "0",
        "c/d": "-3",
        "e/f": None,
    }
    assert parse_resources(raw) == (("cpu", 1500), ("memory", 2 * 2**30), ("nvidia.com/gpu", 8))
    assert parse_resources(None) == parse_resources({}) == ()


def test_bad_entry_names_the_resource() -> None:
    """A resource list with a bad amount says which resource it is."""
    with pytest.raises(QuantityError, match=r'^memory: "lots" is not a quantity'):
        parse_resources({"cpu": "1", "memory": "lots"})


def test_absurd_amounts_saturate() -> None:
    """The biggest request a user can write still sums up within int64, a thousand times over."""
    vector = parse_resources({"memory": "9E", "cpu": "9e18"})
    assert vector == (("cpu", AMOUNT_LIMIT), ("memory", AMOUNT_LIMIT))
    assert add(vector, vector) == vector
    assert 1000 * AMOUNT_LIMIT < 2**63


NAMES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi"])
VECTORS: st.SearchStrategy[ResourceVector] = st.dictionaries(NAMES, st.integers(0, 9)).map(
    from_dict
)


@given(VECTORS, VECTORS)
def test_sum_is_a_vector(a: ResourceVector, b: ResourceVector) -> None:
    """A sum is the same either way round, exact, sorted and without zeros."""
    total = add(a, b)
    assert total == add(b, a)
    assert list(total) == sorted(total)
    assert all(amount == dict(a).get(name, 0) + dict(b).get(name, 0) > 0 for name, amount in total)
    assert {name for name, _ in total} == {name for name, _ in (*a, *b)}
    assert from_dict(to_dict(total)) == total


def peak(
    name: str, containers: list[ResourceVector], inits: list[tuple[ResourceVector, bool]]
) -> int:
    """The most of resource `name` that runs at one time, found by letting the pod start step by
    step.
    """
    running: list[ResourceVector] = []
    highest = 0
    for requests, restart_always in inits:
        highest = max(highest, sum(dict(vector).get(name, 0) for vector in [*running, requests]))
        if restart_always:
            running.append(requests)
    return max(highest, sum(dict(vector).get(name, 0) for vector in [*running, *containers]))


@given(
    st.lists(VECTORS, max_size=4),
    st.lists(st.tuples(VECTORS, st.booleans()), max_size=5),
    VECTORS,
    VECTORS,
)
def test_pod_requests_are_the_peak_of_a_start(
    containers: list[ResourceVector],
    inits: list[tuple[ResourceVector, bool]],
    pod_level: ResourceVector,
    overhead: ResourceVector,
) -> None:
    """A pod requests its peak while starting, replaced by pod-level requests where these count,
    plus its overhead.
    """
    expected = {}
    for name in ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi"]:
        amount = peak(name, containers, inits)
        if name not in {"ephemeral-storage", "nvidia.com/gpu"}:
            amount = dict(pod_level).get(name, amount)
        expected[name] = amount + dict(overhead).get(name, 0)
    requests = pod_requests(
        containers=containers, init_containers=inits, pod_level=pod_level, overhead=overhead
    )
    assert requests == from_dict({**expected, "pods": 1})


def test_sidecar_runs_beside_later_init_containers_only() -> None:
    """An init container before a sidecar runs without it, one after it runs beside it (KEP-753)."""
    cpu = (("cpu", 100),)
    big = (("cpu", 1000),)
    before = pod_requests(containers=[cpu], init_containers=[(big, False), (cpu, True)])
    after = pod_requests(containers=[cpu], init_containers=[(cpu, True), (big, False)])
    assert dict(before)["cpu"] == 1000
    assert dict(after)["cpu"] == 1100


def test_empty_pod_still_counts_itself() -> None:
    """A pod without requests takes one of the node's pods, and nothing else."""
    assert pod_requests(containers=[()]) == (("pods", 1),)


@given(st.sampled_from(["cpu", "memory", "hugepages-1Gi", "nvidia.com/gpu"]), st.integers(0, 2**50))
def test_formatted_amount_reads_back(name: str, amount: int) -> None:
    """What people are shown is exact: parsing it gives the amount again."""
    assert parse_quantity(format_quantity(name, amount), milli=name == "cpu") == amount


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 2500, "2500m"),
        ("cpu", 3000, "3"),
        ("memory", 16 * 2**30, "16Gi"),
        ("memory", 5 * 10**9, "5G"),
        ("memory", 1234567, "1234567"),
        ("memory", 0, "0"),
        ("nvidia.com/gpu", 1024, "1024"),
    ],
)
def test_amounts_are_shown_short(name: str, amount: int, text: str) -> None:
    """Amounts look as an operator would write them."""
    assert format_quantity(name, amount) == text


def test_accelerators() -> None:
    """GPUs, slices of them and other accelerators are told from what every node has."""
    for name in [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpu.shared",
        "amd.com/gpu",
        "gpu.intel.com/i915",
        "huawei.com/Ascend910",
        "aws.amazon.com/neuroncore",
        "google.com/tpu",
        "habana.ai/gaudi",
    ]:
        assert is_accelerator(name), name
    for name in [
        "cpu",
        "memory",
        "pods",
        "hugepages-2Mi",
        "ephemeral-storage",
        "rdma/hca",
        "vpc.amazonaws.com/efa",
    ]:
        assert not is_accelerator(name), name
