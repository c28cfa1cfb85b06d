"""The attribute attack against a reference, where something is to be told and where nothing is."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from tacit.audit.input_attacks.attribute import attribute
from tacit.audit.inputs import attack_inputs, grant_inputs
from tacit.audit.metrics.attribute_auc import attribute_auc
from tacit.contracts import KnownInputs, Reconstruction, View
from tacit.errors import UsageError


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def apart(rows, codes, gap, seed, width=16):
    g = generator(seed)
    code = torch.randint(codes, (rows,), generator=g)
    z = torch.randn(rows, width, generator=g) + gap * torch.randn(codes, width, generator=g)[code]
    return z, code


def found(z, code, attack, seed=1):
    inputs = torch.zeros(len(z), 1)
    (one,) = attack_inputs(View.of_embeddings(z[None]), inputs, [attack], noise=generator(seed), attribute=code)
    assert one.relative is None
    return one.auc


@pytest.mark.parametrize("codes", [2, 6])
def test_it_tells_codes_apart_as_well_as_a_reference(codes):
    z, code = apart(1200, codes, 0.4, seed=codes)
    ours = found(z, code, attribute(updates=300))
    hidden = grant_inputs(torch.zeros(1200, 1), attribute=code, noise=generator()).attribute < 0
    fitted = LogisticRegression(max_iter=1000).fit(z[~hidden].numpy(), code[~hidden].numpy())
    score = torch.tensor(fitted.predict_log_proba(z.numpy()))
    reference = attribute_auc(Reconstruction(torch.arange(1200), score, hidden), code)
    assert reference.value > 0.75
    assert ours.value > reference.value - 0.04


def test_it_finds_what_no_line_finds():
    z, _ = apart(3000, 2, 0.0, seed=1, width=6)
    code = (z[:, 0] * z[:, 1] > 0).long()
    assert found(z, code, attribute()).value > 0.9


def test_where_nothing_is_to_be_told_nothing_is_told():
    """A false alarm is an interval all above one half, at 2.5%: more than 2 in 10 about once in 500 times."""
    alarms = 0
    for seed in range(10):
        z, code = apart(300, 3, 1.0, seed=seed)
        shuffled = code[torch.randperm(300, generator=generator(seed))]
        alarms += found(z, shuffled, attribute(updates=60), seed).low > 0.5
    assert alarms <= 2


def test_more_codes_told_are_more_codes_guessed():
    z, code = apart(1500, 4, 0.25, seed=3)
    few, many = (found(z, code, attribute(share=share, updates=200)).value for share in (0.02, 0.5))
    assert many > few + 0.03


def test_a_code_that_was_never_granted_is_not_known_to_exist():
    z, code = apart(300, 3, 1.0, seed=4)
    known = torch.where((torch.arange(300) < 150) & (code < 2), code, -1)
    guess = attribute(updates=20)(View.of_embeddings(z[None]), KnownInputs(attribute=known), generator())
    assert guess.value.shape == (300, 2)
    assert torch.equal(guess.counted, known < 0)
    torch.testing.assert_close(guess.value[:, 0], -guess.value[:, 1])
    with pytest.raises(UsageError, match="rows of one code alone"):
        attribute()(View.of_embeddings(z[None]), KnownInputs(attribute=known.clamp_max(0)), generator())


def test_two_known_rows_are_enough_to_answer():
    z, code = apart(50, 2, 1.0, seed=5)
    known = torch.full_like(code, -1)
    for value in (0, 1):
        one = int((code == value).nonzero()[0])
        known[one] = value
    guess = attribute(updates=10)(View.of_embeddings(z[None]), KnownInputs(attribute=known), generator())
    assert torch.isfinite(guess.value).all()
