"""Trained models: trees, policies, fixed-point leaf values and the model file."""
