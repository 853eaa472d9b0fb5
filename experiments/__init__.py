"""Studies of the paper and of this library: ``python -m experiments --help``."""
