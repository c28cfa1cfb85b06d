"""A feature party's protections in the step: what goes out, what is learned, and what survives."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

import tacit
from tacit.contracts import Event, Message, Regularizer
from tacit.errors import ProtocolError, TensorError, UsageError
from tacit.split.feature_party import FeatureParty
from tacit.split.label_party import LabelParty
from tacit.split.models import wide_deep
from tacit.split.protect.embedding.adversarial import adversarial
from tacit.split.protect.embedding.distance_correlation import distance_correlation
from tacit.split.protect.embedding.gaussian import gaussian
from tacit.split.protect.embedding.noise_regularization import noise_regularization
from tacit.split.protect.keyed_noise import KeyedNoise
from tacit.split.simulate import pair, simulate
from tests.plain_network import mlp

ROWS, INPUTS, WIDTH = 64, 5, 3


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Pull:
    """A protection of the tests' own: halves the embedding, and pulls it to zero."""

    name = "pull"
    event = Event("pull")

    def __init__(self, weight=1.0, factor=0.5):
        self.weight, self.factor = weight, factor
        self.seen = []

    def transform(self, z, noise):
        return z * self.factor

    def regularizer(self, x, z, others):
        owner = self

        class Loss(Regularizer):
            def __init__(self):
                super().__init__()
                self.level = nn.Parameter(torch.zeros(()))
                self.optimizer = torch.optim.SGD(self.parameters(), lr=0.5)

            def forward(self, x, z, noise):
                owner.seen.append((x, z))
                return owner.weight * (z.square().mean() + (self.level - 1) ** 2)

        return Loss() if self.weight else None


def party(protect, *, bottom=None, features=None, noise=7, lr=0.1, **more):
    bottom = bottom or mlp(INPUTS, widths=(WIDTH,), generator=torch.Generator().manual_seed(1))[0]
    return FeatureParty(
        bottom=bottom,
        features=normal(ROWS, INPUTS) if features is None else features,
        optimizer=torch.optim.SGD(bottom.parameters(), lr=lr),
        protect=protect,
        noise=torch.Generator().manual_seed(noise) if isinstance(noise, int) else noise,
        **more,
    )


def one_step(feature_party, gradient=None, rows=None):
    left, right = pair()
    rows = torch.arange(8) if rows is None else rows
    sent = feature_party.send(rows, left)
    received = right.recv("embedding", feature_party.steps)
    right.send(Message(0, "gradient", torch.zeros_like(sent) if gradient is None else gradient, received.rows))
    return sent, received.payload, feature_party.finish(left)


def test_what_goes_out_is_what_the_last_protection_left():
    shielded, bare = party([Pull(0.0), gaussian(std=0.3)]), party([])
    sent, crossed, figures = one_step(shielded)
    expected = one_step(bare)[0] / 2 + 0.3 * torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(sent, expected)
    assert torch.equal(sent, crossed)
    assert "penalty" not in figures


