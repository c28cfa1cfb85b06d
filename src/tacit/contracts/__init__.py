"""The few shapes that all parts of Tacit agree on: what is sent and protected, attacked and measured.

They import torch and nothing of ours, so that every other part may import them.
"""

from tacit.contracts.attacked import Attack as Attack
from tacit.contracts.attacked import Estimate as Estimate
from tacit.contracts.attacked import Guess as Guess
from tacit.contracts.attacked import InputAttack as InputAttack
from tacit.contracts.attacked import Known as Known
from tacit.contracts.attacked import KnownInputs as KnownInputs
from tacit.contracts.attacked import Reconstruction as Reconstruction
from tacit.contracts.attacked import View as View
from tacit.contracts.sent import Channel as Channel
from tacit.contracts.sent import EmbeddingProtection as EmbeddingProtection
from tacit.contracts.sent import Event as Event
from tacit.contracts.sent import Link as Link
from tacit.contracts.sent import Message as Message
from tacit.contracts.sent import Noise as Noise
from tacit.contracts.sent import NoiseSource as NoiseSource
from tacit.contracts.sent import OnDemand as OnDemand
from tacit.contracts.sent import Protected as Protected
from tacit.contracts.sent import Protection as Protection
from tacit.contracts.sent import Regularizer as Regularizer
from tacit.contracts.sent import StepNoise as StepNoise
from tacit.contracts.sent import noise_source as noise_source
from tacit.contracts.sent import raw_bytes as raw_bytes
