"""A party's half of the model, by name and by factory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tacit.align.tables import Inputs
from tacit.config import Contract, Party, contract_template
from tacit.errors import TensorError, UsageError
from tacit.split.halves import Half, Joined, build, describe, first_seed, optimizer
from tacit.split.models import RowwiseAdam, WideDeepBottom, WideDeepTop
from tests.config_texts import FEATURES, LABEL

INPUTS = Inputs(torch.tensor([[0, 1], [2, 0], [1, 1]]), torch.zeros(3, 4), (3, 2))
NOTHING = Inputs(torch.zeros(3, 0, dtype=torch.int64), torch.zeros(3, 0), ())
WIDE_DEEP = 'name = "wide_deep"'


def party(role: str, *edits: tuple[str, str]) -> Party:
    text = LABEL if role == "label" else FEATURES
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return Party.read(text)


def with_factory(role: str, factory: str) -> Party:
    edits = [(WIDE_DEEP, f'factory = "{factory}"'), ("layers = 3", ""), ("sparse = false", "")]
    return party(role, *edits, *([("embedding = 4", "")] if role == "features" else []))


def contract(*edits: tuple[str, str], **parts: object) -> Contract:
    text = contract_template(**parts)
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return Contract.read(text)


def weights(module: nn.Module) -> list[torch.Tensor]:
    return list(module.state_dict().values())


# --- by name ---------------------------------------------------------------------------------------------------------


def test_a_bottom_and_a_top_that_fit_together(tmp_path):
    narrow = contract(("128", "24"))
    bottom = build(tmp_path, party("features", ("layers = 3", "layers = 2")), narrow, INPUTS)
    top = build(tmp_path, party("label", ("layers = 3", "layers = 0")), narrow, INPUTS)
    assert isinstance(bottom, WideDeepBottom)
    assert isinstance(top, WideDeepTop)
    assert bottom.layer_names() == ["layer1", "layer2"]
    assert top.layer_names() == []
    z = bottom(*INPUTS.tensors)
    assert z.shape == (3, 24)
    assert top(z, *INPUTS.tensors).shape == (3,)


def test_a_label_party_without_features_of_its_own(tmp_path):
    top = build(tmp_path, party("label"), contract(), NOTHING)
    assert top(torch.zeros(3, 128), *NOTHING.tensors).shape == (3,)


def test_several_feature_parties_are_joined(tmp_path):
    three = contract(
        ('{ "airport" = 128, "radar" = 128 }', "{ airport = 8, radar = [2, 3] }"), feature_parties=["airport", "radar"]
    )
    top = build(tmp_path, party("label"), three, INPUTS)
    assert isinstance(top, Joined)
    z = torch.randn(3, 8, requires_grad=True)
    other = torch.randn(3, 2, 3, requires_grad=True)
    logits = top(z, other, *INPUTS.tensors)
    logits.sum().backward()
    assert logits.shape == (3,)
    assert z.grad.abs().sum() > 0
    assert other.grad.abs().sum() > 0
    with pytest.raises(TensorError, match=r"embedding 2 has rows of \(8,\), the contract says \(2, 3\)"):
        top(z, z, *INPUTS.tensors)


def test_joined_is_one_layer_over_both_embeddings():
    inner = nn.Identity()
    joined = Joined(inner, [(2,), (1, 3)], width=4, generator=torch.Generator().manual_seed(1))
    a, b = torch.randn(5, 2), torch.randn(5, 1, 3)
    expected = torch.relu(torch.cat([a, b.reshape(5, 3)], 1) @ joined.join.weight.T + joined.join.bias)
    assert torch.allclose(joined(a, b), expected)


def test_logits_for_classes(tmp_path):
    top = build(tmp_path, party("label"), contract(('loss = "binary"', 'loss = "softmax"')), INPUTS, classes=7)
    assert top(torch.zeros(3, 128), *INPUTS.tensors).shape == (3, 7)


def test_wide_deep_gives_no_images(tmp_path):
    with pytest.raises(UsageError, match=r"cut for this party is \[4, 2\], and wide_deep gives rows of one width"):
        build(tmp_path, party("features"), contract(("128", "[4, 2]")), INPUTS)


# --- seeds -----------------------------------------------------------------------------------------------------------


def test_weights_follow_the_seed_and_nothing_else(tmp_path):
    torch.manual_seed(1)
    seeded = party("features", ("[training]", "[training]\nseed = 7"))
    first = build(tmp_path, seeded, contract(), INPUTS)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    again = build(tmp_path, seeded, contract(), INPUTS, seed=7)
    other = build(tmp_path, seeded, contract(), INPUTS, seed=8)
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))
    assert not torch.equal(weights(first)[0], weights(other)[0])
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator is left alone"


def test_a_fresh_seed_is_drawn_where_none_is_given():
    assert first_seed(party("label", ("[training]", "[training]\nseed = 7"))) == 7
    assert len({first_seed(party("label")) for _ in range(8)}) == 8


# --- by factory ------------------------------------------------------------------------------------------------------

FACTORY = """
from dataclasses import dataclass
from torch import nn
import torch
import helper_of_mine

