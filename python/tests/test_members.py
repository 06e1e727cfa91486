"""Members: the JSON of the verbs as objects, ranges of contents, errors with their ranges."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CHUNK, DATA_OFFSET, Array, as_json

import raidlab


def test_what_verbs_find_is_their_json(clean_array: Array) -> None:
    members = clean_array.members
    assert raidlab.examine(members) == as_json("examine", *members)
    assert raidlab.examine(str(members[0])) == as_json("examine", members[0])
    assert raidlab.detail(members) == as_json("detail", *members)
    assert raidlab.detail(map(os.fsencode, members[:3])) == as_json("detail", *members[:3], code=1)

    def without_time(found: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in found.items() if name != "seconds"}

    guessed = as_json("guess", *members, "--level", "5", code=1)
    assert without_time(raidlab.guess(members, level="raid5")) == without_time(guessed)


@pytest.mark.parametrize("missing", [None, 0, 3])
def test_ranges_are_the_contents(clean_array: Array, missing: int | None) -> None:
    members = [it for at, it in enumerate(clean_array.members) if at != missing]
    expected = clean_array.contents
    contents = raidlab.Contents(members)
    assert contents.size == len(expected)
    assert contents.doubts == []
    assert bool(contents.notes) == (missing is not None), contents.notes
    assert contents.read() == expected
    for offset, length in [(0, 0), (0, 1), (511, 2), (CHUNK - 3, 700), (len(expected), 0)]:
        assert contents.read(offset, length) == expected[offset : offset + length]
    assert contents.read(len(expected) - 5) == expected[-5:]
    assert raidlab.dump(members, 1000, 24) == expected[1000:1024]


def test_ranges_outside_are_refused(clean_array: Array) -> None:
    contents = raidlab.Contents(clean_array.members)
    size = contents.size
    for offset, length in [(size + 1, None), (0, size + 1), (size, 1), (2**63, 2**63)]:
        with pytest.raises(raidlab.UsageError, match=f"outside of .*{size} bytes"):
            contents.read(offset, length)
    with pytest.raises(OverflowError):
        contents.read(-1, 1)
    with pytest.raises(TypeError):
        contents.read("0", 1)  # type: ignore[arg-type]


def test_a_description_takes_the_place_of_superblocks(array: Array) -> None:
    for member in array.members:
        with member.open("r+b") as file:
            file.write(bytes(DATA_OFFSET))
    with pytest.raises(raidlab.NotFoundError):
        raidlab.Contents(array.members)
    described = raidlab.Contents(
        [array.members[0], "missing", *array.members[2:]],
        level="raid5",
        raid_devices=4,
        chunk_bytes=CHUNK,
        data_offset_bytes=DATA_OFFSET,
        # Whole chunks: where the superblocks say that the data end.
        size_bytes=len(array.contents) // 3,
    )
    assert described.read() == array.contents
    with pytest.raises(raidlab.UsageError, match="--raid-devices"):
        raidlab.Contents(array.members, level="raid5")
    with pytest.raises(raidlab.UsageError, match="--level"):
        raidlab.Contents(array.members, level="raid7", raid_devices=4)


def test_lost_ranges_are_never_zeroes(array: Array) -> None:
    two = array.members[:2]
    with pytest.raises(raidlab.RefusedError) as refused:
        raidlab.Contents(two)
    assert refused.value.kind == "refused"
    partial = raidlab.Contents(two, partial=True)
    # Of the first row disk 3 has the parity: chunks 0 and 1 are here, chunk 2 is lost.
    assert partial.read(0, 2 * CHUNK) == array.contents[: 2 * CHUNK]
    with pytest.raises(raidlab.LostError) as lost:
        partial.read(CHUNK, 2 * CHUNK)
    assert lost.value.ranges == [(2 * CHUNK, 3 * CHUNK)]
    assert isinstance(lost.value, raidlab.UnreadableError)
    with pytest.raises(raidlab.LostError) as lost:
        partial.read(2 * CHUNK + 100, 10)
    assert lost.value.ranges == [(2 * CHUNK + 100, 2 * CHUNK + 110)]
    again = pickle.loads(pickle.dumps(lost.value))
    assert (type(again), str(again), again.ranges) == (
        raidlab.LostError,
        str(lost.value),
        lost.value.ranges,
    )


def test_a_contradiction_is_an_error_and_not_data(array: Array) -> None:
    with array.members[1].open("r+b") as file:
        file.seek(DATA_OFFSET + 5000)
        byte = file.read(1)[0]
        file.seek(DATA_OFFSET + 5000)
        file.write(bytes([byte ^ 1]))
    contents = raidlab.Contents(array.members)
    with pytest.raises(raidlab.DiffersError) as differs:
        contents.read()
    assert any(start <= CHUNK + 5000 < end for start, end in differs.value.ranges)
    # Elsewhere it is what it was, also for the same object; here the error stays.
    assert contents.read(3 * CHUNK) == array.contents[3 * CHUNK :]
    with pytest.raises(raidlab.DiffersError):
        contents.read(CHUNK + 5000, 1)
    unchecked = raidlab.Contents(array.members, check=False).read()
    assert sum(a != b for a, b in zip(unchecked, array.contents, strict=True)) == 1


def test_bad_files_have_kinds_and_paths(tmp_path: Path, clean_array: Array) -> None:
    missing = tmp_path / "none.img"
    with pytest.raises(raidlab.NotFoundError) as not_found:
        raidlab.detail(missing)
    assert not_found.value.path == str(missing)
    assert not_found.value.context[-1] == "No such file or directory"
    assert isinstance(not_found.value, raidlab.Error)
    assert isinstance(not_found.value, LookupError)
    with pytest.raises(raidlab.NotFoundError) as not_found:
        raidlab.examine([clean_array.members[0], missing])
    assert not_found.value.path == str(missing)
    kept = raidlab.examine([clean_array.members[0], missing], errors="keep")
    assert [entry["member"] for entry in kept["members"]][1] == str(missing)
    assert "No such file" in kept["members"][1]["error"]

    empty = tmp_path / "empty.img"
    empty.touch()
    with pytest.raises(raidlab.InvalidError) as invalid:
        raidlab.detail(empty)
    assert invalid.value.path == str(empty)
    zeroes = tmp_path / "zeroes.img"
    zeroes.write_bytes(bytes(1 << 20))
    with pytest.raises(raidlab.NotFoundError, match="none of them holds a superblock"):
        raidlab.detail(zeroes)
    with pytest.raises(raidlab.InvalidError):
        raidlab.examine(tmp_path)
    with pytest.raises(raidlab.UsageError, match="no path"):
        raidlab.examine([])
    for wrong in [None, 5, [5], [None]]:
        with pytest.raises(raidlab.UsageError, match="path"):
            raidlab.examine(wrong)  # type: ignore[arg-type]
    with pytest.raises(raidlab.NotFoundError, match="no such array"):
        raidlab.detail(clean_array.members, array="other")


def test_a_truncated_member_is_not_read_as_if_it_were_whole(array: Array) -> None:
    size = array.members[2].stat().st_size
    os.truncate(array.members[2], size // 2)
    try:
        contents = raidlab.Contents(array.members)
    except raidlab.Error:
        return
    assert contents.read() == array.contents, "the others have all of it"


def test_ctrl_c_ends_a_long_guess_at_once(tmp_path: Path) -> None:
    members = [tmp_path / f"disk{disk}.img" for disk in range(8)]
    for disk, member in enumerate(members):
        # Not sparse only: a little in each MiB, so that there is something to look at.
        with member.open("wb") as file:
            for at in range(0, 768):
                file.seek(at << 20)
                file.write(os.urandom(4096) if at % 7 == disk % 7 else b"x")
            file.truncate(768 << 20)
    script = (
        "import raidlab, sys\n"
        "print('begun', flush=True)\n"
        "raidlab.guess(sys.argv[1:], thorough=True)\n"
        "print('ended', flush=True)\n"
    )
    words = [sys.executable, "-c", script, *map(str, members)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"begun\n"
        time.sleep(0.5)
        sent = time.monotonic()
        started.send_signal(signal.SIGINT)
        out, said = started.communicate(timeout=60)
        took = time.monotonic() - sent
    assert b"KeyboardInterrupt" in said, (out, said)
    assert out == b""
    assert took < 2.0
