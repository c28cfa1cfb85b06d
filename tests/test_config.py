"""The contract and a party's settings: what is accepted, what is refused and how it is said."""

from __future__ import annotations

from operator import attrgetter

import pytest
from pydantic import ValidationError

from tacit.config import FEATURE_LIMIT, Contract, Data, OneShotContract, Party, contract_template, party_template
from tacit.config.contract import Cut
from tacit.errors import UsageError
from tests.config_texts import CONTRACT, FEATURES, LABEL, edited, with_limits

# --- what is accepted ------------------------------------------------------------------------------------------------


def test_a_contract_is_read_with_its_defaults():
    contract = Contract.read(CONTRACT)
    assert contract.feature_parties == ("airport", "weather")
    assert contract.cut.widths == {"airport": (128,), "weather": (32, 8, 8)}
    assert (contract.test_share, contract.alignment.largest_set, contract.alignment.smallest_set) == (
        0.2,
        10_000_000,
        1000,
    )
    assert contract.share.metrics == ("test_auc",)
    assert Contract.read(edited(CONTRACT, '["test_auc"]', "[]")).share.metrics == ()


def test_objects_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Contract.read(CONTRACT).epochs = 4


DATA = {
    "label": Data(
        path="../k.csv", ids=["Kunde Nr"], label="gekauft", categorical=["Büro"], numeric=['"x" in €'], dates=["seit"],
        times=["um"],
    ),
    "features": Data(path="b.parquet", ids=["a", "b"], times=["last visit"]),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["one_shot", "split"])
@pytest.mark.parametrize("role", ["label", "features"])
def test_what_init_writes_is_short_and_valid_and_about_one_way_to_train(role, mode):
    out = {"Land": "is 'DE' in every row"}
    text = party_template(role, "some-party", mode=mode, address="bank.example.com:7443", data=DATA[role], left_out=out)
    assert len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) <= 120
    party = Party.read(text)
    assert (party.role, party.name, party.address) == (role, "some-party", "bank.example.com:7443")
    assert party.data == DATA[role]
    assert party.limit == (0.6 if role == "label" else FEATURE_LIMIT)
    assert (party.odds == 3.0) == ((role, mode) == ("label", "one_shot"))
    assert (party.split_problem() is None) == (mode == "split")
    assert "# not used: \"Land\" is 'DE' in every row" in text


def test_without_a_table_it_is_to_be_filled_in():
    assert Party.read(party_template("label", "some-party")).data.path == "data.parquet"
    with pytest.raises(UsageError, match="there is no feature: name columns"):
        Party.read(party_template("features", "some-party"))


def test_the_contract_template_is_valid_for_several_parties():
    text = contract_template(run="r", label_party="bank", feature_parties=["shop", "airport"])
    contract = Contract.read(text)
    assert (contract.label_party, contract.feature_parties) == ("bank", ("airport", "shop"))
    assert set(contract.cut.widths) == {"airport", "shop"}
    assert Contract.read(contract_template(rows=3200, label={"loss": "softmax", "class_names": ["a", "b"]})) == (
        contract.model_copy(
            update={
                "run": "run-1", "label_party": "airline", "feature_parties": ("airport",), "loss": "softmax",
                "cut": Cut(widths={"airport": 128}), "batch_size": 200, "class_names": ("a", "b"),
            }
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ({"positive": "ja", "rare": "positive"}, {"positive": "ja", "exchange.rare": "positive"}),
        ({"classes": 3, "class_names": ["a", "b", "c"]}, {"class_names": ("a", "b", "c"), "exchange.classes": 3}),
        ({"target": "number", "low": 0.0, "high": 200.0}, {"exchange.low": 0.0, "exchange.high": 200.0}),
    ],
)
def test_what_is_known_of_labels_is_in_the_contract(label, found):
    contract = OneShotContract.read(contract_template(mode="one_shot", label=label))
    for key, value in found.items():
        assert attrgetter(key)(contract) == value


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ({"positive": "a", "class_names": ["a", "b"]}, "positive: does not go with class_names"),
        ({"positive": "a", "classes": 3}, "positive: is for two classes"),
        ({"class_names": ["a", "b", "c"]}, r"class_names: has 3 names, and \[exchange\] classes = 2: make them agree"),
        ({"class_names": ["a", "b"], "target": "number", "low": 0, "high": 1}, "has 2 names, and labels are numbers"),
        ({"class_names": ["a", "a"]}, "'a' stands there twice"),
    ],
)
def test_what_is_said_of_labels_fits_together(label, words):
    with pytest.raises(UsageError, match=words):
        OneShotContract.read(contract_template(mode="one_shot", label=label))


