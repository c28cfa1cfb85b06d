"""Who guesses inputs from the embeddings it received, one file for each attack; the file's name is the attack's name.

A new attack is one new file here with a function of the same name, and one new test file. The function takes options
and returns a callable (`tacit.contracts.InputAttack`); its docstring says what the attack does, `Knows:` what it uses
of the view and of what is granted, and `Costs:` how much work it is. What guesses a private attribute in the place of
the whole input says so with `guesses = "attribute"`.
"""

from __future__ import annotations

from typing import Any, cast

from tacit import plugins
from tacit.audit.facts import Facts
from tacit.contracts import InputAttack


def names() -> list[str]:
    """The names of all attacks on inputs, sorted."""
    return plugins.names(__name__)


def attack(name: str, **options: Any) -> InputAttack:
    """The attack on inputs of that name, built with these options; an unknown name or option is a `UsageError`.

    >>> attack("linear_decoder", share=0.1).name
    'linear_decoder(share=0.1)'
    """
    return cast(InputAttack, plugins.call(__name__, "attack on inputs", name, options))


def facts(name: str) -> Facts:
    """Where an attack on inputs is tried, as its file says."""
    known: Facts = plugins.facts(__name__, "attack on inputs", name)
    return known
