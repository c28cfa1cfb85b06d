"""Made-up reports of a training in one exchange, as real ones look: of a label party and of a feature party."""

from tacit.report.document import Leak, NotTested, Report, Subject
from tacit.report.exchanged import Bounded, Charged, ColumnRead, Departure, Exchanged, Figure, Released

MADE = "2026-03-14T09:26:53+00:00"


def subject(side, party, role, peer):
    return Subject(
        kind="run", side=side, run="flights", party=party, role=role, peers=(peer,), contract="9f2c" * 16,
        alignment="4d1f" * 16, protection="flips at AUC 0.6, odds 3", rows=3252, width=1, versions={"tacit": "0.6.0"},
    )  # fmt: skip


def bounded():
    """A label party's: a bound, and what was measured against it."""
    label_bound = Bounded(
        sentence="Whoever receives all of it tells two labels apart with an AUC of at most 0.600.",
        mechanism="flips at AUC 0.6, odds 3", parameters='{"mechanism": "flips"}', rows=3252, unit="row", auc=0.6,
        odds=3.0, total_auc=0.62, total_odds=3.5, budget=0.75, odds_budget=20.0, releases=2, labels=6504,
        charges=(Charged(units=3252, auc=0.62, odds=3.5, through="2 x flips"),), share=0.087, after=(0.069, 0.222),
        epsilon=1.253, posterior="8.7% of the labels are 1.",
        not_covered=("what a partner's own columns tell about labels",),
    )  # fmt: skip
    figures = (
        Figure(name="canaries", kind="measurement", value=0.597, low=0.584, high=0.61, most=0.6, held=True, about="x"),
        Figure(name="test AUC with partners", kind="private", value=0.669, about="of your private model"),
    )
    departures = (Departure(time=MADE, what="flipped labels", to="airport", rows=3252, bytes=407),)
    return Report(
        made=MADE, subject=subject("features", "airline", "label", "airport"), limit=0.6, verdict="held",
        worst=Leak(attack="label bound", on="exchange", value=0.6, low=0.6, high=0.6),
        exchange=Exchanged(label_bound=label_bound, figures=figures, departures=departures),
        not_tested=(NotTested(what="predictions", why="they are not sent"),), assumptions=("The secret is secret.",),
        repeat=("tacit audit airline/runs/flights",),
    )  # fmt: skip


def released():
    """A feature party's: what decoders read of its columns."""
    columns = tuple(
        ColumnRead(column=name, question="values told apart", decoder="network", rows="all", given=False, members=208,
                   value=value, low=value - 0.08, high=value + 0.08)
        for name, value in (("precip", 0.56), ("temp", 0.31))
    )  # fmt: skip
    release = Released(
        sentence="Of each row one of 8 groups was sent. There is no bound on what a group tells about a row; what it "
        "was found to tell stands below. The group may tell outright who has a trait that many share.",
        form="one of 8 groups", bits=3, numbers=1, smallest=0.021, learner="trees", labels="flips",
        worst=0.64, sure=0.48, slack=0.27, columns=columns, questions=602, known={"learnt": 1626},
        judged={"all": 2032}, matched=1.0, fingerprints=0.21, equal=None,
    )  # fmt: skip
    departures = (Departure(time=MADE, what="embedding", to="airline", rows=4064, bytes=4064),)
    return Report(
        made=MADE, subject=subject("label", "airport", "features", "airline"), limit=0.9, verdict="held",
        worst=Leak(attack="network on precip", on="exchange", value=0.56, low=0.48, high=0.64, measure="variance_read"),
        exchange=Exchanged(release=release, departures=departures),
    )  # fmt: skip
