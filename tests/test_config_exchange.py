"""Contracts of one exchange, files that can't be read, and one strength against another."""

from __future__ import annotations

import random
import re
import tomllib

import pytest

from tacit.config import (
    Contract,
    Gradient,
    OneShotContract,
    Party,
    contract_template,
    meets,
    read_contract,
)
from tacit.errors import UsageError
from tacit.split.protect.gradient import facts, protection
from tests.config_texts import CONTRACT, FEATURES, LABEL, edited, with_limits


def test_a_label_party_must_say_what_it_does_to_gradients_where_it_sends_any():
    start, rest = LABEL.split("[protect]")
    bare = Party.read(start + rest[rest.index("[record]") :])
    assert re.search(r"\[protect\] gradient is missing.*name = \"none\"", bare.split_problem() or "")
    assert Party.read(LABEL).split_problem() is None


ONE_SHOT = """
mode = "one_shot"
run = "flights"
label_party = "airline"
feature_parties = ["airport"]
exchange.bits = 3
"""


def test_a_contract_says_which_way_to_train():
    assert isinstance(read_contract(CONTRACT), Contract)
    one_shot = read_contract(ONE_SHOT)
    assert isinstance(one_shot, OneShotContract)
    assert (one_shot.exchange.bits, one_shot.test_share) == (3, 0.2)
    assert one_shot.train_count(11) == 9
    assert one_shot.digest != read_contract(edited(ONE_SHOT, "bits = 3", "bits = 2")).digest
    named = Contract.read('mode = "split"' + CONTRACT)
    assert named.digest == Contract.read(CONTRACT).digest, "a contract from before there were two ways"
    with pytest.raises(UsageError, match="mode"):
        read_contract('mode = "both"' + CONTRACT)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bits = 0", "bits"),
        ("bits = 6", "bits"),
        ("bits = 3\nexchange.numbers = 129", "numbers"),
        ("bits = 5\nexchange.smallest = 0.04", "smallest"),
        ('bits = 3\nexchange.labels = "some"', "labels"),
        ('bits = 3\nexchange.target = "number"', "low and high"),
        ("bits = 3\nexchange.low = 0.0", "target"),
        ('bits = 3\nexchange.classes = 3\nexchange.rare = "positive"', "two classes"),
        ("bits = 3\nexchange.classes = 1", "classes"),
        ("bits = 3\nepochs = 3", "epochs"),
    ],
)
def test_what_an_exchange_can_not_be(line, told):
    with pytest.raises(UsageError, match=told):
        read_contract(edited(ONE_SHOT, "bits = 3", line))


@pytest.mark.parametrize("odds", ["1.0", "0.5", "20.5"])
def test_odds_lie_above_1_and_are_at_most_20(odds):
    assert Party.read(with_limits(LABEL, "odds = 3.0")).odds == 3.0
    with pytest.raises(UsageError, match=r"odds.*above 1 and at most 20"):
        Party.read(with_limits(LABEL, f"odds = {odds}"))
    with pytest.raises(UsageError, match="odds"):
        Party.read(with_limits(FEATURES, "odds = 3.0"))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"contract\.toml can't be read \(No such file"):
        Contract.load(tmp_path / "contract.toml")
    (tmp_path / "party.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(UsageError, match=r"party\.toml is not UTF-8 \(byte 8\)"):
        Party.load(tmp_path / "party.toml")
    (tmp_path / "contract.toml").write_text(CONTRACT)
    assert Contract.load(tmp_path / "contract.toml") == Contract.read(CONTRACT)


def test_no_damage_of_a_file_gives_anything_but_an_error_that_names_it():
    """Lines dropped, doubled and cut at random: a contract comes out or a UsageError, never another exception."""
    draw = random.Random(3)
    refused = []
    for _ in range(300):
        lines = contract_template().splitlines()
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(lines))
            lines[place] = draw.choice(
                ["", lines[place] * 2, lines[place][: draw.randint(0, 12)], "[cut]", "x = 1979-05-27"]
            )
        try:
            Contract.read("\n".join(lines))
        except UsageError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(message.startswith("contract.toml ") for message in refused)


