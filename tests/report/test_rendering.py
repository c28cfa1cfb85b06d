"""The report as files: whole, readable again, safe to open, and with everything on the page."""

import hashlib
import re
from html.parser import HTMLParser

import pytest
from pydantic import BaseModel

from tacit.errors import StorageError, UsageError
from tacit.report.document import Leak, NotTested, Override, Report
from tacit.report.rendering import read, render, write

NAMES = ("full", "minimal", "broken", "features", "foreign", "long")
VOID = {"meta", "br"}


class Page(HTMLParser):
    """A page as a browser reads it: its words, and every element in its place."""

    def __init__(self, page):
        super().__init__()
        self.open, self.words, self.headings, self.elements, self.wrong = [], [], [], [], []
        self.feed(page)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append((tag, self.getpos()))

    def handle_data(self, data):
        if not {"style", "desc"} & set(self.open):
            self.words.append(data)


@pytest.fixture(name="pages", scope="module")
def _pages(reports):
    return {name: render(report) for name, report in reports.items()}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_can_be_read(name, reports, pages, tmp_path):
    as_json, page = write(reports[name], tmp_path / "new" / "folder")
    assert read(as_json) == reports[name]
    assert page.read_text() == pages[name]
    assert sorted(one.name for one in as_json.parent.iterdir()) == ["report.html", "report.json"]


def test_the_page_names_the_digest_of_the_file(reports, tmp_path):
    as_json, page = write(reports["full"], tmp_path)
    assert hashlib.sha256(as_json.read_bytes()).hexdigest() in page.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_well_formed(name, pages):
    page = Page(pages[name])
    assert not page.wrong
    assert not page.open
    assert pages[name].startswith("<!doctype html>")
    assert ("html", {"lang": "en"}) in page.elements
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert all(link.startswith("#") and link[1:] in ids for link in links)


@pytest.mark.parametrize("name", NAMES)
def test_pages_need_nothing_and_run_nothing(name, pages):
    page = Page(pages[name])
    assert not {tag for tag, _ in page.elements} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
    }
    assert not re.search(r"https?://|@import|url\(", pages[name])
    for tag, attributes in page.elements:
        assert not {one for one in attributes if one == "src" or one.startswith("on")}, tag
    policy = [attributes["content"] for tag, attributes in page.elements if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]


@pytest.mark.parametrize("name", NAMES)
def test_pictures_and_tables_can_be_read_aloud(name, pages):
    page = Page(pages[name])
    for i, (tag, attributes) in enumerate(page.elements):
        if tag == "svg" and attributes.get("role") == "img":
            assert [one for one, _ in page.elements[i + 1 : i + 3]] == ["title", "desc"]
        if tag == "table":
            assert attributes.keys() & {"aria-label", "aria-labelledby"}
        if tag == "th":
            assert attributes.get("scope") in ("row", "col")


