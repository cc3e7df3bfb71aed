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


def test_whole_package_can_be_imported_afterwards() -> None:
    """Who needs the rest of it still gets it, with the same Configuration."""
    said = printed_by(
        "from gangsched.kube.http import sdk; import kubernetes_asyncio as k; "
        "print(k.client.CoreV1Api.__name__, k.client.Configuration is sdk.Configuration, k.client.ApiClient.__name__)"
    )
    assert said == "CoreV1Api True ApiClient"


def test_package_that_is_there_is_used() -> None:
    """Where somebody imported all of it before, the detour is not taken."""
    said = printed_by(
        "import kubernetes_asyncio as k; from gangsched.kube.http import sdk; print(sdk.config is k.config)"
    )
    assert said == "True"


def test_other_layout_is_loaded_the_plain_way() -> None:
    """When the package cannot be passed by, it is imported as a whole."""
    said = printed_by(
        "import importlib.util as u; real = u.find_spec; "
        "u.find_spec = lambda name, *rest: None if name.endswith('.client') else real(name, *rest); "
        "from gangsched.kube.http import sdk; import kubernetes_asyncio as k; "
        "print(sdk.Configuration is k.client.Configuration, sdk.config is k.config)"
    )
    assert said == "True True"