def test_the_gradient_comes_back_through_what_was_done_to_the_embedding():
    shielded, bare = party([Pull(0.0, factor=0.25)]), party([])
    gradient = normal(8, WIDTH, seed=3)
    one_step(shielded, gradient), one_step(bare, gradient / 4)
    for mine, theirs in zip(shielded.bottom.parameters(), bare.bottom.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_penalty_is_learned_beside_the_gradient_and_its_own_parameters_with_it():
    pull = Pull(weight=2.0, factor=1.0)
    shielded, reference = party([pull]), party([])
    gradient = normal(8, WIDTH, seed=3)
    _, _, figures = one_step(shielded, gradient)
    z = reference.bottom(reference.features[0][:8])
    loss = 2.0 * (z.square().mean() + 1)
    torch.testing.assert_close(figures["penalty"], loss.detach())
    reference.optimizer.zero_grad()
    torch.autograd.backward([z, loss], [gradient, torch.ones(())])
    reference.optimizer.step()
    for mine, theirs in zip(shielded.bottom.parameters(), reference.bottom.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert float(shielded.shield.regularizers[0].level.detach()) == pytest.approx(0.5 * 2 * 2.0)


def test_each_regularizer_sees_the_embedding_at_its_own_place():
    first, second = Pull(weight=1.0), Pull(weight=1.0)
    one_step(party([first, gaussian(std=1.0), second]))
    before, after = first.seen[-1][1].detach(), second.seen[-1][1].detach()
    noise = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(7))
    torch.testing.assert_close(after, before / 2 + noise)


def test_what_is_hidden_are_the_features_or_the_layer_that_embeds_them():
    pull = Pull()
    one_step(party([pull]))
    assert torch.equal(pull.seen[-1][0], normal(ROWS, INPUTS)[:8])
    codes = torch.arange(ROWS)[:, None] % 4
    bottom, _ = wide_deep([4], INPUTS, cut=1, width=WIDTH)
    pull = Pull()
    one_step(party([pull], bottom=bottom, features=(codes, normal(ROWS, INPUTS))))
    x = pull.seen[-1][0]
    torch.testing.assert_close(x, bottom.inputs(codes[:8], normal(ROWS, INPUTS)[:8]), atol=0.2, rtol=0)  # one step on
    assert x.shape == (8, 4 + INPUTS)
    assert not x.requires_grad


@pytest.mark.parametrize("named", [False, True])
def test_what_is_hidden_is_seen_before_the_next_layer_works_in_place(named):
    pull = Pull()
    first = {"inputs": nn.Identity()} if named else {}
    bottom = nn.Sequential(OrderedDict(**first, relu=nn.ReLU(inplace=True), linear=nn.Linear(INPUTS, WIDTH)))
    one_step(party([pull], bottom=bottom))
    assert torch.equal(pull.seen[-1][0], normal(ROWS, INPUTS)[:8])


def test_attacks_on_its_own_embeddings_get_them_as_they_are_and_attacks_on_inputs_as_they_went_out():
    bottom, top = mlp(INPUTS, widths=(WIDTH,), generator=torch.Generator().manual_seed(1))
    x, y = normal(ROWS, INPUTS), (normal(ROWS, seed=2) > 0).float()
    record = tacit.Recorder(last=1, follow=ROWS)
    optimizer = lambda module: torch.optim.SGD(module.parameters(), lr=1e-9)  # noqa: E731
    simulate(
        bottom=bottom, top=top, features=x, labels=y, protect=tacit.none(), batch_size=ROWS, record=record,
        protect_embedding=[gaussian(std=100.0)], optimizer=optimizer,
    )  # fmt: skip
    for view in (record.batches().view, record.visits().view):
        own = bottom(x[view.rows.flatten()]).detach()[None]
        torch.testing.assert_close(view.own_embedding, own)
        assert (view.embedding - own).abs().mean() > 10


def test_codes_of_categories_can_not_be_hidden_as_numbers():
    bottom = nn.Embedding(4, WIDTH)
    codes = torch.arange(ROWS) % 4
    with pytest.raises(UsageError, match="attribute `inputs`"):
        party([Pull()], bottom=bottom, features=codes)
    one_step(party([gaussian(std=1.0)], bottom=bottom, features=codes))  # which has no use for them


def test_noise_that_is_on_in_training_is_on_in_evaluation_and_in_serving():
    shielded = party([gaussian(std=2.0)])
    bare = shielded.bottom(shielded.features[0]).detach()
    left, right = pair()
    right.send(Message(0, "figures", torch.empty(0, dtype=torch.float64), b""))
    shielded.evaluate(torch.arange(ROWS), left)
    served = shielded.embed(shielded.features[0])
    for sent in (right.recv("evaluation", 0).payload, served):
        noise = (sent - bare).flatten()
        # 192 normals: mean square 4, standard error 4 sqrt(2 / 192); six of them are beyond by chance once in 1e9
        assert abs(float(noise.square().mean()) - 4) < 6 * 4 * (2 / noise.numel()) ** 0.5
    assert not served.requires_grad


def test_a_simulation_predicts_with_the_noise_that_it_trained_with():
    bottom, top = mlp(INPUTS, widths=(WIDTH,), generator=torch.Generator().manual_seed(1))
    x, y = normal(ROWS, INPUTS), (normal(ROWS, seed=2) > 0).float()
    run = simulate(
        bottom=bottom, top=top, features=x, labels=y, protect=tacit.none(), protect_embedding=[gaussian(std=1.0)],
        batch_size=32,
    )  # fmt: skip
    drawn = [run.embed(x, noise=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    with torch.no_grad():
        torch.testing.assert_close(run.predict(x, noise=torch.Generator().manual_seed(1)), top(drawn[0]))


def test_a_protection_that_needs_noise_does_not_go_without():
    with pytest.raises(UsageError, match="no source"):
        one_step(party([gaussian(std=1.0)], noise=None))
    one_step(party([distance_correlation(0.1)], noise=None))


def test_keyed_noise_belongs_to_the_step_and_to_the_embedding_it_hides():
    keyed = KeyedNoise(b"k" * 32, "embedding")
    shielded = [party([gaussian(std=1.0)], noise=keyed, lr=lr) for lr in (0.1, 0.1, 0.3)]
    gradient = normal(8, WIDTH, seed=3)
    bare = [one_step(party([], lr=lr), gradient)[0] for lr in (0.1, 0.1, 0.3)]
    first = [one_step(one, gradient)[0] for one in shielded]
    assert torch.equal(first[0], first[2]), "the same embedding has the same noise"
    noises = []
    for one in shielded:
        z = one.bottom(one.features[0][:8]).detach()
        left, _ = pair()
        noises.append(one.send(torch.arange(8), left) - z)
    assert torch.equal(noises[0], noises[1])
    assert not torch.allclose(noises[0], noises[2], atol=0.1), "another embedding in the same step has other noise"
    assert not torch.allclose(noises[0], first[0] - bare[0], atol=0.1), "another step has other noise"
    with pytest.raises(UsageError, match="steps of a training"):
        shielded[0].embed(normal(4, INPUTS))


def test_a_refused_gradient_leaves_the_regularizers_as_they_were():
    shielded = party([Pull()])
    left, right = pair()
    shielded.send(torch.arange(8), left)
    right.send(Message(0, "gradient", torch.full((8, WIDTH), torch.nan), b""))
    with pytest.raises(TensorError, match="not changed"):
        shielded.finish(left)
    assert float(shielded.shield.regularizers[0].level.detach()) == 0
    right.send(Message(0, "gradient", torch.zeros(8, WIDTH), b""))
    assert float(shielded.finish(left)["penalty"]) > 0
    assert float(shielded.shield.regularizers[0].level.detach()) == 1


def test_serving_in_the_middle_of_a_step_leaves_the_step_as_it_is():
    one, other = party([Pull(), gaussian(std=1.0)]), party([Pull(), gaussian(std=1.0)])
    for shielded in (one, other):
        left, right = pair()
        shielded.send(torch.arange(8), left)
        if shielded is other:
            shielded.embed(normal(5, INPUTS), noise=torch.Generator())
        right.send(Message(0, "gradient", normal(8, WIDTH, seed=3), b""))
        shielded.finish(left)
    for mine, theirs in zip(one.bottom.parameters(), other.bottom.parameters(), strict=True):
        assert torch.equal(mine, theirs)


class Broken(Pull):
    def __init__(self, make):
        super().__init__(weight=0.0)
        self.make = make

    def transform(self, z, noise):
        return self.make(z)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda z: z[:, :1], "keeps shape and dtype"),
        (lambda z: z.double(), "keeps shape and dtype"),
        (lambda z: z / 0, "not finite, nothing was sent"),
    ],
)
def test_what_a_broken_protection_makes_is_never_sent(make, says):
    left, right = pair()
    with pytest.raises(TensorError, match=says):
        party([Broken(make)]).send(torch.arange(8), left)
    with pytest.raises(ProtocolError, match="no embedding was sent yet"):
        right.recv("embedding", 0)


