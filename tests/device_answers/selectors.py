"""Random selectors and devices, beside the module's answers.

A kind of expression is a letter: D of a device, S text, I integer, F float, B boolean, Q quantity,
V version, L list. `GRAMMAR` has for each what ends an expression and what makes one of others;
`{S}` stands for an expression of a kind and `{s}` for one that ends there.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

from kubernetes_cel.devices import device_variable
from kubernetes_cel.faults import SelectorError, UnknownToSelectors
from kubernetes_cel.programs import Program
from tests.device_answers.module import answers

DRIVER = "gpu.x"
GRAMMAR = {
    "D": (
        """device.attributes["gpu.x"].{n} device.attributes["gpu.x"].{n} device.attributes["other.y"].{n}
        device.attributes["zz"].{n} device.attributes["gpu.x"]["{n}"] device.attributes["gpu.x"].?{n}.orValue({i})
        device.attributes["gpu.x"].?{n}.orValue({s}) device.attributes[?"gpu.x"].?{n}.value()
        device.attributes["other.y"][?"{n}"].value() cel.bind(q,device.attributes["gpu.x"],q.{n})""",
        "",
    ),
    "n": ("model idx ok v uuid n nope", ""),
    "h": ("gpu.x other.y zz", ""),
    "S": (
        """"a100" "h100" 'x' "" "1.2.3" device.driver "a,b,c" r"\\d" "h\\u00e9\\x41\"""",
        """{S}+{S} {S}.lowerAscii() {S}.upperAscii() {S}.replace({s},{s}) {S}.substring({i},{i}) {S}.substring({i})
        {S}.charAt({i}) {S}.split({s}).join("-") {S}.split({s},{i}).join("-") {S}.replace({s},{s},{i}) string({I})
        string({B}) ({B}?{S}:{S}) {S}.trim() {D}""",
    ),
    "I": (
        "0 1 2 3 -1 0x10 9223372036854775807 -9223372036854775808",
        """({I}+{I}) ({I}-{I}) ({I}*{I}) ({I}/{I}) ({I}%{I}) size({S}) {S}.size() -({I}) int({S}) {V}.major()
        {V}.minor() {V}.patch() {Q}.asInteger() {Q}.compareTo({Q}) {V}.compareTo({V}) {S}.indexOf({s})
        {S}.lastIndexOf({s}) {S}.lastIndexOf({s},{i}) {S}.indexOf({s},{i}) size({L}) {L}[{i}] ({B}?{I}:{I}) int({F})
        {D} {Q}.sign() {"a":1,"b":{I}}[{s}] size(device.attributes)""",
    ),
    "F": (
        "1.0 0.5 -2.5 1e3 0.0 1e300",
        "({F}+{F}) ({F}-{F}) ({F}*{F}) ({F}/{F}) double({I}) {Q}.asApproximateFloat() {D}",
    ),
    "Q": (
        """quantity("40Gi") quantity("1") quantity("0.5") quantity("x") quantity("-3") quantity("1e3")
        device.capacity["gpu.x"].memory device.capacity["other.y"].sm""",
        "{Q}.add({Q}) {Q}.sub({Q}) {Q}.add({i}) quantity({S})",
    ),
    "V": (
        """semver("1.2.3") semver("1.2.3-rc.1") semver("v01.2",true) semver("x") device.attributes["gpu.x"].v
        semver("1.2.3+b") semver({s}) semver("1.2-a",true)""",
        "",
    ),
    "L": (
        "[1,2,3] [] [0] [?optional.none(),1]",
        "[{I},{I}] {L}.filter(x,x>{i}) {L}.map(x,x+{i}) {L}.map(x,x>1,x*{i}) ({L}+{L})",
    ),
    "p": (
        (
            r"^a \\d+ [a-h]1 (a|h)100$ ^$ . a* x{2,3} [^a] \\bA (?:a|b)c? 100\\z a{0} (a+)+$ \\."
            r" [\\d.]+ é"
        ),
        "",
    ),
    "o": ("== != < <= > >=", ""),
    "B": (
        """true false device.allowMultipleAllocations device.driver=="gpu.x\"""",
        """{B}&&{B} ({B}||{B}||{B}) !({B}) {I}{o}{I} {S}{o}{S} {D}{o}{D} {D}{o}{I} {D}{o}{S} {D}=={V} {I}=={D} {V}!={D}
        {S}.startsWith({S}) {S}.endsWith({S}) {S}.contains({S}) {S}.matches("{p}") {D}.matches("{p}")
        {Q}.isGreaterThan({Q}) {Q}.isLessThan({Q}) {V}.isGreaterThan({V}) {Q}=={Q} {I}in{L} {D}in["a100","x"]
        {L}.all(x,x>{I}) {L}.exists(x,x=={I}) {L}.exists_one(x,x<{I}) {L}.all(x,6/x>{i}) {L}.exists(x,6/x>{i})
        has(device.attributes["{h}"].{n}) "{h}"in(device.attributes) isSemver({S}) bool({S}) {F}<{F} {F}=={F} {D}
        device.attributes["{h}"].?{n}.hasValue() device.attributes["gpu.x"].?ok.optMap(o,o&&{b}).orValue({b})
        device.attributes[?"{h}"].{n}.hasValue()
        device.attributes["gpu.x"].?nope.or(device.attributes["gpu.x"].?ok).orValue({D})
        device.attributes["gpu.x"].exists(k,k=={s}) {L}=={L} sets.contains({L},{l}) {"a":1}=={"a":{i}}
        device.capacity["gpu.x"].exists(k,device.capacity["gpu.x"][k].isGreaterThan(quantity("1")))""",
    ),
}
PLACE = re.compile(r"\{([A-Zb-z])\}")
NAMED = {
    "model": "s",
    "idx": "i",
    "ok": "b",
    "v": "v",
    "uuid": "s",
    "other.y/model": "s",
    "other.y/n": "i",
}
VALUES: dict[str, tuple[str, list[Any]]] = {
    "s": ("string", ["a100", "h100", "A100-SXM4", "", "x", "1.2.3", "héé"]),
    "i": ("int", [0, 1, 2, 3, -1, 2**63 - 1]),
    "b": ("bool", [True, False]),
    "v": ("version", ["1.2.3", "1.2.3-rc.1", "2.0.0", "10.0.0", "1.2.3-1"]),
}


