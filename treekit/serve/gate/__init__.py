"""Who may ask, how much at once, and what is told of it: ids, metrics, log lines."""
