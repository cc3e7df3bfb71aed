"""Selectors: kube-scheduler's answers, CEL's rules of errors, what is read, and bounds against
hostile text.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubernetes_cel.devices import device_variable
from kubernetes_cel.faults import SelectorError, UnknownToSelectors
from kubernetes_cel.frames import MOST_STEPS
from kubernetes_cel.programs import Program

DRIVER = "gpu.x"
KUBE_ANSWERS = Path(__file__).with_name("kube_answers.jsonl")
"""Random expressions and devices, with the answers of the Go module
k8s.io/dynamic-resource-allocation 0.37.2.
"""
GPU = device_variable(
    {
        "attributes": {
            "model": {"string": "a100"},
            "index": {"int": 3},
            "ok": {"bool": True},
            "driver": {"version": "1.2.3"},
            "other.y/numa": {"int": 1},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    },
    DRIVER,
)
A = 'device.attributes["gpu.x"]'


def answer(source: str) -> bool | str:
    try:
        return Program(source).matches(GPU)
    except SelectorError as error:
        return str(error)


def test_answers_are_those_of_kube_scheduler() -> None:
    """A4: random expressions of all operators, functions and macros have kube-scheduler's answer or
    are its errors.
    """
    rows = [json.loads(line) for line in KUBE_ANSWERS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 300
    wrong = []
    for source, device, expected in rows:
        try:
            got: bool | str = Program(source).matches(device_variable(device, DRIVER))
        except SelectorError:
            got = "error"
        if got != expected:
            wrong.append((source, device, expected, got))
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("true || 1 / 0 > 0", True),
        ("1 / 0 > 0 || true", True),
        ("1 / 0 > 0 && false", False),
        ("1 / 0 > 0 && true", "division by zero"),
        ("1 / 0 > 0 || 1 % 0 > 0", "division by zero"),
        (f"{A}.missing || true", True),
        (f"{A}.missing", "no such key: missing"),
        ('device.attributes["none"].id', "no such key: id"),
        ('"none" in device.attributes', False),
        ('has(device.attributes["none"].id)', False),
        (f"{A}.model && true", "no such overload"),
        (f"{A}.model", "the selector returns neither true nor false"),
        ("[0, 1].exists(x, 1 / x == 1)", True),
        ("[0, 2].exists(x, 1 / x == 1)", "division by zero"),
        ("[0, 2].all(x, 1 / x == 1)", False),
        ("[0, 1].exists_one(x, 1 / x == 1)", "division by zero"),
        ("[1, 2].map(x, x * 2) == [2, 4]", True),
        ("[1, 2].map(x, x > 1, x * 2) == [4]", True),
        ("[1, 2].filter(x, x > 1) == [2]", True),
        ('{"a": 1}.exists(key, key == "a")', True),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("dyn(1) == dyn(true)", False),
        ("dyn(1) == dyn(1.0)", True),
        (f'{A}.driver == "1.2.3"', "no such overload"),
        (f'{A}.driver != "1.2.3"', True),
        (f'{A}.driver.isGreaterThan(semver("1.2.3-rc.1"))', True),
        (f'{A}.driver.compareTo(semver("v1.2", true)) == 1', True),
        ('device.capacity["gpu.x"].memory.compareTo(quantity("0.04Ti")) < 0', True),
        ('device.capacity["gpu.x"].memory.isLessThan(quantity("42949672960.000000001"))', True),
        (f"{A}.?missing.orValue({A}.ok)", True),
        (f"{A}.?missing.hasValue()", False),
        (f"{A}.?ok.optMap(value, !value).value()", False),
        (f"cel.bind(gpu, {A}, gpu.ok && gpu.index == 3)", True),
        ("device.driver == 'gpu.x' // a comment", True),
        ('"a\\u0062\\x63" == r"abc"', True),
    ],
)
def test_cel(source: str, expected: bool | str) -> None:
    """A4: CEL's rules of errors, of types, and Kubernetes' of devices."""
    assert answer(source) == expected


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('ip("1.2.3.4").family() == 4', "ip()"),
        ('"a".reverse() == "a"', "reverse()"),
        ('url("a").getHost() == ""', "url()"),
        ("1u == 1u", "the unsigned integer 1u"),
        ('b"a" == b"a"', "a bytes literal"),
        ("device.slice", "device.slice"),
        ("node.name", "the variable node"),
        ('"a".matches("(?i)a")', "flags in a pattern"),
        ("[1].all(i, v, v > 0)", "all() with 3 arguments"),
        ("true &&", "the end where a value is expected"),
        ("(true", "the end where ) is expected"),
        ("Object{} == Object{}", "an object of type Object"),
        ("'\\q' == ''", "the escape \\q"),
        ("`a` == 1", "the unexpected character '`'"),
        ("9223372036854775808 > 0", "the number 9223372036854775808"),
        ("1" * 5000 + " > 0", "the number " + "1" * 32),
        ("true".rjust(10_241), "more than 10240 characters"),
        ("[" + "0," * 2000 + "0].size() > 0", "more than 4000 tokens"),
        (" || ".join(['"a".matches("a{990}")'] * 4), "patterns of more than 3000 states"),
    ],
)
def test_what_is_not_known_is_named(source: str, told: str) -> None:
    """A4: an unknown function, field or piece of syntax is named, and no device is asked."""
    with pytest.raises(UnknownToSelectors) as unknown:
        Program(source)
    assert str(unknown.value) == told


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        (f"{A}.model == 'a'", (("attributes", "gpu.x", "model"),)),
        (f"cel.bind(gpu, {A}, gpu.model == 'a')", (("attributes", "gpu.x", "model"),)),
        (f"cel.bind(gpu, {A}, 'a' in gpu)", (("attributes", "gpu.x"),)),
        (f"{A}.exists(id, {A}[id] == 1) && {A}.model == 'a'", (("attributes", "gpu.x"),)),
        ("device.attributes.exists(domain, domain == 'a')", (("attributes",),)),
        (
            f"has({A}.model) && device.driver == 'a'",
            (("attributes", "gpu.x", "model"), ("driver",)),
        ),
        (f"{A}.?model.orValue('') == ''", (("attributes", "gpu.x", "model"),)),
        ("cel.bind(all, device, all == all)", (("device",),)),
    ],
)
def test_what_is_read_is_known(source: str, reads: tuple[tuple[str, ...], ...]) -> None:
    """A5: an answer depends on what the selector reads, and on nothing else."""
    assert Program(source).reads == reads


def nested(first: str, step: str, last: str, times: int = 40) -> str:
    """`a` is `first`, then as often as given what `step` makes of it; the whole is `last`."""
    for _ in range(times):
        last = f"cel.bind(a, {step}, {last})"
    return f"cel.bind(a, {first}, {last})"


MANY = "[" + ",".join(map(str, range(1500))) + "]"
HOSTILE = {
    "a macro in a macro": f"{MANY}.all(x, [{','.join('0' * 100)}].all(y, x == y || true))",
    "a text that doubles": nested("'xxxxxxxx'", "a + a", "size(a) > 0"),
    "a pattern with many states": (
        '"' + "a" * 150 + '!".matches("' + "(a?a?a?a?a?a?a?a?a?a?){45}x" + '")'
    ),
    "a catastrophic pattern": '"' + "a" * 9000 + '!".matches("(a+)+(a+)+(a+)+$")',
    "patterns that are made": f'{MANY}.all(x, !"b".matches("a{{990}}" + string(x)))',
    "a text between characters": (
        f'"a".replace("", "{"b" * 4000}").replace("", "{"c" * 4000}") == ""'
    ),
    "lists in themselves": nested(
        "[1]", "[a, a]", "cel.bind(b, [a, 1], cel.bind(c, [a, 1], b != c || true))"
    ),
    "long lists": nested(
        "[1]", "a + a", f"cel.bind(b, a + [1], {MANY}.all(x, b in [a + [1]]))", 12
    ),
    "long texts": nested(
        "'xxxxxxxx'", "a + a", f"cel.bind(b, a + 'a', {MANY}.all(x, b <= a + 'a'))", 14
    ),
    "values that are made": (
        f'{MANY}.all(x, [0,1,2,3,4,5,6,7].all(y, isSemver("1.2." + string(x * 8 + y))))'
    ),
    "quantities that are made": (
        f'{MANY}.all(x, [0,1,2,3,4,5,6,7].all(y, isQuantity(string(x * 8 + y) + "m")))'
    ),
    "letters": nested("'xxxxxxxx'", "a + a", f"{MANY}.all(x, a.lowerAscii() != '')", 14),
}
"""Selectors of at most 10,240 characters that would take from a tenth of a second to the age of the
universe.
"""


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_an_evaluation_has_bounded_steps(source: str) -> None:
    """A5: hostile text ends with a runtime error after as many steps, also where the error could be
    absorbed.
    """
    assert answer(source) == f"takes more than {MOST_STEPS:,} steps"
    assert answer(f"{source} || true") == f"takes more than {MOST_STEPS:,} steps"


@pytest.mark.parametrize(
    "source",
    [
        "(" * 60 + "true" + ")" * 60,
        "!" * 60 + "true",
        " + ".join(["1"] * 60) + " > 0",
        "device" + ".a" * 60,
        "[" * 60 + "]" * 60,
        "true ? true : " * 60 + "true",
        "((" * 20 + "1" + " + 1" * 40 + (")" + " + 1" * 40) * 20 + ")" * 20 + " > 0",
    ],
)
def test_a_tree_has_bounded_height(source: str) -> None:
    """A5: nesting beyond 50 levels is not known, however it is made."""
    with pytest.raises(UnknownToSelectors, match="more than 50 levels of nesting"):
        Program(source)


def test_a_long_chain_is_not_deep() -> None:
    """A4: the chain of all models that are allowed may be long."""
    assert (
        answer(
            " || ".join(f'{A}.model == "m{number}"' for number in range(200))
            + f' || {A}.model == "a100"'
        )
        is True
    )