def expression(rng: Random, kind: str, depth: int) -> str:
    """A random expression of a kind, of at most this depth."""
    ends, makes = GRAMMAR[kind.upper() if kind.upper() in GRAMMAR else kind]
    ends = GRAMMAR[kind][0] if kind in GRAMMAR else ends
    chosen = rng.choice(
        makes.split() if makes and depth > 0 and rng.random() < 0.85 else ends.split()
    )
    return PLACE.sub(lambda match: _inner(rng, match.group(1), depth), chosen)


def _inner(rng: Random, kind: str, depth: int) -> str:
    found = expression(rng, kind, depth - 1 if kind.isupper() else 0)
    return f" {found} " if kind in "IL" else found


def device(rng: Random) -> dict[str, Any]:
    """A random device, of which attributes may be missing and of other types."""
    found: dict[str, Any] = {"name": "d", "attributes": {}, "capacity": {}}
    for name, usual in NAMED.items():
        if rng.random() < 0.75:
            kind, values = VALUES[usual if rng.random() < 0.75 else rng.choice(list(VALUES))]
            found["attributes"][name] = {kind: rng.choice(values)}
    for name in ("memory", "cores", "other.y/sm"):
        if rng.random() < 0.75:
            found["capacity"][name] = {
                "value": rng.choice(["40Gi", "80Gi", "1", "0", "500m", "1e3", "1.5"])
            }
    if rng.random() < 0.3:
        found["allowMultipleAllocations"] = rng.random() < 0.7
    return found


def compared(seed: int, number: int) -> tuple[Counter[str], list[list[Any]], list[str]]:
    """Counts of answers, the cases with the module's answers as rows of kube_answers.jsonl, and the
    differences.
    """
    rng = Random(seed)
    cases = [(expression(rng, "B", rng.choice([1, 2, 2, 3])), device(rng)) for _ in range(number)]
    given = answers(
        [{"selector": source, "driver": DRIVER, "device": each} for source, each in cases]
    )
    counts: Counter[str] = Counter()
    rows: list[list[Any]] = []
    differences: list[str] = []
    for (source, each), answer in zip(cases, given, strict=True):
        if "invalid" in answer:
            counts["invalid"] += 1
            continue
        expected: bool | str = "error" if "error" in answer else answer["matches"]
        got: bool | str
        try:
            got = Program(source).matches(device_variable(each, DRIVER))
        except UnknownToSelectors as unknown:
            counts[f"unknown: {unknown}"] += 1
            continue
        except SelectorError as error:
            got = "error"
            if "no such key" in answer.get("error", "") and str(error) != answer["error"]:
                got = str(error)
        counts[str(expected)] += 1
        rows.append([source, each, expected])
        if got != expected:
            differences.append(f"{source}\n  {each}\n  module: {answer}, gangsched: {got}")
    return counts, rows, differences
