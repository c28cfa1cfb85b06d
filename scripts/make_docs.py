"""Writes the pages that are made from the code: protections, attacks, data sets, figures, reports and settings.

Run it after a change to a docstring; a test compares.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from docs_api import api
from docs_cli import command_line
from docs_protocol import tables as protocol_tables
from docs_settings import settings
from docs_tables import HEAD, attributes, cell, filled, grid, kind
from tacit.align.tables import Columns as Inputs
from tacit.audit import attacks, input_attacks
from tacit.config.files import Section
from tacit.lab.data import SOURCES, Source
from tacit.lab.data.own import Columns, Description
from tacit.lab.sweeping import results
from tacit.protect import embedding, gradient
from tacit.views.report.document import Report

sys.path.insert(0, str(Path(__file__).parent.parent))  # where the papers are
from papers.recipes import RECIPES, Recipe
from papers.registry import FIGURES, PAPERS, Drawn

DOCS = Path(__file__).parent.parent / "docs"


def table(package: str, names: list[str]) -> str:
    lines = ["| name | call | what it does |", "|---|---|---|"]
    for name in names:
        function = getattr(importlib.import_module(f"{package}.{name}"), name)
        first = inspect.getdoc(function).splitlines()[0].replace("|", "\\|")
        lines.append(f"| `{name}` | `{name}({arguments(function)})` | {first} |")
    return "\n".join(lines)


def arguments(function: Callable[..., object]) -> str:
    """The arguments as a caller writes them, with their defaults where they have one."""
    shown = []
    for argument in inspect.signature(function).parameters.values():
        default = "" if argument.default is None else argument.default
        needed = argument.default is inspect.Parameter.empty
        shown.append(argument.name if needed else f"{argument.name}={default}")
    return ", ".join(shown)


def details(package: str, names: list[str]) -> str:
    parts = []
    for name in names:
        function = getattr(importlib.import_module(f"{package}.{name}"), name)
        text = inspect.getdoc(function).partition(">>>")[0].rstrip()  # examples are tested where they stand
        parts.append(f"## `{name}`\n\n```text\n{text}\n```")
    return "\n\n".join(parts)


def page(title: str, text: str, package: str, names: list[str]) -> str:
    return f"{HEAD}# {title}\n\n{text}\n\n{table(package, names)}\n\n{details(package, names)}\n"


# --- data sets -------------------------------------------------------------------------------------------------------

_DATA_SETS = """\
By name with `tacit.lab.data.load(NAME, folder=...)`, or with `--data NAME --folder DIR` in the commands of the lab.
Both parties' rows are joined in the clear: this is a lab, not a training between companies.

`generated:NAME` is a look-alike of a data set with as many rows as `rows` (`--rows`) says, for tests and for speed: it
has the columns, about the share of positives and something to learn, and tells nothing about the real one. `criteo` and
`avazu` are drawn as tensors, and `flights` from the values of the shipped columns, each by itself; for the others,
files in the official format are made and read. `tacit.lab.data.generated.write` makes files of the large ones as well.

