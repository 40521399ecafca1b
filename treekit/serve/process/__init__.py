"""Server processes: sockets, workers, connections, reloading, startup and shutdown."""
