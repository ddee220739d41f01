"""Ranks on a network of this machine: the network, collectives and trainings on it,
a model of their time, and what the model predicts."""
