"""The Open Inference Protocol v2, independent of the transport: requests, tensors, responses."""
