"""Embedding protections as files name them."""

import inspect

import pytest

from tacit.config import Contract, Embedding, Party, contract_template, meets
from tacit.errors import UsageError
from tacit.split.protect import embedding
from tacit.split.protect.embedding import embedding_protection
from tests.config_texts import FEATURES

TEMPLATE = FEATURES
DEFAULT = next(line for line in TEMPLATE.splitlines() if line.startswith("embedding = ["))


def party(protections):
    return Party.read(TEMPLATE.replace(DEFAULT, f"embedding = [{protections}]"))


def minimum(protections):
    return Contract.read(contract_template().replace("embedding = []", f"embedding = [{protections}]")).minimum


STRENGTHS = {
    "adversarial": "weight = 0.5",
    "distance_correlation": "weight = 0.1",
    "gaussian": "snr = 4.0",
    "noise_regularization": "weight = 0.01",
}


def test_files_may_name_every_embedding_protection_there_is_with_options_that_it_takes():
    assert list(Embedding.known()) == embedding.names()
    for name, facts in Embedding.known().items():
        factory = getattr(getattr(embedding, name), name)
        assert set(facts.options) <= set(inspect.signature(factory).parameters), name


@pytest.mark.parametrize("name", sorted(STRENGTHS))
def test_a_protection_is_made_of_what_the_file_says(name):
    (one,) = party(f'{{ name = "{name}", {STRENGTHS[name]} }}').protect.embedding
    made = embedding_protection(one.name, **one.options())
    assert made.name == name
    for option, value in one.options().items():
        assert made.event.parameters[option] == value
    assert str(one) == f"{name}({STRENGTHS[name].replace(' ', '')})"


def test_the_order_of_the_list_is_kept_and_an_empty_one_is_allowed():
    two = party(
        '{ name = "adversarial", weight = 1.0 }, { name = "gaussian", std = 1.0, clip = 3.0 }'
    ).protect.embedding
    assert [one.name for one in two] == ["adversarial", "gaussian"]
    assert two[1].options() == {"std": 1.0, "clip": 3.0}
    assert party("").protect.embedding == ()


def test_a_feature_party_must_say_what_it_does_to_embeddings_where_it_sends_any_at_every_step():
    for text in (TEMPLATE.replace(DEFAULT, ""), TEMPLATE.replace(DEFAULT, "").replace("[protect]", "")):
        told = Party.read(text).split_problem() or ""
        assert "[protect] embedding is missing" in told
        assert "[] to send bare embeddings" in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{ name = "gauss", std = 1.0 }', "did you mean gaussian?"),
        ('{ name = "gaussian" }', "needs a strength: write std or snr"),
        ('{ name = "gaussian", std = 1.0, snr = 2.0 }', "spellings of one strength"),
        ('{ name = "gaussian", std = -1.0 }', "greater than 0"),
        ('{ name = "gaussian", std = inf }', "finite number"),
        ('{ name = "gaussian", std = 1.0, weight = 1.0 }', "has no such option: remove it; there are: std, snr, clip"),
        ('{ name = "adversarial" }', "needs a strength: write weight"),
        ('{ name = "noise_regularization", weight = 1.0, noise = "pink" }', "'pink' is not 'gaussian' or 'uniform'"),
        ('{ name = "distance_correlation", weight = 1.0, log = 1 }', "1 is not true or false"),
        ('{ name = "distance_correlation", wait = 1.0 }', "no such option: did you mean weight?"),
    ],
)
def test_wrong_protections_are_refused_with_what_is_wrong(text, words):
    with pytest.raises(UsageError) as caught:
        party(text)
    assert words in str(caught.value), str(caught.value)
    with pytest.raises(UsageError):
        minimum(text)


@pytest.mark.parametrize(
    ("least", "own", "says"),
    [
        ("", "", None),
        ("", '{ name = "gaussian", std = 1.0 }', None),
        ('{ name = "gaussian", std = 1.0 }', "", "there is no gaussian"),
        ('{ name = "gaussian", std = 1.0 }', '{ name = "gaussian", std = 1.0, clip = 2.0 }', None),
        ('{ name = "gaussian", std = 1.0 }', '{ name = "gaussian", std = 0.9 }', "gaussian is weaker in std"),
        ('{ name = "gaussian", snr = 4.0 }', '{ name = "gaussian", snr = 3.0 }', None),
        ('{ name = "gaussian", snr = 4.0 }', '{ name = "gaussian", snr = 5.0 }', "is weaker"),
        ('{ name = "gaussian", snr = 4.0 }', '{ name = "gaussian", std = 9.0 }', "is weaker"),
        ('{ name = "gaussian", std = 1.0, clip = 2.0 }', '{ name = "gaussian", std = 1.0 }', "is weaker"),
        ('{ name = "gaussian", std = 1.0, clip = 2.0 }', '{ name = "gaussian", std = 1.0, clip = 3.0 }', "is weaker"),
        (
            '{ name = "distance_correlation", weight = 0.1, log = true }',
            '{ name = "distance_correlation", weight = 0.1, log = false }',
            "is weaker",
        ),
        (
            '{ name = "gaussian", std = 1.0 }',
            '{ name = "gaussian", std = 0.5 }, { name = "gaussian", std = 1.5 }',
            None,
        ),
    ],
)
def test_a_minimum_is_met_by_the_same_protection_in_nothing_weaker(least, own, says):
    agreed = minimum(least).embedding
    having = [(one.name, one.options()) for one in party(own).protect.embedding]
    if says is None:
        meets(agreed, having)
        return
    with pytest.raises(UsageError, match=says):
        meets(agreed, having)


def test_the_minimum_is_part_of_what_is_agreed():
    text = contract_template()
    assert Contract.read(text).digest == Contract.read(text.replace("embedding = []\n", "")).digest
    other = text.replace("embedding = []", 'embedding = [{ name = "gaussian", snr = 4.0 }]')
    assert Contract.read(other).digest != Contract.read(text).digest
