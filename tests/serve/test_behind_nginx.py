"""Debian's nginx before a service: scores by HTTPS, and the partner's TLS passed through to where it ends."""

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tacit.wire import certificates
from tests.serve.files import copied
from tests.serve.online import PATIENCE
from tests.torture.world import free_port

ROOT = Path(__file__).parent.parent.parent
MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
HERE = """
daemon off;
pid {folder}/pid;
error_log {folder}/errors.log;
load_module {module};
events {{}}
{stream}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {score}
}}
"""

TIMEOUTS = ("client_header_timeout", "client_body_timeout", "send_timeout")

pytestmark = pytest.mark.skipif(
    shutil.which("nginx") is None or not MODULE.exists(),
    reason="no nginx is installed here: apt-get install nginx-light libnginx-mod-stream",
)


def replaced(text, *changes):
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@contextmanager
def nginx(folder, *, partner, airline, score, endpoint):
    """nginx as the pages say, at other ports: partner to airline as a stream, score to endpoint by HTTPS."""
    folder.mkdir()
    page = (ROOT / "docs" / "howto-deploy.md").read_text()
    stream = re.search(r"```nginx\n(.*?)```", page, re.DOTALL)[1]
    identity = certificates.create("score")
    for name, pem in (("crt", identity.cert_pem), ("key", identity.key_pem)):
        (folder / f"score.{name}").write_bytes(pem)
    text = HERE.format(
        folder=folder,
        module=MODULE,
        stream=replaced(stream, ("7443;\n", f"127.0.0.1:{partner};\n"), ("10.0.0.5:7443", f"127.0.0.1:{airline}")),
        score=replaced(
            (ROOT / "deploy" / "nginx-score.conf").read_text(),
            ("listen 443 ssl", f"listen 127.0.0.1:{score} ssl"),
            ("127.0.0.1:7080", f"127.0.0.1:{endpoint}"),
            ("/etc/tacit/score.crt", f"{folder}/score.crt"),
            ("/etc/tacit/score.key", f"{folder}/score.key"),
            *((f"{name} 10s", f"{name} 1s") for name in TIMEOUTS),
        ),
    )
    (folder / "nginx.conf").write_text(text)
    command = ["nginx", "-p", folder, "-e", folder / "errors.log", "-c", folder / "nginx.conf"]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    running = subprocess.Popen(command)
    try:
        yield
    finally:
        running.terminate()
        running.wait(PATIENCE)


def asked(port, method, path, body=None):
    """Status and answer, by HTTPS; nginx may need a moment to start."""
    end = time.monotonic() + PATIENCE
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except ConnectionRefusedError:
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.05)
        finally:
            connection.close()


def ended(port, text):
    """Seconds until nginx ends a client that has said so much and no more."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    began = time.monotonic()
    line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    with context.wrap_socket(line) as client:
        client.sendall(text)
        while client.recv(4096):
            pass
    return time.monotonic() - began


SLOW = {
    "nothing": b"",
    "a line": b"POST /score HT",
    "a head": b"GET /health HTTP/1.1\r\nHost: x\r\n",
    "a body": b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
}


def test_scores_come_through_and_nothing_of_a_request_is_kept(exchanged, start, tmp_path):
    world, folder, partner, score = copied(exchanged.path, tmp_path), tmp_path / "nginx", free_port(), free_port()
    settings = world / "airport" / "party.toml"
    address = re.search(r"127\.0\.0\.1:(\d+)", settings.read_text())
    settings.write_text(settings.read_text().replace(address[0], f"127.0.0.1:{partner}"))
    airline = start(world / "airline")
    with nginx(folder, partner=partner, airline=address[1], score=score, endpoint=airline.port):
        start(world / "airport")
        airline.heard("connected")
        rows = [{"id": f"f{row}", "plane": 0.5} for row in range(3)]
        status, said = asked(score, "POST", "/score", json.dumps({"rows": rows}))
        assert status == 200, said
        assert json.loads(said)["basis"] == ["joint"] * 3
        assert json.loads(said)["scores"] == airline.scores(rows)["scores"]
        large = json.dumps({"rows": [{"id": f"f{row}", "plane": 0.5} for row in range(900)]}).ljust(1_000_000)
        assert asked(score, "POST", "/score", large)[0] == 200
        assert asked(score, "POST", "/score", large.ljust(1_100_000))[0] == 413
        assert asked(score, "GET", "/health") == (200, b'{"alive": true}')
        assert asked(score, "GET", "/metrics")[0] == 404
        for name, text in SLOW.items():  # a client that does not go on, or never reads, is ended before the service
            assert 0.5 < ended(score, text) < 30, name
        assert asked(score, "GET", "/health")[0] == 200
    written = "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
    assert "POST /score" in written
    assert '"f1"' not in written
    assert "buffered to a temporary file" not in written
