"""Who guesses labels, one file for each attack; the file's name is the attack's name.

A new attack is one new file here with a function of the same name, and one new test file. The function takes options
and returns a callable (`tacit.contracts.Attack`); its docstring says what the attack does, `Knows:` what it uses of the
view and of what is granted, and `Costs:` how much work it is.
"""

from __future__ import annotations

from typing import Any

from tacit.audit import _listing
from tacit.audit._listing import Described

__all__ = ["Described", "attack", "describe", "names"]

_INPUTS = "tacit.audit.input_attacks"


def names() -> list[str]:
    """The names of all attacks, sorted.

    >>> "norm" in names()
    True
    """
    return _listing.modules(__name__)


def attack(name: str, **options: Any) -> Any:
    """The attack of that name, on labels or on inputs, built with these options.

    An unknown name or option is a `UsageError`. An attack on labels is a `tacit.contracts.Attack`; one on inputs is a
    `tacit.contracts.InputAttack` and goes into `tacit.audit.inputs.attack_inputs`.

    >>> attack("hint", k=3).name, attack("linear_decoder", share=0.1).name
    ('hint(k=3)', 'linear_decoder(share=0.1)')
    """
    return _listing.call(_package(name), "attack", name, options)


def describe(name: str) -> Described:
    """What an attack does, what it knows and what it costs, from its docstring.

    Args:
        name: of an attack, on labels or on inputs; options behind it, as in a finding's name, are left aside.

    >>> describe("hint(k=3)").knows
    'the gradients; of known.labels at most k positives in each batch.'
    """
    known = name.partition("(")[0]
    return _listing.describe(_package(known), "attack", known)


def _package(name: str) -> str:
    """Where the attack of that name is."""
    return _INPUTS if name in _listing.modules(_INPUTS) else __name__
