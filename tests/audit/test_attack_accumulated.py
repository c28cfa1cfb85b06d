import pytest
import torch

from tacit.audit import attacks, views
from tacit.audit.attacks.accumulated import accumulated
from tacit.audit.attacks.norm import norm
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.contracts import Guess, Known, View
from tacit.errors import UsageError


def visited(seed=3, ids=60, steps=6, batch=20, width=5):
    """A view in which some ids come often, some once (16 of 60; none: 1e-8 of all draws), some never; all are large."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.stack([torch.randperm(ids, generator=g)[:batch] for _ in range(steps)]) + 100_000
    return View.of(torch.randn(steps, batch, width, generator=g), rows=rows)


class Remember:
    """An attack that keeps what it was shown."""

    name = "remember"

    def __call__(self, view, known, noise):
        self.view, self.known = view, known
        return Guess(view.rows, view.gradient[..., 0], counted=view.gradient[..., 1] > -1)


def test_the_mean_is_the_mean(noise):
    view, spy = visited(), Remember()
    guess = accumulated(spy)(view, Known(), noise)
    scaled = views.scaled(view.gradient)
    ids = sorted(set(view.rows.flatten().tolist()))
    assert guess.rows.tolist() == [ids]
    for place, i in enumerate(ids):
        expected = scaled[view.rows == i].mean(0)
        assert torch.allclose(spy.view.gradient[0, place], expected, atol=1e-6)


def test_visits_are_scaled(noise):
    view, spy = visited(), Remember()
    louder = View.of(view.gradient * torch.logspace(0, 3, 6)[:, None, None], rows=view.rows)
    known = Known(positive_gradient=torch.logspace(0, 3, 6)[:, None] * torch.ones(6, 5))
    shown = []
    for seen in (view, louder):
        accumulated(spy)(seen, known, noise)
        shown.append(spy.view.gradient)
    assert torch.allclose(*shown, atol=1e-5)
    assert spy.known.positive_gradient.shape == (1, 5)
    assert spy.known.positive_gradient.tolist()[0] == pytest.approx([1.0] * 5, rel=0.1)


def test_embeddings_are_averaged_too(scene, noise):
    s, spy = scene(4, steps=4, batch=32, examples=64), Remember()
    accumulated(spy)(s.view, s.known, noise)
    i = s.view.rows[0, 0]
    place = (spy.view.rows[0] == i).nonzero()[0, 0]
    assert torch.allclose(spy.view.embedding[0, place], s.view.embedding[s.view.rows == i].mean(0), atol=1e-5)


def test_the_sum_adds_standardized_scores_of_the_visits_that_count(noise):
    view = visited()
    guess = accumulated(Remember(), "sum")(view, Known(), noise)
    score, counted = view.gradient[..., 0].double(), view.gradient[..., 1] > -1
    for place, i in enumerate(guess.rows[0]):
        total, seen = 0.0, False
        for step in range(6):
            c = counted[step]
            for row in ((view.rows[step] == i) & c).nonzero()[:, 0]:
                total += ((score[step, row] - score[step, c].mean()) / score[step, c].std(correction=0)).item()
                seen = True
        assert guess.score[0, place].item() == pytest.approx(total, abs=1e-9)
        assert guess.counted[0, place].item() == seen
    assert 0 < guess.counted.sum() <= guess.counted.numel()


def test_the_spread_is_the_visits_around_their_mean(noise):
    view, spy = visited(), Remember()
    guess = accumulated(spy, "spread")(view, Known(), noise)
    scaled, single = views.scaled(view.gradient), 0
    for place, i in enumerate(guess.rows[0]):
        mine = scaled[view.rows == i]
        count = len(mine)
        shown = spy.view.gradient[view.rows == i]
        if count == 1:
            single += 1
            assert not shown.any()
            assert not guess.counted[0, place]
        else:
            assert torch.allclose(shown, (mine - mine.mean(0)) * (count / (count - 1)) ** 0.5, atol=1e-5)
    assert single > 0


def test_nothing_to_spread_is_refused(noise):
    with pytest.raises(UsageError, match="came twice"):
        accumulated(norm(), "spread")(View.of(torch.randn(2, 5, 3, generator=noise)), Known(), noise)


def iso(label, normal):
    return 1.5 * normal(*label.shape, 24)


def test_averaging_and_adding_take_noise_away(scene, noise):
    s = scene(5, steps=32, batch=256, examples=512, noise=iso)  # every example comes 16 times
    once = leak_auc(attacks.attack("cosine")(s.view, s.known, noise), s.truth).value
    assert once < 0.75
    for how in ("mean", "sum"):
        estimate = leak_auc(accumulated("cosine", how)(s.view, s.known, noise), s.truth)
        assert estimate.low > once + 0.1, how


def test_no_leak_stays_none_however_often_it_is_seen(scene, noise, far_from_chance):
    """Three looks at four standard errors: a false alarm has probability 2e-4, at a fixed seed."""
    s = scene(6, steps=16, batch=256, examples=512, leak=False, noise=iso)
    for how in ("mean", "sum", "spread"):
        assert far_from_chance(accumulated("norm", how)(s.view, s.known, noise), s.truth) < 4, how


def test_bare_noise_of_two_kinds_is_seen_around_the_mean(scene, noise):
    """Noise that makes up the difference in length at every visit: one look is blind, differences are not."""

    def other_noise(label, normal):
        return torch.where(label == 1, 0.5, 1.0)[..., None] * normal(*label.shape, 24)

    s = scene(7, steps=16, batch=256, examples=512, noise=other_noise)
    assert leak_auc(accumulated("norm", "spread")(s.view, s.known, noise), s.truth).value > 0.99


def test_baselines_are_accumulated(scene, noise, quick_network):
    s = scene(8, steps=4, batch=64, examples=128)
    for how in ("mean", "sum"):
        guess = accumulated(attacks.attack("contextual", fit="network"), how)(s.view, s.known, noise)
        assert guess.baseline.shape == guess.score.shape == (1, 128)


def test_names_and_refusals():
    assert accumulated("norm").name == "accumulated(norm)"
    assert accumulated(norm(), "sum").name == "accumulated(norm, sum)"
    assert accumulated(attacks.attack("hint", k=3)).name == "accumulated(hint(k=3))"
    with pytest.raises(UsageError, match="'mean', 'precise', 'sum' or 'spread'"):
        accumulated("norm", "median")
    with pytest.raises(UsageError, match="no attack 'nothing'"):
        accumulated("nothing")


def test_precise_visits_are_not_drowned_by_louder_ones():
    """Of 13 visits all but the first carry thirty times the noise: their mean tells little, the quiet one tells all."""
    noise = torch.Generator().manual_seed(3)
    truth = (torch.arange(400) % 4 == 0).long()
    clean = torch.randn(400, 8, generator=noise) * 0.1 + truth[:, None].float()
    sizes = torch.tensor([0.5] + 12 * [15.0])[:, None, None]
    view = View.of(clean + sizes * torch.randn(13, 400, 8, generator=noise), rows=torch.arange(400).expand(13, -1))
    known = Known(positive_gradient=clean[:1].expand(13, -1))
    quiet = View.of(view.gradient[:1], rows=view.rows[:1])
    alone, plain, precise = (
        leak_auc(accumulated("cosine", how=how)(seen, known, noise), truth).value
        for seen, how in ((quiet, "mean"), (view, "mean"), (view, "precise"))
    )
    assert precise == pytest.approx(alone, abs=0.03)
    assert precise > plain + 0.04