@pytest.mark.parametrize(
    ("protect", "says"),
    [
        (gaussian(std=1.0), r"pass a list, as protect=\[Gaussian"),
        ([gaussian], "no embedding protection"),
        ([tacit.none()], "no embedding protection"),
        (["gaussian"], "no embedding protection"),
    ],
)
def test_what_is_no_list_of_embedding_protections_is_refused(protect, says):
    with pytest.raises(UsageError, match=says):
        party(protect)


ALL = [
    distance_correlation(0.1),
    adversarial(0.1),
    noise_regularization(0.01),
    gaussian(snr=8.0, clip=4.0),
]


def test_all_protections_in_one_list_together_with_a_label_protection_learn_and_repeat():
    def run(seed):
        bottom, top = mlp(INPUTS, widths=(8, WIDTH), cut=2, generator=torch.Generator().manual_seed(1))
        x = normal(512, INPUTS)
        y = (x[:, 0] > 0).float()
        return simulate(
            bottom=bottom, top=top, features=x, labels=y, protect=tacit.marvell(scale=1.0), protect_embedding=ALL,
            epochs=6, batch_size=64, seed=seed, optimizer=lambda module: torch.optim.Adam(module.parameters(), lr=0.01),
        )  # fmt: skip

    one, same, other = run(0), run(0), run(1)
    state = lambda run: torch.cat([p.detach().flatten() for p in run.bottom.parameters()])  # noqa: E731
    assert torch.equal(state(one), state(same))
    assert not torch.equal(state(one), state(other))
    assert one.history[-1].loss < one.history[0].loss


def test_regularizers_come_back_from_their_state():
    first = party(ALL)
    for _ in range(3):
        one_step_again(first)
    second = party(ALL, bottom=first.bottom)
    second.shield.restore(first.shield.state())
    for mine, theirs in zip(first.shield.state(), second.shield.state(), strict=True):
        assert mine["module"].keys() == theirs["module"].keys()
        assert all(torch.equal(mine["module"][key], theirs["module"][key]) for key in mine["module"])
    assert any(len(state["module"]) for state in first.shield.state()), "nothing was compared"


def one_step_again(feature_party):
    left, right = pair()
    feature_party.send(torch.arange(8), left)
    message = right.recv("embedding", feature_party.steps)
    right.send(Message(feature_party.steps, "gradient", torch.zeros_like(message.payload), message.rows))
    feature_party.finish(left)


def test_a_label_party_answers_protected_embeddings_like_any_other():
    left, right = pair()
    feature_party = party([gaussian(std=1.0)])
    top = nn.Linear(WIDTH, 1)
    label_party = LabelParty(
        top=top, labels=(normal(ROWS, seed=2) > 0).float(), optimizer=torch.optim.SGD(top.parameters(), lr=0.1),
        protect=tacit.none(), noise=torch.Generator(),
    )  # fmt: skip
    sent = feature_party.send(torch.arange(8), left)
    seen = label_party.step(torch.arange(8), right)
    assert torch.equal(seen["embedding"], sent)
    feature_party.finish(left)
