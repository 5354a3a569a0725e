"""Rows are grouped by the digest of their text on disk, as a dict would group them in memory."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from shardsift.producer.publishing.unique import TextsOnDisk, is_first


def test_rows_of_equal_digests_come_together_and_in_the_order_of_their_places(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    known = [random.bytes(16) for _ in range(300)] + [b"\xff" * 16, b"\0" * 16, b"\xff" * 8 + b"\0" * 8]
    places = random.permutation(4_000)
    digests = [known[number] for number in random.integers(0, len(known), len(places))]
    groups: dict[bytes, list[int]] = {}
    for place, digest in sorted(zip(places.tolist(), digests, strict=True)):
        groups.setdefault(digest, []).append(place)

    with ExitStack() as files:
        texts = TextsOnDisk(tmp_path, files)
        for start in range(0, len(places), 700):
            some = pa.array([b"x" * 16, *digests[start : start + 700]], pa.binary(16)).slice(1)
            texts.add(some, places[start : start + 700], mark=start // 700)
        texts.add(pa.array([], pa.binary(16)), np.zeros(0, np.int64), mark=0)
        found = [part for part in texts.in_parts() if len(part)]

    rows = np.concatenate(found)
    first = is_first(rows)
    in_order = [row["high"].tobytes() + row["low"].tobytes() for row in rows[first]]
    assert {
        digest: rows["place"][np.cumsum(first) == number].tolist() for number, digest in enumerate(in_order, 1)
    } == groups
    assert [int(row["mark"]) for row in rows] == [int(np.flatnonzero(places == row["place"])[0]) // 700 for row in rows]
    assert len(found) > 100
