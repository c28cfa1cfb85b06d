"""Both files with a comment for each line, to be filled in by people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from tacit.config.party import LEARNING_RATES
from tacit.errors import UsageError

_PARTY = """\
# {name}: settings of this party alone. Nobody else sees this file; what all parties agree on is in contract.toml.

name = {name_quoted}  # as in the certificate {name}.crt
role = "{role}"  # "label": has the column to be learnt; "features": has columns that help
{limit}on_limit = "raise noise"  # or "pause", "stop": what to do before it is passed; what has no noise pauses

[network]
{network}

[data]
path = "data.parquet"  # Parquet or CSV, relative to this folder
# query = "select * from flights"  # or a database, of which `tacit align` copies the rows
# url_from = "TACIT_ROWS_URL"  # the environment variable that holds its address
ids = ["id"]  # the columns that together name a row, as the other parties name it; never sent in the clear
{label}categorical = []  # columns that become codes, for example ["carrier", "dest"]
numeric = []  # columns that are standardised, for example ["distance", "seats"]; {features}
flagged = []  # numeric columns whose absence tells something: it becomes a column of its own
{coin_id}
[model]
name = "wide_deep"  # or, instead of all lines here, factory = "my_model:make": your own, in my_model.py beside this
layers = 3  # ReLU layers in this party's half
{embedding}sparse = false  # true updates tables row by row: for very many categories

[training]
optimizer = "adam"  # or "sgd"
{rate}
threads = 0  # of this process; 0 leaves it to torch, which takes all cores (or OMP_NUM_THREADS)
checkpoint_every = 200  # steps; a shorter journal on disk, more to write
# seed = 7  # of the first weights; fresh ones are drawn without it

{protect}{home}[align]  # every alignment may tell a peer about the ids that changed since the last one
runs_a_month = 10  # with one peer
allow_edits = false  # whether a peer may come again with a set that differs by a few ids alone
{keyed}
[record]  # what is kept on this side, for attacks on oneself
last = 24  # whole batches of the newest epoch, drawn in secret
follow = 8192  # examples of which every visit is kept

[live]  # attacks on what is sent, while training runs; what they find stays here
every = 128  # steps between two looks with the cheap attacks, fewer in a short run; 0 for none
fitted = 5000  # steps at least between two rounds of the others, at epoch ends; with a limit, at each of them
{serve}"""

_NETWORK = {
    "label": 'listen = "0.0.0.0:7443"  # the feature parties connect to this port',
    "features": 'connect = "localhost:7443"  # host and port of the label party',
}
_LIMIT = {
    "label": """\
limit = 0.6  # leak AUC of your labels (0.5: a coin flip, 1: an open book): certified in one-shot, measured in split
# odds = 3.0  # one-shot: the factor that the odds of a label change by at most; limit / (1 - limit) without it
# budget = 0.75  # that the worst case of any example may reach, over all visits in all runs; 1 for no budget
# odds_budget = 20.0  # one-shot: that the odds of any label may change by, over all releases
# delta = 0.005  # one-shot with sums: the probability with which odds may be passed; flips never pass them
""",
    "features": """\
# limit = 0.3  # share of your columns' variance that no attack on your embeddings may read: 0 is nothing, 1 everything
""",
}
_LABEL = 'label = "label"  # the column to be learnt: 0 or 1 (loss "binary"), or class numbers from 0 on ("softmax")\n'
_FEATURES = {"label": "both may stay empty here", "features": "name at least one column in all"}
_SLOW = {"label": "", "features": "  # small: a half that learns fast from noisy gradients follows the noise"}
_EMBEDDING = "embedding = 4  # the width of an embedded category\n"
_PROTECT = {
    "label": """\
[protect]
# What is done to every gradient before it is sent. There is no default: "none" sends it bare, and must be written out.
# matched: leak_auc (0.5 is a coin flip, 1.0 an open book) or scale; visits = "epochs" holds it over the whole training.
# `tacit explain protections` has the others, and the strength of each.
gradient = { name = "matched", leak_auc = 0.6, visits = "epochs" }
# label_distance_correlation = 0.05  # and let embeddings tell less about labels: feature parties could read them there

""",
    "features": """\
[protect]
# What is done so that embeddings give less of your columns away, in this order. There is no default: [] sends them
# bare, and must be written out. gaussian: std or snr, the power of the embedding over that of the noise; and clip, the
# largest norm of an embedding. `tacit explain embedding-protections` has the others, with the options of each.
embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]

""",
}

_COIN_ID = """\
# coin_id = ["id"]  # one-shot: by which you know a row for good: the coin that flips its label hangs on it
# coin_epoch = 0  # one-shot: raise it to flip all labels anew, as they are now; that is charged again
"""
_HOME = {
    "label": """\
[head]  # one-shot: your private model over what comes and your own columns
kind = "trees"  # boosted trees (pip install 'tacit[trees]'), or "network"
# factory = "my_model:make_head"  # or your own: an object with fit and predict_proba

""",
    "features": """\
[learn]  # one-shot: how you learn at home from flipped labels, and what you send of it
learner = "trees"  # boosted trees (pip install 'tacit[trees]'), "network" or "linear"
# factory = "my_model:make_learner"  # or your own
pretrain = true  # a network first learns your columns from themselves, without any label
withheld = []  # columns that the learner never sees
ranks = 256  # that a number which is sent may have, at most: an exact one would be a fingerprint
noise = 0.0  # on the embedding, in units of each number's deviation; 0 for none
known = 0.5  # the share of the rows that decoders know when they attack what is about to be sent
floor = true  # send the best embedding that no label was used for, where that is as good at the same leak

""",
}

_KEYED = (
    "keyed_rows_a_month = 10_000_000  # that the label party may ask for by key, with `tacit predict --match keyed`\n"
)

_SERVE = {
    "label": """
