"""The trainings that claims are judged on: which data, how much of it, each done once and kept in a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from papers import attacks, balanced, embedding
from papers.claims import Claim, claims
from papers.recipes import RECIPES, Asked, Recipe, results
from tacit.errors import DataError, UsageError
from tacit.lab import data as data_sets
from tacit.lab.data.rows import Data
from tacit.lab.sweeping.recipe import paper_of
from tacit.lab.sweeping.settings import Setting
from tacit.progress import Progress

__all__ = ["EMBEDDINGS", "QUICK", "SCALES", "Bench", "Scale", "real_name", "whole"]


@dataclass(frozen=True)
class Scale:
    """How much is trained on a data set.

    Attributes:
        rows: of the data set, training and test together; None for all.
        seeds: of each setting.
        small: rows of a batch and epochs, where those of the recipes' small scale are not taken.
        sample: the share of the rows that is drawn; None for all.
        size: "small", or "paper" for the papers' batches, epochs and strengths.
    """

    rows: int | None
    seeds: int = 1
    small: tuple[int, int] | None = None
    sample: float | None = None
    size: Literal["small", "paper"] = "small"


SCALES: Mapping[str, Scale] = {
    "flights": Scale(30_000),
    "flights by day": Scale(60_000),
    "generated:criteo": Scale(30_000),
    "generated:avazu": Scale(30_000),
    "skin": Scale(1500, small=(128, 4)),
    "adult": Scale(20_000),
    "fashion": Scale(20_000),
}
"""What the recorded claims are judged on: the recipes' small scale, so that two cores do all of it in some hours."""

QUICK: Mapping[str, Scale] = {name: Scale(4000, small=(128, 2)) for name in ("flights", "generated:criteo")}
"""What `make test` judges."""

EMBEDDINGS: Mapping[str, tuple[int, int]] = {"flights": (20_000, 3), "adult": (20_000, 3), "fashion": (20_000, 10)}
"""Rows and epochs of figures about embeddings."""

_NAMES = {"flights by day": "flights", "flights, as many positive as negative rows": "flights", "skin": "isic"}
"""The data sets behind the names that claims have for them."""


def real_name(data: str) -> str:
    """The data set as `tacit.lab.data.load` knows it.

    >>> real_name("flights by day"), real_name("generated:criteo")
    ('flights', 'generated:criteo')
    """
    return _NAMES.get(data, data)


_STANDS_IN = {"criteo": "generated:criteo", "avazu": "generated:avazu", "isic": "skin"}
"""What claims are judged on where the papers' own files are not here."""


def whole(data: str, share: float | None = None) -> tuple[dict[str, Claim], dict[str, Scale]]:
    """The claims that a data set's own files decide, at the papers' scale.

    Args:
        data: as `tacit.lab.data.load` knows it.
        share: of its rows, drawn at random; the papers' if not given.
    """
    stands_in = _STANDS_IN.get(data, data)
    about = {name: replace(claim, data=(data,)) for name, claim in claims().items() if stands_in in claim.data}
    if not about:
        raise UsageError(f"no claim of the papers is about {data}")
    paper = paper_of(data)
    return about, {data: Scale(None, sample=share or (paper.sample if paper else None), size="paper")}


_NOT_NEEDED = ("matched",)
"""Protections that the papers do not have: no claim is about them."""


