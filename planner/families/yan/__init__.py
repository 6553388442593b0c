"""Configuration of a training job: servers, replicas, workers, partitions, copies and threads.

Source: Yan, Ruwase, He and Chilimbi, "Performance Modeling and Scalability Optimization of
Distributed Deep Learning Systems", KDD'15.
"""

from planner.families.yan.configuration import Configuration, Fixed, LayerChoice, Plan
from planner.families.yan.family import METHODS, YAN, solve
from planner.families.yan.layers import NeuronLayer
from planner.families.yan.model import Estimate, estimate
from planner.families.yan.problem import Constants, Problem
from planner.families.yan.segments import check

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
