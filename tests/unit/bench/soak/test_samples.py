"""The line through what a soak samples."""

from __future__ import annotations

import math
import random

import pytest

from bench.soak.samples import Sample, descriptors_growth, rss_slope, slope


def sample(at_s: float, rss_mb: float = 100.0, descriptors: int = 70) -> Sample:
    """A sample of which only this is of interest."""
    return Sample(at_s, rss_mb, descriptors, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0)


def test_slope_and_its_error_are_those_of_the_textbook() -> None:
    """y = 1, 3, 4 at x = 0, 1, 2: the slope is 3/2, and its standard error sqrt((1/6) / 1 / 2)."""
    found, error = slope([(0, 1), (1, 3), (2, 4)])
    assert found == pytest.approx(1.5)
    assert error == pytest.approx(math.sqrt(1 / 6 / 2))
    assert slope([(0, 1), (1, 3)]) == (2, math.inf)


@pytest.mark.parametrize("grows", [0.0, 2.0, 60.0])
def test_memory_that_grows_is_told_from_noise(grows: float) -> None:
    """Twenty minutes of samples with 0.1 MB of noise: the slope in MB an hour is found within three
    of its errors.
    """
    dice = random.Random(1)
    samples = [
        sample(600 + 5 * n, 150 + grows * 5 * n / 3600 + dice.gauss(0, 0.1)) for n in range(240)
    ]
    found, error = rss_slope(samples)
    assert error < 0.2
    assert abs(found - grows) < 3 * error


def test_samples_of_a_minute_count_as_one() -> None:
    """Samples that repeat each other do not make the error smaller."""
    few = [sample(60 * n, 100 + n % 2) for n in range(20)]
    many = [sample(60 * n + second, 100 + n % 2) for n in range(20) for second in range(0, 60, 5)]
    assert rss_slope(few) == pytest.approx(rss_slope(many))


def test_descriptors_that_come_and_go_are_no_growth() -> None:
    """A short rise in the middle is none; one that stays is; closed ones count as fewer."""
    flat = [sample(n, descriptors=90 if 40 <= n < 50 else 70) for n in range(90)]
    assert descriptors_growth(flat) == 0
    assert descriptors_growth([sample(n, descriptors=70 + n // 10) for n in range(90)]) == 6
    assert descriptors_growth([sample(n, descriptors=70 - n // 10) for n in range(90)]) == -6
