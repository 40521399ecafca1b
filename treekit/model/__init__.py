"""What a trained model is: trees, policies, portable integers, its file."""
