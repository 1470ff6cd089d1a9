"""The command `llmcurate`, and `python -m llmcurate`."""

from __future__ import annotations

import sys
from contextlib import suppress

from llmcurate.base import start


def main() -> None:
    """Starts a worker where one will be needed, then loads the command line and runs it."""
    with suppress(FileNotFoundError):  # the working folder is gone
        start.leave_folder()
    from curate.cli.early_worker import start_worker

    start_worker([a for a in sys.argv[1:] if a != "--debug"])
    from curate.cli.app import main as command

    command()


if __name__ == "__main__":
    main()