The skin lesions have three names, `isic`, `ham10000` and `skin`: each reads whichever of the two collections the folder
holds, and the data set is then called `isic` (SIIM-ISIC, the papers' one) or `ham10000`."""

_PREPARED = """\
## How rows are prepared

Everything is learnt from the training rows alone. `Data.made` says in sentences what was read, left out, filled in,
scaled and drawn, and a sweep's results file keeps them.

| | test rows | categories | numbers |
|---|---|---|---|
| `adult`, `bank`, `credit`, `flights` | by a hash of id and seed | codes in the order of spelling; missing, or in no \
training row: 0 | mean 0, variance 1; missing: the mean, and in some columns a flag beside it |
| `criteo`, `avazu` | by a hash of row number and seed | codes by falling frequency; missing: 1; in no training row, \
or in fewer than `min_count`: 0 | [0, 1] by the training rows' range, moved to the border outside of it; missing: 0 |
| your own files | likewise | likewise | mean 0, variance 1, missing: the mean; or as for `criteo` |
| `isic`, `fashion` | by a hash of patient or lesion; as the authors divide it | | pixels stay bytes, and become \
numbers from 0 to 1 batch by batch |

`rows` (`--rows`) uses a part of a data set. Of `adult`, `bank`, `credit`, `flights` and `isic`, which are read whole,
that many rows are drawn at random, by a hash of id (or picture) and seed. Of `criteo`, `avazu` and your own files,
which are streamed, they are the *first* ones of the file, so that the rest is never read; of `fashion` the first ones
of each of its files. A file that is sorted gives its beginning alone: the first million rows of Avazu all belong to its
first day. The loaders of `criteo` and `avazu` have `sample` for a draw over the whole file.

Data sets *by day* know the day of each row and are sorted by it, so that a model can be trained on a stream of days
(`tacit days`)."""

_BAD_ROWS = """\
## Bad rows

A row that can't be read (a line with a field too many, a label that is neither 0 nor 1, a picture that is broken) stops
the loading with an error that names the file, the line and the cause. `load(..., bad="skip")`, or `--bad skip`,
leaves such rows out instead; `Data.skipped` counts them, and `Data.made` says so.

## What is kept

Large tables (`criteo`, `avazu`, your own files) are read in chunks, so that memory does not grow with the rows, and
kept beside their file in a folder that ends with `.tacit`, or in the folder `cache`: Parquet of the readable rows, and
the encoded rows as files that training maps into memory. Pictures are decoded once into such a folder. Broken off,
loading goes on where it was; another choice of `rows`, `seed` or scaling starts from the Parquet files; a file that has
changed is read anew. Everything in the folder may be deleted. It holds the data in the clear."""

_OWN_FILES = """\
## Your own files

`--data FILE.toml`, or `load("FILE.toml")`, reads your own Parquet, CSV or TSV file (text may be packed, `.gz`) by a
description of which column belongs to whom:

```toml
file = "clicks.parquet"
label = "clicked"
day = "date"

[features]
categorical = ["site", "device"]
numeric = ["age"]

[own]
numeric = ["basket"]
```

Two files with a common id have no `file` of their own. The label party's one holds the labels; the day, if there is
one, stands in the feature party's:

```toml
id = "customer"
label = "clicked"

[features]
file = "platform.parquet"
categorical = ["site", "device"]

[own]
file = "shop.csv"
numeric = ["basket"]
```

Paths are relative to the description. Missing values are empty cells (nulls in Parquet), which are an error only as
label, id or day; a line's end within quotes is not read. All mistakes of a description are told at once."""


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
    """The share of rows for testing, from the signature of its loader."""
    share = inspect.signature(module_of(source).load).parameters.get("test_share")
    return "as its authors divide it" if share is None else f"{share.default:.0%}"


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
    load = module.load
    call = f"tacit.lab.data.{source.module}.load({arguments(load)})"
    parts = [f"## `{name}`", told, *(["\n".join(columns)] if columns else [])]
    return "\n\n".join([*parts, f"```text\n{call}\n\n{inspect.getdoc(load)}\n```"])


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


# --- figures ---------------------------------------------------------------------------------------------------------

_FIGURES = """\
Every figure and table of the papers that `python -m papers NAME` draws from runs of your own; see
[how to](howto-paper-figures.md). *Data* is the data set of the paper's own figure; production data is not public, so
figures of it are always drawn from something else. *Trained* is one of the recipes below; figures that share one share
its training."""

_RECIPES = """\
## What is trained

Rows of a batch and epochs, at `--scale paper` and at `--scale small`. *The data's* are those of the papers for their
data sets (Criteo 1,024 and 5, Avazu 32,768 and 5, ISIC 128 and 1,000), else 1,024 and 5. With few rows batches are
smaller."""


def figures() -> str:
    parts = [f"{HEAD}# The papers' figures", _FIGURES]
    by_number = sorted(FIGURES.values(), key=lambda one: [x.zfill(3) for x in one.name.split("-")])
    for paper, title in PAPERS.items():
        lines = [
            (f"`{one.name}`", cell(one.shows), one.data, f"`{one.recipe}`" if isinstance(one, Drawn) else one.needs)
            for one in by_number
            if one.name.startswith(paper)
        ]
        parts.append(f"## {paper}: {title}\n\n{grid(('figure', 'shows', 'data', 'trained'), lines)}")
    lines = [(f"`{one.name}`", cell(one.words), *sizes(one)) for one in RECIPES.values()]
    return "\n\n".join([*parts, _RECIPES, grid(("recipe", "what", "paper", "small"), lines)]) + "\n"


def sizes(recipe: Recipe) -> tuple[str, str]:
    """Batch size and epochs at both scales; no epochs where updates are counted."""
    counted = 1 if recipe.kind in ("observations", "times") else 2
    paper = [f"{number:,}" if number else "the data's" for number in (recipe.batch_size, recipe.epochs)]
    return ", ".join(paper[:counted]), ", ".join(f"{number:,}" for number in recipe.small[:counted])


# --- reports ---------------------------------------------------------------------------------------------------------

_REPORT = """\
`tacit audit` and the end of a training write two files: `report.html`, one page that is read, printed and signed, and
`report.json`, which holds the same for programs. [report-schema.json](report-schema.json) is the JSON schema of the
second one; `tacit.views.report.rendering.read` reads it, `write` makes both files from a
`tacit.views.report.document.Report`.

The page needs nothing else: it holds no script and asks nothing of any network, and it names the SHA-256 digest of the
`report.json` that it shows, so that a signature is about that file. Figures that are missing, or were not finite, are
null. A leak with a `baseline` is held against a limit by what lies above it: the value, less the baseline, plus where
nothing is learnt (0.5 of an AUC, 0 of a share).

Of a training in one exchange `exchange` is filled: a label party's `certificate`, a feature party's `release`, and for
every figure whether it is a bound, a measurement or one of the party's private model. `leaks`, `moments`, `decisions`,
`curves` and `ledger` are those of split training, and empty there."""


def report() -> str:
    schema = Report.model_json_schema()
    parts = [f"{HEAD}# Reports", _REPORT]
    for name, part in [("Report", schema), *schema["$defs"].items()]:
        lines = [
            (f"`{key}`", kind(field), cell(field.get("description", ""))) for key, field in part["properties"].items()
        ]
        parts += [f"## {name}", part["description"], grid(("field", "type", "what it is"), lines)]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    return {
        "ref-api.md": api(),
        "ref-cli.md": command_line(),
        "ref-data-sets.md": data_sets(),
        "ref-figures.md": figures(),
        "ref-party-toml.md": settings(),
        "ref-protocol.md": filled((DOCS / "ref-protocol.md").read_text(), protocol_tables()),
        "ref-report.md": report(),
        "report-schema.json": json.dumps(Report.model_json_schema(), indent=2) + "\n",
        "ref-sweep-results.md": f"{HEAD}# The results of a sweep\n\n{inspect.getdoc(results)}\n",
        "ref-protections.md": page(
            "Protections of the gradient",
            "By name with `tacit.protection(NAME, **options)`, or as functions of the same name in `tacit`.\n"
            "`tacit.chain(...)` puts several one after the other. `tacit.randomized_response(rate)` acts on labels,\n"
            "once, before any loss.",
            "tacit.protect.gradient",
            gradient.names(),
        ),
        "ref-embedding-protections.md": page(
            "Protections of the embedding",
            "A feature party takes a list of them: `FeatureParty(protect=[...])`,\n"
            "`simulate(protect_embedding=[...])`, or `[protect] embedding = [...]` in party.toml; they act in its\n"
            "order. By name with `tacit.embedding_protection(NAME, **options)`, or as functions of the same name in\n"
            "`tacit`. What changes an embedding does so in training, evaluation and serving alike; what adds a loss\n"
            "acts in training.",
            "tacit.protect.embedding",
            embedding.names(),
        ),
        "ref-attacks.md": page(
            "Attacks on labels",
            "By name with `tacit.attack(NAME, **options)`, or as names in `tacit.attack_all`. Each sees a `View`, one\n"
            "party's transcript, and what it is granted; none sees the truth.",
            "tacit.audit.attacks",
            attacks.names(),
        ),
        "ref-input-attacks.md": page(
            "Attacks on inputs",
            "What a label party may try on the embeddings that it received. By name with\n"
            "`tacit.attack(NAME, **options)`, judged by `tacit.audit.inputs.attack_inputs`. Each sees a `View` and\n"
            "what it is granted; none sees the truth.",
            "tacit.audit.input_attacks",
            input_attacks.names(),
        ),
    }


def main() -> None:
    stale = [name for name, text in pages().items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run python scripts/make_docs.py" if stale else 0)
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
