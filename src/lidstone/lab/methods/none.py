"""No regularizer: plain cross-entropy, what the others are compared with."""

from lidstone.lab.methods.base import TrainingMethod

METHOD = TrainingMethod()