def test_one_positive_class_is_for_a_binary_loss():
    with pytest.raises(UsageError, match='positive: is for two classes: remove it, or write loss = "binary"'):
        Contract.read(contract_template(label={"positive": "a", "loss": "softmax"}))


def test_columns_of_a_party_come_once_each_with_the_label():
    text = edited(LABEL, "categorical = []", 'categorical = ["hour", "carrier"]')
    party = Party.read(edited(text, "numeric = []", 'numeric = ["hour"]'))
    assert party.data.columns == ("hour", "carrier", "label")


# --- the digest ------------------------------------------------------------------------------------------------------


def test_the_digest_does_not_see_comments_order_defaults_or_spellings():
    same = """
    share = { metrics = ["test_auc"] }
    minimum.gradient = { visits = "epochs", leak_auc = 6e-1, name = "matched" }  # a comment
    batch_size = 1_024
    epochs = 0x3
    loss = 'binary'
    test_share = 2e-1
    feature_parties = ["weather", "airport"]
    label_party = "airline"
    run = "flights"
    [cut.widths]
    weather = [32, 8, 8]
    airport = [128]
    """
    assert Contract.read(same).digest == Contract.read(CONTRACT).digest


def test_the_digest_sees_every_other_change():
    changes = [
        ("epochs = 3", "epochs = 4"),
        ("batch_size = 1024", "batch_size = 1025"),
        ("leak_auc = 0.6", "leak_auc = 0.61"),
        ("leak_auc = 0.6", "leak_auc = 0.6, visits = 3"),
        ('"binary"', '"softmax"'),
        ("airport = 128", "airport = 129"),
        ("[32, 8, 8]", "[8, 32, 8]"),
        ('["test_auc"]', "[]"),
        ('run = "flights"', 'run = "flights-2"'),
        ("[cut]", "[alignment]\nsmallest_set = 999\n[cut]"),
        ("[cut]", "test_share = 0.1\n[cut]"),
    ]
    digests = [Contract.read(CONTRACT).digest, *(Contract.read(edited(CONTRACT, *change)).digest for change in changes)]
    assert len(set(digests)) == len(digests)


def test_the_digest_is_known():
    """It is compared between machines and versions: a change of this value is a change of the protocol."""
    assert Contract.read(CONTRACT).digest == "77906ceb2dcd1f85f2f6a9403c9d17116f26df409cc367a68df1d9122b50fa88"


# --- what is refused -------------------------------------------------------------------------------------------------


def test_all_errors_come_at_once_with_place_and_next_act():
    text = """
    run = "Flights!"
    label_party = "airline"
    feature_parties = []
    loss = "hinge"
    epochs = true
    batchsize = 1024
    test_share = 1.0
    [cut]
    widths = { airport = 0 }
    [share]
    metrics = ["batch_loss"]
    """
    with pytest.raises(UsageError) as caught:
        Contract.read(text, "somewhere/contract.toml")
    message = str(caught.value)
    assert message.startswith("somewhere/contract.toml can't be used as it is:\n")
    for place, words in {
        "run": "small letters",
        "feature_parties": "at least 1",
        "loss": "'binary' or 'softmax', not 'hinge'",
        "epochs": "valid integer, not True",
        "batchsize": "did you mean batch_size?",
        "batch_size": "is missing: add it, for example batch_size = 1024",
        "test_share": "less than 1",
        "[cut] widths.airport": "0 is no shape",
        "[minimum]": 'is missing: add it, with gradient = { name = "matched"',
        "[share] metrics, entry 1": "'test_auc'",
    }.items():
        lines = [line for line in message.splitlines() if line.startswith(f"  {place}: ")]
        assert len(lines) == 1, (place, message)
        assert words in lines[0], (place, message)


