"""The Open Inference Protocol v2, without a transport: requests, tensors, answers."""
