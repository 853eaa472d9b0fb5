"""``python -m mder_jax`` is the command `mder`."""

import sys

from mder_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
