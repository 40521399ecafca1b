"""Files broken on purpose: how they are broken, and what a reader may do with them."""
