"""Requests on an event loop: at once, in threads or together, within limits."""
