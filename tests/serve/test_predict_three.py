"""Three companies: a row is scored jointly where both feature parties have it."""

import numpy as np
import polars as pl
import pytest

from tacit.serve.conversation import Telling
from tacit.serve.halves import load_embedder, load_scorer
from tacit.serve.predict import predict
from tests.exchange.companies import Companies, table

QUICK = 'learn = { learner = "linear" }\nalign.allow_edits = true\n'


@pytest.fixture(autouse=True)
def _state_of_the_test():
    """None: these tests work in the companies' own folders, one after the other, and what leaves is counted for all."""


@pytest.fixture(scope="module", name="companies")
def _companies(tmp_path_factory):
    companies = Companies(tmp_path_factory.mktemp("three"), table(900), ("airport", "weather"))
    companies.set("airport", columns='categorical = ["port"]', more=QUICK)
    companies.set("weather", columns='numeric = ["wind", "rain"]', more=QUICK)
    companies.align()
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies


@pytest.mark.parametrize("match", ["private", "keyed"])
def test_rows_that_one_of_them_lacks_have_the_fallback(companies, tmp_path, match):
    source, out = tmp_path / "new.parquet", tmp_path / "scores.parquet"
    pl.read_parquet(companies.path / "airline" / "data.parquet").select("id", "plane").head(300).write_parquet(source)
    weather = pl.read_parquet(companies.path / "weather" / "data.parquet").tail(700)
    weather.write_parquet(tmp_path / "weather.parquet")
    files = {"airline": (source, out), "weather": (tmp_path / "weather.parquet",)}

    def act(name, waiting):
        return predict(companies.folder(name), *files.get(name, ()), match=match, telling=Telling(waiting=waiting))

    done = companies.together(act)
    assert not [one for one in done.values() if isinstance(one, BaseException)], done
    asked, written = pl.read_parquet(source), pl.read_parquet(out)
    joint = asked["id"].is_in(weather["id"].to_list()).to_numpy()
    assert 0 < joint.sum() < 300
    assert (written["basis"] == "joint").to_numpy().tolist() == joint.tolist()
    if match == "private":
        assert done["airport"].rows == joint.sum(), "nothing leaves of a row that can't be scored with it"
    tables = {"airport": pl.read_parquet(companies.path / "airport" / "data.parquet"), "weather": weather}
    rows = asked.filter(joint)
    embeddings = {
        name: load_embedder(companies.folder(name), "test").embed(rows.select("id").join(tables[name], on="id"))
        for name in companies.parties
    }
    scores = load_scorer(companies.folder("airline"), "test").score(rows, embeddings)
    assert np.array_equal(written.filter(joint)["score"].to_numpy(), scores[:, 0])
