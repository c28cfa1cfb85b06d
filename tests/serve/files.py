"""Trained companies in folders of a test's own, files to be scored, and what the scores must be."""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from tacit.serve.conversation import Telling
from tacit.serve.halves import load_embedder, load_scorer
from tacit.serve.predict import predict
from tests.torture.workers import state_of
from tests.torture.world import free_port


class OverError(Exception):
    """The other party has failed, so nobody waits for it any longer."""


def copied(source, folder):
    """Both companies' folders once more, at another port, with what was counted apart from them."""
    port = free_port()
    for name in ("airline", "airport"):
        shutil.copytree(source / name, folder / name)
        shutil.copytree(os.environ["TACIT_STATE"], state_of(folder / name))
        settings = folder / name / "party.toml"
        settings.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", settings.read_text()))
    return folder


def to_score(folder, path, rows=700):
    """A file of rows: some that the airport has, some that it has not, one without an id, in no order."""
    own = pl.read_parquet(folder / "airline" / "data.parquet").select("id", "plane").head(rows)
    others = pl.DataFrame({"id": ["x1", None, "x2"], "plane": [0.1, 0.2, 0.3]})
    table = pl.concat([own, others]).sample(fraction=1.0, shuffle=True, seed=2)
    table.write_parquet(path) if path.suffix == ".parquet" else table.write_csv(path)
    return table


def expected(folder, table, *, fallback=True):
    """The scores of a file, computed from both halves in one place."""
    embedder, scorer = load_embedder(folder / "airport", "test"), load_scorer(folder / "airline", "test")
    features = pl.read_parquet(folder / "airport" / "data.parquet")
    embeddings = embedder.embed(features)
    place = dict(zip(features["id"].to_list(), range(len(features)), strict=True))
    at = np.array([place.get(one, -1) for one in table["id"].to_list()])
    scores = np.full(len(table), np.nan)
    joint = np.flatnonzero(at >= 0)
    scores[joint] = scorer.score(table[joint], {"airport": embeddings[at[joint]]})[:, 0]
    others = np.flatnonzero(at < 0)
    if fallback:
        scores[others] = scorer.score(table[others], None)[:, 0]
    return scores, at >= 0


def together(folder, source, out, *, airline=None, airport=None, match="private"):
    """Both parties at once, in threads; what each has come to, errors included."""
    over = []

    def waiting(*_):
        if over:
            raise OverError

    def one(name):
        options = {"match": match, "telling": Telling(waiting=waiting)}
        try:
            if name == "airline":
                return predict(folder / name, source, out, **(options | (airline or {})))
            return predict(folder / name, **(options | (airport or {})))
        except Exception as error:
            over.append(error)
            return error

    with ThreadPoolExecutor(2) as both:
        return dict(zip(("airline", "airport"), both.map(one, ("airline", "airport"), timeout=300), strict=True))
