"""Why a selector has no answer."""

from __future__ import annotations


class UnknownToSelectors(Exception):  # noqa: N818 - what gangsched does not know, not what went wrong
    """The text uses something that gangsched does not know; `str()` continues "selector #0 of request gpu uses"."""


class SelectorError(Exception):
    """A runtime error of CEL, such as a key that a device does not have."""


class TooManyStepsError(Exception):
    """The end of an evaluation, which no operator absorbs as CEL's errors are absorbed."""


NO_OVERLOAD = "no such overload"
