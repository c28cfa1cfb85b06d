"""A process among several that cut a table of codes up among them; the first one writes what came out.

torchrun --standalone --nproc-per-node 2 -m tests.one_shot.learning_cut FOLDER ROWS
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tacit.one_shot._network import Scorer, TableTrunk, cut
from tacit.one_shot.learn.network import network
from tacit.one_shot.pretrain import pretrain
from tacit.one_shot.workers import Workers
from tests.one_shot.learning_together import made_up


def fitted(epochs, rows, workers):
    """What a network gives for rows of which it has seen four fifths so often."""
    inputs, sent, _, coin = made_up(rows)
    learner = replace(network(pretraining=False, epochs=epochs, members=1), workers=workers)
    return learner.fit(inputs, sent[: 4 * rows // 5], coin, 2, seed=1).embed(inputs)


def main(folder, rows):
    """Without labels, an epoch, and an epoch more than one process has made already."""
    workers = replace(Workers.started(), cut_from=1)
    workers.join()
    with workers.together():
        trunk = pretrain(made_up(rows)[0], epochs=1, seed=1, workers=workers)
        begun = fitted(1, rows, replace(workers, keep=folder / "several"))
        gone_on = fitted(2, rows, replace(workers, keep=folder / "alone"))
        net = Scorer(TableTrunk([6, 7], 1), 64, 1)
        assert cut(net, workers) == {"trunk.codes.table.weight": 13}
        assert cut(Scorer(TableTrunk([6, 7], 1), 64, 1), replace(workers, cut_from=14)) == {}
    (folder / f"part {workers.rank}").write_text(str(len(net.trunk.codes.table.weight)))
    if workers.rank == 0:
        weights = {f"trunk {key}": value.numpy() for key, value in trunk.state_dict().items()}
        np.savez(folder / "out.npz", begun=begun, gone_on=gone_on, **weights)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
