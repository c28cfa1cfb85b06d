"""README's picture and tables and the demo's sample, from what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from benchmarks.comparison.table import LIMIT, ROWS
from papers.claims import claims
from papers.claims.record import read
from scripts.docs_tables import filled, grid
from scripts.pictures_draw import Panel, dot, path, picture, square, words
from tacit.report.svg import el, ticks

Document = Mapping[str, Any]

ROOT = Path(__file__).parents[2]
_NARROW = 480  # so wide that its letters can still be read on a phone
_CURVES = {"iso": "iso", "max_norm": "max_norm", "marvell": "Marvell", "matched": "matched (ours)"}
_DASHED = {"joined": "all columns joined", "label_free": "no label sent (8 numbers)", "alone": "label party alone"}
_EXCHANGES = ("exchange_8_numbers", "exchange_3_bits")
_CUT = (
    "─",
    "bytes",
    "label bound: eps",
    "features: recovered on average",
    "a new flight",
)  # lines of the demo that README leaves out
_HEAD = ("", "from", "norm, cosine", "best of all", "bound", "features", "test AUC", "bytes")


def pages(document: Document) -> dict[str, str]:
    """The files that show what was measured, by their places in the checkout."""
    readme, tutorial = "README.md", "docs/tutorial-ten-minutes.md"
    acts = document.get("demo", {}).get("acts", [])
    blocks = {f"act_{place}": f"```text\n{act}\n```" for place, act in enumerate(acts, start=1)}
    cut = "\n\n".join(_head(act) for act in acts[1:])
    mine = {"comparison": table(document), "demo": f"```text\n{cut}\n```", "claims": judged()}
    return {
        "docs/images/comparison.svg": drawn(document),
        readme: filled((ROOT / readme).read_text(), mine),
        tutorial: filled((ROOT / tutorial).read_text(), blocks),
    }


def _head(act: str) -> str:
    """An act's table without the lines that README leaves out."""
    lines = act.partition("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(_CUT))


def judged() -> str:
    """How many of the papers' claims hold here, of those that are judged."""
    counts = Counter(one["verdict"] for one in read()["claims"].values() if one["verdict"])
    told = f"Of {len(claims())} claims of the papers, {counts.total()} are judged here so far"
    return f"{told}: {counts['holds']} hold, {counts['differs']} differ."


def table(document: Document) -> str:
    """A line for each row that was measured."""
    rows = document["rows"]
    return grid(_HEAD, [_line(name, rows[name]) for name in ROWS if name in rows and name != "untrained"])


def _line(name: str, row: Mapping[str, Any]) -> list[str]:
    worth, features, bound = row["test_auc"], row["features"], row["bound"]
    attacked = row["worst"] is not None
    return [
        ROWS[name].words + (f"`{_spelled(row['setting'])}`" if attacked else ""),
        ROWS[name].source,
        f"{row['norm']:.2f}, {row['cosine']:.2f}" if attacked else "",
        f"{row['worst']['leak_auc']:.2f} {row['worst']['attack']}" if attacked else "",
        "" if bound is None else f"{bound['leak_auc']:.2f}",
        "" if features is None else f"{features['worst']:.2f}",
        f"{worth['mean']:.3f}" + ("" if worth["half"] is None else f" ± {worth['half']:.3f}"),
        _size(sum(row["bytes"].values())),
    ]


def _spelled(setting: Mapping[str, Any]) -> str:
    """A protection as settings and Python spell it."""
    options = ", ".join(f"{key}={value:g}" for key, value in setting.items() if key != "name")
    return str(setting["name"]) + (f"({options})" if options else "")


def _size(count: float) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.0f} {unit}"
    return ""


# --- the picture -----------------------------------------------------------------------------------------------------


