"""kopf and kubernetes_asyncio, imported without the client libraries that they find."""

from __future__ import annotations

from tests.interpreter import printed_by


def test_generated_clients_are_not_loaded() -> None:
    """Whoever listens with kopf has none of the generated models, with our credentials read before or not."""
    for first in ("", "from gangsched.kube.http.credentials import Credentials; "):
        said = printed_by(
            f"import sys; {first}from gangsched.kube.read import kopf_watch; "
            "print('kopf' in sys.modules, [name for name in sys.modules if '.client.models' in name][:3])"
        )
        assert said == "True []"


def test_whole_package_can_be_imported_afterwards() -> None:
    """Who needs the client libraries still gets them, with the same Configuration."""
    said = printed_by(
        "from gangsched.kube.http import sdk; from gangsched.kube.read.kopf_alone import kopf; "
        "import kubernetes_asyncio as k; print(k.client.CoreV1Api.__name__, k.client.ApiClient.__name__, "
        "k.client.Configuration is sdk.Configuration, kopf.OperatorRegistry.__name__)"
    )
    assert said == "CoreV1Api ApiClient True OperatorRegistry"


def test_package_that_is_there_stays() -> None:
    """Where somebody imported all of it before, it is the same afterwards, and used."""
    said = printed_by(
        "import kubernetes_asyncio as k, sys; from gangsched.kube.http import sdk; "
        "from gangsched.kube.read.kopf_alone import kopf; import kubernetes_asyncio.client as c; "
        "print(sys.modules['kubernetes_asyncio'] is k, c is k.client, sdk.config is k.config)"
    )
    assert said == "True True True"
