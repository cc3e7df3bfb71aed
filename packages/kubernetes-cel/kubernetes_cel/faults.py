"""Why a selector cannot be evaluated."""

from __future__ import annotations


class UnknownToSelectors(Exception):  # noqa: N818 - what gangsched does not support, not what went wrong
    """The selector uses a part of CEL that gangsched does not support; `str()` continues "selector
    #0 of request gpu uses".
    """


class SelectorError(Exception):
    """A runtime error of CEL, such as a key that a device does not have."""


class TooManyStepsError(Exception):
    """The evaluation takes too many steps. Operators such as `||` ignore CEL errors of an operand,
    but not this one.
    """


NO_OVERLOAD = "no such overload"
