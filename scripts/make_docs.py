"""Writes what the docs take from the code: whole pages of the reference, and tables in pages that people write.

Run it after a change to a docstring; a test compares.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from docs_api import Text, api
from docs_cli import command_line
from docs_protocol import tables as protocol_tables
from docs_settings import settings
from docs_tables import HEAD, attributes, cell, filled, grid, kind
from tacit.align.tables import Columns as Inputs
from tacit.audit import attacks, input_attacks
from tacit.audit.facts import described
from tacit.config.files import Section
from tacit.lab.data import SOURCES, Source
from tacit.lab.data.joined import TEST_SHARE
from tacit.lab.data.own import Columns, Description
from tacit.report.document import Report
from tacit.split.protect import embedding, gradient

DOCS = Path(__file__).parent.parent / "docs"


def table(package: str, names: list[str]) -> str:
    """One line for each: its call, the first line of its docstring and, of an attack, what it knows and costs."""
    lines = []
    for name in names:
        function = getattr(importlib.import_module(f"{package}.{name}"), name)
        lines.append(
            (f"`{name}`", f"`{name}({arguments(function)})`", *(cell(one) for one in described(function) if one))
        )
    return grid(("name", "call", "what it does", "knows", "costs")[: len(lines[0])], lines)


def arguments(function: Callable[..., object]) -> str:
    """The arguments as a caller writes them, with their defaults where they have one."""
    needed = inspect.Parameter.empty
    given = inspect.signature(function).parameters.values()
    return ", ".join(one.name if one.default is needed else f"{one.name}={one.default!r}" for one in given)


def details(package: str, names: list[str]) -> str:
    """What docstrings say beyond their first line, which is in the table, then the options."""
    parts = []
    for name in names:
        text = Text.of(getattr(importlib.import_module(f"{package}.{name}"), name))
        options = [(f"`{key}`", cell(said)) for key, said in text.named.get("Args", {}).items()]
        words = text.words.partition("\n\n")[2].strip()
        told = [grid(("option", "meaning"), options)] if options else []
        parts += [f"### `{name}`", *([words] if words else []), *told] if told or words else []
    return "\n\n".join(parts)


def plugins(title: str, text: str, package: str, names: list[str]) -> str:
    """What stands in the files of a folder: one table of all."""
    return f"## {title}\n\n{text}\n\n{table(package, names)}"


def protections() -> str:
    of_gradients = plugins(
        "Protections of the gradient",
        "Make one with `tacit.protection(NAME, **options)`, or with the function of its name in `tacit`.\n"
        "`tacit.chain(...)` applies several in order. `tacit.randomized_response(rate)` acts on labels, once, before\n"
        "any loss. Papers are cited as in the [bibliography](ref-papers.md#bibliography).",
        "tacit.split.protect.gradient",
        gradient.names(),
    )
    of_embeddings = plugins(
        "Protections of the embedding",
        "A feature party takes a list of them and applies them in order: `FeatureParty(protect=[...])`,\n"
        "`simulate(protect_embedding=[...])`, or `[protect] embedding = [...]` in party.toml. Make one with\n"
        "`tacit.embedding_protection(NAME, **options)`, or with the function of its name in `tacit`. One that changes\n"
        "the embedding does so in training, evaluation and serving; one that adds a loss acts in training.",
        "tacit.split.protect.embedding",
        embedding.names(),
    )
    parts = [of_gradients, details("tacit.split.protect.gradient", gradient.names())]
    parts += [of_embeddings, details("tacit.split.protect.embedding", embedding.names())]
    return "\n\n".join([f"{HEAD}# Protections", *parts]) + "\n"


def all_attacks() -> str:
    on_labels = plugins(
        "Attacks on labels",
        "What a feature party may try on the gradients that it received. Make one with\n"
        "`tacit.attack(NAME, **options)`, or give its name to `tacit.attack_all`. Each sees a `View`, which is one\n"
        "party's transcript, and what it is granted. None sees the truth.",
        "tacit.audit.attacks",
        attacks.names(),
    )
    on_inputs = plugins(
        "Attacks on inputs",
        "What a label party may try on the embeddings that it received. Make one with\n"
        "`tacit.attack(NAME, **options)`; `tacit.audit.inputs.attack_inputs` runs and judges it. These see no truth\n"
        "either.",
        "tacit.audit.input_attacks",
        input_attacks.names(),
    )
    labels, inputs = attacks.shipped()
    whole = (
        f"{labels + inputs} attacks come with Tacit: {labels} on labels and {inputs} on inputs, a file each.\n"
        "`python -m pydoc tacit.audit.attacks.NAME` has the whole of each (of attacks on inputs\n"
        "`tacit.audit.input_attacks.NAME`): why it works, what its options do, and where it comes from, cited as in\n"
        "the [bibliography](ref-papers.md#bibliography)."
    )
    return "\n\n".join([f"{HEAD}# Attacks", whole, on_labels, on_inputs]) + "\n"


# --- data sets -------------------------------------------------------------------------------------------------------

_DATA_SETS = """\
Load one with `tacit.lab.data.load(NAME, folder=...)`, or with `--data NAME --folder DIR` in the commands of the lab.
Both parties' rows are joined in the clear: this is a lab, not a training between companies.

