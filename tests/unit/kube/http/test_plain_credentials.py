"""Credentials that need no library understand what kubectl understands, and leave the rest to the
library.
"""

from __future__ import annotations

import base64
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gangsched.kube.http import location
from gangsched.kube.http.faults import Misconfigured
from gangsched.kube.http.plain_credentials import Overrides, access


def write(path: Path, user: dict[str, Any], name: str = "c", **cluster: Any) -> Path:
    """A kubeconfig with one cluster, user and context of the same name."""
    document = {
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}:1/", **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}
        ],
        "current-context": name,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


BASIC = f"Basic {base64.b64encode(b'me:secret').decode()}"


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"tokenFile": "token", "token": "t"}, "Bearer from a file"),
        ({"username": "me", "password": "secret"}, BASIC),
        ({}, ""),
    ],
    ids=["token", "token file", "password", "none"],
)
def test_tokens_files_and_passwords(tmp_path: Path, user: dict[str, Any], header: str) -> None:
    """A token file wins over a token, and its path is relative to the kubeconfig."""
    (tmp_path / "token").write_text("from a file\n")
    found = access(write(tmp_path / "k", user))
    assert (found.server, found.authorization, found.namespace, found.tls) == (
        "http://c:1",
        header,
        "of-c",
        None,
    )


def test_an_exec_plugin_is_run_by_the_library(tmp_path: Path) -> None:
    """Its token is taken."""
    plugin = tmp_path / "plugin"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(credential))})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = access(write(tmp_path / "k", user))
    assert (found.authorization, found.namespace) == ("Bearer from-plugin", "of-c")


def test_several_files_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first current context counts, an entry of any file may be asked for, and missing files
    are passed over.
    """
    one, two = (
        write(tmp_path / "1", {"token": "one"}, "a"),
        write(tmp_path / "2", {"token": "two"}, "b"),
    )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{one}:{two}")
    assert access().authorization == "Bearer one"
    assert access(overrides=Overrides(context="b")).authorization == "Bearer two"
    with pytest.raises(Misconfigured, match='has no context "z"'):
        access(overrides=Overrides(context="z"))


def test_inside_a_pod_the_service_account_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where there is no kubeconfig; a file that is missing is one sentence."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(location, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    with pytest.raises(Misconfigured, match=r"There is no kubeconfig at ~/\.kube/config"):
        access()
    (tmp_path / "token").write_text("mounted")
    (tmp_path / "namespace").write_text("of-pod")
    with pytest.raises(Misconfigured, match="Cannot use the pod's service account"):
        access()
    monkeypatch.setattr("gangsched.kube.http.plain_credentials.tls_context", lambda **_: None)
    found = access()
    assert (found.server, found.authorization, found.namespace) == (
        "https://[fd00::1]:443",
        "Bearer mounted",
        "of-pod",
    )


def test_a_certificate_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    """As for any other wrong file."""
    with pytest.raises(Misconfigured, match="Cannot use kubeconfig"):
        access(
            write(
                tmp_path / "k", {}, server="https://c", **{"certificate-authority-data": "bm9uZQ=="}
            )
        )
