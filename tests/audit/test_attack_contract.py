"""What every attack owes: this file finds them by listing the package and names none."""

import inspect
from dataclasses import replace

import pytest
import torch

from tacit.audit import attacks
from tacit.audit.metrics.leak_auc import leak_auc
from tacit.audit.run import grant
from tacit.contracts import Guess, Known, View
from tacit.errors import TensorError, UsageError

every = pytest.mark.parametrize("name", attacks.names())
pytestmark = pytest.mark.usefixtures("quick_network")


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def small(scene, **changes):
    return scene(**{"steps": 4, "batch": 64, "width": 12, "examples": 128, **changes})


def guessed(name, view, known):
    return attacks.attack(name)(view, known, generator())


def assert_whole(guess: Guess, view: View):
    assert guess.score.shape == guess.rows.shape
    assert guess.score.is_floating_point()
    assert torch.isfinite(guess.score).all()
    assert set(guess.rows.flatten().tolist()) <= set(view.rows.flatten().tolist())
    assert not guess.score.requires_grad
    for mask in [guess.counted] if guess.counted is not None else []:
        assert mask.dtype == torch.bool
        assert mask.shape == guess.score.shape
        assert mask.any()
    if guess.baseline is not None:
        assert guess.baseline.shape == guess.score.shape
        assert torch.isfinite(guess.baseline).all()


def test_there_are_attacks():
    papers = {"norm", "cosine", "majority", "hint", "top_share", "spectral"}
    ours = {"residual", "likelihood", "learned", "contextual", "accumulated"}
    others = {"clustering", "direct_label", "model_completion", "surrogate_top"}
    assert papers | ours | others <= set(attacks.names())
    assert attacks.names() == sorted(attacks.names())


@every
def test_its_docstring_tells_what_the_docs_table_shows(name):
    doc = inspect.getdoc(getattr(__import__(f"tacit.audit.attacks.{name}", fromlist=[name]), name))
    first, *rest = doc.splitlines()
    assert first.endswith(".")
    assert len(first) < 110
    for part in ("Knows: ", "Costs: "):
        assert sum(line.startswith(part) for line in rest) == 1, part


@every
def test_it_says_what_it_knows_and_costs(name):
    about, knows, costs = attacks.describe(name)
    assert about.startswith(("Scores ", "Calls "))
    for said in (knows, costs):
        assert said.endswith(".")
        assert "\n" not in said
        assert "  " not in said
        assert not said.startswith(("Knows", "Costs"))
    assert attacks.describe(attacks.attack(name).name) == (about, knows, costs)


def test_descriptions_are_whole_and_known_by_name():
    assert attacks.describe("model_completion").knows.endswith("as the baseline where it is granted.")
    assert attacks.describe("accumulated(norm, sum)").about.startswith("Scores an example by another attack")
    assert attacks.describe("linear_decoder").costs
    with pytest.raises(UsageError, match="no attack 'nothing'"):
        attacks.describe("nothing(of=it)")


@every
def test_its_name_is_its_files(name):
    assert attacks.attack(name).name.split("(")[0] == name


@every
def test_a_whole_answer_from_the_noise_alone(name, scene):
    s = small(scene)
    before = {kind: x.clone() for kind, x in s.view.crossed.items()}, s.view.rows.clone(), s.known.labels.clone()
    state = torch.random.get_rng_state()
    guess = guessed(name, s.view, s.known)
    again = guessed(name, s.view, s.known)
    assert_whole(guess, s.view)
    assert torch.equal(guess.score, again.score)
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator was touched"
    assert all(torch.equal(s.view.crossed[kind], x) for kind, x in before[0].items())
    assert torch.equal(s.view.rows, before[1])
    assert torch.equal(s.known.labels, before[2])


@every
def test_hidden_labels_do_not_reach_it(name, scene):
    s = small(scene)
    hidden = s.known.labels < 0
    other = torch.where(hidden, 1 - s.truth, s.truth)
    assert not torch.equal(other, s.truth)
    granted = grant(s.view, other, noise=generator(1))  # the scene's own draw, seed 0 + 1
    assert torch.equal(granted.labels, s.known.labels)
    given = replace(s.known, labels=granted.labels)
    one, two = (guessed(name, s.view, k) for k in (s.known, given))
    assert torch.equal(one.score, two.score)


@every
def test_it_attacks_gradients_of_any_width(name, scene):
    s = small(scene)
    clean = s.view.gradient @ torch.randn(s.view.gradient.shape[-1], 12, generator=generator(9))
    known = grant(s.view, s.truth, clean, noise=generator(1))
    here = View.of(clean, rows=s.view.rows, embedding=s.view.embedding)
    guess = guessed(name, here, known)
    assert_whole(guess, s.view)
    other = View.of(torch.randn(clean.shape, generator=generator()), rows=s.view.rows, embedding=s.view.embedding)
    differs = not torch.equal(guessed(name, other, known).score, guess.score)
    assert differs or name in ("clustering", "model_completion", "spectral")  # which read the embeddings alone


@every
@pytest.mark.parametrize("shape", [(48, 3, 5, 5), (40, 1), (512, 7)])
def test_cuts_of_any_shape_and_width(name, shape, noise):
    label = (torch.arange(3 * shape[0]) % 4 == 0).long()
    gradient = torch.randn(3, *shape, generator=noise)
    embedding = torch.randn(3, shape[0], 2, 3, generator=noise)
    view = View.of(gradient.to(torch.bfloat16), embedding=embedding)
    known = grant(view, label, gradient, noise=generator())
    assert_whole(guessed(name, view, known), view)


