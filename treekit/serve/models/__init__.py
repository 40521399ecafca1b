"""Models in service: what each takes and gives, why it answers so, and where they come from."""
