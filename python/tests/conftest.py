"""What several tests need: the program beside the package, and an array with known contents."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: The console script, which came with the package.
PROGRAM = str(Path(sys.executable).with_name("raidlab"))

CHUNK = 64 << 10
DATA_OFFSET = 1 << 20
DISKS = 4


def program(*words: str | Path, code: int = 0) -> str:
    """Runs the program; what it printed."""
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (words, done.stderr)
    return done.stdout


def as_json(*words: str | Path, code: int = 0) -> Any:
    """Runs a verb with `--json`; what it printed."""
    return json.loads(program(*words, "--json", code=code))


@dataclasses.dataclass
class Array:
    """Members of a RAID 5, and what is on it."""

    members: list[Path]
    contents: bytes


@pytest.fixture(scope="session")
def clean_array(tmp_path_factory: pytest.TempPathFactory) -> Array:
    """A RAID 5 of four files, left-symmetric; the parity is computed here."""
    directory = tmp_path_factory.mktemp("array")
    members = [directory / f"disk{disk}.img" for disk in range(DISKS)]
    options = "--level 5 --raid-devices 4 --chunk 64K --file-size 4M --assume-clean".split()
    program("create", *options, *members)
    sectors = as_json("detail", *members)["arrays"][0]["array_sectors"]
    contents = random.Random(1).randbytes(sectors * 512)
    files = [bytearray(member.read_bytes()) for member in members]
    chunks = [contents[at : at + CHUNK] for at in range(0, len(contents), CHUNK)]
    for row in range(len(chunks) // (DISKS - 1)):
        data = chunks[row * (DISKS - 1) : (row + 1) * (DISKS - 1)]
        parity_disk = DISKS - 1 - row % DISKS
        parity = 0
        for number, chunk in enumerate(data):
            parity ^= int.from_bytes(chunk, "big")
            put(files[(parity_disk + 1 + number) % DISKS], row, chunk)
        put(files[parity_disk], row, parity.to_bytes(CHUNK, "big"))
    for member, file in zip(members, files, strict=True):
        member.write_bytes(file)
    return Array(members, contents)


def put(file: bytearray, row: int, chunk: bytes) -> None:
    """Writes a chunk of a member."""
    at = DATA_OFFSET + row * CHUNK
    file[at : at + CHUNK] = chunk


@pytest.fixture
def array(clean_array: Array, tmp_path: Path) -> Array:
    """The same, as a copy that a test may change."""
    members = [tmp_path / member.name for member in clean_array.members]
    for member, copy in zip(clean_array.members, members, strict=True):
        copy.write_bytes(member.read_bytes())
    return Array(members, clean_array.contents)
