"""Served models: inputs, outputs, explanations, and the model repository."""
