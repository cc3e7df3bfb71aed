"""Who gets no answer from the live page: each refusal over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubectl_gangsched.page.live import guard, server
from tests.live_page import Page, Stream, cluster, live

ALL = (
    "/",
    "/page.js",
    "/page.css",
    "/api/session",
    "/api/document",
    "/api/changes?after=1",
    "/api/gang?id=team/runs",
    "/api/health",
    "/nothing",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One page that has been entered."""
    with live(tmp_path_factory.mktemp("live"), cluster()) as page:
        yield page


def test_every_answer_has_the_headers(page: Page) -> None:
    """Answers, refusals and what is no HTTP: the policy, no-store, and nothing of CORS."""
    answers = [page.ask(path) for path in ALL]
    answers += [page.ask("/", Host="evil.example"), page.ask("/api/document", method="DELETE")]
    answers += [page.ask("/api/document", Authorization=None), page.ask("/", method="OPTIONS")]
    for answer in answers:
        for name, value in guard.HEADERS.items():
            assert answer.headers[name] == value, (answer.status, name)
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert answer.headers["Server"] == "gangsched"
    raw = page.raw(b"NONSENSE\r\n\r\n").decode()
    for name, value in guard.HEADERS.items():
        assert f"{name}: {value}" in raw


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::]:{port}"]
)
def test_no_other_name_is_served(page: Page, path: str, host: str) -> None:
    """DNS rebinding: a name of another site that resolves to 127.0.0.1."""
    answer = page.ask(path, Host=host.format(port=page.port))
    assert (answer.status, set(answer.value)) == (421, {"sentence"})


def test_own_names_are_served(page: Page) -> None:
    """Of all three names of this machine."""
    for host in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert page.ask("/api/document", Host=f"{host}:{page.port}").status == 200


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    ],
)
def test_no_other_site_may_ask(page: Page, path: str, headers: dict[str, str]) -> None:
    """Fetches, scripts and frames of other sites, and of other ports of this machine."""
    given: dict[str, Any] = {name: value.format(port=page.port) for name, value in headers.items()}
    assert page.ask(path, **given).status == 403


def test_the_page_may_be_opened_from_anywhere(page: Page) -> None:
    """By the file that redirects, which is another origin; only the page, which has no data."""
    opened: dict[str, Any] = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    for site in ("cross-site", "none", "same-origin"):
        assert page.ask("/", Sec_Fetch_Site=site, **opened).status == 200
    assert page.ask("/api/document", Sec_Fetch_Site="cross-site", **opened).status == 403
    assert page.ask("/api/document", Sec_Fetch_Site="none", **opened).status == 403


def test_nothing_is_told_without_the_key(page: Page) -> None:
    """Another user of this machine, who has neither the link nor the key."""
    wrong: list[str | None] = [None, "", "Bearer ", "Bearer wrong", f"Code {page.key}", page.key]
    wrong += [f"Bearer {page.key[:-1]}", f"Bearer {page.key}x", f"Bearer {page.server.guard.code}"]
    for given in wrong:
        for path in ALL[4:8]:
            answer = page.ask(path, Authorization=given)
            assert (answer.status, set(answer.value)) == (401, {"sentence"}), (path, given)
        asked = page.ask("/api/ask", "POST", b"{}", Authorization=given)
        assert asked.status == 401


def test_a_link_is_good_once(tmp_path: Path) -> None:
    """The code is exchanged for one key; whoever comes later is told so."""
    with live(tmp_path, cluster(), enter=False) as page:
        code = page.server.guard.code
        for wrong in ("", f"Bearer {code}", code, f"Code {code}x", "Code "):
            assert page.ask("/api/session", Authorization=wrong).status == 401
        exchanged = []
        page.server.exchanged = lambda: exchanged.append(True)
        page.enter()
        assert exchanged == [True]
        again = page.ask("/api/session", Authorization=f"Code {code}")
        assert again.status == 401
        assert again.value["sentence"].startswith("This link has been used")
        assert page.ask("/api/document").status == 200


def test_only_known_requests_are_answered(page: Page) -> None:
    """A fixed list of GETs and one POST: nothing else, however it is spelled."""
    for path in ("/api", "/api/", "/api/v1/pods", "/api/document/", "/../etc"):
        assert page.ask(path).status == 404
    for path in ("/API/document", "/page.js%00", "/assets/main.js", "http://example.com/"):
        assert page.ask(path).status in {400, 404}
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND"):
        assert page.ask("/api/document", method=method).status == 501
    assert page.ask("/api/document", "POST", b"{}").status == 405
    assert page.ask("/api/none", "POST", b"{}").status == 404


