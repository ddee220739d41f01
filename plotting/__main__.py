"""`python -m plotting`: see plotting/command.py."""

import sys

from plotting.command import main

if __name__ == "__main__":
    sys.exit(main())