def test_a_wrong_entry_of_a_list_is_told_once():
    with pytest.raises(UsageError) as caught:
        Contract.read(edited(CONTRACT, '["airport", "weather"]', '["Airport"]'))
    assert [line for line in str(caught.value).splitlines() if "feature_parties" in line] == [
        "  feature_parties, entry 1: 'Airport' is not allowed: write small letters, digits and inner hyphens"
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('label_party = "airline"', 'label_party = "airport"', ["feature_parties: 'airport' is the label party"]),
        ("airport = 128, ", "", ["[cut] widths: 'airport' has no width"]),
        ("airport = 128", "airport = 128, port = 3", ["[cut] widths: 'port' is no feature party"]),
        ("[cut]", "test_share = 0\n[cut]", ["[share] metrics: test figures need test rows"]),
        ("[cut]", "[alignment]\nsmallest_set = 20_000_000\n[cut]", ["[alignment] smallest_set", "lower it"]),
        ('"airport", "weather"', '"airport", "airport"', ["feature_parties: 'airport' stands there twice"]),
        ("leak_auc = 0.6", "leak_auc = 0.4", ["[minimum] gradient.leak_auc: 0.4 is not between 0.5 and 1"]),
        ("leak_auc = 0.6", "leak_auc = 0.6, scale = 4", ["leak_auc and scale are spellings of one strength"]),
        ("leak_auc = 0.6", "sum_kl = 1.0", ["matched has no such option: remove it; there are: leak_auc, scale"]),
        (", leak_auc = 0.6", "", ["[minimum] gradient.leak_auc: matched needs a strength"]),
        ("leak_auc = 0.6", "leak_auc = 0.6, visits = 0", ["[minimum] gradient.visits: 0 is no number of visits"]),
        ("leak_auc = 0.6", "leak_auk = 0.6", ["[minimum] gradient.leak_auk", "did you mean leak_auc?"]),
        ("leak_auc = 0.6", "leak_auc = nan", ["[minimum] gradient.leak_auc", "finite number"]),
        ("epochs = 3", "epochs = 3\nlargest_set = 5", ["largest_set: there is no such key", "under [alignment]"]),
        ("[cut]", "[cut]\nepochs = 3", ["[cut] epochs: there is no such key: it belongs above the first [table]"]),
        ("[cut]", "[cut]\nzzz = 3", ["[cut] zzz: there is no such key: remove it; there are: widths"]),
        ("[cut]", "[cut", ["is not valid TOML", "line 8"]),
    ],
)
def test_a_wrong_contract(old, new, words):
    with pytest.raises(UsageError) as caught:
        Contract.read(edited(CONTRACT, old, new))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (LABEL, 'listen = "0.0.0.0:7443"', "", ["[network] listen: is missing", "0.0.0.0:7443"]),
        (LABEL, 'listen = "0.0.0.0:7443"', 'listen = "7443"', ["[network] listen: '7443' is no address"]),
        (LABEL, 'listen = "0.0.0.0:7443"', 'listen = "a:99999"', ["no address"]),
        (LABEL, "[data]", 'connect = "a:1"\n[data]', ["[network] connect: a party with the role 'label' does not"]),
        (LABEL, 'label = "label"', "", ["[data] label: is missing"]),
        (LABEL, "[protect]", "[protekt]", ["protekt: there is no such key: did you mean protect?"]),
        (LABEL, "[protect]\n", "[other]\n", ["other: there is no such key"]),
        (LABEL, "numeric = []", 'numeric = ["label"]', ["[data] numeric: 'label' is the label"]),
        (LABEL, "flagged = []", 'flagged = ["x"]', ["[data] flagged: 'x' is not among the numeric columns"]),
        (LABEL, "layers = 3", 'factory = "m:f"', ["[model] name: does not go with factory"]),
        (LABEL, 'name = "wide_deep"', "", ["[model] name: is missing"]),
        (LABEL, 'name = "wide_deep"', 'factory = "no colon"', ["[model] factory", "my_model:make"]),
        (LABEL, "learning_rate = 0.002", "learning_rate = 0", ["[training] learning_rate", "greater than 0"]),
        (LABEL, "learning_rate = 0.002", 'learning_rate = "fast"', ["[training] learning_rate", "valid number"]),
        (LABEL, "learning_rate", "learning_rat", ["[training] learning_rat", "did you mean learning_rate?"]),
        (FEATURES, "[data]", '[data]\nlabel = "x"', ["[data] label: is not for a party"]),
        (FEATURES, "embedding = [", 'gradient = { name = "none" }\nembedding = [', ["gradient: is not for a"]),
        (LABEL, "[protect]\n", "[protect]\nembedding = []\n", ["[protect] embedding: is not for a party"]),
        (FEATURES, "layers = 3", "layers = 0", ["[model] layers: a feature party's half has at least one layer"]),
        (FEATURES, 'ids = ["id"]', "ids = []", ["[data] ids", "at least 1"]),
        (FEATURES, 'ids = ["id"]', "", ['[data] ids: is missing: add it, for example ids = ["flight_id"]']),
    ],
)
def test_wrong_settings(text, old, new, words):
    with pytest.raises(UsageError) as caught:
        Party.read(edited(text, old, new))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("text", "lines", "words"),
    [
        (LABEL, "limit = 0.5", ["limit: 0.5 is not between 0.5 and 1"]),
        (LABEL, "limit = 1.0", ["limit: 1.0 is not between 0.5 and 1"]),
        (LABEL, "budget = 0.4", ["budget: 0.4 is not between 0.5 and 1"]),
        (LABEL, 'limit = "low"', ["limit", "valid number"]),
        (LABEL, 'on_limit = "wait"', ["on_limit", "pause", "stop"]),
        (LABEL, 'on_limit = "louder"', ["on_limit", "pause", "stop"]),
        (LABEL, "limit = 0.6\nrecord.last = 0", ["[record] last: a limit is held by attacks on recorded batches"]),
        (LABEL, "limit = 0.6\nrecord.follow = 0", ["[record] follow: a limit holds over all visits too"]),
        (LABEL, "live.every = -1", ["[live] every"]),
        (LABEL, "live.fitted = 0", ["[live] fitted"]),
        (LABEL, "live.often = 1", ["[live] often: there is no such key"]),
        (FEATURES, "limit = 0.0", ["limit: 0.0 is not between 0 and 1"]),
        (FEATURES, "budget = 0.7", ["budget: is not for a party with the role 'features'"]),
    ],
)  # fmt: skip
def test_wrong_limits(text, lines, words):
    with pytest.raises(UsageError) as caught:
        Party.read(with_limits(text, lines))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_limits_and_looks_have_defaults_and_take_what_is_allowed():
    plain = Party.read(with_limits(LABEL, ""))
    assert (plain.limit, plain.budget, plain.on_limit) == (None, None, "pause")
    assert (plain.live.every, plain.live.fitted, plain.record.last, plain.record.follow) == (128, 5000, 24, 8192)
    given = Party.read(with_limits(LABEL, 'limit = 0.51\nbudget = 0.99\non_limit = "stop"\nlive = { every = 0 }'))
    assert (given.limit, given.budget, given.on_limit, given.live.every) == (0.51, 0.99, "stop", 0)
    assert Party.read(with_limits(FEATURES, "limit = 0.2")).limit == 0.2
    assert Party.read(with_limits(LABEL, "record = { last = 0, follow = 0 }")).record.last == 0, "without a limit"