@every
def test_gradients_of_all_zeros_and_of_tiny_ones_give_finite_scores(name, scene):
    s = small(scene)
    zero = View.of(torch.zeros_like(s.view.gradient), rows=s.view.rows, embedding=s.view.embedding)
    assert_whole(guessed(name, zero, s.known), zero)
    scale = 1e-25
    tiny = View.of(scale * s.view.gradient, rows=s.view.rows, embedding=s.view.embedding)
    known = replace(s.known, positive_gradient=scale * s.known.positive_gradient)
    guess = guessed(name, tiny, known)
    assert_whole(guess, tiny)
    plain = guessed(name, s.view, s.known)
    assert abs(leak_auc(guess, s.truth).value - leak_auc(plain, s.truth).value) < 0.02


@every
def test_what_is_not_finite_is_refused(name, scene):
    s = small(scene)
    broken = s.view.gradient.clone()
    broken[1, 2, 3] = torch.nan
    sent = s.view.embedding.clone()
    sent[1, 2, 3] = torch.inf
    with pytest.raises(TensorError, match="not finite"):
        guessed(name, View.of(broken, rows=s.view.rows, embedding=sent), s.known)


@every
def test_no_leak_is_no_finding(name, scene, far_from_chance):
    """Four standard errors: a false alarm has probability 6e-5 for each attack, and the seed is fixed."""
    s = scene(11, 8, 256, 16, leak=False)
    assert far_from_chance(guessed(name, s.view, s.known), s.truth) < 4


@every
def test_nothing_granted_is_a_clear_refusal_or_no_obstacle(name, scene):
    s = small(scene)
    bare = View.of(s.view.gradient, rows=s.view.rows)
    try:
        assert_whole(guessed(name, bare, Known()), bare)
        return
    except UsageError as error:
        refusal = str(error)
    assert name in refusal
    assert any(word in refusal for word in ("grant", "record", "leave"))


@every
def test_it_needs_what_its_facts_say_and_nothing_else(name, scene):
    s = small(scene)
    lacking = {
        "labels": (s.view, replace(s.known, labels=None)),
        "share": (s.view, replace(s.known, share=None)),
        "clean": (s.view, replace(s.known, positive_gradient=None)),
        "embedding": (View.of(s.view.gradient, rows=s.view.rows), s.known),
    }
    for need, (view, known) in lacking.items():
        if need in attacks.facts(name).needs:
            with pytest.raises(UsageError):
                guessed(name, view, known)
        else:
            assert_whole(guessed(name, view, known), view)


@every
def test_its_facts_name_options_that_it_takes(name):
    facts = attacks.facts(name)
    for options in (*facts.variants, facts.on_gradients):
        assert attacks.attack(name, **options).name.startswith(name)
    for how in facts.joined:
        inner = attacks.attack(name, **facts.on_gradients)
        assert name in attacks.attack("accumulated", attack=inner, how=how).name


@pytest.mark.parametrize("name", attacks.chosen(lambda known: known.sweep in ("every batch", "some batches")))
def test_what_sweeps_try_on_single_batches_needs_no_other_batch_and_draws_nothing(name, scene):
    """To it, the steps of a view are replicas: none may depend on another."""
    s = small(scene)
    noise = generator()
    whole = attacks.attack(name)(s.view, s.known, noise)
    assert torch.equal(noise.get_state(), generator().get_state())
    alone = View.of(s.view.gradient[1:2], rows=s.view.rows[1:2], embedding=s.view.embedding[1:2])
    known = replace(s.known, positive_gradient=s.known.positive_gradient[1:2])
    assert torch.allclose(attacks.attack(name)(alone, known, noise).score, whole.score[1:2], atol=1e-6)


@every
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_on_cuda(name, scene):
    s = small(scene)
    cuda = View.of(s.view.gradient.cuda(), rows=s.view.rows.cuda(), embedding=s.view.embedding.cuda())
    known = Known(s.known.labels.cuda(), s.known.positive_gradient.cuda(), s.known.share)
    here = leak_auc(guessed(name, s.view, s.known), s.truth)
    guess = guessed(name, cuda, known)
    assert guess.score.is_cuda
    assert abs(leak_auc(guess, s.truth).value - here.value) < 0.02


def test_an_unknown_name_lists_the_known_ones():
    for name in ("nothing", "_common", "attack", "norm.norm"):
        with pytest.raises(UsageError, match="accumulated, clustering, contextual, cosine"):
            attacks.attack(name)


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"options are: k, similarity$"):
        attacks.attack("hint", hints=3)
    with pytest.raises(UsageError, match="options are: none"):
        attacks.attack("norm", p=1)


@pytest.mark.parametrize(
    ("name", "option", "value", "says"),
    [
        *(("hint", "k", value, "whole number, 1 or more") for value in (0, 2.5, "2", True)),
        *(("residual", "directions", value, "whole number, 1 or more") for value in (1.5, "1")),
        ("likelihood", "components", 2.5, "whole number, 1 or more"),
        ("accumulated", "attack", 3, "3 is no attack: pass a name"),
        ("clustering", "components", 0, "whole number, 1 or more"),
        ("clustering", "of", "labels", "'embedding' or 'gradient'"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_at_once(name, option, value, says):
    with pytest.raises(UsageError, match=says):
        attacks.attack(name, **{option: value})
