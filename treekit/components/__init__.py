"""The built-in split criteria, on the same contract as everyone's."""
