"""The report as files: `report.json` for programs, `report.html` for people who have to sign it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from pydantic import ValidationError

from tacit.disk import storing
from tacit.disk import write as write_file
from tacit.errors import UsageError
from tacit.report import one_shot, page
from tacit.report.document import Report
from tacit.report.words import count, signed, told, when


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write `report.json` and `report.html` into a folder, which is made where there is none; return both paths.

    Each file is replaced as a whole: a reader sees the old one or the new one, never a part.
    """
    contents = as_json(report).encode(), render(report).encode()  # before any is replaced: both are new, or none is
    paths = folder / "report.json", folder / "report.html"
    with storing(paths[0]):
        folder.mkdir(parents=True, exist_ok=True)
    for path, content in zip(paths, contents, strict=True):
        write_file(path, content)
    return paths


def render(report: Report) -> str:
    """The report as one HTML page that needs nothing else: no script, no font, no picture from outside."""
    name, content = ("page", page.content) if report.exchange is None else ("one_shot", one_shot.content)
    return template(f"{name}.html.j2").render(
        content(report), report=report, digest=hashlib.sha256(as_json(report).encode()).hexdigest(),
        made=when(report.made), signed=signed(report), told=told,
    )  # fmt: skip


def read(path: Path) -> Report:
    """The report in a `report.json`; anything else is an error that says what is wrong with the file."""
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path} can't be read ({error.strerror or error}): give the path of a report.json that `tacit audit` wrote"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path} is not a report that this version can read: {f'{place}: ' if place else ''}{first['msg']}. Give "
            "the path of a report.json that `tacit audit` wrote, or make the report again"
        ) from None


def as_json(report: Report) -> str:
    """What `report.json` holds."""
    return report.model_dump_json(indent=2) + "\n"


@cache
def template(name: str) -> Template:
    """One of the package's templates; what is put into it is escaped."""
    return environment().get_template(name)


def environment() -> Environment:
    """All templates of the package, those of the report and of the live page."""
    loader = PackageLoader("tacit.report", ".")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals.update(count=count, when=when)
    return made
