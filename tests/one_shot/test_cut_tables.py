"""Tables of codes that processes cut up among them: what one process learns, and files that any number goes on from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit.one_shot.learn.network import network
from tacit.one_shot.pretrain import pretrain
from tacit.one_shot.workers import Workers

from .learning_together import made_up
from .test_workers import HERE, ended, torchrun

ROWS = 1000


def alone(epochs, keep=None):
    """What one process learns."""
    inputs, sent, _, coin = made_up(ROWS)
    learner = replace(network(pretraining=False, epochs=epochs, members=1), workers=Workers(keep=keep))
    return learner.fit(inputs, sent[: 4 * ROWS // 5], coin, 2, seed=1).embed(inputs)


def alike(found, value):
    np.testing.assert_allclose(found, value, rtol=0, atol=1e-4 * np.abs(value).max())


@pytest.fixture(name="learnt", scope="module", params=[2, 3])
def _learnt(request, tmp_path_factory):
    """What several processes learn, and the folder in which they and one process before them kept how far they were."""
    folder = tmp_path_factory.mktemp("learnt")
    alone(1, folder / "alone")
    process = torchrun(request.param, "-m", "tests.one_shot.learning_cut", folder, ROWS, cwd=HERE.parents[1])
    said = ended(process)
    assert process.returncode == 0, said
    return folder, dict(np.load(folder / "out.npz"))


def test_each_has_its_part(learnt):
    parts = [int(file.read_text()) for file in sorted(learnt[0].glob("part *"))]
    assert parts == {2: [7, 6], 3: [5, 4, 4]}[len(parts)]


def test_they_learn_what_one_process_learns(learnt):
    alike(learnt[1]["begun"], alone(1))
    for name, value in pretrain(made_up(ROWS)[0], epochs=1, seed=1).state_dict().items():
        alike(learnt[1][f"trunk {name}"], value.numpy())


def test_they_go_on_from_what_one_process_has_kept(learnt):
    alike(learnt[1]["gone_on"], alone(2))


def test_one_process_goes_on_from_what_they_have_kept(learnt):
    alike(alone(2, learnt[0] / "several"), alone(2))


def test_what_they_kept_of_another_network_is_told(tmp_path):
    inputs, sent, _, coin = made_up(ROWS)
    learner = replace(network(pretraining=False, epochs=1, members=1), workers=Workers(keep=tmp_path / "several"))
    other = replace(inputs, cardinalities=(6, 60))
    learner.fit(other, sent[: 4 * ROWS // 5], coin, 2, seed=1)
    process = torchrun(2, "-m", "tests.one_shot.learning_cut", tmp_path, ROWS, cwd=HERE.parents[1])
    said = ended(process)
    assert process.returncode
    (file,) = tmp_path.rglob("*.safetensors")
    told = f"{file} is not of this network", "what the first process has kept is not of this network"
    assert any(words in said for words in told), said  # who says it first ends the other
