"""Running a server: sockets, processes, connections, reloads, its start and its end."""
