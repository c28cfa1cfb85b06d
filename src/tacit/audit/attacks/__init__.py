"""Who guesses labels, one file for each attack; the file's name is the attack's name.

A new attack is one new file here with a function of the same name, and one new test file. The function takes options
and returns a callable (`tacit.contracts.Attack`); its docstring says what the attack does, `Knows:` what it uses of the
view and of what is granted, and `Costs:` how much work it is.
"""

from __future__ import annotations

from typing import Any, cast

from tacit.audit import _listing
from tacit.contracts import Attack

__all__ = ["attack", "names"]


def names() -> list[str]:
    """The names of all attacks, sorted.

    >>> "norm" in names()
    True
    """
    return _listing.modules(__name__)


def attack(name: str, **options: Any) -> Attack:
    """The attack of that name, built with these options; an unknown name or option is a `UsageError`.

    >>> attack("hint", k=3).name
    'hint(k=3)'
    """
    return cast(Attack, _listing.call(__name__, "attack", name, options))
