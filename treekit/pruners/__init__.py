"""Pruners: rules that keep trees small, before or after growth."""
