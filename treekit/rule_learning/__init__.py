"""Short lists of rules made from models: they say less than the model does, and how much less."""
