"""Made-up reports as real ones look: full, minimal, with a broken limit, of features, of foreign files, very long."""

import math
import random

import pytest

from tacit.report.document import (
    Decision,
    Leak,
    LiveCurve,
    Moment,
    NotTested,
    Override,
    Report,
    Subject,
)

_BATCHES = [
    (
        "norm",
        0.512,
        "Scores a row by the length of its gradient.",
        "the gradients",
        "one pass over the gradients",
        0.02,
    ),
    (
        "cosine",
        0.541,
        "Scores a row by the cosine of its gradient with one clean positive gradient.",
        "the gradients; one clean positive gradient at every step",
        "one pass over the gradients",
        0.03,
    ),
    (
        "hint(k=5, similarity=inner)",
        0.519,
        "Scores a row by its similarity to the nearest of k known positives in its batch.",
        "the gradients; at most k positives in each batch",
        "O(batch * width * k) for each step",
        0.11,
    ),
    (
        "residual",
        0.535,
        "Scores a row by its energy outside the leading directions of what its own batch brought.",
        "the gradients",
        "one eigendecomposition for each batch",
        0.64,
    ),
    (
        "likelihood(components=256)",
        0.538,
        "Scores a row by the likelihood ratio of two Gaussians, fitted on the rows whose label is known.",
        "the gradients; half of the labels",
        "two covariances of the width",
        1.92,
    ),
    (
        "learned",
        0.533,
        "Scores a row by a small network, trained on the rows whose label is known.",
        "the gradients; half of the labels",
        "a few hundred updates of a small network",
        4.81,
    ),
]
_VISITS = [
    ("accumulated(residual, mean)", 0.552, "Averages all visits of an example, then looks at the residual."),
    ("accumulated(likelihood, spread)", 0.529, "Looks at what the noise of an example's visits is like."),
]


def subject(**changes):
    given = {
        "kind": "run",
        "side": "features",
        "run": "credit-2026-03",
        "party": "harbour-bank",
        "role": "label",
        "peers": ("blue-lane-retail",),
        "contract": "9f2c4be1a07d5568c3f1e0b7d9a2648813c55f0e7ab94d2216d0c8fa73e1b945",
        "alignment": "spring",
        "protection": "matched(leak_auc=0.60, visits=8)",
        "rows": 24_000,
        "width": 128,
        "epochs": 8,
        "steps": 1_504,
        "versions": {"Tacit": "0.6.0", "Python": "3.11.2", "torch": "2.13.0"},
    }
    return Subject(**{**given, **changes})


def label_leaks(shift=0.0):
    leaks = [
        Leak(
            attack=name,
            on="batches",
            value=value + shift,
            low=value + shift - 0.009,
            high=value + shift + 0.009,
            quantile=value + shift + 0.031,
            about=about,
            knows=knows,
            costs=costs,
            seconds=seconds,
        )
        for name, value, about, knows, costs, seconds in _BATCHES
    ]
    leaks.append(
        Leak(
            attack="contextual",
            on="batches",
            value=0.741,
            low=0.729,
            high=0.753,
            baseline=0.713,
            about="Scores a row by a small network that sees its own embedding and the received gradient.",
            knows="its own embeddings and the gradients; half of the labels",
            costs="twice the learned attack",
            seconds=9.3,
        )
    )
    leaks += [
        Leak(
            attack=name,
            on="visits",
            value=value + shift,
            low=value + shift - 0.014,
            high=value + shift + 0.014,
            about=about,
            knows="the row ids, and what the other attack knows",
            costs="one pass over the gradients, and the other attack",
            seconds=2.2,
        )
        for name, value, about in _VISITS
    ]
    return tuple(leaks)


def named(leaks, attack):
    """The leak of an attack."""
    return next(leak for leak in leaks if leak.attack == attack)


def moments(leaks, aucs):
    return tuple(
        Moment(
            epoch=i + 1,
            worst=Leak(attack="cosine", on="live", value=leak, low=leak - 0.02, high=leak + 0.02),
            figures={"test_auc": auc, "test_loss": 0.5 - auc / 10},
        )
        for i, (leak, auc) in enumerate(zip(leaks, aucs, strict=True))
    )


