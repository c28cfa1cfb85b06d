"""Each scene gives something away in a way that a mean over columns does not show; the audit must name it."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tacit.align.encoder import Columns, Inputs
from tacit.errors import TensorError, UsageError
from tacit.exchange import release
from tacit.exchange.questions import LEAST
from tacit.exchange.release import attack_release

ROWS, TRAIN = 12_000, 9_000
COLUMNS = Columns(("town", "kind"), ("a", "b", "c"))


def rows(seed=0, count=ROWS):
    """Independent columns: towns from common to rare, four kinds, three normal numbers."""
    rng = np.random.default_rng(seed)
    share = 0.8 ** np.arange(20)
    town = rng.choice(20, size=count, p=share / share.sum())
    codes = np.stack([town, rng.integers(4, size=count)], axis=1)
    numbers = rng.standard_normal((count, 3)).astype(np.float32)
    return Inputs(torch.from_numpy(codes), torch.from_numpy(numbers), (20, 4))


def ranks(z, levels=256):
    z = z.reshape(len(z), -1)
    cuts = [np.quantile(column, np.arange(1, levels) / levels) for column in z.T]
    return np.stack([np.searchsorted(c, x, side="right") for c, x in zip(cuts, z.T, strict=True)], 1).astype(np.uint8)


def noise(seed, count=ROWS):
    return np.random.default_rng(seed).standard_normal(count)


def flat(inputs):
    parts = [np.eye(size)[inputs.categorical[:, place]] for place, size in enumerate(inputs.cardinalities)]
    return np.concatenate([*parts, inputs.numeric.numpy()], axis=1)


def audit(codes, inputs=None, **options):
    options = {"others": False, "train": TRAIN} | options
    return attack_release(codes, rows() if inputs is None else inputs, COLUMNS, **options)


@cache
def blind():
    """The audit of an embedding that tells nothing."""
    return audit(ranks(noise(1)))


def of(found, column, question, kind="all", given=False):
    asked = (column, question, kind, given)
    return next(one for one in found.findings if (one.column, one.question, one.rows, one.given) == asked)


def test_an_embedding_that_tells_nothing_passes():
    """Nothing is surely read, and the worst upper end stays within the slack: false-alarm rate 5%, here none."""
    found = blind()
    assert found.worst < found.slack < 0.35
    assert found.sure < 0.01
    assert found.equal is None
    assert found.holds(0.35)
    assert not found.holds(0.05)  # nor can so few rows show that nothing is read


def test_a_column_in_plain_sight_is_read_in_full():
    inputs = rows()
    found = audit(ranks(inputs.numeric[:, 1].numpy()), inputs)
    assert of(found, "b", "variance").read.value > 0.98
    assert of(found, "b", "variance", "test").read.low > 0.95
    assert of(found, "b", "highest").read.low > 0.98
    assert of(found, "b", "lowest", "train").read.low > 0.98
    assert of(found, "a", "variance").read.high < 0.05
    assert found.columns()["b"].read.high > 0.98
    assert found.worst > 0.98
    assert found.sure > 0.95


def hijacked(inputs, town, tenth=0.1):
    """A score learnt from what a label party sent as flips: fair coins, but a town for the rows where it knows it."""
    rng = np.random.default_rng(3)
    sent = rng.random(ROWS) < 0.5
    marked = rng.random(ROWS) < tenth
    sent[marked] = inputs.categorical[marked, 0].numpy() == town
    x = flat(inputs)
    x = x - x[:TRAIN].mean(0)
    weight = np.linalg.solve(x[:TRAIN].T @ x[:TRAIN] + 100 * np.eye(x.shape[1]), x[:TRAIN].T @ sent[:TRAIN])
    return x @ weight


def test_a_hijack_by_labels_is_seen_though_means_look_harmless():
    inputs = rows()
    found = audit(ranks(hijacked(inputs, town=5)), inputs)
    assert found.numbers < 0.2
    assert found.codes < 0.5
    assert of(found, "town", "category 5").read.low > 0.9
    assert found.worst > 0.9
    assert not found.holds(0.5)
    assert found.findings[0].column == "town"


def repeated(times=4):
    """A table in which every row comes several times, in random order."""
    distinct = rows(5, ROWS // times)
    order = torch.from_numpy(np.random.default_rng(6).permutation(ROWS) % (ROWS // times))
    return distinct[order], order.numpy()


def test_exact_floats_are_fingerprints_and_few_ranks_are_not():
    inputs, of_row = repeated()
    score = noise(7, ROWS)[of_row][:, None]  # a number of its own for each different row, in no order
    found = audit(score, inputs)
    assert found.matched > 0.7
    assert found.fingerprints > 0.7
    assert found.equal == 1.0
    assert of(found, "a", "variance", "matched").read.low > 0.9
    assert of(found, "town", "codes", "matched").decoder in ("exact", "nearest")
    assert of(found, "town", "category 2", "matched").read.low > 0.9
    coarse = audit(ranks(score, 16), inputs)
    assert coarse.fingerprints == 0.0
    assert of(coarse, "a", "variance").read.high < 0.1
    many = max(finding.read.high for finding in coarse.findings if finding.members >= LEAST)
    assert many < 0.6 < 0.9 < found.worst, "of a rare town's few rows, each there four times, more may be read"


def test_fingerprints_of_few_rows_count_on_their_own():
    """A tenth of the rows is given away outright: every mean over all rows is small, that over them is not."""
    inputs, of_row = repeated()
    score = np.where(of_row < ROWS // 4 // 10, noise(7)[of_row], np.round(noise(8), 1))[:, None]
    found = audit(score, inputs)
    assert 0.05 < found.fingerprints < 0.15
    assert of(found, "a", "variance").read.high < 0.2
    assert of(found, "a", "variance", "matched").read.low > 0.4
    assert found.worst > 0.8


def test_a_rare_category_counts_once_it_is_surely_read():
    inputs = rows()
    rare = 15  # of 0.7% of the rows
    member = inputs.categorical[:, 0].numpy() == rare
    assert 60 < member.sum() < 120
    found = audit(ranks(noise(1) + 100 * member, 256), inputs)
    finding = of(found, "town", f"category {rare}")
    assert finding.members < 200
    assert finding.read.value > 0.7  # of about fifty rows
    assert finding.counted, "few rows are enough to be sure that something is read, not of how much"
    assert found.sure > 0.4
    assert found.worst >= finding.read.high
    assert not found.holds(0.4)
    assert not of(blind(), "town", f"category {rare}").counted


def test_a_rare_category_is_judged_by_all_of_its_unknown_rows():
    """Not only by those among the rows that are judged for all other questions."""
    inputs = rows()
    rare = 15
    member = inputs.categorical[:, 0].numpy() == rare
    codes = ranks(noise(1) + 100 * member)
    few = audit(codes, inputs, judged_rows=1000, known_rows=2000)
    assert few.judged["all"] == 1000
    finding = of(few, "town", f"category {rare}")
    assert finding.members > 30 > 1000 * member.mean()
    assert finding.read.value > 0.7  # of about fifty rows
    assert few.worst >= finding.read.high
    assert of(few, "kind", "category 2").members < 300, "all others are judged as before"


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_mark_on_some_of_many_rare_codes_is_seen(share):
    """None of 2,400 post codes has rows enough to be asked for by itself; a planted mark tells a set of them."""
    rng = np.random.default_rng(3)
    made = rows()
    post = rng.permutation(np.arange(ROWS) % 2400)
    inputs = Inputs(torch.from_numpy(np.stack([post, made.categorical[:, 1]], 1)), made.numeric, (2400, 4))
    marked = rng.random(2400) < share
    found = audit(ranks(noise(1) + 100 * marked[post]), inputs)
    finding = of(found, "town", "codes told apart")
    assert finding.counted
    assert finding.read.value > 0.75  # not 1: of some codes no row is known
    assert not found.holds(0.75)
    assert of(audit(ranks(noise(1)), inputs), "town", "codes told apart").read.value < 0.15  # of the best of seven sets


def test_outlying_rows_are_judged_apart():
    inputs = rows()
    numbers = inputs.numeric.clone()
    numbers[:, 0] = numbers[:, 0] ** 3  # tails so heavy that no other column makes a row outlying
    inputs = replace(inputs, numeric=numbers)
    far = numbers[:, 0].abs().numpy() > 10
    assert 0.02 < far.mean() < 0.06
    code = np.where(far, 240 + ranks(numbers[:, 1].numpy(), 16)[:, 0], ranks(noise(1), 240)[:, 0]).astype(np.uint8)
    found = audit(code[:, None], inputs)
    assert of(found, "b", "variance").read.high < 0.08
    assert of(found, "b", "variance", "outlying").read.low > 0.15


def test_what_other_columns_open_is_seen():
    """A sum in which one number drowns the other, until that one is known."""
    inputs = rows()
    a, b = inputs.numeric[:, :2].numpy().T
    found = audit(ranks(a + 4 * b), inputs, others=True)
    assert of(found, "a", "variance").read.high < 0.15
    assert of(found, "a", "highest", given=True).read.low > 0.5
    assert of(found, "c", "variance", given=True).read.high < 0.05


def test_what_only_two_columns_together_open_is_seen():
    """The sum of two codes modulo four says nothing about either of them, and everything with the other one known."""
    inputs = rows()
    code = (inputs.categorical[:, 1].numpy() + ranks(inputs.numeric[:, 1].numpy(), 4)[:, 0]) % 4 * 60
    found = audit(code.astype(np.uint8)[:, None], inputs, others=True)
    assert of(found, "kind", "category 2").read.high < 0.15
    assert of(found, "kind", "category 2", given=True).read.low > 0.5


def test_many_numbers_tell_no_less_than_the_first_of_them():
    """Two numbers whose sum is a column, before 62 that tell nothing and in which decoders that learn get lost."""
    inputs = rows()
    first = ranks(np.stack([noise(1), inputs.numeric[:, 0].numpy() - noise(1)], axis=1))
    rest = ranks(np.stack([noise(seed) for seed in range(2, 64)], axis=1))
    few = {"known_rows": 2000, "judged_rows": 2000}
    wide = of(audit(np.concatenate([first, rest], axis=1), inputs, **few), "a", "variance")
    narrow = of(audit(np.concatenate([first, rest[:, :6]], axis=1), inputs, **few), "a", "variance")
    assert wide.decoder.endswith("of the first 8")
    assert wide.read.value > 0.4
    assert wide.read.value == pytest.approx(narrow.read.value, abs=0.02)


def test_where_few_different_embeddings_are_known_well_nothing_is_learnt(monkeypatch):
    inputs = rows()
    codes = ranks(inputs.numeric[:, 1].numpy() + noise(1), 16)
    looked_up = audit(codes, inputs)
    monkeypatch.setattr(release, "PLENTY", 10**6)
    learnt = audit(codes, inputs)
    assert {finding.decoder for finding in looked_up.findings} <= {"exact", "nearest", "together"}
    assert "the 16 different embeddings" in looked_up.notes[0]
    assert looked_up.worst == pytest.approx(learnt.worst, abs=0.05)
    assert looked_up.numbers == pytest.approx(learnt.numbers, abs=0.02)


def test_fresh_noise_on_equal_rows_is_noticed():
    assert audit(ranks(noise(1)), repeated()[0]).equal < 0.05


def test_equal_rows_are_found_whatever_part_they_are_in(monkeypatch):
    inputs, drawn = repeated()[0], np.random.default_rng(0).permutation(ROWS)
    codes = np.where(noise(2) < 0, ranks(noise(1))[:, 0], 0).astype(np.uint8)[:, None]
    whole = release._equal(codes, inputs, drawn)
    assert 0.1 < whole < 0.9
    monkeypatch.setattr(release, "_ALIKE", 100)
    assert release._equal(codes, inputs, drawn) == whole


def test_what_left_before_is_attacked_together_with_what_is_about_to_leave():
    """A number under noise tells little of it, the noise nothing, and both of them everything."""
    inputs = rows()
    number = inputs.numeric[:, 0].numpy()
    before, now = ranks(number + 3 * noise(1)), ranks(noise(1))
    found = audit(now, inputs, before=before)
    assert of(found, "a", "variance").read.low > 0.5
    assert of(blind(), "a", "variance").read.high < 0.1
    assert found.worst > blind().worst + 0.2
    assert "together with 1 numbers a row that left before" in found.notes[0]
    assert f"by itself: {blind().worst:.3f}" in found.notes[0]


def test_the_result_is_the_same_again_and_json_holds_it():
    told = []
    one = audit(ranks(noise(1)), progress=lambda *step: told.append(step))
    assert one == blind()
    assert json.loads(json.dumps(one.as_dict()))["worst"] == one.worst
    assert told[0] == ("decoders", 0, 4)
    assert told[-1][1] == told[-1][2]
    assert one.known == {"learnt": 4800, "looked up": 4800, "checked": 1200}
    assert one.judged["all"] == 6000
    assert any("fewer than 200" in note for note in one.notes)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"codes": np.zeros((5, 1), np.uint8)}, TensorError, "for 12000 rows"),
        ({"codes": np.full((ROWS, 1), np.nan)}, TensorError, "not finite"),
        ({"train": ROWS + 1}, UsageError, "train ="),
        ({"known": 1.0}, UsageError, "known = 1.0"),
        ({"known": 0.001}, UsageError, "too few to audit"),
    ],
)
def test_what_can_not_be_audited_is_refused(change, error, match):
    options = {"codes": np.zeros((ROWS, 1), np.uint8), "train": TRAIN} | change
    with pytest.raises(error, match=match):
        attack_release(options.pop("codes"), rows(), COLUMNS, **options)


def test_rows_that_never_vary_are_refused():
    same = Inputs(torch.zeros(1000, 1, dtype=torch.int64), torch.zeros(1000, 1), (2,))
    with pytest.raises(UsageError, match="nothing to hide"):
        attack_release(np.zeros((1000, 1), np.uint8), same, Columns(("a",), ("b",)), train=800)


def test_many_codes_of_a_column_do_not_hide_what_others_open():
    """As in the sum of two codes above, with a column of more codes than the network tells apart."""
    inputs = rows()
    many = np.random.default_rng(4).integers(3000, size=ROWS)
    many[many > 1500] = 7  # one that many rows have
    codes = torch.cat([inputs.categorical[:, 1:], torch.from_numpy(many)[:, None]], dim=1)
    inputs = replace(inputs, categorical=codes, cardinalities=(4, 3000))
    code = (codes[:, 0].numpy() + ranks(inputs.numeric[:, 1].numpy(), 4)[:, 0]) % 4 * 60
    columns = Columns(("kind", "many"), ("a", "b", "c"))
    found = attack_release(code.astype(np.uint8)[:, None], inputs, columns, train=TRAIN)
    assert of(found, "kind", "category 2", given=True).read.low > 0.5
