"""Before any test: sizes of generated tests, what pytest and Python do once for each test, and
shared fixtures.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import time
from collections.abc import Iterator

import pytest
import structlog

import tests.sizes  # noqa: F401
from gangsched.state.parents import Parents


class HangsToldSeldomArmed:
    """A test that hangs says where, as with pytest's plugin, which starts and joins a thread for
    each test.

    Waiting for that thread's end takes longer than most tests where cores are busy. A timer that is
    armed anew once a tenth of `faulthandler_timeout` has passed is enough: it fires after nine to
    ten tenths of it.
    """

    def __init__(self, after_s: float) -> None:
        self.after_s, self.armed_s = after_s, float("-inf")
        self.stderr = os.dup(2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() - self.armed_s > self.after_s / 10:
            self.armed_s = time.monotonic()
            faulthandler.dump_traceback_later(self.after_s, file=self.stderr)

    def pytest_sessionfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()


def pytest_configure(config: pytest.Config) -> None:
    """The ini option of pytest's plugin keeps its meaning, and signals like SIGSEGV still print a
    traceback.
    """
    gc.disable()  # until all tests are collected
    after_s = float(config.getini("faulthandler_timeout"))
    if after_s > 0 and config.pluginmanager.unregister(name="faulthandler") is not None:
        config.pluginmanager.register(HangsToldSeldomArmed(after_s))


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay to the end: no collection of garbage has to look at
    them.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Whatever the test configures of logging ends with it: the stream may be closed by then."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
def no_wait_for_a_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of which nobody states a minimum wait a second for one, which is tested in
    `test_parents`.
    """
    monkeypatch.setattr(Parents, "named", lambda *_: None)