def leaves(value, path=""):
    """Every field of a report with its value, however deep."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from leaves(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}.key", key
            yield from leaves(one, f"{path}.{key}")
    elif isinstance(value, tuple):
        for i, one in enumerate(value):
            yield from leaves(one, f"{path}[{i}]")
    elif value is not None:
        yield path, value


def spellings(path, value):
    """How a value may stand on the page."""
    if path.endswith((".time", ".made")):
        return ["14 March 2026"]
    if path.endswith(".kind"):
        return ["a training with Tacit", "messages of another system"]
    if path.endswith((".side", ".on", ".measure", ".layer", ".verdict")):
        return [""]  # said in other words, looked at below
    if path.endswith(".role"):
        return ["(the label party)" if value == "label" else "(the feature party)"]
    if path.endswith(".seconds"):
        return [f"{value:.1f} s", "under 0.1 s"]
    if path.endswith("figures.key"):
        return [str(value).replace("_", " ").replace("auc", "AUC")]
    if path.endswith(".steps") or "curves" in path:
        return [f"{value:,}" if path.startswith(".subject") else ""]  # a curve's points are drawn; see the key below
    if isinstance(value, float):
        return [f"{value:.3f}"]
    return [f"{value:,}" if isinstance(value, int) else str(value)]


@pytest.mark.parametrize("name", ["full", "broken", "features", "foreign"])
def test_every_field_is_on_the_page(name, reports, pages):
    text = Page(pages[name]).text
    missing = [
        (path, value)
        for path, value in leaves(reports[name])
        if not any(spelled in text for spelled in spellings(path, value))
    ]
    assert not missing


def test_curves_are_named_with_their_figures(reports, pages):
    text = Page(pages["full"]).text
    for curve in reports["full"].curves:
        assert f"{curve.attack} {max(curve.values):.3f} {curve.values[-1]:.3f}" in text


HOSTILE = "<script>alert(1)</script>\"'&</style>{{ 7919 * 7927 }}"


def test_names_from_outside_are_only_text(reports):
    page = render(
        reports["broken"].model_copy(
            update={
                "subject": reports["full"].subject.model_copy(
                    update={
                        "run": HOSTILE,
                        "party": HOSTILE,
                        "peers": (HOSTILE,),
                        "versions": {HOSTILE: HOSTILE},
                        "files": {HOSTILE: HOSTILE},
                        "protection": HOSTILE,
                    }
                ),
                "worst": Leak(attack=HOSTILE, on="visits", value=0.7, low=0.6, high=0.8),
                "leaks": (
                    Leak(attack=HOSTILE, on="visits", value=0.7, low=0.6, high=0.8, layer=HOSTILE, about=HOSTILE),
                ),
                "curves": tuple(one.model_copy(update={"attack": HOSTILE}) for one in reports["full"].curves),
                "overrides": (Override(time=HOSTILE, who=HOSTILE, what=HOSTILE, reason=HOSTILE),),
                "not_tested": (NotTested(what=HOSTILE, why=HOSTILE),),
                "repeat": (HOSTILE,),
                "moments": tuple(one.model_copy(update={"figures": {HOSTILE: 0.5}}) for one in reports["full"].moments),
            }
        )
    )
    read = Page(page)
    assert not read.wrong
    assert "script" not in {tag for tag, _ in read.elements}
    assert page.count("</style>") == 1
    assert HOSTILE in "".join(read.words)
    assert str(7919 * 7927) not in page


def test_a_figure_that_is_not_finite_is_missing(reports, tmp_path):
    moment = reports["full"].moments[0]
    wild = type(moment)(**{**dict(moment), "figures": {"test_auc": float("nan"), "test_loss": float("inf")}})
    report = reports["full"].model_copy(update={"moments": (wild, *reports["full"].moments[1:])})
    as_json, page = write(report, tmp_path)
    assert read(as_json).moments[0].figures == {"test_auc": None, "test_loss": None}
    assert "nan" not in Page(page.read_text()).text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{}", "made: Field required"),
        ("no json", "Invalid JSON"),
        ('{"schema_version": "2"}', "schema_version"),
        ("[1]", "valid dictionary|object"),
    ],
    ids=["empty", "text", "version", "list"],
)
def test_another_file_is_refused(content, told, tmp_path):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UsageError, match=told) as caught:
        read(tmp_path / "x.json")
    assert "x.json" in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.json can't be read"):
        read(tmp_path / "nowhere.json")


def test_a_folder_that_is_a_file_is_refused(reports, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match=r"report\.json can't be written"):
        write(reports["minimal"], tmp_path / "taken")


def test_files_are_replaced_as_a_whole(reports, tmp_path, monkeypatch):
    write(reports["full"], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("os.fdatasync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="No space left"):
        write(reports["broken"], tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_the_schema_holds_the_examples(reports):
    schema = Report.model_json_schema()
    assert schema["properties"].keys() == Report.model_fields.keys()
    assert schema["additionalProperties"] is False
