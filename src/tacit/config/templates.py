"""Both files with a comment for each line, to be filled in by people.

A line that begins with a word and `>` is for that role or that way to train alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from string import Template
from typing import Literal

from tacit.config.party import LEARNING_RATES
from tacit.errors import UsageError

_PARTY = """\
# $name: settings of this party alone. Nobody else sees this file; what all parties agree on is in contract.toml.

name = "$name"  # as in the certificate $name.crt
role = "$role"  # "label": has the column to be learnt; "features": has columns that help
label> limit = 0.6  # leak AUC of your labels (0.5: a coin flip, 1: an open book): certified in one-shot, measured in split
label> # odds = 3.0  # one-shot: the factor that the odds of a label change by at most; limit / (1 - limit) without it
label> # budget = 0.75  # leak AUC that all that is sent may come to for any row; 1 for no budget
label> # odds_budget = 20.0  # one-shot: that the odds of any label may change by, over all releases
features> # limit = 0.3  # share of your columns' variance that no attack on your embeddings may read: 0 is nothing, 1 everything
on_limit = "pause"  # or "stop": what to do before it is passed

[network]
label> listen = "0.0.0.0:7443"  # the feature parties connect to this port
features> connect = "localhost:7443"  # host and port of the label party

[data]
path = "data.parquet"  # Parquet or CSV, relative to this folder
# query = "select * from flights"  # or a database, of which `tacit align` copies the rows
# url_from = "TACIT_ROWS_URL"  # the environment variable that holds its address
ids = ["id"]  # the columns that together name a row, as the other parties name it; never sent in the clear
label> label = "label"  # the column to be learnt: 0 or 1 (loss "binary"), or class numbers from 0 on ("softmax")
categorical = []  # columns that become codes, for example ["carrier", "dest"]
label> numeric = []  # columns that are standardised, for example ["distance", "seats"]; both may stay empty here
features> numeric = []  # columns that are standardised, for example ["distance", "seats"]; name at least one column in all
flagged = []  # numeric columns whose absence tells something: it becomes a column of its own
label> # coin_id = ["id"]  # one-shot: by which you know a row for good: the coin that flips its label hangs on it
label> # coin_epoch = 0  # one-shot: raise it to flip all labels anew, as they are now; that is charged again

[model]
name = "wide_deep"  # or, instead of all lines here, factory = "my_model:make": your own, in my_model.py beside this
layers = 3  # ReLU layers in this party's half
features> embedding = 4  # the width of an embedded category
sparse = false  # true updates tables row by row: for very many categories

[training]
optimizer = "adam"  # or "sgd"
label> learning_rate = $rate
features> learning_rate = $rate  # small: a half that learns fast from noisy gradients follows the noise
threads = 0  # of this process; 0 leaves it to torch, which takes all cores (or OMP_NUM_THREADS)
device = "auto"  # one-shot: where networks learn: "cpu", "cuda", or "auto" for CUDA where there is one
checkpoint_every = 200  # steps; a shorter journal on disk, more to write
# seed = 7  # of the first weights; fresh ones are drawn without it

[protect]
label> # What is done to every gradient before it is sent. There is no default: "none" sends it bare, and must be written out.
label> # matched: leak_auc (0.5 is a coin flip, 1.0 an open book) or scale; visits = "epochs" holds it over the whole training.
label> # docs/ref-protections.md has the others, and the strength of each.
label> gradient = { name = "matched", leak_auc = 0.6, visits = "epochs" }
features> # What is done so that embeddings give less of your columns away, in this order. There is no default: [] sends them
features> # bare, and must be written out. gaussian: std or snr, the power of the embedding over that of the noise; and clip, the
features> # largest norm of an embedding. docs/ref-protections.md has the others, with the options of each.
features> embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]

label> [head]  # one-shot: your private model over what comes and your own columns
label> kind = "trees"  # boosted trees, or "network"
label> # factory = "my_model:make_head"  # or your own: an object with fit and predict_proba
features> [learn]  # one-shot: how you learn at home from flipped labels, and what you send of it
features> learner = "trees"  # boosted trees, "network" or "linear"
features> # factory = "my_model:make_learner"  # or your own
features> pretrain = true  # a network first learns your columns from themselves, without any label
features> # sample = 5_000_000  # rows that trees learn from at most: they hold them in memory
features> withheld = []  # columns that the learner never sees
features> ranks = 256  # that a number which is sent may have, at most: an exact one would be a fingerprint
features> noise = 0.0  # on the embedding, in units of each number's deviation; 0 for none
features> known = 0.5  # the share of the rows that decoders know when they attack what is about to be sent
features> floor = true  # send the best embedding that no label was used for, where that is as good at the same leak

[align]  # every alignment may tell a peer about the ids that changed since the last one
runs_a_month = 10  # with one peer
allow_edits = false  # whether a peer may come again with a set that differs by a few ids alone
features> keyed_rows_a_month = 10_000_000  # that the label party may ask for by key, with `tacit predict --match keyed`

[record]  # what is kept on this side, for attacks on oneself
last = 24  # whole batches of the newest epoch, drawn in secret
follow = 8192  # examples of which every visit is kept

[live]  # attacks on what is sent, while training runs; what they find stays here
every = 128  # steps between two looks with the cheap attacks, fewer in a short run; 0 for none
fitted = 5000  # steps at least between two rounds of the others, at epoch ends; with a limit, at each of them