class Bench:
    """Results of trainings by run and data set.

    Args:
        out: the folder in which they are kept.
        files: a folder with one for each data set that is not shipped, as `files/adult`; or the folder of each.
        scales: how much is trained.
        only: protections that are trained; all if not given.
        device: "cpu" or "cuda".
        progress: called with what is being done, the parts done and all parts.
    """

    def __init__(
        self,
        out: Path,
        files: Path | Mapping[str, Path] | None = None,
        *,
        scales: Mapping[str, Scale] = SCALES,
        only: tuple[str, ...] | None = None,
        device: str = "cpu",
        progress: Progress = lambda *_: None,
    ) -> None:
        self.out, self.files, self.scales, self.only, self._progress = out, files, scales, only, progress
        self._device = device
        self.result = cache(self._result)
        self._data = cache(self._loaded)

    def named(self, data: str) -> str:
        """A data set's own name, as the loader that found it says."""
        return data if data == "toy" else self._data(data).name

    def _result(self, run: str, data: str) -> tuple[Any, dict[str, Any]]:
        """What a run leaves on a data set, and what it was: rows, batches, epochs, seeds and seconds."""
        folder = self.out / data.replace(":", "-").replace(" ", "-").replace(",", "")
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        made, about = self._RUNS.get(run, Bench._recipe)(self, run, data, folder)
        kept = folder / f"{run}.seconds"
        if not kept.exists():
            kept.write_text(json.dumps(round(time.perf_counter() - start, 1)))
        return made, {**about, "seconds": json.loads(kept.read_text())}

    def _loaded(self, name: str) -> Data:
        folder, scale = self._folder(name), self._scale(name)
        return data_sets.load(
            real_name(name), folder=folder, rows=scale.rows, sample=scale.sample, cache=self.out / "cache"
        )

    def _scale(self, name: str) -> Scale:
        found = self.scales.get(name) or self.scales.get(real_name(name))
        if found is None:
            raise UsageError(
                f"nobody has said how much of {name} claims are judged on; known: {', '.join(self.scales)}"
            )
        return found

    def _folder(self, name: str) -> Path | None:
        """Where the files are of a data set that is not shipped."""
        source = data_sets.SOURCES.get(real_name(name))
        if source is None or not source.files:
            return None
        folder = self.files.get(name) if isinstance(self.files, Mapping) else self.files and self.files / name
        if folder is not None and folder.is_dir():
            return folder
        if not source.folder:
            return None  # a known place
        raise DataError(f"{name} is not here: put {source.files} ({source.where}) into a folder {name} of --files")

    def _asked(self, data: str) -> Asked:
        loaded, scale = self._data(data), self._scale(data)
        return Asked(loaded, scale.size, seeds=scale.seeds, device=self._device)

    def _shaped(self, run: str, data: str) -> Recipe:
        """A recipe without what no claim needs, at the scale of the data set."""
        recipe, scale = RECIPES[run], self._scale(data)
        triples = recipe.triples

        def kept(*of: Any) -> list[Any]:
            asked = [one for one in triples(*of) if one[0] not in _NOT_NEEDED]
            return [one for one in asked if self.only is None or one[0] in self.only]

        small = scale.small or recipe.small
        return replace(recipe, triples=kept, thorough=False, small=small)

    def _told(self, run: str, data: str) -> Callable[[int, int], None]:
        return lambda done, total: self._progress(f"{run} on {data}", done, total)

    # --- each kind of run --------------------------------------------------------------------------------------------

    def _recipe(self, run: str, data: str, folder: Path) -> tuple[Any, dict[str, Any]]:
        asked, recipe = self._asked(data), self._shaped(run, data)
        table = results(recipe, asked, folder, lambda what, *of: self._progress(f"{data}: {what}", *of))
        return table, self._about(asked, recipe)

    def _about(self, asked: Asked, recipe: Recipe) -> dict[str, Any]:
        about = {"rows": len(asked.data.train) + len(asked.data.test), "share": round(asked.data.share, 4)}
        if recipe.stops:
            return {**about, "batch": recipe.batch(asked), "updates": max(recipe.stops), "seeds": 1}
        if recipe.kind == "times":
            return {**about, "batch": recipe.batch(asked)}
        seeds = max(recipe.seeds, asked.seeds)
        return {**about, "batch": recipe.batch(asked), "epochs": recipe.visits(asked), "seeds": seeds}

    def _balanced(self, run: str, data: str, folder: Path) -> tuple[Any, dict[str, Any]]:
        """Hints on as many positive as negative rows."""
        asked = self._asked(data)
        asked = replace(asked, data=balanced.halved(asked.data))
        recipe = replace(balanced.recipe(), small=self._shaped("hints", data).small)
        return results(recipe, asked, folder, self._progress), self._about(asked, recipe)

    def _toy(self, run: str, data: str, folder: Path) -> tuple[Any, dict[str, Any]]:
        return balanced.toy(), {"rows": balanced.ROWS, "share": 0.5, "updates": balanced.UPDATES, "seeds": 1}

    def _attacked(self, run: str, data: str, folder: Path) -> tuple[Any, dict[str, Any]]:
        """The table of attacks, of the two protections that claims are about."""
        asked = self._asked(data)
        settings = [Setting("max_norm"), Setting("marvell", "scale", 4.0)]
        found = attacks.run(asked.data, of=settings, progress=self._progress)
        recipe = found.recipe
        return found, {
            "rows": len(asked.data.train) + len(asked.data.test), "share": round(asked.data.share, 4),
            "batch": recipe["batch_size"], "epochs": recipe["epochs"], "seeds": 1,
        }  # fmt: skip

    def _embedded(self, run: str, data: str, folder: Path) -> tuple[Any, dict[str, Any]]:
        """The report on embedding protection; of its data set only the table, of others only the figures."""
        rows, epochs = EMBEDDINGS[data] if self._scale(data).size == "small" else (None, None)
        figures = ["table-2"] if run == "table-2" else [name for name in embedding.FIGURES if name != "table-2"]
        lab = embedding.run(
            data=data, out=folder / "embedding", path=self._folder(data), only=figures, rows=rows, epochs=epochs,
            device=self._device, progress=self._progress,
        )  # fmt: skip
        count = lab.settings["training_rows"] + lab.settings["test_rows"]
        about = {"rows": count, "epochs": lab.settings["epochs"], "seeds": 1}
        return lab, about

    _RUNS: Mapping[str, Callable[[Bench, str, str, Path], tuple[Any, dict[str, Any]]]] = {
        "balanced": _balanced, "toy": _toy, "attacks": _attacked,
        "embeddings": _embedded, "table-2": _embedded,
    }  # fmt: skip
