"""The built-in split criteria, on the same contract as everyone's.

The built-in ways to find a split.

Pruners: rules that keep trees small, before or after growth.
"""
