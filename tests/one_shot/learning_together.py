"""A process among several that learn from a made-up table, as torchrun starts them; the first one writes what came out.

torchrun --standalone --nproc-per-node 2 learning_together.py OUT.npz ROWS
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from tacit.align.encoder import Inputs
from tacit.one_shot.learn.network import network
from tacit.one_shot.pretrain import pretrain
from tacit.one_shot.workers import Workers


def made_up(rows):
    """A table, its flipped labels, its true ones and the coin."""
    draw = np.random.default_rng(3)
    codes, numbers = draw.integers(0, 6, (rows, 2)), draw.normal(size=(rows, 4)).astype(np.float32)
    score = 1.5 * numbers[:, 0] * (codes[:, 0] > 2) + 1.5 * (codes[:, 1] % 2) + numbers[:, 1]
    labels = (score + draw.normal(size=rows) > 1.0).astype(np.int64)
    sent = np.where(draw.random(rows) < 0.8, labels, 1 - labels).astype(np.uint8)
    inputs = Inputs(torch.from_numpy(codes), torch.from_numpy(numbers), (6, 6))
    return inputs, sent, labels, SimpleNamespace(classes=2, a=0.8, b=0.2)


def threads():
    """The names of this process's threads, those that Python does not know of among them."""
    return {file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")}


def main(out, rows):
    """Learn a little, where rounding alone tells processes apart, and to the end."""
    workers = Workers.started()
    inputs, sent, labels, coin = made_up(rows)
    train = 4 * rows // 5
    workers.join()
    with workers.together():
        trunk = pretrain(inputs, epochs=1, seed=1, workers=workers)
        begun = replace(network(pretraining=False, epochs=1, members=1), workers=workers).fit(
            inputs, sent[:train], coin, 2, seed=1
        )
        ended = replace(network(), workers=workers).fit(inputs, sent[:train], coin, 2, seed=1)
        assert workers.count == 1 or "pt_gloo_runloop" in threads(), "they have another name in this version of torch"
    until = time.monotonic() + 10
    while "pt_gloo_runloop" in threads() and time.monotonic() < until:
        time.sleep(0.01)  # the system lists a thread a moment longer than it lives
    assert "pt_gloo_runloop" not in threads(), "they could abort this process when it ends"
    if workers.rank == 0:
        weights = {f"trunk {key}": value.numpy() for key, value in trunk.state_dict().items()}
        np.savez(out, begun=begun.embed(inputs), ended=ended.embed(inputs), labels=labels, **weights)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]))
