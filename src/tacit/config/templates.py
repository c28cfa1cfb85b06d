"""What `tacit init` and `tacit contract --new` write: the recommended settings, with a word on each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tacit.config.party import FEATURE_LIMIT, Data
from tacit.errors import UsageError

Mode = Literal["one_shot", "split"]

_PAGE = "docs/ref-party-toml.md has every other setting"
_LIMITS = {
    ("label", "one_shot"): (
        "limit = 0.6  # of two people with different labels, nobody picks the right one more often: 0.5 is guessing",
        "odds = 3.0  # nor do the odds of anybody's label change by more than this factor; both are bounds",
    ),
    ("label", "split"): (
        "limit = 0.6  # training pauses before an attack tells labels better (AUC) by what is sent: 0.5 is guessing",
    ),
    ("features", "one_shot"): (
        f"limit = {FEATURE_LIMIT}  # where decoders recover more of any column (1 is all of it), nothing is sent",
    ),
    ("features", "split"): (
        f"limit = {FEATURE_LIMIT}  # training pauses before decoders recover more of any column (1 is all of it)",
    ),
}
_PROTECT = {
    "label": 'gradient = { name = "matched", leak_auc = 0.55, visits = "epochs" }  # with room below the limit',
    "features": 'embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]  # noise on every embedding',
}
_ADDRESSES = {"label": "0.0.0.0:7443", "features": "localhost:7443"}
_NETWORK = {"label": "the feature parties connect to this port", "features": "where the label party listens"}
_WORDS = {
    "ids": "name a row, as the partner names it; never sent in the clear",
    "label": "to be learnt",
    "categorical": "become codes",
    "numeric": "become numbers of mean 0",
    "dates": "become a day count, a weekday and a month",
    "times": "likewise, with the hour",
}


def party_template(
    role: Literal["label", "features"],
    name: str,
    *,
    mode: Mode = "one_shot",
    address: str | None = None,
    data: Data | None = None,
    left_out: Mapping[str, str] | None = None,
) -> str:
    """A party.toml of at most twenty lines; without data the table and its columns are to be filled in.

    Args:
        role: of the party.
        name: of the party.
        mode: how it trains.
        address: where the label party listens, or where a feature party finds it.
        data: the party's table.
        left_out: its columns that are not used, and why.

    >>> print(party_template("features", "airport").splitlines()[1])
    name = "airport"  # as in the certificate airport.crt
    """
    if role not in _ADDRESSES:
        raise UsageError(f"there is no role {role!r}; there are: label, features")
    label = role == "label"
    if data is None:
        data = Data(path="data.parquet", ids=("id",), label="label" if label else None)
    words = dict(_WORDS)
    if label and (dates := (*data.dates, *data.times)):
        words["label"] += f'; [label] complete = "30 days after {dates[0]}" leaves younger rows out'
    named = {key: getattr(data, key) for key in _WORDS}
    kept = {key: value for key, value in named.items() if value or key in ("categorical", "numeric")}
    lines = [
        f"# The settings of {name} alone, which nobody else sees; {_PAGE}.",
        f'name = "{name}"  # as in the certificate {name}.crt',
        f'role = "{role}"  # {"has the column to be learnt" if label else "has columns that help"}',
        *_LIMITS[role, mode],
        "",
        "[network]",
        f'{"listen" if label else "connect"} = "{address or _ADDRESSES[role]}"  # {_NETWORK[role]}',
        "",
        "[data]",
        f"path = {_quoted(data.path)}  # Parquet or CSV, relative to this folder",
        *(f"{key} = {_quoted(value)}  # {words[key]}" for key, value in kept.items()),
        *([f"# not used: {'; '.join(f'{_quoted(each)} {why}' for each, why in left_out.items())}"] if left_out else []),
        *(["", "[protect]", _PROTECT[role]] if mode == "split" else []),
    ]
    return "\n".join(lines) + "\n"


def contract_template(
    *,
    run: str = "run-1",
    label_party: str = "airline",
    feature_parties: Sequence[str] = ("airport",),
    mode: Mode = "split",
    rows: int | None = None,
    label: Mapping[str, Any] | None = None,
) -> str:
    """A contract.toml for these parties and this way to train, as it is recommended.

    Args:
        run: the name of the training.
        label_party: its name.
        feature_parties: their names.
        mode: the way to train.
        rows: of the label party's table, where it is known; a batch is smaller where there are few.
        label: what is known of the labels: keys of the contract with their values; see `tacit.company.draft`.

    >>> from tacit.config import read_contract
    >>> read_contract(contract_template(run="flights", mode="one_shot")).run
    'flights'
    """
    about = dict(label or {})
    split = mode == "split"
    widths = ", ".join(f"{json.dumps(name)} = 128" for name in feature_parties)
    first = [
        "# What all parties agree on: the same file on all sides. `tacit contract` shows its digest, to be compared by",
        f"# phone; comments and the order of lines don't count. {_PAGE}.",
        'mode = "split"  # step by step: embeddings go forward, gradients come back'
        if split
        else 'mode = "one_shot"  # one exchange: labels are sent once, randomized, and groups of rows come back once',
        f"run = {_quoted(run)}  # a new name is a new training",
        f"label_party = {_quoted(label_party)}",
        f"feature_parties = {_quoted(list(feature_parties))}",
        *_about_label(about, "positive", "class_names"),
        "test_share = 0.2  # of the common rows, by which the model is judged",
    ]
    if split:
        rest = [
            *(_about_label(about, "loss") or ['loss = "binary"  # labels of two classes; "softmax" for more']),
            "epochs = 3  # how often every row is visited",
            f"batch_size = {1024 if rows is None else min(1024, max(64, rows // 16))}",
            "",
            "[cut]",
            f"widths = {{ {widths} }}  # numbers that a feature party sends of a row, at each visit",
            "",
            "[minimum]  # the least that each side does to what it sends",
            'gradient = { name = "matched", leak_auc = 0.6, visits = "epochs" }',
            "embedding = []",
        ]
    else:
        rest = [
            "",
            "[exchange]",
            "bits = 3  # of each row comes back in which of 8 groups of alike scores it is",
            *_about_label(about, "target", "classes", "low", "high", "rare"),
            'unit = "row"  # or the label party\'s column of people: all rows of one count together then',
        ]
    return "\n".join([*first, *rest]) + "\n"


_ABOUT = {
    "positive": "the label that counts as 1",
    "class_names": "the labels, from class 0 on",
    "loss": "for labels of so many classes",
    "target": "labels are numbers of a public range",
    "classes": "of labels",
    "low": "public; lower labels count as this one",
    "high": "public; higher labels count as this one",
    "rare": "which of the two is rare, which everybody may know: more is told of it at the same limit",
}


def _about_label(label: Mapping[str, Any], *keys: str) -> list[str]:
    return [f"{key} = {_quoted(label[key])}  # {_ABOUT[key]}" for key in keys if key in label]


def _quoted(value: Any) -> str:
    """As TOML spells text, lists of it and numbers."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