`generated:NAME` is a made-up data set for tests and for speed, with as many rows as `rows` (`--rows`) says. It has the
columns of the real one, about the same share of positives and something to learn, and tells nothing about the real
data. `benchmarks/_official_files.py` writes files of the large ones.

The skin lesions have two names, `isic` and `ham10000`. Each reads whichever of the two the folder holds. The
data set is then called `isic` (SIIM-ISIC, which the papers use) or `ham10000`."""

_PREPARED = """\
## How rows are prepared

Everything is learnt from the training rows alone.

| | test rows | categories | numbers |
|---|---|---|---|
| `adult`, `credit`, `flights` | by a hash of id and seed | codes in the order of spelling; missing, or in no \
training row: 0 | mean 0, variance 1; missing: the mean, and in some columns a flag beside it |
| `criteo`, `avazu` | by a hash of row number and seed | codes by falling frequency; missing: 1; in no training row, \
or in fewer than `min_count`: 0 | [0, 1] by the training rows' range, moved to the border outside of it; missing: 0 |
| your own files | by a hash of row number and seed | as for `flights` | as for `flights`, without flags |
| `isic`, `fashion` | by a hash of patient or lesion; as the authors divide it | | pixels stay bytes, and become \
numbers from 0 to 1 batch by batch |

Most loaders share these arguments:

- `rows` (`--rows`) takes a part of the data set, training and test rows together. Data sets that are read whole
  (`adult`, `credit`, `flights`, `isic`) draw that many rows at random, by a hash of id (or picture) and seed.
  Data sets that are streamed (`criteo`, `avazu`) take the *first* rows of the file and never read the
  rest; `fashion` takes the first of each of its files. A sorted file gives its beginning alone: the first million rows
  of Avazu all belong to its first day.
- `sample` (`--sample`) takes a share of the rows, drawn at random: 0.1 is what the papers take of Criteo. With `rows`
  it draws from the rows that this takes. `fashion` and made-up data have none.
- `seed` draws the test rows, and whatever else is drawn; `test_share`, where a loader has it, is the share of rows for
  testing.
