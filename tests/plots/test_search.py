import numpy as np
import pytest

from mnemosphere import plots


def trial(rows, loss, chosen=False, **changes):
    return {
        "rows": rows, "geometry": "unit", "n_memories": 9, "objective": "joint", "longer": 1,
        "noise": 0.0, "unlabeled": False, "log_loss": loss, "error": 0.1 * loss, "chosen": chosen,
    } | changes  # fmt: skip


def places(ax):
    """(score, place) of every candidate."""
    return np.concatenate([bars.lines[0].get_xydata() for bars in ax.containers])


def test_trials_on_most_rows_are_shown_best_first():
    trials = [trial(60, 0.9, n_memories=3), trial(60, 0.5), trial(60, 0.4, geometry="center")]
    trials += [trial(97, 0.35, True, geometry="center"), trial(97, 0.3, longer=3)]
    ax = plots.search(trials)
    assert sorted(places(ax).tolist()) == [[0.3, 0.0], [0.35, 1.0]]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["unit, 9 memories, joint, 3 × the steps", "center, 9 memories, joint"]
    assert ax.get_title(loc="left") == "the last 2 of 4 candidates"
    chosen = next(bars for bars in ax.containers if bars.get_label() == "chosen")
    np.testing.assert_array_equal(chosen.lines[0].get_xydata(), [[0.35, 1.0]])


def test_clusters_that_agree_most_are_on_top():
    cluster = {"rows": 9, "geometry": "unit", "memories_per_cluster": 1, "error": 0.01}
    trials = [
        cluster | {"rung": rung, "n_clusters": k, "agreement": 0.7 + 0.1 * k}
        for rung in (0, 1) for k in (1, 2)
    ]  # fmt: skip
    ax = plots.search(trials)
    assert ax.get_yticklabels()[0].get_text() == "unit, 2 × 1 memories"
    assert ax.get_xlabel().startswith("agreement")
    with pytest.raises(ValueError, match="pass search_"):
        plots.search([{"rows": 9, "log_loss": 1.0}])
