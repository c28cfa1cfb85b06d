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

from tacit.config.contract import Contract as Contract
from tacit.config.contract import Exchange as Exchange
from tacit.config.contract import OneShotContract as OneShotContract
from tacit.config.contract import Terms as Terms
from tacit.config.contract import load_contract as load_contract
from tacit.config.contract import read_contract as read_contract
from tacit.config.party import FEATURE_LIMIT as FEATURE_LIMIT
from tacit.config.party import LEARNING_RATES as LEARNING_RATES
from tacit.config.party import ODDS_BUDGET as ODDS_BUDGET
from tacit.config.party import Data as Data
from tacit.config.party import Head as Head
from tacit.config.party import Learn as Learn
from tacit.config.party import Live as Live
from tacit.config.party import Party as Party
from tacit.config.party import Protect as Protect
from tacit.config.party import Record as Record
from tacit.config.party import Training as Training
from tacit.config.protections import Embedding as Embedding
from tacit.config.protections import Gradient as Gradient
from tacit.config.protections import meets as meets
from tacit.config.serving import Serve as Serve
from tacit.config.templates import contract_template as contract_template
from tacit.config.templates import party_template as party_template
