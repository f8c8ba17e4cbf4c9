"""The `polygym` command: `main.py` and one file a noun."""
