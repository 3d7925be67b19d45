"""Captions without learning: counted by hand, and the nearest image of all pairs of images."""

import numpy as np

from seqloom.classical.captions import AT_ONCE, most_frequent, nearest_images, thumbnails


def test_the_most_frequent_caption_is_the_first_of_equals() -> None:
    assert most_frequent(["a", "b", "c", "c", "b"]) == "b"


def test_thumbnails_are_means_of_blocks() -> None:
    pixels = np.arange(33 * 16, dtype=np.float32).reshape(1, 1, 33, 16)
    found = thumbnails(pixels)  # blocks of 3 x 1 pixels
    assert found.shape == (1, 11 * 16)
    assert found[0, :16].tolist() == pixels[0, 0, 1].tolist()  # the mean of rows 0, 1 and 2


def test_the_nearest_image_is_that_of_all_pairs() -> None:
    random = np.random.default_rng(1)
    known, asked = (random.random((count, 3, 8, 8)).astype(np.float32) for count in (AT_ONCE + 10, 30))
    found = nearest_images(known.__getitem__, len(known), asked=asked.__getitem__, asked_count=30)
    flat, wanted = known.reshape(len(known), -1), asked.reshape(30, -1)
    assert found.tolist() == [int(np.square(flat - each).sum(1).argmin()) for each in wanted]
