"""One exchange as users of scikit-learn expect it: frames, estimators by column name, what a partner is worth."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn import metrics
from sklearn.compose import ColumnTransformer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import tacit
from tacit.errors import DataError, LabelsError, UsageError
from tacit.exchange import judged
from tacit.exchange.in_process import one_shot

from .companies import table

ROWS = table(rows=1500)
FEATURES, OWN, LATE = ROWS.select("wind", "rain", "port"), ROWS.select("plane"), ROWS["late"]
QUICK = {"limit": 0.8, "audit": False, "learner": "linear", "head": LogisticRegression()}


def trained(features=FEATURES, own=OWN, labels=LATE, **options):
    return one_shot(**({"features": features, "labels": labels, "own": own} | QUICK | options))


@pytest.fixture(scope="module", name="result")
def _result():
    return trained()


def test_frames_of_any_kind_give_the_same_and_come_back_as_they_went_in(result):
    frames = {
        "pandas": (FEATURES.to_pandas(), OWN.to_pandas(), LATE.to_pandas()),
        "arrow": (FEATURES.to_arrow(), OWN.to_arrow(), LATE.to_arrow()),
    }
    for features, own, labels in frames.values():
        assert np.array_equal(trained(features, own, labels, secret=result.secret).codes, result.codes)
    index = np.arange(1500)[::-1]
    scores = result.predict(features=FEATURES.to_pandas().set_index(index), own=OWN.to_pandas().set_index(index))
    assert isinstance(scores, pd.Series)
    assert scores.index.tolist() == index.tolist()
    assert scores.to_numpy() == pytest.approx(result.scores)
    assert isinstance(result.predict(features=FEATURES, own=OWN), pl.Series)
    assert isinstance(result.predict(features=FEATURES.to_arrow(), own=OWN.to_arrow()), pa.Array | pa.ChunkedArray)


def test_dates_are_columns_whatever_holds_them():
    day = pl.Series("day", np.arange(1500) % 700 + 18_000).cast(pl.Date)
    rows = FEATURES.with_columns(day, at=day.cast(pl.Datetime("us")))
    result = trained(rows, limit=0.9)
    assert {"day day", "day weekday", "at hour"} <= set(result.model.readers[0].read(rows, "features").names)
    frame = rows.to_pandas()
    assert frame["at"].dtype.kind == "M"
    assert np.array_equal(result.embed(rows.with_columns(pl.from_pandas(frame[["at"]]))), result.codes)


def test_pandas_frames_in_different_orders_are_refused():
    features, own = FEATURES.to_pandas(), OWN.to_pandas()
    with pytest.raises(UsageError, match="index of own differs"):
        trained(features, own.sample(frac=1, random_state=0), LATE.to_pandas())


def test_estimators_find_columns_by_their_names():
    by_name = make_pipeline(
        ColumnTransformer([("where", OneHotEncoder(handle_unknown="ignore"), ["port"])], remainder="passthrough"),
        LogisticRegression(max_iter=1000),
    )
    own = make_pipeline(
        ColumnTransformer([("sent", "passthrough", ["partner_0"]), ("plane", "passthrough", ["plane"])]),
        LogisticRegression(max_iter=1000),
    )
    result = trained(learner=by_name, head=own)
    assert result.figures["test_auc"] > 0.6


def test_the_fallback_scores_rows_without_a_partner(result):
    assert result.predict(own=OWN).to_numpy()[result.test] == pytest.approx(result.tested.alone[np.argsort(
        result.tested.rows)])  # fmt: skip


@pytest.mark.parametrize(
    "learner", ["linear", "trees", LogisticRegression(), LGBMClassifier(n_estimators=5, verbose=-1)]
)
def test_a_model_is_kept_without_pickle_and_scores_the_same(tmp_path, learner):
    result = trained(learner=learner)
    again = tacit.load(result.save(tmp_path / "model"))
    assert np.array_equal(again.embed(FEATURES), result.codes)
    assert np.array_equal(again.predict(features=FEATURES, own=OWN), result.predict(features=FEATURES, own=OWN))
    assert np.array_equal(again.predict(own=OWN), result.predict(own=OWN))
    with pytest.raises(UsageError, match="is there already"):
        result.save(tmp_path / "model")
    (tmp_path / "model" / "head" / "head.json").write_text("{")
    with pytest.raises(DataError, match="no head"):
        tacit.load(tmp_path / "model")
    with pytest.raises(UsageError, match="holds no model"):
        tacit.load(tmp_path)


def test_the_lift_of_rows_of_any_weight():
    lift = judged._TWO_CLASSES["lift, highest tenth"]
    truth, scores = np.array([1.0, 1, 0, 0, 0, 0, 0, 0, 1, 0]), np.linspace(1, 0, 10)
    assert lift(truth, scores, np.ones(10)) == pytest.approx(1 / 0.3)
    heavy = np.array([5.0, 0, 0, 0, 1, 1, 1, 1, 1, 0])  # the highest row alone is more than a tenth of all
    assert lift(truth, scores, heavy) == pytest.approx(1 / 0.6)
    assert lift(truth, scores, heavy[::-1]) == pytest.approx(1 / 0.1)
    generator = np.random.default_rng(0)
    for _ in range(200):
        groups = generator.integers(8, size=40)
        weights = generator.multinomial(8, np.full(8, 1 / 8))[groups].astype(float)
        y = generator.integers(2, size=40).astype(float)
        if len(np.unique(y[weights > 0])) > 1:
            assert 0 <= lift(y, generator.random(40), weights) < 41


def test_what_a_partner_is_worth(result):
    worth = result.worth()
    truth, test = LATE.to_numpy()[result.test], result.test
    row = dict(zip(worth["figure"], worth.iter_rows(named=True), strict=True))
    assert row["AUC"]["with the partner"] == pytest.approx(metrics.roc_auc_score(truth, result.scores[test]))
    assert row["PR-AUC"]["with the partner"] == pytest.approx(
        metrics.average_precision_score(truth, result.scores[test])
    )
    top = np.argsort(-result.scores[test], kind="stable")[: len(test) // 10]
    assert row["lift, highest tenth"]["with the partner"] == pytest.approx(truth[top].mean() / truth.mean())
    for one in row.values():
        assert one["low"] <= one["difference"] <= one["high"]
    assert row["AUC"]["low"] > 0, "the partner's columns make the labels"
    assert row["log loss"]["high"] < 0


def test_a_partner_who_brings_nothing_is_worth_nothing_in_about_95_of_100_intervals():
    draw, covered, runs = np.random.default_rng(5), 0, 40
    noise = pl.DataFrame(draw.normal(size=(1500, 2)), schema=["a", "b"])
    tested = trained(noise, limit=0.9).tested
    for run in range(runs):
        some = draw.permutation(len(tested.truth))[:150]
        scores = tested.alone[some] + draw.normal(scale=1e-3, size=150)
        part = type(tested)(tested.rows[some], tested.truth[some], scores, tested.alone[some], tested.codes[some],
                            tested.own, 2)  # fmt: skip
        auc = part.worth(draws=100, seed=run).row(0, named=True)
        covered += auc["low"] <= 0 <= auc["high"]
    assert covered >= 30  # of 40 at 95%, below which chance comes in one of 10^7 runs


def test_rows_of_a_household_are_drawn_together(result):
    alone, grouped = result.worth(), result.worth(by=np.repeat(np.arange(30), 50))
    assert grouped["difference"].to_list() == pytest.approx(alone["difference"].to_list())
    width = [(each["high"] - each["low"]).to_list() for each in (alone, grouped)]
    assert width[0] != pytest.approx(width[1])


def test_figures_by_segment_and_calibration(result):
    parts = result.by(ROWS["port"])
    assert parts["rows"].sum() == len(result.test)
    first = parts.row(0, named=True)
    here = result.test[(ROWS["port"].to_numpy()[result.test] == first["port"])]
    assert first["AUC"] == pytest.approx(metrics.roc_auc_score(LATE.to_numpy()[here], result.scores[here]))
    bins = result.calibration(5)
    assert bins["rows"].sum() == len(result.test)
    assert (bins["score"] * bins["rows"]).sum() == pytest.approx(result.scores[result.test].sum())
    with pytest.raises(Exception, match="one value for each"):
        result.by(ROWS["port"][:10])


def test_importance_is_that_of_shuffled_columns(result):
    lost = dict(result.importance().iter_rows())
    tested, head = result.tested, result.model.head

    class Scores:
        """scikit-learn's own measure asks for an estimator."""

        def fit(self, rows, labels):
            return self

    def auc(_, rows, labels):
        return metrics.roc_auc_score(labels, head.model.predict_proba(rows)[:, 1])

    rows = pd.DataFrame(
        np.column_stack([tested.own.categorical, tested.own.numeric, tested.codes]),
        columns=[*tested.own.names, "partner_0"],
    ).astype(np.float32)
    theirs = permutation_importance(Scores(), rows, tested.truth, scoring=auc, n_repeats=30, random_state=0)
    assert lost["the partner"] == pytest.approx(theirs.importances_mean[-1], abs=0.05)
    assert lost["plane"] == pytest.approx(theirs.importances_mean[0], abs=0.05)


def test_a_notebook_shows_figures_bound_and_picture(tmp_path):
    result = trained(audit=True)
    html = result._repr_html_()
    assert "PR-AUC" in html
    assert result.label_bound.sentence in html
    assert "There is no bound on what that tells" in html
    result.plot().savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_what_a_notebook_shows_has_a_line_for_each_column_and_what_the_partner_is_worth():
    page = trained(audit=True)._repr_html_()
    assert "most read of it" in page
    for name in FEATURES.columns:
        assert f">&quot;{name}&quot;</td>" in page or f"<td>{name}</td>" in page
    assert "PR-AUC" in page


def test_a_number_as_label_says_what_to_pass():
    with pytest.raises(
        LabelsError, match=r"1,500 different ones, and classes = 2: pass classes=None .* low=-\d+, high="
    ):
        trained(labels=ROWS["delay"])


def test_trees_have_the_names_of_columns():
    features = FEATURES.rename({"wind": "Wind [m/s]", "rain": "Wind: m/s"})
    model = trained(features, pl.DataFrame({"Größe, cm": OWN["plane"]}), head="trees").model
    assert model.head.forest.models[0].feature_name() == ["Größe_cm", "partner_0"]
