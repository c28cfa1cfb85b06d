"""The small parts of a service, each by itself."""

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tacit.company.departures import predictions
from tacit.company.folder import create
from tacit.company.shipments import Shipment, Shipments
from tacit.config import Party
from tacit.errors import RefusedError, StorageError, UsageError
from tacit.serve.answering import Rate
from tacit.serve.metrics import LabelMetrics
from tacit.serve.partners import Cache
from tacit.serve.record import Account, Marks


class Clock:
    """Goes on when it is told to."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = create(tmp_path / "airport", role="features")
    settings = folder.path / "party.toml"
    settings.write_text(settings.read_text().replace("numeric = []", 'numeric = ["wind"]'))
    return folder


@pytest.fixture(name="where")
def _where(folder):
    where = folder.path / "runs" / "small"
    where.mkdir()
    return where


def test_what_is_kept_gets_old_and_the_oldest_goes():
    clock = Clock()
    cache = Cache(10, 2, clock)
    cache.put(b"a", b"1")
    clock.now += 6
    cache.put(b"b", b"2")
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == (b"1", b"2", None)
    clock.now += 4
    assert (cache.get(b"a"), cache.get(b"b"), len(cache)) == (None, b"2", 1)
    for name in (b"d", b"e", b"d"):
        cache.put(name, name)
    assert (cache.get(b"b"), cache.get(b"d"), len(cache)) == (None, b"d", 2)
    nothing = Cache(0, 2, clock)
    nothing.put(b"a", b"1")
    assert nothing.get(b"a") is None


def test_a_rate_is_held_on_average_and_a_refusal_costs_nothing():
    clock = Clock()
    rate = Rate(60, clock)
    rate.take(60)
    with pytest.raises(RefusedError, match="60 rows a minute"):
        rate.take(1)
    clock.now += 2
    with pytest.raises(RefusedError):
        rate.take(3)
    rate.take(2)
    clock.now += 3600
    rate.take(60)
    with pytest.raises(RefusedError):
        rate.take(1)


def test_room_is_on_record_before_rows_leave_and_what_has_left_at_the_end(folder, where):
    account = Account(folder, where, "embeddings", "airline", version="v")
    for _ in range(3):
        account.take(4000)
    room = [("room for embeddings", 10_000)] * 2
    assert [(one["what"], one["rows"]) for one in predictions(folder).read()] == room
    again = Account(folder, where, "embeddings", "airline", version="v")  # the first was killed
    again.take(20_001)
    again.close()
    again.close()
    assert [(one["what"], one["rows"]) for one in predictions(folder).read()] == [
        *room, ("room for embeddings", 20_001), ("embeddings", 20_001),
    ]  # fmt: skip
    assert len({one["job"] for one in predictions(folder).read()}) == 2


def test_marks_know_a_row_and_its_bytes_also_after_a_crash(folder, where):
    keys, values = np.arange(48, dtype=np.uint8).reshape(3, 16), np.arange(6, dtype=np.uint8).reshape(3, 2)
    marks = Marks(folder, where)
    fresh, new = marks.fresh(keys, values)
    assert fresh.tolist() == [0, 1, 2]
    marks.add(new)
    assert len(marks.fresh(keys, values)[0]) == 0
    assert marks.fresh(keys, values[::-1])[0].tolist() == [0, 2], "other bytes of a row are something else"
    path = where / "served.bin"
    path.write_bytes(path.read_bytes() + b"torn")
    marks.close()
    again = Marks(folder, where)
    assert len(again) == 3
    again.add(again.fresh(keys[:1], values[1:2])[1])
    again.close()
    last = Marks(folder, where)
    last.close()
    assert (len(last), path.stat().st_size) == (4, 64)
    account = Account(folder, where, "embeddings", "airline")
    account.different = 5
    account.take(1)
    with pytest.raises(StorageError, match="knows of 4 rows, and 5 have left"):
        Marks(folder, where)


def test_a_shipment_that_goes_on_has_a_row_once_for_each_of_its_values(tmp_path):
    book = Shipments(tmp_path / "embeddings")
    keys, codes = np.arange(48, dtype=np.uint8).reshape(3, 16), np.arange(3, dtype=np.uint8).reshape(3, 1)
    book.enter("training", keys[:1], Shipment("run", "airline", "trained", "form", 1, 0.5), codes[:1])
    serving = Shipment("run", "airline", "served", "form, for serving", 0, 0.5)
    before = book.entries
    book.extend("serving", serving, keys, codes)
    assert book.entries == before + 3, "one more shipment, with two rows: the first row had left in training"
    book.extend("serving", serving, keys, codes)
    assert book.entries == before + 3
    book.extend("serving", serving, keys[1:], codes[:2])
    book.extend("serving", serving, keys[1:2], codes[2:])
    assert [(one.version == "served", one.rows) for one in book.all()[1:]] == [(True, 2), (False, 2), (False, 1)]
    assert book.versions() == {1: 1, 2: 1, 3: 1}


def test_metrics_are_as_prometheus_reads_them():
    metrics = LabelMetrics()
    metrics.rows.labels("joint").inc(3)
    metrics.seconds.observe(0.003)
    metrics.connected.labels("small", "airport").set_function(lambda: True)
    found = {family.name: family for family in text_string_to_metric_families(metrics.text())}
    assert found["tacit_serve_rows"].type == "counter"
    value = {sample.name + str(sample.labels): sample.value for family in found.values() for sample in family.samples}
    assert value["tacit_serve_rows_total{'basis': 'joint'}"] == 3
    assert value["tacit_serve_connected{'partner': 'airport', 'run': 'small'}"] == 1
    assert value["tacit_serve_request_seconds_bucket{'le': '0.0025'}"] == 0
    assert value["tacit_serve_request_seconds_bucket{'le': '0.005'}"] == 1
    assert (value["tacit_serve_request_seconds_count{}"], value["tacit_serve_request_seconds_sum{}"]) == (1, 0.003)
    assert not [name for name in value if "created" in name], "when the service began is told once"
    assert value["tacit_serve_start_time_seconds{}"] > 1e9


@pytest.mark.parametrize(
    ("role", "more", "said"),
    [
        ("label", "rows_a_minute = 3", r"\[serve\] rows_a_minute:"),
        ("features", "deadline_ms = 3", r"\[serve\] deadline_ms:"),
        ("label", "deadline_ms = 0", r"\[serve\] deadline_ms:"),
        ("label", "rows_a_request = 5000", r"\[serve\] rows_a_request:"),
        ("label", 'http = "7080"', r"\[serve\] http:"),
    ],
)
def test_settings_that_make_no_sense_are_named(role, more, said):
    where = "listen" if role == "label" else "connect"
    text = f'name = "a"\nrole = "{role}"\nnetwork.{where} = "localhost:7443"\n[serve]\n{more}\n'
    with pytest.raises(UsageError, match=said):
        Party.read(text)