def test_bodies_are_short_json(page: Page) -> None:
    """64 KiB at most, of known length; a GET has none."""
    json: dict[str, Any] = {"Content_Type": "application/json"}
    large = page.ask("/api/ask", "POST", b"x" * (guard.BODY_BYTES + 1), **json)
    assert (large.status, "64 KiB" in large.value["sentence"]) == (413, True)
    for length in ("-1", "1e3", "٣", "", "99999999999"):
        answer = page.ask("/api/ask", "POST", b"", Content_Length=length.encode().decode("latin-1"))
        assert answer.status in {411, 413}
    chunked: dict[str, Any] = {"Transfer_Encoding": "chunked", "Content_Length": None}
    assert page.ask("/api/ask", "POST", b"2\r\n{}\r\n0\r\n\r\n", **chunked, **json).status == 411
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None):
        assert page.ask("/api/ask", "POST", b"{}", Content_Type=media).status == 415
    assert page.ask("/api/document", body=b"{}").status == 400


def test_a_header_that_is_there_twice_is_refused(page: Page) -> None:
    """The check and the answer could read different ones."""
    host = f"Host: 127.0.0.1:{page.port}\r\n"
    raw = page.raw(f"GET / HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n".encode())
    assert raw.startswith(b"HTTP/1.1 400 ")


def test_a_question_that_is_none_is_a_sentence(page: Page) -> None:
    """And nothing of Python."""
    for body in (b"", b"{", b"[]", b"{}", b'{"gang": 1}', b'{"gang":"a/b","manifest":"x"}'):
        answer = page.ask("/api/ask", "POST", body, Content_Type="application/json")
        assert (answer.status, set(answer.value)) == (422, {"sentence"}), body
        assert "Traceback" not in answer.value["sentence"]
    for path in ("/api/gang", "/api/gang?id=", "/api/gang?id=a&id=b", "/api/changes?after=x"):
        assert page.ask(path).status in {400, 422}
    for key in ("..%2F..", "team%2F..", "..%2Fx", "team%2F", "%2F", "a%2Fb%2F..%2F..%2Fpods"):
        answer = page.ask(f"/api/gang?id={key}")
        assert answer.status in {200, 422}
    assert not [asked for asked in page.fake.asked if "/../" in asked]


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ModuleNotFoundError("numpy", name="numpy"), "install kubectl-gangsched[local]"),
        (RecursionError("too deep"), "a bug: RecursionError"),
    ],
)
def test_what_goes_wrong_is_a_sentence(
    page: Page, monkeypatch: pytest.MonkeyPatch, error: Exception, wanted: str
) -> None:
    """Also libraries that are missing, and bugs."""

    def ask(_: bytes) -> None:
        raise error

    monkeypatch.setattr(page.server.questions, "ask", ask)
    answer = page.ask("/api/ask", "POST", b"{}", Content_Type="application/json")
    assert answer.status == 500
    assert wanted in answer.value["sentence"]


def test_what_is_refused_is_no_use(page: Page) -> None:
    """Other sites and users cannot keep the page open beyond its idle hour."""
    used_s = page.server.used_s
    page.ask("/", Host="evil.example")
    page.ask("/api/document", Authorization=None)
    page.ask("/api/session", Authorization="Code wrong")
    page.ask("/")
    assert page.server.used_s == used_s
    page.ask("/api/document")
    assert page.server.used_s > used_s


def test_eight_tabs_are_enough(page: Page) -> None:
    """The ninth stream is refused, until one is closed."""
    streams = [Stream(page) for _ in range(server.STREAMS)]
    assert {stream.answer.status for stream in streams} == {200}
    ninth = Stream(page)
    assert ninth.answer.status == 503
    ninth.close()
    for stream in streams:
        stream.close()


def test_the_key_is_in_no_address_and_no_cookie(page: Page) -> None:
    """Cookies are shared by all ports of an address; addresses are in histories and logs."""
    for path in ALL:
        answer = page.ask(path)
        assert "Set-Cookie" not in answer.headers
        assert page.key.encode() not in answer.body
        assert page.server.guard.code.encode() not in answer.body
    assert page.ask(f"/api/document?key={page.key}", Authorization=None).status == 401
    assert re.fullmatch(r"[\w-]{43}", page.key)
