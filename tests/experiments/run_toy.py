"""The command line with the toy as its only experiment."""

import sys

from experiments import registry
from experiments.core.command import main

registry.MODULES = {"scaling": "toy"}
sys.exit(main(sys.argv[1:]))
