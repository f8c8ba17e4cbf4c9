"""Rows for servers: made ready, blended, counted, split; those of an environment."""
