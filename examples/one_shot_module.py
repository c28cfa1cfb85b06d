"""One exchange with a network of your own: days of use of a phone, hour by hour, read by a recurrent network.

A phone company has the days; a bank knows who did not pay, and has a number of its own for each customer. The data is
made up here.

    python examples/one_shot_module.py
    python examples/one_shot_module.py --rows 2000      # in a few seconds
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

import tacit

HOURS, KINDS = 24, 3  # calls, messages and data in each hour


class Day(nn.Module):
    """The phone company's: any module that makes hidden units of a row. Two numbers of them are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.day = nn.GRU(KINDS, 32, batch_first=True)

    def forward(self, use: Tensor) -> Tensor:
        """The use of all hours (batch, 72) to units (batch, 32)."""
        hidden, _ = self.day(use.unflatten(1, (HOURS, KINDS)))
        units: Tensor = hidden.mean(1)
        return units


def customers(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Made-up days, debts, and who did not pay: about one in six, more often those who are awake at night."""
    draw = torch.Generator().manual_seed(1)
    use = torch.randn(rows, HOURS, KINDS, generator=draw)
    owl, debt, luck = torch.randn(3, rows, generator=draw)
    use[:, :6] += 0.4 * owl[:, None, None]
    return use.flatten(1), debt[:, None], (owl + 0.5 * debt + 0.7 * luck > 1.3).long()


def main() -> None:
    """Train both, and see what each would have told."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--rows", type=int, default=8_000)
    options.add_argument("--limit", type=float, default=0.7)
    chosen = options.parse_args()

    torch.manual_seed(0)  # of the first weights
    use, debt, unpaid = customers(chosen.rows)
    head = nn.Sequential(nn.Linear(3, 32), nn.ReLU())  # of the bank's number and the two that came
    result = tacit.one_shot(
        features=use, own=debt, labels=unpaid, limit=chosen.limit, numbers=2, learner=Day(), head=head
    )
    print(result)
    today, _, _ = customers(100)
    print(f"\nof {len(today)} other customers the phone company would send {result.embed(today).nbytes} bytes")


if __name__ == "__main__":
    main()
