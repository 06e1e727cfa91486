"""What is written in Rust. Use it by the names of :mod:`raidlab`."""

from collections.abc import Sequence

#: Version of the package.
__version__: str
#: Version of this build: with the commit, where it was built from a Git checkout.
BUILD: str

def program(words: Sequence[str]) -> int:
    """Runs the program with these words, the program itself first; returns its exit code."""
