"""A step has the rows that the user asked for, in however many processes."""

import pytest

from fleet.training.spec import FullTraining
from worker.training.division import divided, multiplied


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 7, 8, 26, 32])
@pytest.mark.parametrize("accumulation_steps", [1, 3, 4, 13])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_a_step_keeps_its_rows_and_no_batch_is_larger(batch_rows: int, accumulation_steps: int, devices: int) -> None:
    division = divided(FullTraining(batch_rows=batch_rows, accumulation_steps=accumulation_steps), devices)

    assert division.rows == batch_rows * accumulation_steps
    assert 1 <= division.processes <= devices
    assert division.batch_rows <= batch_rows


@pytest.mark.parametrize(
    ("batch_rows", "accumulation_steps", "devices", "each"),
    [
        (32, 1, 2, (2, 16, 1)),  # smaller batches
        (8, 4, 2, (2, 8, 2)),  # or fewer of them
        (8, 4, 8, (8, 4, 1)),
        (9, 1, 4, (3, 3, 1)),
        (7, 1, 4, (1, 7, 1)),
        (7, 4, 2, (2, 7, 2)),
    ],
)
def test_as_many_devices_as_divide_a_step_share_it(
    batch_rows: int, accumulation_steps: int, devices: int, each: tuple[int, int, int]
) -> None:
    division = divided(FullTraining(batch_rows=batch_rows, accumulation_steps=accumulation_steps), devices)

    assert (division.processes, division.batch_rows, division.accumulation_steps) == each


def test_the_line_in_the_log_says_how_a_step_is_divided_and_why_not_among_all_devices() -> None:
    assert divided(FullTraining(batch_rows=8, accumulation_steps=4), 2).told(2) == (
        "Training in 2 processes, each with 2 × 8 of the 32 rows of a step"
    )
    assert divided(FullTraining(batch_rows=9), 4).told(4) == (
        "A step of 9 rows cannot be divided among 4 devices. Training in 3 processes, each with 3 of the 9 rows of a step"
    )
    assert divided(FullTraining(batch_rows=7), 2).told(2) == (
        "A step of 7 rows cannot be divided among 2 devices. Training on one of them"
    )


def test_torchrun_multiplies_the_rows_of_a_step() -> None:
    assert multiplied(FullTraining(batch_rows=8, accumulation_steps=2), 4).rows == 64
