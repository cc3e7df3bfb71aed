"""The detour around kubernetes_asyncio's client package."""

from __future__ import annotations

from tests.interpreter import printed_by


def test_generated_clients_are_not_loaded() -> None:
    """Reading a configuration imports none of the generated models."""
    said = printed_by(
        "import sys; from gangsched.kube.http.credentials import Credentials; "
        "print(any(name.startswith('kubernetes_asyncio.client.models') for name in sys.modules))"
    )
    assert said == "False"


def test_other_layout_is_loaded_the_plain_way() -> None:
    """When the package cannot be passed by, it is imported as a whole."""
    said = printed_by(
        "import importlib.util as u; real = u.find_spec; u.find_spec = lambda name, *rest: None if"
        " name.endswith('.client') else real(name, *rest); from gangsched.kube.http import sdk;"
        " import kubernetes_asyncio as k; print(sdk.Configuration is k.client.Configuration,"
        " sdk.config is k.config)"
    )
    assert said == "True True"
