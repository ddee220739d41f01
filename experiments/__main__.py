"""What `tarn experiment` runs."""

import sys

from experiments.core.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
