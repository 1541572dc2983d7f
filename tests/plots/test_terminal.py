import re

import numpy as np
import pytest

from mnemosphere.plots import terminal_gallery

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
CELL = re.compile(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m|(▀)|\x1b\[0m|(.)")


def pixels(text):
    """Image (rows, columns, 3) a terminal would show; -1 where it shows text or nothing."""
    lines = text.split("\n")
    width = max(len(ESCAPE.sub("", line)) for line in lines)
    image = np.full((2 * len(lines), width, 3), -1)
    for row, line in enumerate(lines):
        colors, column = None, 0
        for match in CELL.finditer(line):
            if match[1]:
                values = [int(v) for v in match.groups()[:6]]
                colors = values[:3], values[3:]
            elif match[7]:
                image[2 * row, column], image[2 * row + 1, column] = colors
                column += 1
            elif match[8]:
                column += 1
    return image


def test_two_pixels_a_character():
    w = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    text = terminal_gallery(w.reshape(1, 12), (4, 3), 20)
    assert text.split("\n")[0] == "#0"
    image = pixels(text)[2:]  # the first line is the name
    assert image.shape == (4, 3, 3)
    one, zero, minus = (255, 183, 64), (22, 22, 26), (86, 180, 233)
    color = {1.0: one, 0.0: zero, -1.0: minus}
    for row in range(4):
        for column in range(3):
            assert tuple(image[row, column]) == color[w[row, column]]


def test_images_are_averaged_to_fit():
    fine = np.kron([[1.0, -1.0], [-1.0, 1.0]], np.ones((4, 4)))  # 8x8 of 4x4 blocks
    small = np.array([[1.0, -1.0], [-1.0, 1.0]])
    shrunk = terminal_gallery(fine.reshape(1, 64), (8, 8), 2, ncols=1)
    assert shrunk == terminal_gallery(small.reshape(1, 4), (2, 2), 2, ncols=1)


def test_plain_text_has_no_escapes_and_shades_by_strength():
    ramp = np.array([-1.0, 0.0, 0.1, 0.3, 0.6, 1.0])
    text = terminal_gallery(np.repeat(ramp[None], 2, 0).reshape(1, 12), (2, 6), 20, color="none")
    assert text.isascii()
    assert "\x1b" not in text
    line = text.split("\n")[1]
    shades = [" .:-=+*#%@".index(c) for c in line]
    assert shades[:2] == [0, 0]
    assert shades == sorted(shades)
    assert shades[-1] == 9


def test_256_colors_use_the_nearest_of_cube_and_greys():
    text = terminal_gallery(np.array([[1.0, -1.0, 0.0, 0.0]]), (2, 2), 10, color="256")
    # Of the cube {0, 95, 135, 175, 215, 255}³, (255, 183, 64) is nearest to (255, 175, 95), number
    # 16 + 36·5 + 6·3 + 1, and (86, 180, 233) to (95, 175, 215), 16 + 36·1 + 6·3 + 4; among the
    # greys 8, 18, 28, …, which begin at 232, 28 is nearest to (22, 22, 26):
    # √(36 + 36 + 4) off, against √(16 + 16 + 64) for 18.
    codes = re.findall(r"38;5;(\d+);48;5;(\d+)", text)
    assert codes[0][0] == "215"
    assert codes[1][0] == "74"
    assert codes[0][1] == "234"


def test_rows_that_are_no_images_take_a_line_each():
    w = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert terminal_gallery(w, None, color="none") == "#0 @\n#1   @"
    lines = ESCAPE.sub("", terminal_gallery(w, None)).split("\n")
    assert lines == ["#0 ▀▀▀", "#1 ▀▀▀"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_shape": (3, 5)}, "15 pixels but w has 16 features"),
        ({"color": "sepia"}, "color must be 'truecolor', '256' or 'none', got 'sepia'"),
        ({"columns": 4, "ncols": 2}, "4 columns are too few for 2 memories: lower ncols"),
        ({"ncols": 0}, "ncols must be at least 1"),
        ({"image_shape": None, "columns": 3}, "3 columns are too few: pass at least 4"),
        ({"indices": [9]}, r"indices must lie in 0..1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        terminal_gallery(np.ones((2, 16)), **({"image_shape": (4, 4)} | arguments))
