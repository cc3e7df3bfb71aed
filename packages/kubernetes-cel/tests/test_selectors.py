"""Remembered answers of selectors."""

from __future__ import annotations

from kubernetes_cel import selectors
from kubernetes_cel.devices import device_variable
from kubernetes_cel.selectors import SelectorAnswers

DRIVER = "gpu.x"
MODEL = 'device.attributes["gpu.x"].model == "a100"'


def gpu(**attributes: object) -> dict[str, object]:
    kinds = {bool: "bool", int: "int", str: "string"}
    stated = {name: {kinds[type(value)]: value} for name, value in attributes.items()}
    return device_variable({"attributes": stated}, DRIVER)


def test_equal_devices_are_one_evaluation() -> None:
    """A5: thousands of devices that differ in what the selector does not read are
    evaluated once.
    """
    answers = SelectorAnswers()
    assert all(
        answers.answer(MODEL, gpu(model="a100", uuid=str(number))) is True for number in range(1000)
    )
    assert answers.evaluations == 1
    assert answers.answer(MODEL, gpu(model="h100")) is False
    assert answers.evaluations == 2


def test_values_of_different_types_are_not_equal() -> None:
    """A5: 1 and true are equal in Python, and not in CEL."""
    answers = SelectorAnswers()
    one = 'device.attributes["gpu.x"].model == 1'
    assert [answers.answer(one, gpu(model=value)) for value in (1, True, "1")] == [
        True,
        False,
        False,
    ]
    assert answers.answer("device == device", gpu(model=1)) is True


def test_an_error_is_an_answer() -> None:
    """A5: a runtime error is remembered as well, and names what is missing."""
    answers = SelectorAnswers()
    assert [answers.answer(MODEL, gpu(index=number)) for number in range(3)] == [
        "no such key: model"
    ] * 3
    assert answers.evaluations == 1


def test_what_is_not_known_is_told() -> None:
    """A4: `Unsupported` names it."""
    answers = SelectorAnswers()
    assert answers.unknown('ip("a").family() == 4') == "ip()"
    assert answers.unknown(MODEL) == ""
    assert answers.answer('ip("a").family() == 4', gpu()) == "ip()"


def test_memories_are_bounded(monkeypatch: object) -> None:
    """A5: both memories are emptied when they are full."""
    answers = SelectorAnswers()
    setattr_of = getattr(monkeypatch, "setattr")  # noqa: B009
    setattr_of(selectors, "MOST_ANSWERS", 10)
    setattr_of(selectors, "MOST_PROGRAMS", 10)
    for number in range(25):
        answers.answer(f"{MODEL} || {number} == 0", gpu(model=str(number)))
    assert len(answers._answers) <= 10
    assert len(answers._programs) <= 10