def curves(epochs, names=("cosine", "residual", "norm", "majority"), start=0.62, seed=5):
    draw = random.Random(seed)
    return tuple(
        LiveCurve(
            attack=name,
            steps=tuple(range(20, 188 * epochs, 20)),
            values=tuple(
                max(0.5, start - 0.02 * place - 0.07 * (1 - math.exp(-step / 300)) + draw.gauss(0, 0.008))
                for step in range(20, 188 * epochs, 20)
            ),
        )
        for place, name in enumerate(names)
    )


def full(**changes):
    """A run that held its limit after the gate paused it and somebody went on."""
    given = {
        "made": "2026-03-14T09:26:53+00:00",
        "subject": subject(),
        "limit": 0.6,
        "on_limit": "pause",
        "verdict": "held",
        "worst": named(label_leaks(), "accumulated(residual, mean)"),
        "leaks": label_leaks(),
        "moments": moments(
            (0.612, 0.601, 0.588, 0.583, 0.561, 0.552, 0.549, 0.547),
            (0.702, 0.724, 0.733, 0.738, 0.739, 0.742, 0.744, 0.745),
        ),
        "decisions": (
            Decision(time="2026-03-14T08:41:07+00:00", epoch=1, decision="keep", reason="worst q95 0.598, limit 0.600"),
            Decision(time="2026-03-14T08:47:52+00:00", epoch=2, decision="pause", reason="cosine q95 0.621 over 0.600"),
            Decision(
                time="2026-03-14T08:54:31+00:00", epoch=2, decision="resume", reason="cosine q95 0.621 under 0.640"
            ),
            Decision(time="2026-03-14T09:01:15+00:00", epoch=5, decision="keep", reason="worst q95 0.579 under 0.600"),
        ),
        "curves": curves(8),
        "overrides": (),
        "not_tested": (
            NotTested(what="cosine", why="no clean gradient of a positive example was recorded"),
            NotTested(
                what="An active peer", why="the peer is taken to follow the protocol; crafted embeddings were not tried"
            ),
            NotTested(what="Collusion of several feature parties", why="there is one feature party in this run"),
        ),
        "assumptions": (
            "The attacker knows the labels of half of the examples, and is judged on the other half.",
            "The last 24 batches of 1,024 rows, and all visits of 4,096 examples, stand for the whole training.",
        ),
        "repeat": (
            "tacit audit runs/credit-2026-03 --folder harbour-bank --out report",
            "tacit ledger --folder harbour-bank --check",
        ),
    }
    return Report(**{**given, **changes})


def minimal():
    """A report with nothing in it that may be missing."""
    return Report(
        made="2026-03-14T09:26:53Z", subject=Subject(kind="run", side="features", run="first"), verdict="not judged"
    )


def broken():
    """A limit that was broken, and a run that somebody let out all the same."""
    return full(
        verdict="broken",
        on_limit="pause",
        worst=named(label_leaks(0.16), "accumulated(residual, mean)"),
        leaks=label_leaks(0.16),
        subject=subject(protection="marvell(scale=4)"),
        moments=moments((0.655, 0.662, 0.671), (0.716, 0.735, 0.744)),
        decisions=(
            Decision(
                time="2026-03-14T08:54:31+00:00", epoch=3, decision="pause", reason="residual q95 0.671, limit 0.600"
            ),
        ),
        curves=curves(3, start=0.71),
        overrides=(
            Override(
                time="2026-03-14T10:02:44+00:00",
                who="Ines Falk",
                what="exported the model of credit-2026-03",
                reason="pilot with synthetic customers only, agreed with legal on 12 March",
            ),
        ),
    )


