"""One party's run, read from its folder again and again: only what is new is parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np

from tacit.errors import DataError, TacitError
from tacit.report import seals
from tacit.report.document import Report
from tacit.report.exchange import exchange_of, figures_of, part_left, worst_of
from tacit.report.finding import Place, marks
from tacit.report.pacing import Line, pace_of, rate_now
from tacit.report.rendering import read as read_report
from tacit.report.series import Cells, Group, Series, by_protection, finite
from tacit.report.status import GATE, LIVE, LOGS, PACE, REPORT, STATUS, Tail, alive, read_all

_FILES = (STATUS, LOGS[-1], LIVE, GATE, PACE, REPORT)
_EVENTS = 1000
_LARGEST = 2**53  # no count of ours is larger, and no larger one is a figure to draw
_LATELY = 16  # looks of which the worst attack now is told
_SPARK = 40
_UTILITY = ("test_auc", "test_loss", "train_loss")  # what a model is first judged by
_CARD = (
    "run", "party", "role", "state", "alive", "time", "turn", "turns", "epoch", "epochs", "journal_bytes", "alarms",
    "mode", "peer", "why", "label_bound", "release",
)  # fmt: skip


class RunReader:
    """Everything a run's folder tells."""

    def __init__(self, place: Place) -> None:
        self.place = place  # where it is
        # every curve, by group and name; only added to, unless the run was set back
        self.series: dict[str, Series] = {}
        self.pace: list[Line] = []  # when which turn was done
        self.decisions: list[dict[str, Any]] = []  # of its gate
        self.events: list[dict[str, Any]] = []  # of its log, the last thousand
        self.document: Report | None = None  # its report; None where there is none
        self.report: dict[str, Any] | None = None  # the same, as `report.json` has it
        self.status: dict[str, Any] = {}  # as `tacit status` tells it
        self.problems: list[str] = []  # what could not be read
        self._live, self._pace = Tail(place.path / LIVE), Tail(place.path / PACE)
        self._looks: dict[str, Series] = {}
        self._seen: tuple[Any, ...] = ()
        self._unread: list[str] = []

    def fingerprint(self) -> tuple[Any, ...]:
        """Changes whenever a file does, or the process that writes them ends."""
        return (*marks(self.place.path / name for name in _FILES), alive(self.status.get("pid")))

    def refresh(self) -> bool:
        """Read what is new; whether there was anything."""
        now = self.fingerprint()
        if now == self._seen:
            return False
        self._check_files()
        self.status, events, self.decisions = read_all(self.place.path)
        self.events = events[-_EVENTS:]
        self.problems = list(self.status.pop("problems"))
        if now[_FILES.index(REPORT)] not in self._seen:
            self.document, self._unread = self._report()
            self.report = None if self.document is None else self.document.model_dump(mode="json")
        self.problems += self._unread
        self._read_looks()
        self._read_pace()
        self.series = self._looks | self._derived()
        self._seen = (*now[:-1], alive(self.status.get("pid")))  # what changed while this was read is read again
        return True

    @property
    def measure(self) -> str:
        """What leaks are told in: a label party's of labels, a feature party's of its columns."""
        return "variance_read" if self.status.get("role") == "features" else "leak_auc"

    @property
    def _one_shot(self) -> bool:
        return self.status.get("mode") == "one_shot"

    @property
    def steps(self) -> int | None:
        """Steps of an epoch."""
        steps = self.status.get("steps")
        if steps is None and self.status.get("epochs"):
            steps = max(1, self.status["turns"] // self.status["epochs"])
        return steps

    def decided_at(self, decision: Mapping[str, Any]) -> int:
        """The step before which its gate has decided."""
        return self._step(decision["epoch"] - 1)

    def card(self) -> dict[str, Any]:
        """What an overview shows."""
        status, report = self.status, self.report or {}
        protection = (report.get("subject") or {}).get("protection")
        gate = self.decisions[-1] if self.decisions else {"strength": protection}
        rate = rate_now(self.pace) if status.get("alive") else None
        left = max(0, status.get("turns", 0) - status.get("turn", 0))
        met = sum(event["event"] == "connected" for event in self.events)
        return {
            "id": self.place.id, "name": self.place.name, **{name: status.get(name) for name in _CARD},
            "measure": self.measure, "limit": self._limit(), "strength": gate.get("strength"),
            "leaks": [(curve.name, curve.y[-1]) for curve in self._curves("leak")], "waits_since": self._waits_since(),
            "worst": self._worst(), "verdict": report.get("verdict"),
            "reason": status.get("reason"), "utility": self._utility(), "spark": self._spark(), "rate": rate,
            "seconds_left": part_left(status) if self._one_shot else left / rate if rate else None,
            "doing": {name: status.get(name) for name in ("part", "done", "total")},
            "left_bytes": sum(departure["bytes"] for departure in status.get("left", [])),
            "reconnects": max(0, met - 1), "problems": self.problems,
            "report": (self.place.path / "report.html").exists(),
        }  # fmt: skip

    def detail(self, points: int = 2000) -> dict[str, Any]:
        """What a page about this run shows."""
        report = self.report or {}
        leaks = report.get("leaks", [])
        pace = pace_of(self.pace, self.events, points)
        decided = [
            {name: value for name, value in decision.items() if name != "measured"}
            | {"step": self.decided_at(decision)}
            for decision in self.decisions
        ]
        return {
            **self.card(), "steps": self.steps,
            "curves": [curve.shown(points) for curve in self.series.values()],
            "total": sum(map(len, self.series.values())), "limits": self._limits(),
            "decisions": decided, "pace": pace,
            "history": self.status.get("history", []), "events": self.events[-50:],
            "matrix": self._matrix(leaks), "leaks": leaks, "moments": report.get("moments", []),
            "exchange": exchange_of(self.status, pace["stalls"], report) if self._one_shot else None,
        }  # fmt: skip

    def _check_files(self) -> None:
        """A pipe or a device in the place of a file would hold whoever opens it for ever."""
        for name in (*_FILES, *LOGS):
            path = self.place.path / name
            if path.exists() and not path.is_file() and not path.is_dir():
                raise DataError(f"{path} is a pipe or a device, which no run has written: remove it")

    def _add(
        self, curves: dict[str, Series], key: str, x: float, y: Any, interval: tuple[float, float] | None = None
    ) -> None:
        if type(y) not in (int, float) or (type(y) is int and abs(y) > _LARGEST):
            return
        if key not in curves:
            group, _, name = key.partition("/")
            curves[key] = Series(name, cast(Group, group), self.measure if group in ("leak", "gate") else None)
        curves[key].add(x, y, interval)

    def _read_looks(self) -> None:
        """Figures of looks while training ran, which are only added to, unless the run was set back."""
        if self._live.anew():
            self._looks = {}
        for line in self._live.fresh():
            step, found, figures = line.get("step"), line.get("found"), line.get("figures", {})
            if type(step) is not int or abs(step) > _LARGEST or type(found) is not dict or type(figures) is not dict:
                continue
            for name, value in found.items():
                self._add(self._looks, f"leak/{name}", step, value)
            self._add(self._looks, "utility/loss", step, figures.get("loss"))

    def _derived(self) -> dict[str, Series]:
        """Curves of what the gate, the status and the report tell: few points, made anew each time."""
        curves: dict[str, Series] = {}
        for decision in self.decisions:
            step = self.decided_at(decision)
            for figure in decision["measured"]:
                key = f"gate/{figure['attack']} on {figure['on']}"
                self._add(curves, key, step, figure["value"], (figure["low"], figure["upper"]))
        for line in self.status.get("history", []):
            for name, value in line.items():
                if name != "epoch":
                    self._add(curves, f"utility/{name}", self._step(line["epoch"] + 1), value)
        for name, value, ends in figures_of(self.report or {}):
            self._add(curves, f"exchange/{name}", 1, value, ends)
        return curves

    def _read_pace(self) -> None:
        if self._pace.anew():
            self.pace = []
        for line in self._pace.fresh():
            time, turn, state, journal = (line.get(name) for name in ("time", "turn", "state", "journal_bytes"))
            if isinstance(time, int | float) and type(turn) is int and type(journal) is int and isinstance(state, str):
                self.pace.append((float(time), turn, state, journal))

    def _report(self) -> tuple[Report | None, list[str]]:
        path = self.place.path / REPORT
        if not path.exists():
            return None, []
        if seals.key_of(self.place.path) is not None and not seals.holds(path):
            return None, [f"{path} is not as `tacit audit` wrote it, or of a version before seals: audit the run again"]
        try:
            return read_report(path), []
        except (OSError, TacitError) as error:
            return None, [str(error)]

    def _step(self, epochs: float) -> int:
        return round(epochs * (self.steps or 1))

    def _limit(self) -> float | None:
        told = self.status if self.report is None else self.report
        limit = self.decisions[-1]["limit"] if self.decisions else told.get("limit")
        return limit if isinstance(limit, int | float) else None

    def _limits(self) -> dict[str, Any] | None:
        """The limit over steps: what was set before each decision, and since the last one."""
        points = [(self.decided_at(decision), decision["limit"]) for decision in self.decisions]
        if not points and self._limit() is not None:
            points = [(0, self._limit())]
        if not points:
            return None
        reached = [int(curve.x[-1]) for curve in self.series.values() if curve.x]
        end = max(self._step(self.status.get("epochs", 0)), *reached, 0)
        return {"x": [*(step for step, _ in points), end], "y": [*(limit for _, limit in points), points[-1][1]]}

    def _matrix(self, leaks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Every attack that the gate has tried, before each epoch, and in the report."""
        columns: list[tuple[str, Cells]] = []
        for decision in self.decisions:
            cells = {
                (one["attack"], one["on"]): (one["value"], one["low"], one["upper"]) for one in decision["measured"]
            }
            if cells:
                columns.append((f"before epoch {decision['epoch']}", cells))
        if leaks:
            reported = {(leak["attack"], leak["on"]): (leak["value"], leak["low"], leak["high"]) for leak in leaks}
            columns.append(("report", reported))
        return by_protection(columns)

    def _utility(self) -> dict[str, Any] | None:
        latest = self.status.get("history", [{}])[-1:] or [{}]
        figures = {name: value for name, value in latest[0].items() if name != "epoch"}
        name = next((name for name in (*_UTILITY, *figures) if name in figures), None)
        return None if name is None else {"name": name, "value": finite([figures[name]])[0]}

    def _worst(self) -> dict[str, Any] | None:
        """The worst that is known: of the report, else of the gate's last look back, else of the latest looks."""
        if self.report and self.report.get("worst"):
            return {**self.report["worst"], "on": "report"}
        if self._one_shot:
            return worst_of(self.status)
        judged = next((decision["worst"] for decision in reversed(self.decisions) if decision["worst"]), None)
        if judged is not None:
            ends = {"low": judged["low"], "high": judged["upper"]}
            return {"attack": judged["attack"], "value": judged["value"], **ends, "on": judged["on"]}
        lately = {
            curve.name: curve.mean(len(curve) - _LATELY, len(curve)) for curve in self._curves("leak") if curve.raw
        }
        lately = {name: value for name, value in lately.items() if math.isfinite(value)}
        if not lately:
            return None
        name = max(lately, key=lately.__getitem__)
        return {"attack": name, "value": lately[name], "low": None, "high": None, "on": "live"}

    def _curves(self, group: Group) -> list[Series]:
        return [curve for curve in self.series.values() if curve.group == group and len(curve)]

    def _waits_since(self) -> float | None:
        """Since when it waits for its peer, in seconds since 1970; None where it does not."""
        since = None
        if self.status.get("state") == "waiting" and self.status.get("alive"):
            for when, _, state, _ in reversed(self.pace):
                if state != "waiting":
                    break
                since = when
        return since

    def _spark(self) -> dict[str, Any]:
        """The worst attack over time, in a few points, each a mean over many looks."""
        looked = [curve for curve in self._curves("leak") if curve.raw]
        longest = max(looked, key=len, default=None)
        if longest is None:
            return {"x": [], "y": []}
        cuts = np.unique(np.linspace(0, len(longest), min(_SPARK, len(longest)) + 1).astype(int))
        alike = [curve for curve in looked if len(curve) == len(longest)]
        pieces = list(pairwise(cuts.tolist()))
        means = [[curve.mean(first, last) for curve in alike] for first, last in pieces]
        return {
            "x": [longest.x[last - 1] for _, last in pieces],
            "y": finite([max(filter(math.isfinite, some), default=math.nan) for some in means]),
        }
