"""Who may look at the live page, and what no client can do."""

import json
import os
import re
import socket

import pytest

from tacit.errors import UsageError
from tacit.listening import is_loopback
from tacit.report.web.access import HEADERS, Access, token_in

EVERYTHING = ["/", "/run/ID", "/run/ID/report", "/run/ID/figures.parquet", "/metrics", "/static/live.js",
              "/nothing"]  # fmt: skip


@pytest.mark.parametrize("path", EVERYTHING)
@pytest.mark.parametrize("secret", [None, "Bearer wrong", "Bearer ", "Basic x", "cookie"])
def test_nothing_is_shown_without_the_token(shown, path, secret):
    said = {} if secret is None else {"Authorization": secret}
    if secret == "cookie":
        said = {"Cookie": f"{shown.server.access.cookie}={shown.server.access.token}"}  # the token is no cookie
    answer = shown.get(path.replace("ID", shown.id), token=False, **said)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    if path == "/":
        assert b"tacit dashboard" in answer.content
    else:
        assert "token" in json.loads(answer.content)["error"]
    asked = shown.get(path.replace("ID", shown.id), token=False, Accept="text/html,*/*", **said)
    assert (asked.status, asked.headers["Content-Type"]) == (401, "text/html; charset=utf-8")
    assert b"tacit dashboard" in asked.content
    assert b"flights" not in asked.content
    assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]


def test_the_address_sets_a_cookie_and_forgets_the_token(shown):
    path = shown.server.access.address.partition(str(shown.server.port))[2]
    answer = shown.get(path, token=False)
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(rf"tacit-{shown.server.port}=[0-9a-f]{{64}}; HttpOnly; Path=/; SameSite=strict", cookie)
    assert shown.server.access.token not in str(answer.headers)
    for path in ("/", f"/run/{shown.id}", "/metrics"):
        assert shown.get(path, token=False, Cookie=f"other=1; {cookie.partition(';')[0]}").status == 200
    assert shown.get("/?token=wrong", token=False).status == 401
    assert shown.get("/?token=wrong", token=False, Cookie=cookie.partition(";")[0]).status == 401
    assert shown.get(f"/metrics?token={shown.server.access.token}", token=False).status == 401


def test_a_browser_that_a_file_or_another_site_sent_goes_on_by_itself(shown):
    path = f"/?token={shown.server.access.token}"
    way = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    answer = shown.get(path, token=False, Sec_Fetch_Site="cross-site", **way)
    assert (answer.status, answer.headers["Location"]) == (200, None)
    assert answer.headers["Set-Cookie"].startswith(shown.server.access.cookie)
    assert b'content="0;url=/"' in answer.content
    for said in ("none", "same-origin"):
        assert shown.get(path, token=False, Sec_Fetch_Site=said, **way).status == 303


@pytest.mark.parametrize("cookie", ["", ";;;", 'tacit="', "\x01=2", "tacit-1=é", "a" * 5000])
def test_an_odd_cookie_is_no_cookie(shown, cookie):
    assert shown.get("/metrics", token=False, Cookie=cookie.encode()).status in (400, 401)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:7860", "127.9.9.9:1"])
def test_loopback_names_are_the_server(shown, host):
    assert shown.get("/", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "localhost.evil", "", "10.0.0.1", "[::2]",
     "127.0.0.1@evil.example", "localhost:7860:1", "user:x@localhost"],
)  # fmt: skip
def test_another_sites_name_that_leads_here_is_refused(shown, host):
    answer = shown.get("/", Host=host)
    assert answer.status == 400
    assert b"flights" not in answer.content


def test_a_server_everywhere_is_called_by_number_or_by_the_machines_name():
    access = Access(host="0.0.0.0", port=1)
    assert access.knows("10.1.2.3:1")
    assert access.knows(socket.gethostname())
    assert not access.knows("evil.example")
    assert f"//{socket.gethostname()}:1/" in access.address
    assert not Access(host="10.0.0.1", port=1).knows("10.0.0.2")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/run/x", "/metrics", "/nothing"])
def test_the_server_is_only_read(shown, method, path):
    answer = shown.get(path, method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", EVERYTHING)
def test_head_is_get_without_the_content(shown, path):
    answer = shown.get(path.replace("ID", shown.id), method="HEAD")
    assert answer.status == (404 if path == "/nothing" else 200)
    assert answer.content == b""


@pytest.mark.parametrize(
    "name",
    ["..", "../..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..", "/etc/passwd", "%00", "x" * 3000, "index.html/..", ".",
     "", "C:%5c", "....//", "%ff", "000000000000"],
)  # fmt: skip
@pytest.mark.parametrize("before", ["/static/", "/run/", "/sweep/"])
@pytest.mark.parametrize("after", ["", "/report"])
def test_no_path_of_a_client_is_opened(shown, before, name, after):
    answer = shown.get(before + name + after)
    assert answer.status == 404, answer.content[:200]
    assert json.loads(answer.content)["error"]


def test_every_answer_says_how_it_may_be_used(shown):
    for path in [*EVERYTHING[:-2], "/nothing", "/run/x"]:
        answer = shown.get(path.replace("ID", shown.id))
        for name, value in HEADERS.items():
            told = answer.headers[name]
            if name == "Content-Security-Policy" and path.endswith("report"):
                assert told.startswith("sandbox; default-src 'none'; style-src 'unsafe-inline'")
            else:
                assert told == value, (path, name)
        assert "Server" not in answer.headers


def test_a_token_file_is_made_kept_and_for_its_owner_alone(tmp_path):
    path = tmp_path / "token"
    made = token_in(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(made) == 43
    assert token_in(path) == made
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        token_in(path)


@pytest.mark.parametrize("text", ["", "short", "a" * 31, "a b" * 20, "é" * 40, "a" * 300])
def test_what_is_no_token_is_refused(tmp_path, text):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(UsageError, match="holds no token"):
        token_in(path)


def test_a_token_file_must_be_one(tmp_path):
    with pytest.raises(UsageError, match="is no file"):
        token_in(tmp_path)
    with pytest.raises(UsageError, match="folder that exists"):
        token_in(tmp_path / "missing" / "token")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="is no file"):
        token_in(tmp_path / "pipe")


def test_the_token_is_in_no_log_and_no_answer(shown, caplog):
    caplog.set_level("DEBUG")
    said = [shown.get(path.replace("ID", shown.id)) for path in EVERYTHING]
    said.append(shown.get(f"/?token={shown.server.access.token}"))
    for answer in said:
        assert shown.server.access.token.encode() not in answer.content + str(answer.headers).encode()
    assert shown.server.access.token not in caplog.text


def test_tokens_are_fresh():
    assert Access(host="127.0.0.1", port=1).token != Access(host="127.0.0.1", port=1).token


def test_which_hosts_other_machines_reach():
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    with pytest.raises(UsageError, match="no address of this machine"):
        is_loopback("no such host")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/run/ID", "/metrics", "/static/live.js", "/run/ID/figures.parquet"])
def test_a_page_of_another_site_or_another_port_gets_nothing(shown, site, path):
    path = path.replace("ID", shown.id)
    for mode in ("navigate", "cors", "no-cors"):
        assert shown.get(path, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == 403
    for mode in ("cors", "no-cors", "same-origin", ""):
        assert shown.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status == 403
    assert shown.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe").status == 403
    assert shown.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_its_own_page_and_a_bookmark_get_it(shown, site):
    assert shown.get(f"/run/{shown.id}", Sec_Fetch_Site=site).status == 200
