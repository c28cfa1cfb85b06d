"""One Parquet file for each sweep: its columns, how it is written, and how figures read it.

Every row is one replica over one part of its training: a *stretch* of updates, or the *whole* of them. Where it was
asked for (`batches=True`), each *batch* has a row of its own: its loss and the AUC of each attack, which is not folded
there and may lie below 0.5.

| column | what it is |
|---|---|
| replica, protection, knob, strength, options, seed | which setting; options as JSON |
| part | "stretch", "whole" or "batch" |
| step, epoch | updates done at the end of the part, and the same in epochs |
| day | the day that the part trained on, in a training by day; else null |
| train_loss | the mean over the part's batches |
| test_loss, test_auc, test_ace | on the test rows after the part (by day: on the day, before it); null if not asked |
| power | squared norm of a row's noise over that of its gradient, mean over the part |
| untouched_rows, stateless | gradients sent as they were; share of batches with fallback noise, or sent as zeros |
| seconds | wall time of the part, shared by all replicas of its wave |
| ATTACK@LAYER | leak AUC of one attack at one layer, folded once, of the mean over the part's batches |
| ATTACK@LAYER low, high | its 95% interval |
| ATTACK@LAYER q95 | the papers' figure: the 95% quantile of every batch's folded AUC |
| ATTACK@LAYER mean | the mean over batches as it is: below 0.5 where the attack is wrong more often than right |
| ATTACK@LAYER error | the detection error of the attack's best threshold, mean over batches; where it was asked for |
| worst, worst low, worst high | in rows of the whole: of all leaks the one whose interval reaches highest |
| worst attack | its column; null, as the three before it, where the training ran away |
| worst part | where: "whole", or a part of the training as "updates 1 to 120" |
| notes | in rows of the whole: which attacks could not run, and why |

Attacks that only run on recorded batches (`likelihood`, `learned`, the accumulated ones) stand in rows of the whole.
A leak column is always the mean over its row's part. The worst one is not only looked for among those of the whole: a
mean hides a phase that leaks, and an attack whose sign turns on the way averages to a coin flip. So each training is
also parted, for each attack on batches, into up to ten equal parts of at least 16 batches that it saw, and each part's
folded mean competes, with an interval that holds for all parts together.
What the sweep was (data, network, batch size, versions, device) is JSON in the file's metadata under `tacit`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.disk import replaced
from tacit.errors import StorageError, UsageError

if TYPE_CHECKING:
    import polars as pl

    from tacit.lab.choosing import Choice, Point

IDENTITY = ("replica", "protection", "knob", "strength", "options", "seed")
"""The columns that name a replica."""

UTILITY = ("train_loss", "test_loss", "test_auc", "test_ace", "power", "untouched_rows", "stateless", "seconds")
"""What a replica's training brought and cost."""

WORST = ("worst", "worst low", "worst high", "worst attack", "worst part")
"""What leaked most, in rows of the whole."""

FIGURES = ("", " low", " high", " q95", " mean", " error")
"""What the names of a leak's columns end with: the leak itself, its interval, and other figures of the same attack."""

PLACE = ("part", "step", "epoch", "day")
"""The columns that say which part of its training a row is."""

_TEXT = {"protection", "knob", "options", "part", "worst attack", "worst part", "notes"}
_WHOLE = {"replica", "seed", "step", "day"}


def leak_column(attack: str, layer: str = "cut", figure: str = "") -> str:
    """The name of a leak column; the figure is "", "low", "high", "q95", "mean" or "error".

    >>> leak_column("norm"), leak_column("cosine", "layer1", "q95")
    ('norm@cut', 'cosine@layer1 q95')
    """
    return f"{attack}@{layer} {figure}".rstrip()


def leaks_of(columns: Iterable[str]) -> list[str]:
    """The leak columns among these, without those of their intervals and other figures.

    >>> leaks_of(["replica", "norm@cut", "norm@cut low", "accumulated(likelihood, spread)@cut"])
    ['norm@cut', 'accumulated(likelihood, spread)@cut']
    """
    return [name for name in columns if "@" in name and not name.endswith(FIGURES[1:])]


@dataclass(frozen=True)
class Sweep:
    """What a sweep found."""

    path: Path | None  # of the Parquet file; None where it was not written
    table: pl.DataFrame  # its rows, with the columns of this module
    metadata: Mapping[str, Any]  # what the sweep was: data, network, batch size, versions, device

    @property
    def whole(self) -> pl.DataFrame:
        """The rows of whole trainings, one for each replica."""
        import polars as pl

        return self.table.filter(pl.col("part") == "whole").sort("replica")

    def points(self) -> list[Point]:
        """The settings, each over all of its seeds, with the attacks that were not tried on it."""
        from tacit.lab.choosing import points
        from tacit.lab.sweeping.judging import wanted

        return points(self.whole, wanted(self.metadata["recipe"]))

    def best(self, limit: float, *, quick: bool = False) -> Choice:
        """The setting with the best test AUC whose worst attack stays under the limit; see `tacit.lab.choosing`."""
        from tacit.lab.choosing import best

        return best(self.points(), limit, quick=quick)


def as_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of any parts as one table with all columns, those of the leaks in the order in which they first come."""
    import polars as pl

    fixed = [*IDENTITY, *PLACE, *UTILITY]
    seen = dict.fromkeys(name for row in rows for name in row if "@" in name)
    leaks = (f"{leak}{figure}" for leak in leaks_of(seen) for figure in FIGURES)
    names = [*fixed, *(name for name in leaks if name in seen), *WORST, "notes"]
    schema = {name: pl.String if name in _TEXT else pl.Int64 if name in _WHOLE else pl.Float64 for name in names}
    return pl.DataFrame([{name: row.get(name) for name in names} for row in rows], schema=schema, orient="row")


def write(path: Path, table: pl.DataFrame, metadata: Mapping[str, Any]) -> None:
    """One Parquet file with its metadata, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replaced(path, lambda file: table.write_parquet(file, metadata={"tacit": json.dumps(metadata, sort_keys=True)}))


def read(path: Path | str) -> Sweep:
    """A sweep's results, from the file or from the folder that it is in."""
    import polars as pl

    path = Path(path)
    path = path / "results.parquet" if path.is_dir() else path
    if not path.exists():
        raise UsageError(f"there is no {path}: give the results.parquet of a sweep that was finished, or its folder")
    try:
        table = pl.read_parquet(path)
        about = json.loads(pl.read_parquet_metadata(path).get("tacit", "{}"))
    except (pl.exceptions.PolarsError, OSError, ValueError, RecursionError) as error:
        raise StorageError(f"{path} can't be read ({error}): delete it, and sweep again") from error
    missing = [name for name in (*IDENTITY, *PLACE, *UTILITY, *WORST, "notes") if name not in table.columns]
    missing += [] if "recipe" in about else ["a recipe in the metadata"]
    if missing:
        raise UsageError(
            f"{path} is not the results file of a sweep, or of an older version: it lacks {', '.join(missing)}; give "
            "one that `tacit sweep` wrote, or sweep again"
        )
    return Sweep(path, table, about)