@dataclass
class Sizes:  # needs its module while it is made
    width: "int"

class Net(nn.Module):
    def __init__(self, half):
        super().__init__()
        self.last = nn.Linear(half.numeric, Sizes(helper_of_mine.width(half)).width)
    def forward(self, categorical, numeric):
        return self.last(numeric)

def make(half):
    return Net(half)

def image(half):
    return nn.Sequential()

def no_module(half):
    return "net"

def two(half, more):
    return Net(half)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "my_model.py").write_text(FACTORY)
    (tmp_path / "helper_of_mine.py").write_text("def width(half):\n    return half.cuts[0][0]\n")
    yield tmp_path
    sys.modules.pop("helper_of_mine", None)


@pytest.mark.parametrize("spelled", ["my_model:make", "my_model.py:make"])
def test_a_factory_in_the_folder(folder, spelled):
    paths = list(sys.path)
    config = with_factory("features", spelled)
    first, again = (build(folder, config, contract(), INPUTS, seed=3) for _ in range(2))
    assert first(*INPUTS.tensors).shape == (3, 128)
    assert torch.equal(first.last.weight, again.last.weight), "torch's own draws follow the seed"
    assert sys.path == paths


def test_an_installed_module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "installed_models.py").write_text(
        "from torch import nn\n"
        "class Top(nn.Module):\n"
        "    def __init__(self, half):\n"
        "        super().__init__()\n"
        "        self.out = nn.Linear(half.cuts[0][0] + half.numeric, half.logits)\n"
        "    def forward(self, z, categorical, numeric):\n"
        "        import torch\n"
        "        return self.out(torch.cat([z, numeric], 1))\n"
    )
    (tmp_path / "party").mkdir()
    top = build(tmp_path / "party", with_factory("label", "installed_models:Top"), contract(), INPUTS)
    assert top(torch.zeros(3, 128), *INPUTS.tensors).shape == (3, 1)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("my_model:mak", r"no function 'mak' in .*my_model\.py; there are: .*make"),
        ("my_modle:make", r"neither a file .*my_modle\.py nor an installed module 'my_modle'"),
        ("other.py:make", r"there is no file .*other\.py"),
        ("my_model:no_module", r"no_module gave a str, not an nn\.Module"),
        ("my_model:two", r"two\(half, more\) can't be called with the description of the half alone.*'more'"),
        ("my_model:image", r"the bottom model can't take \(\(2, 2\), \(2, 4\)\)"),
    ],
)
def test_factories_that_do_not_do(folder, factory, words):
    with pytest.raises(UsageError, match=words):
        build(folder, with_factory("features", factory), contract(), INPUTS)


def test_a_wrong_width_is_told_before_training(folder):
    (folder / "helper_of_mine.py").write_text("def width(half):\n    return 5\n")
    with pytest.raises(UsageError, match=r"gives \(2, 5\) of torch.float32 for 2 rows; the contract wants \(2, 128\)"):
        build(folder, with_factory("features", "my_model:make"), contract(), INPUTS)


def test_what_a_factory_itself_misses_is_not_hidden(folder):
    (folder / "helper_of_mine.py").unlink()
    with pytest.raises(ModuleNotFoundError, match="helper_of_mine"):
        build(folder, with_factory("features", "my_model:make"), contract(), INPUTS)
    assert "tacit_factory_my_model" not in sys.modules or Path(sys.modules["tacit_factory_my_model"].__file__).exists()


def test_the_description_of_a_half():
    two = contract(feature_parties=["airport", "radar"])
    assert describe(party("label"), two, INPUTS, classes=2) == Half("label", (3, 2), 4, ((128,), (128,)), 1)
    assert describe(party("features"), two, INPUTS, classes=2).cuts == ((128,),)


# --- optimizers ------------------------------------------------------------------------------------------------------


def test_optimizers_by_name():
    module = nn.Linear(2, 2)
    assert isinstance(optimizer(module, party("label")), RowwiseAdam)
    sgd = optimizer(module, party("label", ('optimizer = "adam"', 'optimizer = "sgd"'), ("0.002", "0.5")))
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_both_take_sparse_tables(tmp_path, name):
    config = party("features", ("sparse = false", "sparse = true"), ('optimizer = "adam"', f'optimizer = "{name}"'))
    bottom = build(tmp_path, config, contract(), INPUTS)
    before = [one.clone() for one in weights(bottom)]
    chosen = optimizer(bottom, config)
    bottom(*INPUTS.tensors).sum().backward()
    chosen.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, weights(bottom), strict=True))


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_module_without_parameters(name):
    with pytest.raises(UsageError, match="no parameter to train"):
        optimizer(nn.Identity(), party("label", ('optimizer = "adam"', f'optimizer = "{name}"')))
