"""Made-up rows and pictures as files in the official formats, for tests of who reads them."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import torch
from PIL import Image

from tacit.align.batches import scramble
from tacit.lab.data import fashion
from tacit.lab.data.credit import GUEST, HOST
from tacit.lab.data.skin import _lesion


def sides(rows: int, *, sample: float = 1.0, test_share: float = 0.1, seed: int = 0):
    """For each row of a streamed file 1 for training, 2 for testing, 0 for neither: by a hash of its number."""
    drawn = scramble(np.arange(rows), seed)
    return np.where(drawn >= sample, 0, np.where(drawn < sample * test_share, 2, 1))


def write_adult(folder: str | Path, rows: int, seed: int) -> None:
    """Made-up people in the official format: `adult.data`, and a third of them in `adult.test`.

    Schooling, hours, age, marriage and capital raise the income, as they do in the real files.
    """
    draw = np.random.default_rng(seed)
    years, hours, age = draw.integers(1, 17, rows), draw.integers(10, 70, rows), draw.integers(17, 91, rows)
    wed = draw.random(rows) < 0.47
    gain = np.where(draw.random(rows) < 0.08, draw.integers(100, 20_000, rows), 0)
    rich = (
        0.3 * (years - 10) + 0.03 * (hours - 40) + 0.02 * (age - 40) + 2.2 * wed + gain / 4000 - 3.2
        + draw.logistic(size=rows)
    ) > 0  # fmt: skip

    def word(*words: str) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        return draw.choice(np.array(words), rows)

    columns = (
        age, word("Private", "State-gov", "Self-emp-inc", "?"), draw.integers(10_000, 900_000, rows),
        np.array(["HS-grad", "Some-college", "Bachelors", "Masters"])[np.clip((years - 8) // 2, 0, 3)], years,
        np.where(wed, "Married-civ-spouse", word("Divorced", "Never-married", "Widowed")),
        word("Sales", "Tech-support", "Craft-repair", "Exec-managerial", "?"),
        np.where(wed, word("Husband", "Wife"), word("Not-in-family", "Own-child", "Unmarried")),
        word("White", "Black", "Asian-Pac-Islander"), word("Male", "Female"), gain,
        np.where(draw.random(rows) < 0.05, 1_902, 0), hours, word("United-States", "Mexico", "India", "?"),
        np.where(rich, ">50K", "<=50K"),
    )  # fmt: skip
    lines = [", ".join(map(str, person)) for person in zip(*columns, strict=True)]
    folder, tests = Path(folder), rows // 3
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adult.data").write_text("\n".join(lines[tests:]) + "\n\n")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + ".\n".join(lines[:tests]) + ".\n\n")


def write_credit(folder: str | Path, rows: int, seed: int) -> None:
    """Made-up clients in the same two files; late payments in the past and a low limit foretell the label."""
    draw = np.random.default_rng(seed)
    limit, delay, bill = draw.normal(size=(3, rows))
    host = draw.normal(size=(rows, 10))
    host[:, 0] = limit
    host[:, 1] = np.where(draw.random(rows) < 0.6, 0.810161, -1.234323)
    host[:, 5:] = 0.8 * delay[:, None] + 0.6 * host[:, 5:]
    guest = draw.normal(size=(rows, 13))
    guest[:, 0] = 0.8 * delay + 0.6 * guest[:, 0]
    guest[:, 1:7] = 0.95 * bill[:, None] + 0.3 * guest[:, 1:7]
    guest[:, 7:] = np.exp(0.7 * guest[:, 7:] + 0.3 * bill[:, None]) - 1.3
    late = 1.2 * delay - 0.6 * limit - 0.3 * guest[:, 7] + draw.logistic(size=rows) > 1.9
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, labels, columns in ((GUEST, {"y": late.astype(int)}, guest), (HOST, {}, host)):
        numbers = {f"x{column}": values for column, values in enumerate(columns.T)}
        table = pl.DataFrame({"id": np.arange(rows), **labels, **numbers})[draw.permutation(rows)]
        table.write_csv(Path(folder) / name, float_precision=6)


def save_fashion(data, folder: str | Path) -> None:
    """The four packed idx files of a data set, as `load` reads them; grey values are rounded to bytes."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", data.train), ("t10k", data.test)):
        grey = (part.images * 255).round().to(torch.uint8).reshape(-1, fashion.SIDE, fashion.SIDE)
        for kind, values in (("images-idx3", grey), ("labels-idx1", part.labels.to(torch.uint8))):
            sides = b"".join(side.to_bytes(4, "big") for side in values.shape)
            content = bytes([0, 0, 8, values.ndim]) + sides + values.cpu().contiguous().numpy().tobytes()
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, mtime=0))


def write_isic(folder: str | Path, rows: int, seed: int, *, ham: bool = False) -> None:
    """Made-up lesions in the official format: melanomas are larger, darker and less round than moles.

    One picture in ten is of a melanoma. A patient has one picture or a few, all with the same label.
    """
    draw = np.random.default_rng(seed)
    groups = np.cumsum(draw.random(rows) < 0.6, dtype=np.int64)
    labels = _tenth(groups, draw).tolist()
    words = ("nv", "mel") if ham else ("0", "1")
    people = (f"ISIC_{row:07d},P_{groups[row]:07d},{words[label]}" for row, label in enumerate(labels))
    pictures = Path(folder) / ("images" if ham else "jpeg/train")
    pictures.mkdir(parents=True, exist_ok=True)
    head = "image_id,lesion_id,dx" if ham else "image_name,patient_id,target"
    (Path(folder) / ("HAM10000_metadata.csv" if ham else "train.csv")).write_text("\n".join([head, *people]) + "\n")
    for row, label in enumerate(labels):
        pixels = Image.fromarray(_lesion(label, draw).transpose(1, 2, 0)).resize((120, 90))
        pixels.save(pictures / f"ISIC_{row:07d}.jpg", quality=85)


def _tenth(groups, draw):
    """Labels for whole groups, drawn until a tenth of the pictures is positive."""
    known, sizes = np.unique(groups, return_counts=True)
    order = draw.permutation(len(known))
    enough = int(np.searchsorted(np.cumsum(sizes[order]), len(groups) / 10)) + 1
    return np.isin(groups, known[order[:enough]])
