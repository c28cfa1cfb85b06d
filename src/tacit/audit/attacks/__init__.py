"""Who guesses labels, one file for each attack; the file's name is the attack's name.

A new attack is one new file here with a function of the same name, and one new test file. The function takes options
and returns a callable (`tacit.contracts.Attack`); its docstring says what the attack does, `Knows:` what it uses of the
view and of what is granted, and `Costs:` how much work it is. `FACTS` beside it says where it is tried
(`tacit.audit.facts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit import plugins
from tacit.audit.facts import Described, Facts, described

__all__ = ["Described", "attack", "chosen", "describe", "facts", "names", "shipped"]

_INPUTS = "tacit.audit.input_attacks"


def names() -> list[str]:
    """The names of all attacks on labels, sorted."""
    return plugins.names(__name__)


def shipped() -> tuple[int, int]:
    """The number of attacks on labels and of those on inputs, as every page that names a number has it."""
    return len(names()), len(plugins.names(_INPUTS))


def attack(name: str, **options: Any) -> Any:
    """The attack of that name, on labels or on inputs, built with these options.

    An unknown name or option is a `UsageError`. An attack on labels is a `tacit.contracts.Attack`; one on inputs is a
    `tacit.contracts.InputAttack` and goes into `tacit.audit.inputs.attack_inputs`.

    >>> attack("hint", k=3).name, attack("linear_decoder", share=0.1).name
    ('hint(k=3)', 'linear_decoder(share=0.1)')
    """
    return plugins.call(_package(name), "attack", name, options)


def facts(name: str) -> Facts:
    """Facts of an attack, from its file: where it is tried, and what it needs."""
    known: Facts = plugins.facts(_package(name), "attack", name)
    return known


def chosen(where: Callable[[Facts], bool]) -> tuple[str, ...]:
    """The attacks on labels of which that is true, in their order in tables.

    >>> chosen(lambda facts: facts.sweep == "every batch")
    ('norm', 'cosine', 'hint')
    """
    known = sorted(names(), key=lambda name: (facts(name).order, name))
    return tuple(name for name in known if where(facts(name)))


def describe(name: str) -> Described:
    """What an attack does, what it knows and what it costs, from its docstring.

    Args:
        name: of an attack, on labels or on inputs; options behind it, as in a finding's name, are left aside.

    >>> describe("hint(k=3)").knows
    'the gradients; of known.labels at most k positives in each batch.'
    """
    known = name.partition("(")[0]
    return described(plugins.function(_package(known), "attack", known))


def _package(name: str) -> str:
    """Where the attack of that name is."""
    return _INPUTS if name in plugins.names(_INPUTS) else __name__
