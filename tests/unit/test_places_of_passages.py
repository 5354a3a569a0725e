"""Where the passages of a long text start."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardsift.worker.scoring.tokenizing.frames import places_of_passages


@given(
    st.lists(st.integers(0, 300), max_size=20),
    st.sampled_from(["head+tail", "head+middle+tail", "stride:1", "stride:7", "stride:50"]),
    st.integers(1, 60),
)
def test_windows_lie_in_their_text_and_reach_its_end(lengths: list[int], passages: str, room: int) -> None:
    places, counts = places_of_passages(np.array(lengths, np.int64), passages, room=room)

    of_texts = np.split(places, np.cumsum(counts)[:-1]) if lengths else []
    assert len(places) == counts.sum()
    for length, own in zip(lengths, of_texts, strict=True):
        assert own[0] == 0
        assert (np.diff(own) > 0).all()
        assert own[-1] + min(room, length) == length or length <= room
        if passages.startswith("stride") and int(passages.partition(":")[2]) <= room:
            assert (np.diff(own) <= room).all()  # no token is left out