[serve]  # how `tacit serve` answers
# http = "127.0.0.1:7080"  # where it answers; elsewhere than on this machine it takes TACIT_SERVE_TOKEN
deadline_ms = 500  # in which a request is answered, by the fallback where a partner is slow
fallback = true  # score rows without a partner by your own columns, where there is a model for that
batch_ms = 2.0  # that requests wait for others to go with them
cache_seconds = 60  # for which an embedding that came is used again; 0 for never
cache_rows = 100_000  # embeddings that are kept for that
rows_a_request = 1000  # at most
waiting_rows = 10_000  # under way at a time; beyond them the answer is 503
request_bytes = 1_048_576  # of a request, at most
""",
    "features": """
[serve]  # how `tacit serve` answers
# http = "127.0.0.1:7081"  # for /health, /ready and /metrics alone
rows_a_minute = 60_000  # that you answer, on average
rows_in_all = 100_000_000  # over the whole life of the model, repeated ones too
different_rows = 1_000_000  # likewise, each once
refresh_seconds = 300  # after which you look for rows that are new or gone; 0 for never
# rows = { path = "new.parquet" }  # where your rows come from: held in memory, and read again when it changes
# rows = { query = "select id, temp from weather" }  # or a database, whose address TACIT_ROWS_URL holds
# rows = { factory = "my_store:open" }  # or your own: an object with ids() and fetch(ids)
""",
}

_CONTRACT = """\
# What all parties agree on. Everyone has the same file; `tacit contract` shows its digest, which must be equal on all
# sides. Comments, the order of lines and the spelling of numbers do not count.

mode = "split"  # step by step: embeddings forward, gradients back; "one_shot" needs other lines, and certifies labels
run = {run}  # the name of this training, of a-z, 0-9 and hyphens; a new name is a new training
label_party = {label_party}  # names as in the certificates
feature_parties = {feature_parties}  # one to eight
loss = "binary"  # one logit and labels 0 or 1; "softmax": one logit for each class
epochs = 3  # how often every example is visited
batch_size = 1024
depth = 1  # batches on their way at once; more where a round trip takes longer than a step, with older gradients
test_share = 0.2  # of the common rows, the last ones in their order, which nobody chose; 0 for none

[cut]
widths = {widths}  # what each feature party sends of a row: a width, or a shape such as [32, 8, 8]
dtype = "float32"

[alignment]
largest_set = 10_000_000  # ids; more are refused before any work is done for them
smallest_set = 1000  # of a side's ids and of the common ones: smaller sets would probe for single ids

[minimum]
# The least that the label party must do to its gradients; it may do more. {{ name = "none" }} demands nothing.
gradient = {{ name = "matched", leak_auc = 0.6, visits = "epochs" }}
# The least that every feature party must do to its embeddings, in the words of its party.toml.
embedding = []

[share]
# What the label party tells the others at the end of an epoch, to two digits: nothing, or ["test_auc"], which a feature
# party can ask for what it wants to know about labels, by what it sends for the test rows. No limit covers that.
metrics = []
"""

_ONE_SHOT = """\
# What all parties agree on. Everyone has the same file; `tacit contract` shows its digest, which must be equal on all
# sides. Comments, the order of lines and the spelling of numbers do not count.

mode = "one_shot"  # labels are flipped once, embeddings are sent once; "split" trains step by step, with other lines
run = {run}  # the name of this training, of a-z, 0-9 and hyphens; a new name is a new training
label_party = {label_party}  # names as in the certificates
feature_parties = {feature_parties}  # one to eight
test_share = 0.2  # of the common rows, the last ones in their order, which nobody chose; 0 for none

[exchange]
width = 8  # numbers that each feature party sends of a row, 1 to 128: few tell little of its columns
labels = "flips"  # each is flipped once; "sums": noisy sums over groups, which show who is alike; "hidden_sums": do not
target = "classes"  # or "number", with low, high and cells
classes = 2  # labels are 0, 1, ...
# low = 0.0  # of a number: lower ones count as this one
# high = 180.0  # higher ones as this one
# cells = 16  # steps between the two
rare = "neither"  # "positive" or "negative" where one of two classes is rare, and may be known to be
unit = "row"  # or the label party's column whose rows with one value, such as a person's, count together
# group_size = 32  # rows of a group, for sums
# partitions = 4  # groupings of all rows, for sums

[alignment]
largest_set = 10_000_000  # ids; more are refused before any work is done for them
smallest_set = 1000  # of a side's ids and of the common ones: smaller sets would probe for single ids
"""


def party_template(role: Literal["label", "features"], name: str) -> str:
    """A commented party.toml; data and columns are to be filled in.

    >>> print(party_template("features", "airport").splitlines()[2])
    name = "airport"  # as in the certificate airport.crt
    """
    if role not in _NETWORK:
        raise UsageError(f"there is no role {role!r}; there are: label, features")
    label = role == "label"
    return _PARTY.format(
        name=name, name_quoted=json.dumps(name), role=role, network=_NETWORK[role], limit=_LIMIT[role],
        label=_LABEL if label else "", features=_FEATURES[role], embedding="" if label else _EMBEDDING,
        rate=f"learning_rate = {LEARNING_RATES[role]}{_SLOW[role]}", protect=_PROTECT[role], home=_HOME[role],
        coin_id=_COIN_ID if label else "", keyed="" if label else _KEYED, serve=_SERVE[role],
    )  # fmt: skip


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
    template = _CONTRACT if mode == "split" else _ONE_SHOT
    return template.format(
        run=json.dumps(run),
        label_party=json.dumps(label_party),
        feature_parties=json.dumps(list(feature_parties)),
        widths=f"{{ {widths} }}",
    )
