"""How many processes tokenize, from the seconds of one thread and of the device."""

import pytest

from shardsift.worker.scoring.tokenizing.processes import processes_needed


@pytest.mark.parametrize(
    ("encode_seconds", "score_seconds", "cores", "count"),
    [
        (0.68, 1.19, 16, 0),  # BERT-base on an H200
        (0.68, 0.30, 16, 3),  # MiniLM: each window needs 2.3 times the time of the device, and 0.8 of it is wanted
        (0.81, 1.00, 16, 2),
        (9.00, 0.10, 128, 8),
        (9.00, 0.10, 5, 2),
    ],
)
def test_as_many_processes_tokenize_as_keep_up_with_the_device_on_half_of_the_cores(
    encode_seconds: float, score_seconds: float, cores: int, count: int
) -> None:
    assert processes_needed(encode_seconds, score_seconds, cores=cores) == count