def drawn(document: Document) -> str:
    """Leak AUC across, test AUC up: each protection under the papers' attacks and under all, and what has a bound."""
    rows = document["rows"]
    worth = {name: row["test_auc"]["mean"] for name, row in rows.items()}
    curves = {name: rows[name]["curve"] for name in _CURVES if name in rows}
    every = [*worth.values(), *(one["test_auc"]["mean"] for curve in curves.values() for one in curve)]
    panel = Panel(46, 58, 418, 300, (0.5, 1.0), (min(every) - 0.01, max(every) + 0.016))
    inside = [
        words("What leaks of labels, and what the model is worth", 14, 24, "head"),
        words("test AUC", 14, 44, "faint"),
        *panel.beside(ticks(*panel.up, 6)),
        *panel.below(ticks(0.5, 1.0, 5), "{:.1f}"),
        words("leak AUC: 0.5 is a guess, 1 every label", 464, 390, "faint", anchor="end"),
        *_references(panel, worth),
        *_bound(panel, worth),
    ]
    told = [f"{_DASHED[name]}: test AUC {worth[name]:.3f}" for name in _DASHED if name in worth]
    for name, curve in curves.items():
        papers = [(panel.x(max(one["norm"], one["cosine"])), panel.y(one["test_auc"]["mean"])) for one in curve]
        most = [(panel.x(one["worst"]["leak_auc"]), panel.y(one["test_auc"]["mean"])) for one in curve]
        inside += _curve(papers, name, hollow=True) + _curve(most, name)
        told += [
            f"{_spelled(one['setting'])}: the papers' attacks {max(one['norm'], one['cosine']):.2f}, "
            f"the best of all {one['worst']['leak_auc']:.2f}, test AUC {one['test_auc']['mean']:.3f}"
            for one in curve
        ]
    told += [f"{ROWS[name].words}: bound {LIMIT:g}, test AUC {worth[name]:.3f}" for name in _EXCHANGES if name in worth]
    return picture("What leaks of labels, and what the model is worth", "; ".join(told), 466, inside + _key(), _NARROW)


def _references(panel: Panel, worth: Mapping[str, float]) -> list[Markup]:
    """Lines across, of what needs no protection."""
    inside, right = [], panel.left + panel.width
    for name, called in _DASHED.items():
        if name in worth:
            y = panel.y(worth[name])
            inside.append(
                el("path", d=f"M{panel.left} {y:.1f}H{right}", style="stroke: var(--ink); stroke-dasharray: 5 4")
            )
            below = name == "label_free"
            inside.append(words(f"{called}: {worth[name]:.3f}", right - 10, y + (15 if below else -5), anchor="end"))
    return inside


def _bound(panel: Panel, worth: Mapping[str, float]) -> list[Markup]:
    """The line that no attack can pass, and one exchange on it."""
    x = panel.x(LIMIT)
    style = "stroke: var(--response); stroke-width: 1.6"
    inside = [el("path", d=f"M{x:.1f} {panel.top}V{panel.top + panel.height}", style=style)]
    inside.append(words("one exchange:", x + 6, panel.top + 0.52 * panel.height, fill="response"))
    inside.append(words(f"bounded, {LIMIT:g}", x + 6, panel.top + 0.52 * panel.height + 16, fill="response"))
    return inside + [square(x, panel.y(worth[name]), "response") for name in _EXCHANGES if name in worth]


def _curve(points: Sequence[tuple[float, float]], colour: str, *, hollow: bool = False) -> list[Markup]:
    line = f"fill: none; stroke: var(--{colour}); stroke-width: 1.8" + "; stroke-dasharray: 2 3" * hollow
    dots = [dot(x, y, colour, hollow=hollow) for x, y in points]
    return [path(points, line), *dots] if len(points) > 1 else dots


def _key() -> list[Markup]:
    inside = []
    for place, (colour, name) in enumerate(_CURVES.items()):
        x = (24, 90, 190, 278)[place]
        inside += [dot(x, 410, colour), words(name, x + 10, 414)]
    inside += [dot(24, 432, "ink", hollow=True), words("under the papers' norm and cosine attacks", 34, 436)]
    inside += [dot(24, 452, "ink"), words("under the best of all attacks", 34, 456)]
    inside += [square(300, 452, "response"), words("8 numbers or 3 bits a row", 310, 456)]
    return inside
