"""Rows for servers: those of an environment, and several environments' as one file."""
