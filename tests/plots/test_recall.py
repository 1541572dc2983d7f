import numpy as np
import pytest

from mnemosphere import plots

S, N_ROWS, SHAPE = 7, 3, (3, 5)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    energies = -np.cumsum(rng.random((S + 1, N_ROWS)), axis=0)
    return {"path": rng.normal(size=(S + 1, N_ROWS, 15)), "energies": energies}


def images(figure, row, columns):
    return [ax.images[0].get_array() for ax in figure.axes[row * (columns + 1) :][:columns]]


def test_strips_go_from_the_original_to_the_end(case):
    originals = np.arange(45.0).reshape(3, 15)
    known = np.zeros((3, 15), bool)
    known[:, ::2] = True
    figure = plots.recall_strips(
        **case, image_shape=SHAPE, originals=originals, known=known,
        names=["cat", "dog", "cow"], predictions=["→ cat", "→ dog", "→ hen"],
    )  # fmt: skip
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles[:2] == ["original", "start"]
    assert titles[-1] == f"recalled\n{S} steps"
    steps = [int(title.split()[1]) for title in titles[2:-1]]
    assert steps == sorted(set(steps))
    columns = len(titles)
    for row in range(N_ROWS):
        shown = images(figure, row, columns)
        np.testing.assert_array_equal(shown[0].data, originals[row].reshape(SHAPE))
        np.testing.assert_array_equal(shown[1].mask.ravel(), ~known[row])
        for image, step in zip(shown[2:], [*steps, S], strict=True):
            np.testing.assert_array_equal(image.data, case["path"][step, row].reshape(SHAPE))
        curve = figure.axes[(row + 1) * (columns + 1) - 1].lines[0].get_ydata()
        np.testing.assert_array_equal(curve, case["energies"][:, row])
    texts = [t.get_text() for ax in figure.axes for t in ax.texts]
    assert texts == ["cat", "→ cat", "dog", "→ dog", "cow", "→ hen"]
    figure.draw_without_rendering()
