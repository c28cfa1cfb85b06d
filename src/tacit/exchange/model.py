"""What stays of one exchange in one process: both sides' halves of the model, to score rows and to keep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.align.encoder import Columns, Encoder, Inputs
from tacit.disk import read_json, write_json
from tacit.errors import UsageError
from tacit.exchange.cells import Cells
from tacit.exchange.head import Head, load_head
from tacit.exchange.learn import Bottom, load_bottom
from tacit.exchange.reading import Reader, like
from tacit.exchange.releasing import shown
from tacit.made_once import made_once

_FILE = "model.json"
_FORMAT = 1


@dataclass(frozen=True)
class Model:
    """Scores rows that both sides have; `save` keeps it, `tacit.load` brings it back."""

    bottom: Bottom  # the feature party's: rows to numbers
    cells: Cells  # in which these are sent
    head: Head  # the label party's: own columns and cells to scores
    fallback: Head  # the one without the feature party
    readers: tuple[Reader, Reader | None]  # how features and own columns are read
    withheld: tuple[str, ...] = ()  # columns that the bottom never sees

    def embed(self, features: Any) -> NDArray[np.uint8]:
        """What would be sent of rows.  (rows, numbers)"""
        reader = self.readers[0]
        seen = shown(reader.read(features, "features"), reader.columns, self.withheld, "withheld")
        return self.cells.code(self.bottom.embed(seen))

    def predict(self, *, features: Any = None, own: Any = None) -> Any:
        """Scores of rows: the probability of class 1, of all classes, or numbers.

        As a pandas or polars Series, a pyarrow Array or a NumPy array, as the rows came. Without `features` the
        fallback scores, from own columns alone.
        """
        reader = self.readers[1]
        if reader is not None and own is None:
            raise UsageError("this model also needs own=...")
        if reader is None and (own is not None or features is None):
            raise UsageError("this model was trained without own=: pass features alone")
        codes = None if features is None else self.embed(features)
        rows = nothing(len(codes)) if reader is None and codes is not None else None
        if reader is not None:
            rows = reader.read(own, "own")
        head = self.fallback if codes is None else self.head
        return like(own if features is None else features, head.predict(codes, rows))

    def save(self, folder: str | Path) -> Path:
        """Write it to a new folder, without pickle."""
        path = Path(folder)
        if path.exists():
            raise UsageError(f"{path} is there already: choose another name, or move it away")

        def make(fresh: Path) -> None:
            for name, half in (("bottom", self.bottom), ("head", self.head), ("fallback", self.fallback)):
                half.save(fresh / name)
            readers = [None if reader is None else _state(reader) for reader in self.readers]
            state = {"format": _FORMAT, "cells": self.cells.state(), "readers": readers}
            write_json(fresh / _FILE, state | {"withheld": list(self.withheld)})

        return made_once(path.resolve().parent, path.name, make)


def load(folder: str | Path) -> Model:
    """A model that `Model.save` or the `save` of a result wrote; nothing in its files is run."""
    path = Path(folder)
    if not (path / _FILE).exists():
        raise UsageError(f"{path} holds no model, it has no {_FILE}: name the folder that was given to save")
    state = read_json(path / _FILE, "save the model again")
    if state.get("format") != _FORMAT:
        raise UsageError(f"{path} was written by another version of Tacit: load it there, or fit and save again")
    first, second = (None if one is None else _reader(one) for one in state["readers"])
    assert first is not None
    halves = load_bottom(path / "bottom"), Cells.read(state["cells"])
    return Model(
        *halves, load_head(path / "head"), load_head(path / "fallback"), (first, second), (*state["withheld"],)
    )


def nothing(rows: int) -> Inputs:
    """So many rows without a column."""
    return Inputs(torch.zeros(rows, 0, dtype=torch.int64), torch.zeros(rows, 0), ())


def _state(reader: Reader) -> dict[str, Any]:
    encoder = None if reader.encoder is None else reader.encoder.to_state()
    return {"columns": asdict(reader.columns), "encoder": encoder, "kind": reader.kind}


def _reader(state: dict[str, Any]) -> Reader:
    columns = Columns(**{name: tuple(names) for name, names in state["columns"].items()})
    return Reader(columns, None if state["encoder"] is None else Encoder.from_state(state["encoder"]), state["kind"])