def features():
    """What a label party reads in embeddings."""
    leaks = tuple(
        Leak(
            attack=name,
            on=on,
            measure=measure,
            value=value,
            low=value - 0.02,
            high=value + 0.02,
            about="A decoder that is fitted on half of the examples and judged on the others.",
            knows="the embeddings; the columns of half of the examples",
            costs=costs,
            seconds=1.4,
        )
        for name, on, measure, value, costs in (
            ("linear_decoder", "batches", "variance_read", 0.218, "one least squares problem"),
            ("decoder", "batches", "variance_read", 0.264, "a few hundred updates"),
            ("accumulated(linear_decoder)", "visits", "variance_read", 0.291, "one least squares problem"),
            ("attribute(age)", "batches", "attribute_auc", 0.617, "one logistic regression"),
        )
    )
    return Report(
        made="2026-03-14T09:26:53+00:00",
        subject=subject(
            side="label",
            party="blue-lane-retail",
            role="features",
            peers=("harbour-bank",),
            protection="gaussian(std=0.5)",
        ),
        limit=0.4,
        on_limit="stop",
        verdict="held",
        worst=named(leaks, "accumulated(linear_decoder)"),
        leaks=leaks,
        moments=tuple(
            Moment(
                epoch=epoch,
                worst=Leak(
                    attack="linear_decoder",
                    on="live",
                    value=leak,
                    low=leak - 0.02,
                    high=leak + 0.02,
                    measure="variance_read",
                ),
            )
            for epoch, leak in enumerate((0.241, 0.229, 0.22), start=1)
        ),
        curves=(
            LiveCurve(
                attack="linear_decoder", measure="variance_read", steps=(100, 200, 300), values=(0.25, None, 0.22)
            ),
        ),
        assumptions=("The attacker knows the columns of half of the examples.",),
    )


def foreign():
    """The audit of somebody else's files, without a limit; the worst attack has a baseline."""
    return Report(
        made="2026-03-14T09:26:53+00:00",
        subject=Subject(
            kind="files",
            side="features",
            run="messages.npz",
            rows=8_192,
            width=64,
            steps=48,
            versions={"Tacit": "0.6.0"},
            files={"messages.npz": "ab" * 32},
        ),
        verdict="no limit",
        worst=Leak(attack="contextual", on="batches", value=0.872, low=0.861, high=0.883, baseline=0.713),
        leaks=(
            Leak(attack="contextual", on="batches", value=0.872, low=0.861, high=0.883, baseline=0.713),
            Leak(attack="norm", on="batches", value=0.604, low=0.581, high=0.627, layer="cut"),
            Leak(attack="norm", on="batches", value=0.588, low=0.561, high=0.607, layer="bottom.0"),
        ),
        not_tested=(NotTested(what="All visits together", why="without ids, every row counts as another example"),),
        repeat=("tacit audit --messages messages.npz --out report",),
    )


def long():
    """A training of 200 epochs, a hundred attacks, names without a space."""
    draw = random.Random(3)
    leaks = tuple(
        Leak(
            attack=f"attack_{i}(option_of_a_long_name={i})",
            on=("batches", "visits")[i % 2],
            value=v,
            low=v - 0.01,
            high=v + 0.01,
        )
        for i, v in enumerate(draw.uniform(0.5, 0.58) for _ in range(100))
    )
    top = max(leaks, key=lambda one: one.value)
    return full(
        subject=subject(run="a" * 120, party="a-company-with-a-name-that-hardly-ends-anywhere-" * 2, epochs=200),
        leaks=leaks,
        worst=top,
        moments=moments(
            [0.61 - 0.04 * min(1, i / 60) + draw.gauss(0, 0.004) + 0.05 * (i == 7) for i in range(200)],
            [0.75 - 0.05 * math.exp(-i / 20) for i in range(200)],
        ),
        decisions=tuple(
            Decision(
                time="2026-03-14T08:41:07+00:00",
                epoch=i + 1,
                decision="resume" if i in (19, 39, 59) else "keep",
                reason=f"worst q95 after epoch {i + 1}",
            )
            for i in range(200)
        ),
        curves=curves(200, [f"attack_{i}" for i in range(14)]),
    )


REPORTS = {one.__name__: one for one in (full, minimal, broken, features, foreign, long)}


@pytest.fixture(name="reports", scope="session")
def _reports():
    return {name: make() for name, make in REPORTS.items()}
