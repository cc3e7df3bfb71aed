"""How command lines end."""

from __future__ import annotations

import subprocess
import sys

from gangsched.console import SCHEDULER_LIBRARIES, lacks_scheduler

IMPORTS_THE_PLUGIN = """
import importlib, pkgutil, sys
import kubectl_gangsched

LOCAL = {
    "kubectl_gangsched.page.simulated",
    "kubectl_gangsched.plan.local",
    "kubectl_gangsched.snapshot.replay",
}
for module in pkgutil.walk_packages(kubectl_gangsched.__path__, "kubectl_gangsched."):
    if module.name not in LOCAL:
        importlib.import_module(module.name)

print(*sorted(set(sys.argv[1:]) & {name.partition(".")[0] for name in sys.modules}))
"""


def test_missing_libraries_of_the_scheduler_are_named_by_their_extra() -> None:
    """Also where a module of theirs is imported; a bug stays a bug."""
    missing = ModuleNotFoundError("No module named 'numpy.typing'", name="numpy.typing")
    said = lacks_scheduler(missing, "gangsched[scheduler]")
    assert said is not None
    assert said.endswith("whose libraries are not installed: install gangsched[scheduler].")

    assert lacks_scheduler(ModuleNotFoundError(name="gangsched.other"), "x") is None
    assert lacks_scheduler(ValueError("numpy"), "x") is None


def test_the_plugin_loads_without_the_libraries_of_the_scheduler() -> None:
    """All of its commands but those that run the scheduler, and what `gangsched simulate` calls: it
    installs without them.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_THE_PLUGIN, *SCHEDULER_LIBRARIES],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == ""
