"""The epochs of a network that learns, written down one by one: killed, it goes on from the last whole one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import StorageError
from tacit.wire.checkpoint import load, save


class Epochs:
    """The epochs that are left of fitting a network: it goes on where its file says, and writes it after each one.

    `patience` is after how many epochs without a better loss it is over; None for never. Without a file nothing is
    written.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        most: int,
        device: torch.device,
        file: Path | None,
        *,
        patience: int | None = None,
    ) -> None:
        self.net, self.optimizer, self.most, self.patience = net, optimizer, most, patience
        self.device, self.file = device, file
        self.done, self.best_epoch, self.best_loss = 0, 0, math.inf
        self.best = deepcopy(net.state_dict())

    def __iter__(self) -> Iterator[int]:
        """The numbers of the epochs that are left."""
        self._begin()
        while self.done < self.most and (self.patience is None or self.done - self.best_epoch < self.patience):
            yield self.done + 1
            self.done += 1
            if self.file is not None:
                save(self.file, self._state())

    def _begin(self) -> None:
        """Go on from the file, if there is one."""
        if self.file is not None and self.file.exists():
            state = load(self.file).state
            try:
                self._go_on(state)
            except (RuntimeError, ValueError, KeyError) as error:
                told = f"{self.file} is not of this network ({error}): delete it, and fitting begins anew"
                raise StorageError(told) from None

    def judge(self, loss: float) -> None:
        """Keep the weights of this epoch if they are the best so far."""
        if loss < self.best_loss:
            self.best, self.best_loss, self.best_epoch = deepcopy(self.net.state_dict()), loss, self.done + 1

    def _state(self) -> dict[str, Any]:
        return {
            "net": dict(self.net.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "best": dict(self.best),
            "at": (self.done, self.best_epoch, self.best_loss),
            "draws": self._draws(),
        }

    def _go_on(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best, (self.done, self.best_epoch, self.best_loss) = state["best"], state["at"]
        if len(state["draws"]) != len(self._draws()):
            return  # it was on another kind of device, whose draws can't be gone on with
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["draws"], self.device)
        else:
            torch.set_rng_state(state["draws"])

    def _draws(self) -> Tensor:
        return torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else torch.get_rng_state()
