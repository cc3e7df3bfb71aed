"""Certificate and trust: who writes them, in which order, and when."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from gangsched.visibility.access.certificates import lasts, make_serving, utc
from gangsched.visibility.access.identity import API_SERVICE, Identity
from gangsched.visibility.ports import ApiAnswer, Json

SECRET = "/api/v1/namespaces/gangsched-system/secrets/gangsched-visibility"
NAMES = ["gangsched-visibility.gangsched-system.svc"]


class Cluster:
    """A Secret and an APIService; `writes` are methods and paths, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {
            SECRET: {"metadata": {"resourceVersion": "1"}},
            API_SERVICE: {"spec": {}},
        }
        self.writes: list[tuple[str, str]] = []
        self.refuses: set[str] = set()
        self.warnings: list[str] = []
        self.wall_s, self.leads = 1_800_000_000.0, True

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        if path in self.refuses or path not in self.objects:
            return ApiAnswer(403 if path in self.refuses else 404)
        if method == "GET":
            return ApiAnswer(200, self.objects[path])
        assert body is not None
        self.writes.append((method, path))
        self.objects[path] = {**self.objects[path], **body}
        return ApiAnswer(200, self.objects[path])

    def identity(self) -> Identity:
        """That of one replica."""
        return Identity(
            self,
            "gangsched-system",
            directory=None,
            leads=lambda: self.leads,
            wall_s=lambda: self.wall_s,
            warn=self.warnings.append,
        )

    def trusted(self) -> str:
        """The authorities that the API server believes."""
        return base64.b64decode(self.objects[API_SERVICE]["spec"]["caBundle"]).decode()


async def test_the_leader_makes_a_certificate_and_all_serve_with_it() -> None:
    """Trust is written before what is to be trusted; a second look writes nothing."""
    cluster = Cluster()
    cluster.leads = False
    assert await cluster.identity().look() is None
    assert cluster.writes == []
    cluster.leads = True
    made = await cluster.identity().look()
    assert made is not None
    assert lasts(made, NAMES, utc(cluster.wall_s))
    assert cluster.writes == [("PATCH", API_SERVICE), ("PUT", SECRET)]
    assert cluster.trusted() == made.authority
    assert "CA" not in cluster.objects[SECRET]["data"]
    cluster.writes.clear()
    for leads in (True, False):
        cluster.leads = leads
        assert await cluster.identity().look() == made
    assert cluster.writes == []


async def test_a_standby_knows_that_only_a_leader_can_make_the_first_certificate() -> None:
    """Not where the Secret cannot be read, and no longer once a leader made it."""
    cluster = Cluster()
    cluster.leads = False
    standby = cluster.identity()
    cluster.refuses = {SECRET}
    await standby.look()
    assert not standby.awaits_leader
    cluster.refuses = set()
    await standby.look()
    assert standby.awaits_leader
    cluster.leads = True
    await cluster.identity().look()
    cluster.leads = False
    assert await standby.look() is not None
    assert not standby.awaits_leader


async def test_it_is_renewed_in_time_and_the_authority_before_stays_trusted() -> None:
    """At every moment the API server believes what is shown; old authorities do not add up."""
    cluster = Cluster()
    first = await cluster.identity().look()
    assert first is not None
    cluster.wall_s += timedelta(days=320).total_seconds()
    cluster.leads = False
    assert await cluster.identity().look() == first
    cluster.leads = True
    second = await cluster.identity().look()
    assert second is not None
    assert second.certificate != first.certificate
    assert cluster.trusted().endswith(first.authority)
    cluster.wall_s += timedelta(days=320).total_seconds()
    third = await cluster.identity().look()
    assert third is not None
    assert third.authority.count("BEGIN CERTIFICATE") == 2
    assert first.authority not in third.authority


async def test_what_somebody_spoilt_is_made_anew() -> None:
    """A key that is not the certificate's, other names, an authority that did not sign, and no
    certificates at all.
    """
    both = [*NAMES, f"{NAMES[0]}.cluster.local"]
    other, ours = (make_serving(names, utc(1_800_000_000.0)) for names in (["other.svc"], both))
    assert lasts(ours, both, utc(1_800_000_000.0))
    for data in (
        {},
        {"tls.crt": "bm8="},
        {"ca.crt": other.authority, "tls.crt": other.certificate, "tls.key": other.key},
        {"ca.crt": other.authority, "tls.crt": ours.certificate, "tls.key": ours.key},
        {"ca.crt": ours.certificate, "tls.crt": ours.certificate, "tls.key": ours.key},
    ):
        cluster = Cluster()
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        cluster.objects[SECRET]["data"] = encoded
        made = await cluster.identity().look()
        assert made is not None
        assert lasts(made, NAMES, utc(cluster.wall_s))
        assert made.certificate != data.get("tls.crt")


async def test_missing_rights_and_objects_are_told() -> None:
    """And nothing is shown that nobody believes."""
    cluster = Cluster()
    cluster.refuses = {API_SERVICE}
    assert await cluster.identity().look() is None
    assert any("APIService" in each for each in cluster.warnings)
    assert cluster.writes == []
    del cluster.objects[SECRET]
    assert await cluster.identity().look() is None
    assert "apply manifests/visibility/secret.yaml" in cluster.warnings[-1]


def test_a_certificate_is_for_its_names_only() -> None:
    """And its authority can sign nothing else, for its key is gone."""
    made: Any = make_serving(NAMES, utc(1_800_000_000.0))
    assert lasts(made, NAMES, utc(1_800_000_000.0))
    assert not lasts(made, ["other.svc"], utc(1_800_000_000.0))
    assert not lasts(made, NAMES, utc(1_800_000_000.0) + timedelta(days=310))
