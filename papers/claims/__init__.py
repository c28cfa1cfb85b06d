"""The papers' claims: what each says, the numbers by which it is judged, and whether it holds here.

`papers/claims.toml` has the sentences with their thresholds, which were committed before the first verdict was, and
`papers/claims.json` what was measured and found. `python -m papers claims` measures and judges.
"""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tacit.errors import UsageError

__all__ = ["CLAIMS_FILE", "Claim", "Numbers", "Verdict", "claims", "judged"]

CLAIMS_FILE = Path(__file__).parents[1] / "claims.toml"

Numbers = Mapping[str, float | None]
"""What was measured for a claim; None where it could not be."""

Verdict = Literal["holds", "differs", "not comparable"]


@dataclass(frozen=True)
class Claim:
    """One sentence of the papers.

    Attributes:
        name: its key in `claims.toml`.
        paper: key of the bibliography.
        place: where the sentence stands.
        says: the sentence, in our words.
        figure: what `python -m papers` draws of it.
        data: what it is judged on: the first one decides, the others are shown beside it.
        numbers: what is measured, each with a name.
        holds: what must be true of these numbers.
        quick: whether `make test` judges it, on a few thousand rows.
    """

    name: str
    paper: str
    place: str
    says: str
    figure: str
    data: tuple[str, ...]
    numbers: Mapping[str, str]
    holds: str
    quick: bool = False


@cache
def claims() -> Mapping[str, Claim]:
    """Every claim by its name."""
    read = tomllib.loads(CLAIMS_FILE.read_text())
    return {name: Claim(name, **{**fields, "data": tuple(fields["data"])}) for name, fields in read.items()}


def judged(claim: Claim, numbers: Numbers) -> Verdict:
    """Whether the claim holds of these numbers; "not comparable" where one of them is missing.

    >>> judged(claims()["norms"], {"norm": 0.93}), judged(claims()["norms"], {"norm": None})
    ('holds', 'not comparable')
    """
    missing = set(claim.numbers) - set(numbers)
    if missing:
        raise UsageError(
            f"{claim.name} is judged by {', '.join(claim.numbers)}: {', '.join(sorted(missing))} is missing"
        )
    known = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
    if not set(claim.numbers) <= set(known):
        return "not comparable"
    return "holds" if _value(ast.parse(claim.holds, mode="eval").body, known) else "differs"


_TWO: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.Sub: operator.sub, ast.Div: operator.truediv,
}  # fmt: skip


def _value(node: ast.expr, numbers: Mapping[str, float]) -> Any:
    """The value of a threshold's expression: numbers, names, comparisons, `and`, `abs`, - and /."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return numbers[name]
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, numbers) for part in parts)
        case ast.BinOp(left=left, op=how, right=right):
            return _TWO[type(how)](_value(left, numbers), _value(right, numbers))
        case ast.Call(func=ast.Name(id="abs"), args=[inner]):
            return abs(_value(inner, numbers))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(one, numbers) for one in (left, *others)]
            return all(_TWO[type(how)](*pair) for how, pair in zip(ops, pairwise(values), strict=True))
    raise UsageError(f"a threshold can't be read: {ast.unparse(node)}")
