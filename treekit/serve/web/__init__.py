"""The protocol and the page over HTTP, and the application that holds all faces."""