- `cache` is a folder for [what is kept](#what-is-kept); without it, one beside the files.
- `progress` is called with the work done and the work to do.

Data sets *by day* know the day of each row and are sorted by it, so that a model can be [trained on a stream of
days](howto-run-by-day.md#first-in-the-lab)."""

_SHARED = ("rows", "sample", "seed", "test_share", "cache", "progress")
"""Arguments that mean the same for every loader; the page explains them once."""

_WHERE = ("folder", "path")
"""Where the files are, which the table says."""

_BAD_ROWS = """\
## Bad rows

A row that can't be read (a line with a field too many, a label that is neither 0 nor 1, a broken picture) stops the
loading with an error that names the file, the line and the cause.

## What is kept

Large tables (`criteo`, `avazu`) are streams: their rows are scanned, cast and written to a Parquet
file, and from there encoded column by column, so that no more than a column and its vocabulary is in memory. What is
kept, beside the file in a folder that ends with `.tacit`, or in the folder `cache`, are the encoded rows, as arrays
that training maps into memory. Pictures are decoded once into such a folder. Loading that was interrupted begins anew,
and so does another choice of rows or seed, and a file that has changed. Everything in the folder may be
deleted. It holds the data in the clear."""

_OWN_FILES = """\
## Your own files

`--data FILE.toml`, or `load("FILE.toml")`, reads your own Parquet, CSV or TSV file by a description of which column
belongs to whom, as in [this one](howto-choose-a-strength.md#your-own-table). The path is relative to the description.
If each party has a file of its own, join them first. Missing values are empty cells (nulls in Parquet); they are an
error only in the label or the day. The rows are in memory. All mistakes in a description are reported at once.

In Python, `tacit.lab.data.rows.Data.from_frames("visits", features, labels, own=own)` takes frames of polars, whatever
file you read them from, and `tacit.lab.sweep(data)` trains on them. There text and truth values are categories, and
numbers are numbers."""


def data_sets() -> str:
    head = ("name", "label", "files in the folder", "where to get them", "licence", "for testing")
    known = sorted(SOURCES.items())
    lines = [
        (f"`{name}`", one.what, one.files.replace("*", "\\*") or "none", one.where, one.licence, tested(one))
        for name, one in known
    ]
    own = [_OWN_FILES, keys(Description), "Under `[features]` and `[own]`:", keys(Columns)]
    parts = [_DATA_SETS, grid(head, lines), _PREPARED, *(one_data_set(*one) for one in known), _BAD_ROWS, *own]
    return "\n\n".join([f"{HEAD}# Data sets", *parts]) + "\n"


def module_of(source: Source) -> ModuleType:
    return importlib.import_module(f"tacit.lab.data.{source.module}")


def tested(source: Source) -> str:
    """The share of rows for testing: that of its loader's signature, or that of all small tables."""
    if source.module == "fashion":
        return "as its authors divide it"
    share = inspect.signature(module_of(source).load).parameters.get("test_share")
    return f"{TEST_SHARE if share is None else share.default:.0%}"


def one_data_set(name: str, source: Source) -> str:
    """What its module says of the files and of what is done to them, who has which column, and its own `load`."""
    module = module_of(source)
    told = inspect.getdoc(module).partition(">>>")[0].rstrip()
    columns = [
        f"- the {party} party has "
        + "; ".join(
            f"{kind} {', '.join(f'`{one}`' for one in getattr(each, kind))}" for kind in ("categorical", "numeric")
        )
        for party, each in zip(
            ("feature", "label"), (x for x in vars(module).values() if isinstance(x, Inputs)), strict=False
        )
    ]
    load = Text.of(module.load)
    call = f"`tacit.lab.data.{source.module}.load({arguments(module.load)})`"
    own = [
        f"- `{name}`: {text}" for name, text in load.named.get("Args", {}).items() if name not in (*_SHARED, *_WHERE)
    ]
    parts = [f"## `{name}`", told, *(["\n".join(columns)] if columns else []), f"{call}: {load.words}"]
    return "\n\n".join([*parts, *(["\n".join(own)] if own else [])])


def keys(described: type[Section]) -> str:
    """What a description may say, from the attributes of its docstring."""
    return grid(
        ("key", "what it is", "default"),
        [(f"`{key}`", text, default(described, key)) for key, text in attributes(described).items()],
    )


def default(described: type[Section], key: str) -> str:
    field = described.model_fields[key]
    if field.is_required():
        return "must be given"
    return f"`{json.dumps(field.default)}`" if isinstance(field.default, str | int | float) else ""


# --- reports ---------------------------------------------------------------------------------------------------------

_REPORT = """\
`tacit audit` and the end of a training write two files: `report.html`, a page to read, print and sign, and
`report.json`, which holds the same for programs. [How to read a report](howto-read-a-report.md) goes through the page;
this reference lists the fields of the JSON file, part by part: a type with a capital letter is a part of that
name. Its schema is [report-schema.json](report-schema.json). `tacit.report.rendering.read` reads the file, and
`write` makes both files from a `tacit.report.document.Report`.

The page names the SHA-256 digest of the `report.json` that it shows, so that a signature is about that file. Figures
that are missing, or were not finite, are null. A leak with a `baseline` is held against a limit by what lies above the
baseline: the value, less the baseline, plus the figure of an attacker who learns nothing (0.5 for an AUC, 0 for a
share).

After a training in one exchange, `exchange` is filled: with the `label_bound` of a label party or the `release` of a
feature party, and for every figure whether it is a bound, a measurement or private. `leaks`, `moments`, `decisions`
and `curves` belong to split training, and are empty there."""


def report() -> str:
    schema = Report.model_json_schema()
    lines = []
    for name, part in [("Report", schema), *schema["$defs"].items()]:
        lines.append((f"**{name}**", "", part["description"]))
        lines += [
            (f"`{key}`", re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", kind(field)), cell(field.get("description", "")))
            for key, field in part["properties"].items()
        ]
    return "\n\n".join([f"{HEAD}# Reports", _REPORT, grid(("field", "type", "what it is"), lines)]) + "\n"


# --- what was measured -----------------------------------------------------------------------------------------------


def recorded() -> str:
    """A line for each benchmark that was recorded: when and where, then every case."""
    lines = []
    for name, one in sorted(json.loads((DOCS / "benchmarks.json").read_text()).items()):
        cases = []
        for case in one["results"]:
            kept = "holds" if case["holds"] else "missed"
            goal = "" if case["goal"] is None else f" (goal {case['goal']:.3g}, {kept})"
            cases.append(f"{case['case']}: **{case['value']:.3g} {case['unit']}**{goal}")
        lines.append((f"`{name}`", f"{one['date']}, {one['machine']}", cell("; ".join(cases))))
    return grid(("benchmark", "when and where", "measured"), lines)


def beside(name: str) -> ModuleType:
    """A module that stands beside the package, in the checkout."""
    sys.path.append(str(DOCS.parent))
    return importlib.import_module(name)


def measured() -> dict[str, str]:
    """What README and the first tutorial show of one comparison of all ways to train."""
    document = json.loads((DOCS / "comparison.json").read_text())
    return {f"../{name}": text for name, text in beside("benchmarks.comparison.page").pages(document).items()}


def pages() -> dict[str, str]:
    return {
        "ref-api.md": api(),
        "ref-cli.md": command_line(),
        "ref-data-sets.md": data_sets(),
        "ref-papers.md": filled((DOCS / "ref-papers.md").read_text(), beside("papers.page").tables()),
        "ref-party-toml.md": settings(),
        "ref-protocol.md": filled((DOCS / "ref-protocol.md").read_text(), protocol_tables()),
        "ref-report.md": report(),
        "report-schema.json": json.dumps(Report.model_json_schema(), indent=2) + "\n",
        "ref-protections.md": protections(),
        "ref-attacks.md": all_attacks(),
        **measured(),
        "results.md": filled((DOCS / "results.md").read_text(), {"benchmarks": recorded()}),
    }


def main() -> None:
    stale = [name for name, text in pages().items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python scripts/make_docs.py" if stale else 0)
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