[serve]  # how `tacit serve` answers
label> # http = "127.0.0.1:7080"  # where it answers; elsewhere than on this machine it takes TACIT_SERVE_TOKEN
label> deadline_ms = 500  # in which a request is answered, by the fallback where a partner is slow
label> fallback = true  # score rows without a partner by your own columns, where there is a model for that
label> batch_ms = 2.0  # that requests wait for others to go with them
label> cache_seconds = 60  # for which an embedding that came is used again; 0 for never
label> cache_rows = 100_000  # embeddings that are kept for that
label> rows_a_request = 1000  # at most
label> waiting_rows = 10_000  # under way at a time; beyond them the answer is 503
label> request_bytes = 1_048_576  # of a request, at most
features> # http = "127.0.0.1:7081"  # for /health, /ready and /metrics alone
features> rows_a_minute = 60_000  # that you answer, on average
features> different_rows = 1_000_000  # likewise, each once
features> refresh_seconds = 300  # after which you look for rows that are new or gone; 0 for never
features> # rows = { path = "new.parquet" }  # where your rows come from: held in memory, and read again when it changes
features> # rows = { query = "select id, temp from weather" }  # or a database, whose address TACIT_ROWS_URL holds
features> # rows = { factory = "my_store:open" }  # or your own: an object with ids() and fetch(ids)
"""  # noqa: E501

_CONTRACT = """\
# What all parties agree on. Everyone has the same file; `tacit contract` shows its digest, which must be equal on all
# sides. Comments, the order of lines and the spelling of numbers do not count.

split> mode = "split"  # step by step: embeddings forward, gradients back; "one_shot" needs other lines, and certifies labels
one_shot> mode = "one_shot"  # labels are flipped once, embeddings are sent once; "split" trains step by step, with other lines
run = $run  # the name of this training, of a-z, 0-9 and hyphens; a new name is a new training
label_party = $label_party  # names as in the certificates
feature_parties = $feature_parties  # one to eight
split> loss = "binary"  # one logit and labels 0 or 1; "softmax": one logit for each class
split> epochs = 3  # how often every example is visited
split> batch_size = 1024
test_share = 0.2  # of the common rows, the last ones in their order, which nobody chose; 0 for none

split> [cut]
split> widths = $widths  # what each feature party sends of a row: a width, or a shape such as [32, 8, 8]
one_shot> [exchange]
one_shot> width = 8  # numbers that each feature party sends of a row, 1 to 128: few tell little of its columns
one_shot> target = "classes"  # or "number", with low, high and cells
one_shot> classes = 2  # labels are 0, 1, ...
one_shot> # low = 0.0  # of a number: lower ones count as this one
one_shot> # high = 180.0  # higher ones as this one
one_shot> # cells = 16  # steps between the two
one_shot> rare = "neither"  # "positive" or "negative" where one of two classes is rare, and may be known to be
one_shot> unit = "row"  # or the label party's column whose rows with one value, such as a person's, count together

[alignment]
largest_set = 10_000_000  # ids; more are refused before any work is done for them
smallest_set = 1000  # of a side's ids and of the common ones: smaller sets would probe for single ids
split>
split> [minimum]
split> # The least that the label party must do to its gradients; it may do more. { name = "none" } demands nothing.
split> gradient = { name = "matched", leak_auc = 0.6, visits = "epochs" }
split> # The least that every feature party must do to its embeddings, in the words of its party.toml.
split> embedding = []
split>
split> [share]
split> # What the label party tells the others at the end of an epoch, to two digits: nothing, or ["test_auc"], which a feature
split> # party can ask for what it wants to know about labels, by what it sends for the test rows. No limit covers that.
split> metrics = []
"""  # noqa: E501


def _filled(template: str, which: str, **values: object) -> str:
    lines = [re.fullmatch(r"(?:(label|features|split|one_shot)> ?)?(.*)", line) for line in template.splitlines()]
    kept = "".join(f"{line[2]}\n" for line in lines if line is not None and line[1] in (None, which))
    return Template(kept).substitute(values)


def party_template(role: Literal["label", "features"], name: str) -> str:
    """A commented party.toml; data and columns are to be filled in.

    >>> print(party_template("features", "airport").splitlines()[2])
    name = "airport"  # as in the certificate airport.crt
    """
    if role not in LEARNING_RATES:
        raise UsageError(f"there is no role {role!r}; there are: label, features")
    return _filled(_PARTY, role, name=name, role=role, rate=LEARNING_RATES[role])


def contract_template(
    *,
    run: str = "first-run",
    label_party: str = "airline",
    feature_parties: Sequence[str] = ("airport",),
    mode: Literal["one_shot", "split"] = "split",
) -> str:
    """A commented contract.toml for these parties and this way to train.

    >>> from tacit.config import read_contract
    >>> read_contract(contract_template(run="flights", mode="one_shot")).run
    'flights'
    """
    widths = ", ".join(f"{json.dumps(name)} = 128" for name in feature_parties)
    names = {"run": run, "label_party": label_party, "feature_parties": list(feature_parties)}
    quoted = {key: json.dumps(value) for key, value in names.items()}
    return _filled(_CONTRACT, mode, **quoted, widths=f"{{ {widths} }}")
