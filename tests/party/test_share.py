"""What the contract may share, and what not."""

import numpy as np
import pytest

from tacit.errors import UsageError
from tacit.lab.two_companies import prepare
from tacit.party._aligned import store
from tacit.party.training import train


def test_the_loss_of_a_single_batch_is_not_shared(tmp_path):
    airline, _ = prepare(tmp_path, epochs=1, rows=4096, seed=0)
    contract = airline.folder / "contract.toml"
    contract.write_text(contract.read_text().replace('["test_auc"]', '["train_loss"]'))
    airline.run_folder.mkdir()
    store(airline.run_folder, run="flights", id="00", seed=1, digest="00", rows=np.arange(400))
    with pytest.raises(UsageError, match="an epoch has a single batch"):
        train(airline.folder)
