"""Your own networks, your own optimizer, your own schedule of learning rates.

A phone company has a day of use for each customer, hour by hour; a bank knows who did not pay. The phone company reads
the day with a recurrent network, the bank decides with a small one. The data is made up here.

    python examples/custom_models.py
    python examples/custom_models.py --rows 4000 --epochs 1      # in a few seconds
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import tacit
from tacit.audit.metrics.leak_auc import auc
from tacit.audit.standard import on_batches

HOURS, KINDS, CUT = 24, 3, 32  # calls, messages and data in each hour; the width of what is sent


class Bottom(nn.Module):
    """The phone company's half: any module that gives one tensor with a row for each customer."""

    def __init__(self) -> None:
        super().__init__()
        self.day = nn.GRU(KINDS, 48, batch_first=True)
        self.cut = nn.Linear(48, CUT)

    def forward(self, use: Tensor) -> Tensor:
        """The use of each hour (batch, 24, 3) to what the bank gets (batch, 32)."""
        hidden, _ = self.day(use)  # (batch, 24, 48)
        cut: Tensor = self.cut(hidden.mean(1)).tanh()
        return cut


class Top(nn.Module):
    """The bank's half: any module that takes what was sent and gives one logit for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(CUT), nn.Linear(CUT, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, z: Tensor) -> Tensor:
        """What came (batch, 32) to logits (batch,)."""
        logits: Tensor = self.layers(z).squeeze(1)
        return logits


def optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """AdamW whose rate falls by a thousandth at each step.

    The schedule hangs on the optimizer itself. That way it also works in `tacit.Folder.train`, and because this one
    needs nothing but the rate, which is saved with the optimizer, a training that was killed goes on at the right one.
    """
    made = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.ExponentialLR(made, gamma=0.999)
    made.register_step_post_hook(lambda *_: schedule.step())
    return made


def customers(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Made-up days and who did not pay: about one in six, more often those who are awake at night."""
    use = torch.randn(rows, HOURS, KINDS, generator=generator)
    owl = torch.randn(rows, generator=generator)
    use[:, :6] += 0.4 * owl[:, None, None]
    return use, (owl + 0.7 * torch.randn(rows, generator=generator) > 1.2).float()


def main() -> None:
    """Train under protection, then attack what was sent."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=12_000)
    options.add_argument("--epochs", type=int, default=3)
    chosen = options.parse_args()

    torch.manual_seed(0)  # of the first weights
    use, unpaid = customers(chosen.rows, torch.Generator().manual_seed(1))
    train = chosen.rows * 4 // 5
    recorder = tacit.Recorder(last=8)
    trained = tacit.simulate(
        bottom=Bottom(),
        top=Top(),
        features=use[:train],
        labels=unpaid[:train],
        optimizer=optimizer,
        epochs=chosen.epochs,
        batch_size=256,
        protect=tacit.matched(leak_auc=0.6, visits=chosen.epochs),  # the bank, on every gradient
        protect_embedding=[tacit.gaussian(snr=8.0, clip=6.0)],  # the phone company, on every embedding
        record=recorder,
    )
    test = float(auc(trained.predict(use[train:]), unpaid[train:]))
    seen = recorder.batches()
    worst = tacit.worst(on_batches(seen.view, seen.clean, unpaid))

    print(f"trained {type(trained.bottom).__name__} and {type(trained.top).__name__} on {train:,} customers")
    print(f"test AUC of the model: {test:.3f}")
    print(f"worst of all attacks on the labels: {worst.attack}, leak AUC {worst.leak.value:.3f}")


if __name__ == "__main__":
    main()
