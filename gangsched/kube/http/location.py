"""Where the client's configuration is: in a kubeconfig, or in the files of the pod's service
account.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from gangsched.kube.http.faults import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster() -> bool:
    """Whether this process runs in a pod with a service-account token."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()


def expanded(path: str) -> Path:
    """The path with `~` replaced by the home directory; unchanged if the user has none, as in a
    container.

    `Path.expanduser` would raise there.
    """
    return Path(os.path.expanduser(path))


def kubeconfig_path(given: Path | None) -> str:
    """The kubeconfig to use: the given one, else $KUBECONFIG (which may join several), else
    ~/.kube/config.

    Raises Misconfigured if no such file exists.
    """
    text = str(given) if given is not None else os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [text] if given is not None else text.split(os.pathsep)
    if not any(path and _is_there(path) for path in paths):
        raise Misconfigured(
            f"There is no kubeconfig at {text}: pass --kubeconfig with a file that exists, or set"
            " KUBECONFIG."
        )

    return text


def server_address(text: str) -> str:
    """The address of an API server, with a scheme. Raises ValueError."""
    # As kubectl: an address without a scheme is one of plain HTTP.
    server = text.rstrip("/") if "://" in text else f"http://{text.rstrip('/')}"
    parts = urlsplit(server)
    # The port is empty where a library has taken the slashes of "https://" away.
    is_cut = parts.netloc.endswith(":")
    if parts.scheme not in {"http", "https"} or not parts.hostname or is_cut:
        raise ValueError(f'"{text}" is not the address of a server')

    _ = parts.port  # which raises for a port that is none
    return server


def _is_there(path: str) -> bool:
    """Whether something has this name: also a pipe, of which a shell makes the name of a file."""
    try:
        return expanded(path).exists()
    except OSError:
        return True  # whoever reads it says why that is impossible
