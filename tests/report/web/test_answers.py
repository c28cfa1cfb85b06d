"""What the live page's server answers, over a real port."""

import gzip
import html
import io
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest


def test_a_run_as_a_card_and_as_a_page(shown):
    first = shown.page("/")
    assert f'<a class="card open" href="/run/{shown.id}">' in first
    assert "Its process is gone" in first
    assert "airline · label party" in first
    assert "1 run" in first
    leak, loss = (shown.charts(f"/run/{shown.id}")[name] for name in ("leak", "loss"))
    curves = {curve["name"]: curve for curve in leak["curves"]}
    assert curves["norm"]["y"] == [pytest.approx(0.55)] * 50  # folded
    assert loss["curves"][0]["x"] == list(range(50))


def test_a_long_run_is_thinned_and_no_peak_is_lost(tmp_path, serving, make_run, look):
    folder = make_run(tmp_path / "a" / "runs" / "b")
    lines = [look(step, norm=0.9 if step == 4321 else 0.51) for step in range(9000)]
    (folder / "live.jsonl").write_text("".join(lines))
    with serving(tmp_path) as client:
        name = client.cards()["a / b"]["id"]
        (curve,) = client.charts(f"/run/{name}")["leak"]["curves"]
        assert len(curve["x"]) <= 600
        assert max(curve["y"]) == 0.9
        assert "the highest is 0.900 (norm, step 4,321)" in client.page(f"/run/{name}")


@pytest.mark.parametrize("query", ["by=x", "by=-9", "by=1e999", "look=nan",
                                   "q=%00&sort=x", "hide=,,,", "other=1", "by=0&up=1"])  # fmt: skip
def test_odd_questions_are_fine(shown, query):
    for path in ("/", f"/run/{shown.id}"):
        assert shown.page(f"{path}?{query}")


@pytest.mark.parametrize("path", ["/run/ID/report", "/run/ID/figures.parquet", "/static/live.js", "/static/page.css"])
def test_what_a_client_has_is_not_sent_again(shown, path):
    path = path.replace("ID", shown.id)
    first = shown.get(path)
    tag = first.headers["ETag"]
    for said in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        again = shown.get(path, If_None_Match=said)
        assert (again.status, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert shown.get(path, If_None_Match='"other"').status == 200


def test_answers_are_packed_for_who_can_unpack_them(shown):
    path = f"/run/{shown.id}"
    packed, plain = shown.get(path, Accept_Encoding="gzip"), shown.get(path)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content) / 2


def test_the_report_runs_nothing(shown):
    answer = shown.get(f"/run/{shown.id}/report")
    assert answer.content == (shown.folder / "report.html").read_bytes()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    rules = answer.headers["Content-Security-Policy"].split("; ")
    assert "sandbox" in rules
    assert "default-src 'none'" in rules
    assert not any("script" in rule for rule in rules)


def test_all_figures_as_parquet(shown):
    answer = shown.get(f"/run/{shown.id}/figures.parquet")
    table = pl.read_parquet(io.BytesIO(answer.content))
    assert table.filter(pl.col("name") == "norm")["step"].to_list() == list(range(50))
    assert answer.headers["Content-Disposition"] == f'attachment; filename="tacit-{shown.id}.parquet"'


@pytest.mark.parametrize("kind", ["none", "link", "folder", "pipe"])
def test_a_report_is_a_file_of_its_folder(tmp_path, serving, make_run, kind):
    folder = make_run(tmp_path / "a" / "runs" / "b")
    report = folder / "report.html"
    if kind == "link":
        (tmp_path / "secret").write_text("secret")
        report.symlink_to(tmp_path / "secret")
    elif kind == "folder":
        report.mkdir()
    elif kind == "pipe":
        os.mkfifo(report)
    with serving(tmp_path) as client:
        answer = client.get(f"/run/{client.cards()['a / b']['id']}/report")
    assert answer.status == 404
    assert "tacit audit" in json.loads(answer.content)["error"]


HOSTILE = "<script>alert(1)</script>\n\"'\\{}\u202e\x00\ud800é"


