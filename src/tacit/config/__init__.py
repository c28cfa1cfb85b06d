"""The two files that a party has: the contract, equal on all sides, and its own settings.

Both are TOML. They become frozen objects, and only when everything in them is right: an unknown key is an error, and
all errors of a file are told at once, each with its place and the next act.

>>> contract = Contract.read('''
... run = "flights"
... label_party = "airline"
... feature_parties = ["airport"]
... loss = "binary"
... epochs = 3
... batch_size = 1024
... cut.widths.airport = 128
... minimum.gradient = { name = "matched", leak_auc = 0.6 }
... ''')
>>> contract.cut.widths["airport"], contract.minimum.gradient.options(contract.epochs)
((128,), {'leak_auc': 0.6, 'visits': 3})
"""

from __future__ import annotations

from tacit.config.contract import (
    METRICS,
    Alignment,
    Contract,
    Cut,
    Exchange,
    Minimum,
    OneShotContract,
    Share,
    Terms,
    load_contract,
    read_contract,
)
from tacit.config.party import (
    LEARNING_RATES,
    ODDS_BUDGET,
    Align,
    Data,
    Head,
    Learn,
    Live,
    Model,
    Network,
    Party,
    Protect,
    Record,
    Training,
)
from tacit.config.protections import Embedding, Gradient, meets, meets_embedding
from tacit.config.serving import Serve
from tacit.config.templates import contract_template, party_template

__all__ = [
    "LEARNING_RATES",
    "METRICS",
    "ODDS_BUDGET",
    "Align",
    "Alignment",
    "Contract",
    "Cut",
    "Data",
    "Embedding",
    "Exchange",
    "Gradient",
    "Head",
    "Learn",
    "Live",
    "Minimum",
    "Model",
    "Network",
    "OneShotContract",
    "Party",
    "Protect",
    "Record",
    "Serve",
    "Share",
    "Terms",
    "Training",
    "contract_template",
    "load_contract",
    "meets",
    "meets_embedding",
    "party_template",
    "read_contract",
]
