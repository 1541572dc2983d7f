import re

import numpy as np

from mnemosphere.plots.terminal import terminal_gallery

BLOCKS = np.array([[1.0, -1.0], [-1.0, 0.0]])


def draw(image, columns, **options):
    given = {"ncols": 1, "indices": [0], "color": True} | options
    return terminal_gallery(image.reshape(1, -1), image.shape, columns, **given)


def test_two_pixels_a_character_in_the_nearest_colors():
    # Of the cube {0, 95, 135, 175, 215, 255}³, (255, 183, 64) is nearest to (255, 175, 95), number
    # 16 + 36·5 + 6·3 + 1, and (86, 180, 233) to (95, 175, 215), 16 + 36·1 + 6·3 + 4; among the greys
    # 8, 18, 28, …, from 232 on, 28 is nearest to (22, 22, 26).
    name, line = draw(BLOCKS, 20).split("\n")
    assert name == "#0"
    assert re.findall(r"38;5;(\d+);48;5;(\d+)", line) == [("215", "74"), ("74", "234")]


def test_images_are_averaged_to_fit():
    assert draw(np.kron(BLOCKS, np.ones((4, 4))), 2) == draw(BLOCKS, 2)


def test_plain_text_has_no_escapes_and_shades_by_strength():
    ramp = np.repeat([[-1.0, 0.0, 0.1, 0.3, 0.6, 1.0]], 2, 0)
    text = draw(ramp, 20, color=False)
    shades = [" .:-=+*#%@".index(c) for c in text.split("\n")[1]]
    assert text.isascii()
    assert shades[:2] == [0, 0]
    assert shades == sorted(shades)
    assert shades[-1] == 9