def test_hostile_names_stay_words(tmp_path, serving, make_run):
    make_run(tmp_path / "a" / "runs" / "b", run=HOSTILE, party=HOSTILE, state=HOSTILE)
    with serving(tmp_path) as client:
        card = client.cards()["a / b"]
        assert card["run"] == card["party"] == card["state"] == HOSTILE
        said = html.escape(HOSTILE.replace("\ud800", "?")).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
        for path in ("/", f"/run/{card['id']}"):
            page = client.page(path)
            assert said in page
            assert "<script>alert" not in page
        assert client.get("/metrics").status == 200


ODD = {
    "empty": b"",
    "not JSON": b"{]",
    "a list": b"[1, 2]\n",
    "a number": b"7\n",
    "nothing": b"null\n",
    "deep": b"[" * 100_000 + b"\n",
    "not text": bytes(range(256)) + b"\n",
    "wrong kinds": b'{"step": "x", "found": [], "time": [], "turn": {}, "epoch": "y", "leaks": 1, "history": {}}\n',
    "not finite": b'{"step": 1, "found": {"norm": NaN, "hint": 1e999}, "figures": {"loss": -Infinity}, "turn": NaN}\n',
    "huge": b'{"step": 1' + b"0" * 400 + b', "found": {"norm": 1' + b"0" * 400 + b'}, "turn": 1' + b"0" * 400 + b"}\n",
    "many names": b'{"step": 1, "found": {' + b",".join(b'"%d": 0.5' % i for i in range(500)) + b"}}\n",
}


@pytest.mark.parametrize("file", ["status.json", "live.jsonl", "log.jsonl", "gate.jsonl", "pace.jsonl", "report.json"])
def test_damaged_files_are_told_and_fail_nothing(tmp_path, serving, make_run, file):
    for place, content in enumerate(ODD.values()):
        (make_run(tmp_path / "a" / "runs" / f"run{place}") / file).write_bytes(content)
    folder = make_run(tmp_path / "a" / "runs" / "folder")
    (folder / file).unlink(missing_ok=True)
    (folder / file).mkdir()
    make_run(tmp_path / "a" / "runs" / "good")
    with serving(tmp_path) as client:
        found = client.cards()
        assert found["a / good"]["problems"] == []
        assert len(found) == len(ODD) + (1 if file == "status.json" else 2)
        for name, card in found.items():
            answer = client.get(f"/run/{card['id']}")
            assert answer.status in (200, 422), (name, answer.content[:300])
            assert answer.status == 200 or card["problems"], (name, answer.content[:300])
            assert client.get(f"/run/{card['id']}/figures.parquet").status in (200, 422), name
        for path in ("/", "/metrics"):
            assert client.get(path).status == 200
    if file in ("status.json", "report.json"):
        assert found["a / run1"]["problems"]


def test_a_run_that_is_gone_is_not_found(tmp_path, serving, make_run):
    folder = make_run(tmp_path / "a" / "runs" / "b")
    with serving(tmp_path) as client:
        name = client.cards()["a / b"]["id"]
        shutil.rmtree(folder)
        assert client.get(f"/run/{name}").status in (200, 404, 422)  # until it is looked for again
        client.server.shelf._next = 0.0  # which is now
        assert client.cards() == {}
        assert client.get(f"/run/{name}").status == 404


def test_a_hundred_runs_and_many_clients_at_once(tmp_path, serving, make_run):
    for number in range(100):
        make_run(tmp_path / f"party{number}" / "runs" / "flights", looks=20)
    with serving(tmp_path) as client:
        found = list(client.cards().values())
        paths = ["/", "/metrics", *(f"/run/{card['id']}" for card in found[:20])] * 3
        with ThreadPoolExecutor(16) as pool:
            assert {answer.status for answer in pool.map(client.get, paths)} == {200}
    assert len({card["id"] for card in found}) == 100


def test_a_bug_of_ours_is_told_without_its_traceback(shown, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret of the server")

    monkeypatch.setattr(shown.server.shelf, "cards", broken)
    answer = shown.get("/")
    assert answer.status == 500
    assert b"secret" not in answer.content
    assert "a secret of the server" in caplog.text
