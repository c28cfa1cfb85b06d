"""What must be the same whenever a run goes on: each thing under its own name, whoever made the party."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from benchmarks._companies import align_rows
from tacit.align.batches import Plan
from tacit.company.aligned import aligned
from tacit.company.folder import Folder
from tacit.errors import RefusedError, UsageError
from tacit.split.checkpoint import Checkpoints
from tacit.split.durable import Durable
from tacit.split.feature_run import build_feature_party
from tacit.split.journal import Journal
from tacit.split.label_run import build_label_party

COUNT = 60


class Top(nn.Linear):
    """Its description holds an address, which is another one at every start."""

    def __init__(self, width=5, bias=True):
        def function(logits):
            return logits

        super().__init__(width, 1, bias=bias)
        self.function = function

    def forward(self, z, own):
        return self.function(super().forward(torch.cat([z, own], dim=1)).squeeze(1))

    def extra_repr(self):
        return f"{super().extra_repr()}, {self.function}"


def own_party(*, top=None, features=1.0, optimizer=None, protect=None, **more):
    labels = (torch.arange(COUNT) % 2).float()
    top = Top() if top is None else top
    optimizer = torch.optim.Adam(top.parameters(), lr=1e-3) if optimizer is None else optimizer(top.parameters())
    return tacit.LabelParty(
        top=top,
        labels=labels,
        features=torch.full((COUNT, 1), features),
        optimizer=optimizer,
        protect=protect or tacit.none(),
        **more,
    )


@pytest.fixture(name="ready")
def _ready(companies):
    """The airline with something aligned."""
    airline, _ = companies
    align_rows(airline, np.arange(COUNT), id="ab", seed=1, digest="cd")
    return airline


def guard(folder, party=None):
    folder = Folder(folder.path)
    rows = aligned(folder)
    build = build_label_party if folder.config.role == "label" else build_feature_party
    return build(folder, rows, Plan(rows.count, 16, 1, rows.seed), party)[1]


def differ(one, two):
    return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, set()),
        ({"top": Top()}, set()),
        ({"optimizer": lambda p: torch.optim.Adam(p, lr=2e-3)}, {"learning_rate"}),
        ({"optimizer": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-6)}, {"optimizer eps"}),
        ({"optimizer": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1)}, {"optimizer weight_decay"}),
        ({"optimizer": lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.8, 0.999))}, {"optimizer betas"}),
        ({"optimizer": lambda p: torch.optim.Adam([*p][:1], lr=1e-3)}, {"parameters"}),
        ({"top": Top(bias=False)}, {"network", "parameters"}),
        ({"features": 2.0}, {"data"}),
        ({"protect": tacit.iso(t=1.0)}, {"protection"}),
        ({"targets": torch.full((COUNT,), 0.5)}, {"targets"}),
    ],
)
def test_a_party_of_ones_own(ready, change, names):
    before = guard(ready, own_party())
    assert differ(before, guard(ready, own_party(**change))) == names


def test_a_half_from_python_that_does_not_fit_the_contract_is_refused_before_anything_is_sent(companies):
    for folder in companies:
        align_rows(folder, np.arange(COUNT), id="ab", seed=1, digest="cd")
    airline, airport = companies
    bottom = nn.Linear(1, 7)
    wide = tacit.FeatureParty(
        bottom=bottom, features=torch.zeros(COUNT, 1), optimizer=torch.optim.SGD(bottom.parameters(), lr=0.1)
    )
    with pytest.raises(UsageError, match=r"the bottom model gives \(2, 7\) .* the contract wants \(2, 4\)"):
        guard(airport, wide)
    with pytest.raises(UsageError, match=r"the top model can't take \(\(2, 4\), \(2, 1\)\)"):
        guard(airline, own_party(top=Top(width=6)))


def test_a_party_from_python_does_at_least_what_its_settings_promise(companies):
    airline, airport = companies
    for folder in companies:
        align_rows(folder, np.arange(COUNT), id="ab", seed=1, digest="cd")
    settings = (airport.path / "party.toml").read_text()
    promised = 'protect.embedding = [{ name = "gaussian", snr = 4.0 }]'
    (airport.path / "party.toml").write_text(settings.replace("protect.embedding = []", promised))

    def own(protect):
        bottom = torch.nn.Linear(1, 4)
        optimizer = torch.optim.Adam(bottom.parameters())
        return tacit.FeatureParty(bottom=bottom, features=torch.zeros(COUNT, 1), optimizer=optimizer, protect=protect)

    for protect in ([], [tacit.gaussian(snr=8.0)], [tacit.noise_regularization(0.1)]):
        with pytest.raises(UsageError, match=r"what party.toml promises is gaussian\(snr=4.0\)"):
            guard(airport, own(protect))
    assert guard(airport, own([tacit.gaussian(snr=4.0, clip=1.0)]))["protection"].startswith("Gaussian")
    settings = (airline.path / "party.toml").read_text()
    (airline.path / "party.toml").write_text(settings.replace('name = "none"', 'name = "max_norm"'))
    with pytest.raises(UsageError, match=r"what party.toml promises is max_norm\(\), and there is no max_norm"):
        guard(airline, own_party())
    guard(airline, own_party(protect=tacit.max_norm()))


def test_a_class_of_another_file_is_not_the_protection_that_it_says_it_is(companies):
    airline, _ = companies
    align_rows(airline, np.arange(COUNT), id="ab", seed=1, digest="cd")
    contract = (airline.path / "contract.toml").read_text()
    least = 'minimum.gradient = { name = "marvell", scale = 4.0 }'
    (airline.path / "contract.toml").write_text(contract.replace('minimum.gradient.name = "none"', least))
    real = tacit.marvell(scale=4.0)

    class Lenient(type(real)):
        def draw(self, batch, state, source):
            drawn = super().draw(batch, state, source)
            return replace(drawn, noise=torch.zeros_like(drawn.noise))

    class Bare(type(tacit.none())):
        event = real.event

    bent = Lenient(**{field.name: getattr(real, field.name) for field in fields(real)})
    bent.__dict__["event"] = real.event
    for protect in (bent, Bare(), tacit.chain(tacit.clip(1.0), bent)):
        with pytest.raises(UsageError, match=r"minimum is marvell\(scale=4\), and there is no marvell"):
            guard(airline, own_party(protect=protect))
    for protect in (real, tacit.chain(tacit.clip(1.0), real)):
        guard(airline, own_party(protect=protect))


def test_other_targets_are_other_targets(ready):
    one, two = (guard(ready, own_party(targets=torch.full((COUNT,), value))) for value in (0.5, 0.25))
    assert differ(one, two) == {"targets"}


def test_another_optimizer(ready):
    before = guard(ready, own_party())
    after = guard(ready, own_party(optimizer=lambda p: torch.optim.SGD(p, lr=1e-3)))
    assert {"optimizer", "optimizer betas", "optimizer momentum"} <= differ(before, after)
    assert (before["optimizer"], after["optimizer"]) == ("Adam", "SGD")
    assert "learning_rate" not in differ(before, after)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("training.threads = 1", "training.threads = 2", set()),
        ("training.threads = 1", "training.learning_rate = 0.003", {"learning_rate"}),
        ("training.threads = 1", 'training.optimizer = "sgd"', {"optimizer", "optimizer betas"}),
        ("training.threads = 1", 'model = { name = "wide_deep", layers = 2 }', {"model", "network", "parameters"}),
        ('label = "y"', 'label = "y", numeric = ["x"]', {"data", "network", "parameters"}),
        ('gradient.name = "none"', 'gradient = { name = "iso", t = 1.0 }', {"protection"}),
    ],
)
def test_a_party_of_its_settings(ready, old, new, names):
    settings = ready.path / "party.toml"
    before = guard(ready)
    settings.write_text(settings.read_text().replace(old, new))
    found = differ(before, guard(ready))
    assert {name for name in found if name in names or not name.startswith("optimizer ")} == names
    assert not names or min(found) in ("data", "learning_rate", "model", "optimizer", "protection"), "in plain words"
    assert (before["model"], before["learning_rate"]) == ("name wide_deep", "0.002")


def test_a_changed_rate_is_refused_by_its_name(ready, tmp_path):
    """Two starts with other rates would hide two gradients of one step under the same noise."""

    def opened(party):
        with Journal(tmp_path / "journal") as journal:
            return Durable(journal, Checkpoints(tmp_path / "checkpoints"), guard(ready, party)).open(dict)

    opened(own_party())
    opened(own_party())
    with pytest.raises(RefusedError, match=r"learning_rate has changed since this run began \(0.001 then, 0.002 now\)"):
        opened(own_party(optimizer=lambda p: torch.optim.Adam(p, lr=2e-3)))


def test_checkpoints_may_be_made_at_other_turns_when_a_run_goes_on(companies):
    _, airport = companies
    align_rows(airport, np.arange(COUNT), id="ab", seed=1, digest="cd")
    before, settings = guard(airport), airport.path / "party.toml"
    settings.write_text(settings.read_text().replace("threads = 1", "threads = 1\ntraining.checkpoint_every = 77"))
    assert differ(before, guard(airport)) == set()
