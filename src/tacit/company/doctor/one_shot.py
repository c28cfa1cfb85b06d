"""What the doctor looks at where parties train in one exchange: learner, limit, coins, budget, and where is counted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator

from tacit.align.ids import read_ids
from tacit.company.doctor.finding import Finding, ok, problem, warning
from tacit.company.folder import Folder
from tacit.company.one_shot_common import check_at_home
from tacit.company.one_shot_label import mechanism_of
from tacit.config import ODDS_BUDGET, Head, Learn, OneShotContract
from tacit.errors import DataError
from tacit.one_shot.book import Book
from tacit.one_shot.mechanisms import described

Check = Callable[[], Finding]


def exchange_checks(opened: Folder, agreed: OneShotContract) -> Iterator[tuple[str, Check]]:
    """Each check with its name; none changes anything but for a probe file that is removed."""
    yield "learner", lambda: _learner(opened)
    yield "limit", lambda: _limit(opened, agreed)
    yield "state outside the folder", lambda: _state(opened)
    if opened.config.role == "label":
        if opened.config.data is not None and opened.data.is_file():
            yield "coin_id", lambda: _coin_id(opened)
        yield "budget", lambda: _budget(opened)


def _learner(opened: Folder) -> Finding:
    check_at_home(opened)  # which says what is missing
    config = opened.config
    head, learn = config.head or Head(), config.learn or Learn()
    kind, own = (head.kind, head.factory) if config.role == "label" else (learn.learner, learn.factory)
    return ok(f"{kind}, and all that it needs is here" if own is None else f"your own: {own}")


def _limit(opened: Folder, agreed: OneShotContract) -> Finding:
    """What is certified of labels, or that a feature party has something to hold its embedding against."""
    limit = opened.config.limit
    if opened.config.role == "label":
        made = mechanism_of(opened, agreed)  # which says what is wrong
        why = getattr(made, "why", "")
        return ok(f"certified: {described(made)}" + (f"; {why}" if why else ""))
    if limit is None:
        seen = "none is set: the embedding is attacked before it leaves, and leaves whatever was read"
        return warning(seen, "write limit = 0.6, the most that may be read of a column, or another")
    if agreed.exchange.labels == "sums":
        seen = f"at most {limit:g} may be read of any column, and groups of rows that are alike tell more: in none of "
        seen += "our trials, from 2 groups to 1024, did they pass a limit of 0.6; nothing would leave"
        return warning(seen, 'agree on labels = "flips", or set no limit if your columns are no secret')
    return ok(f"at most {limit:g} may be read of any column, else nothing leaves")


def _state(opened: Folder) -> Finding:
    """Whether there is a place apart from the folder in which is counted what left."""
    where, named = opened.tally_path_of("ledger").parent, bool(os.environ.get("TACIT_STATE"))
    above = next(one for one in (where, *where.parents) if one.exists())
    with tempfile.TemporaryFile(dir=above):  # an OSError where that can't be written
        pass
    if named:
        return ok(f"TACIT_STATE = {where}, which can be written")
    seen = f"{where}, which can be written; TACIT_STATE names no other place"
    return ok(seen, "in a container, let TACIT_STATE name a volume that lasts")


def _coin_id(opened: Folder) -> Finding:
    names = list(opened.table.coin_id or opened.table.ids)
    try:
        found = read_ids(opened.data, names, duplicates="error")
    except DataError as error:
        return problem(f"{names}: {error}", "name columns that tell every row from all others")
    return ok(f"{', '.join(names)}: {len(found.rows):,} rows, each its own")


def _budget(opened: Folder) -> Finding:
    config, path = opened.config, opened.path / "coins" / "book.sqlite"
    budget, odds_budget = config.spendable, ODDS_BUDGET if config.odds_budget is None else config.odds_budget
    most = f"budget {'none' if budget is None else f'{budget:g}'}, odds_budget {odds_budget:g}"
    if not path.exists():
        return ok(f"nothing has left yet; {most}")
    book = Book(path, opened.secret)
    try:
        book.claim()
        spent = book.summary()
    finally:
        book.close()
    seen = f"spent: leak AUC {spent.auc:.3f}, odds {spent.odds:.3g} in {len(spent.releases)} exchanges; {most}"
    if (budget is not None and spent.auc >= budget - 1e-9) or spent.odds >= odds_budget - 1e-9:
        do = "labels that left can be sent again at the same limit; new limits need another budget in party.toml"
        return warning(f"{seen}: nothing is left for the labels told most about", do)
    return ok(seen)