# --- strength against strength ---------------------------------------------------------------------------------------


def gradient(name: str, **options: object) -> Gradient:
    return Gradient.model_validate({"name": name, **options})


def given(own: Gradient, epochs: int) -> list[tuple[str, dict[str, object]]]:
    return [(own.name, own.options(epochs))]


@pytest.mark.parametrize(
    ("minimum", "meeting", "failing"),
    [
        (gradient("matched", leak_auc=0.6), {"leak_auc": 0.55}, {"leak_auc": 0.61}),
        (gradient("matched", scale=4.0), {"scale": 4}, {"scale": 3.9}),
        (gradient("matched", scale=4.0, visits=2), {"scale": 4, "visits": 3}, {"scale": 4, "visits": 1}),
        (gradient("matched", scale=4.0), {"scale": 4, "visits": 5}, {"scale": 4, "visits": 4}),  # of 5 epochs
        (gradient("matched", scale=4.0, visits=6), {"scale": 4, "visits": 6}, {"scale": 4, "visits": "epochs"}),
        (gradient("matched", leak_auc=0.6), {"leak_auc": 0.6}, {"scale": 100}),  # not comparable
        (gradient("marvell", sum_kl=0.2), {"sum_kl": 0.1}, {"sum_kl": 0.3}),
        (gradient("marvell", detection_error=0.3), {"detection_error": 0.4}, {"detection_error": 0.2}),
        (gradient("marvell", leak_auc=0.6), {"leak_auc": 0.6}, {"leak_auc": 0.6 + 1e-12}),
        (gradient("iso", t=1.0), {"t": 2.0}, {"t": 0.5}),
    ],
)
def test_each_knob_in_its_direction(minimum, meeting, failing):
    meets([minimum], given(gradient(minimum.name, **meeting), 5), epochs=5)
    with pytest.raises(UsageError, match=r"is weaker in \w+: protect with at least that"):
        meets([minimum], given(gradient(minimum.name, **failing), 5), epochs=5)


def test_only_none_demands_nothing_and_none_meets_nothing_else():
    kinds = [gradient("none"), gradient("max_norm"), gradient("iso", t=1.0), gradient("matched", leak_auc=0.6)]
    for minimum in kinds:
        for own in kinds:
            if minimum.name in ("none", own.name):
                meets([minimum], given(own, 1), epochs=1)
            else:
                with pytest.raises(UsageError, match=f"the contract's minimum is .* there is no {minimum.name}"):
                    meets([minimum], given(own, 1), epochs=1)


@pytest.mark.parametrize("name", Gradient.known())
def test_options_are_what_the_protection_takes(name):
    for knob in [option.name for option in facts(name).strengths] or [None]:
        spec = gradient(name, **({} if knob is None else {knob: 0.4 if knob == "detection_error" else 0.9}))
        assert protection(name, **spec.options(epochs=4)).name == name
    if name == "matched":
        assert spec.options(epochs=4)["visits"] == 4
        assert str(spec) == "matched(scale=0.9, visits=epochs)"


@pytest.mark.parametrize("file", [Contract, Party])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("x = " + "[" * 100_000, "is nested too deeply"),
        ("x = " + "{a=" * 5000 + "1" + "}" * 5000, "is nested too deeply"),
        ("epochs" + ".a" * 5000 + " = 1\nname" + ".a" * 5000 + " = 1", "is nested too deeply"),
        ("epochs = " + "9" * 5000, "is not valid TOML: .*digits"),
        ("test_share = 0,2", r"is not valid TOML: .*: write 0\.2 with a point"),
    ],
    ids=["lists", "lists that do not end", "inline tables", "dotted keys", "a long number", "a decimal comma"],
)
def test_what_no_parser_can_hold_is_one_clear_error(file, text, words):
    with pytest.raises(UsageError, match=f"{file.FILE} {words}"):
        file.read(text)


def test_templates_are_plain_toml():
    assert tomllib.loads(LABEL)["protect"]["gradient"]["name"] == "matched"
