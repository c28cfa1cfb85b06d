"""What every attack on inputs owes: this file finds them by listing the package and names only their quick options."""

import inspect

import pytest
import torch

from tacit.audit import attacks, input_attacks
from tacit.audit.inputs import grant_inputs
from tacit.contracts import Known, KnownInputs, Reconstruction, View
from tacit.errors import LabelsError, TensorError, UsageError

INPUTS, WIDTH = 6, 10
QUICK = {
    "attribute": {"updates": 20},
    "decoder": {"updates": 20, "hidden": (16,)},
}
every = pytest.mark.parametrize("name", input_attacks.names())


def generator(seed=5):
    return torch.Generator().manual_seed(seed)


def quick(name):
    return input_attacks.attack(name, **QUICK.get(name, {}))


def made(seed=0, steps=4, batch=40, examples=None):
    """Embeddings of a linear bottom with a ReLU, inputs and codes; with `examples` ids come several times."""
    g = generator(seed)
    total = examples or steps * batch
    x = torch.randn(total, INPUTS, generator=g)
    rows = torch.cat([torch.randperm(total, generator=g) for _ in range(-(-steps * batch // total))])
    rows = rows[: steps * batch].reshape(steps, batch)
    z = (x @ torch.randn(INPUTS, WIDTH, generator=g)).relu()[rows]
    z = z + 0.01 * torch.randn(z.shape, generator=g)
    return View.of_embeddings(z, rows=rows), x, (x[:, 0] > 0).long()


def granted(x, codes, seed=1):
    return grant_inputs(x, attribute=codes, noise=generator(seed))


def assert_whole(guess: Reconstruction, view: View, attack):
    assert torch.equal(guess.rows, view.rows.flatten())
    shape = (2,) if getattr(attack, "guesses", "inputs") == "attribute" else (INPUTS,)
    assert guess.value.shape == (view.rows.numel(), *shape)
    assert guess.value.is_floating_point()
    assert torch.isfinite(guess.value).all()
    assert not guess.value.requires_grad
    assert guess.counted.dtype == torch.bool
    assert guess.counted.shape == guess.rows.shape


def test_there_are_attacks():
    assert {"attribute", "decoder", "linear_decoder"} <= set(input_attacks.names())
    assert not set(input_attacks.names()) & set(attacks.names())
    assert attacks.attack("linear_decoder", share=0.1).name == "linear_decoder(share=0.1)"


@every
def test_its_docstring_tells_what_the_docs_table_shows(name):
    doc = inspect.getdoc(getattr(__import__(f"tacit.audit.input_attacks.{name}", fromlist=[name]), name))
    first, *rest = doc.splitlines()
    assert first.endswith(".")
    assert len(first) < 115
    for part in ("Knows: ", "Costs: "):
        assert sum(line.startswith(part) for line in rest) == 1, part


@every
def test_its_name_is_its_files(name):
    assert quick(name).name.split("(")[0] == name


@every
def test_a_whole_answer_from_the_noise_alone(name):
    view, x, codes = made(examples=80)
    known = granted(x, codes)
    before = view.embedding.clone(), known.inputs.clone(), known.attribute.clone()
    state = torch.random.get_rng_state()
    guess, again, other = (quick(name)(view, known, generator(seed)) for seed in (5, 5, 6))
    assert_whole(guess, view, quick(name))
    assert torch.equal(guess.value, again.value)
    assert not torch.equal(guess.value, other.value)
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator was touched"
    after = view.embedding, known.inputs, known.attribute
    assert all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(before, after, strict=True))


@every
def test_a_row_is_known_at_all_of_its_visits_and_no_known_one_is_judged(name):
    view, x, codes = made(examples=40)
    known = granted(x, codes)
    guess = quick(name)(view, known, generator())
    assert torch.equal(guess.counted, known.inputs.isnan().any(1)[view.rows.flatten()])
    assert guess.counted.any()


@every
def test_hidden_inputs_do_not_reach_it(name):
    view, x, codes = made()
    known = granted(x, codes)
    hidden = known.inputs.isnan().any(1)
    other = torch.where(hidden[:, None], -3 * x, x)
    given = granted(other, torch.where(hidden, 1 - codes, codes))
    one, two = (quick(name)(view, k, generator()) for k in (known, given))
    assert torch.equal(one.value, two.value)


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_embeddings_of_other_floats_and_shapes(name, dtype):
    view, x, codes = made()
    shaped = View.of_embeddings(view.embedding.to(dtype).reshape(4, 40, 2, 5), rows=view.rows)
    assert_whole(quick(name)(shaped, granted(x.to(dtype), codes), generator()), view, quick(name))


@every
def test_embeddings_that_never_change_or_are_huge_or_tiny(name):
    view, x, codes = made()
    known = granted(x, codes)
    for z in (torch.zeros_like(view.embedding), torch.full_like(view.embedding, 1e6 / 3)):
        still = View.of_embeddings(z, rows=view.rows)
        guess = quick(name)(still, known, generator())
        assert_whole(guess, still, quick(name))
        assert (guess.value - guess.value[0]).abs().max() < 1e-3
    for scale in (1e-20, 1e15):
        assert_whole(
            quick(name)(View.of_embeddings(view.embedding * scale, rows=view.rows), known, generator()),
            view,
            quick(name),
        )


@every
def test_what_is_not_finite_is_refused(name):
    view, x, codes = made()
    broken = view.embedding.clone()
    broken[1, 2, 3] = torch.inf
    with pytest.raises(TensorError, match="not finite"):
        quick(name)(View.of_embeddings(broken, rows=view.rows), granted(x, codes), generator())


@every
def test_nothing_granted_is_a_clear_refusal(name):
    view, _, _ = made()
    with pytest.raises(UsageError, match=rf"{name}.*grant it .*leave it out"):
        quick(name)(view, KnownInputs(), generator())


@every
def test_attacks_on_inputs_are_no_attacks_on_labels(name):
    view, _, codes = made()
    with pytest.raises(UsageError, match=rf"{name}.*guesses inputs, not labels.*attack_inputs"):
        quick(name)(view, Known(labels=codes), generator())
    with pytest.raises(UsageError, match="needs the embeddings"):
        quick(name)(View.of(view.embedding), KnownInputs(), generator())


@every
def test_what_is_granted_must_fit(name):
    view, x, codes = made()
    known = granted(x, codes)
    short = KnownInputs(known.inputs[:100], known.attribute[:100])
    with pytest.raises(UsageError, match="row ids run from 0 to 159, but known"):
        quick(name)(view, short, generator())


@every
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_runs_on_cuda(name):
    view, x, codes = made()
    cuda = View.of_embeddings(view.embedding.cuda(), rows=view.rows.cuda())
    guess = quick(name)(cuda, granted(x, codes), generator())
    assert guess.value.is_cuda
    assert_whole(guess, cuda, quick(name))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        *(("decoder", {"share": share}, "above 0 and at most 1") for share in (0, 1.5, True, "x")),
        ("linear_decoder", {"share": -0.1}, "above 0 and at most 1"),
        ("attribute", {"share": 0.0}, "above 0 and at most 1"),
        ("attribute", {"updates": 0}, "whole number, 1 or more"),
        ("decoder", {"hidden": (8, 0)}, "unit in each hidden layer"),
        ("decoder", {"updates": 2.5}, "whole number, 1 or more"),
        ("nothing", {}, "attribute, decoder, linear_decoder"),
    ],
)
def test_wrong_options_are_refused_at_once(name, options, says):
    with pytest.raises(UsageError, match=says):
        input_attacks.attack(name, **options)


def test_rows_that_are_known_in_part_or_of_the_wrong_kind_are_refused():
    view, x, codes = made()
    known = granted(x, codes)
    part = known.inputs.clone()
    part[3] = x[3]
    part[3, 1] = torch.nan
    with pytest.raises(TensorError, match="NaN in part"):
        quick("linear_decoder")(view, KnownInputs(inputs=part), generator())
    with pytest.raises(TensorError, match="floating point"):
        quick("linear_decoder")(view, KnownInputs(inputs=codes[:, None]), generator())
    with pytest.raises(LabelsError, match="one code for each row id"):
        quick("attribute")(view, KnownInputs(attribute=x), generator())
    one = torch.full_like(known.inputs, torch.nan)
    one[view.rows[0, 0]] = 0.0
    with pytest.raises(UsageError, match="knows 1 of the 160 examples"):
        quick("linear_decoder")(view, KnownInputs(inputs=one), generator())
