"""Learning of short rule lists from models, with reports of their fidelity."""
