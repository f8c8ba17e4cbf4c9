"""The entry point: `polygym`, and `python -m polygym`.

The one idea: Ctrl-C while the command line itself is still loading ends like Ctrl-C later on.
"""

import sys


def main() -> None:
    """Load the command line and run it."""
    try:
        from polygym.cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
