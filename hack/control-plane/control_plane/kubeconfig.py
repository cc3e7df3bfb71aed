"""Self-contained kubeconfig files (certificates inside, no paths), which may be copied anywhere.

They are written as JSON, which is YAML too, so that no YAML library is needed here.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any


def certificate_user(cert: Path, key: Path) -> dict[str, str]:
    """The user entry of a client certificate."""
    return {"client-certificate-data": _base64(cert), "client-key-data": _base64(key)}


def write(path: Path, *, url: str, ca: Path, user: dict[str, str], name: str) -> None:
    """Write a kubeconfig with one cluster, one user and one context, readable by its
    owner alone.
    """
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url, "certificate-authority-data": _base64(ca)}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(document, file, indent=2)
        file.write("\n")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
