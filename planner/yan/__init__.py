"""Configuration of a training job: servers, replicas, workers, partitions, copies and threads.

Source: Yan, Ruwase, He and Chilimbi, "Performance Modeling and Scalability Optimization of
Distributed Deep Learning Systems", KDD'15.
"""

from planner.yan.checker import check
from planner.yan.configuration import Configuration, Fixed, LayerChoice, Plan
from planner.yan.family import METHODS, YAN, solve
from planner.yan.layers import NeuronLayer
from planner.yan.model import Estimate, estimate
from planner.yan.problem import Constants, Problem

__all__ = [
    "METHODS",
    "YAN",
    "Configuration",
    "Constants",
    "Estimate",
    "Fixed",
    "LayerChoice",
    "NeuronLayer",
    "Plan",
    "Problem",
    "check",
    "estimate",
    "solve",
]
