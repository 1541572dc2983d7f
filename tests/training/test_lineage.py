"""The tree of splits, by hand and through files."""

import torch

from mnemosphere.export.files import from_plain, to_plain
from mnemosphere.model.curvature import Curvature
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.lineage import Lineage
from runs import assert_same_params


def curvature_of(values: list[float]) -> Curvature:
    t = torch.tensor(values)
    return Curvature(t, torch.zeros(len(values), 2), 10 * t, torch.zeros(len(values)), 0.0)


def test_lineage_by_hand():
    tree = Lineage.root(2)  # nodes 0, 1
    tree = tree.split(torch.tensor([1]), curvature_of([-1.0, -2.0]))  # 1 -> 2, 3
    tree = tree.split(torch.tensor([2, 0]), curvature_of([-3.0, -4.0, -5.0]))
    # memories of level 1 are nodes 0, 2, 3; splitting its third and first: 3 -> 4, 6; 0 -> 5, 7
    assert [m.tolist() for m in tree.members] == [[0, 1], [0, 2, 3], [5, 2, 4, 6, 7]]
    assert tree.level.tolist() == [0, 0, 1, 1, 2, 2, 2, 2]
    assert tree.parent.tolist() == [-1, -1, 1, 1, 3, 0, 3, 0]
    assert (tree.parent == 1).nonzero()[:, 0].tolist() == [2, 3]
    assert (tree.parent == 3).nonzero()[:, 0].tolist() == [4, 6]
    assert tree.lambda_min[[0, 1, 3]].tolist() == [-3.0, -2.0, -5.0]
    assert tree.beta_split[[0, 1, 3]].tolist() == [-30.0, -20.0, -50.0]
    assert bool(tree.lambda_min[[2, 4, 5, 6, 7]].isnan().all())


def test_lineage_survives_a_file_and_every_level_predicts(problem):
    case = problem(3, rows=211, features=11, memories=2, beta=20.0)
    result = grow(
        case.params, case.dataset, FixedPoint(None), max_memories=7, phase_iter=3, max_iter=3
    )
    tensors = {}
    back = from_plain(to_plain(result.lineage, tensors), tensors)
    assert back.n_levels == result.lineage.n_levels == 3
    for level, width in enumerate([2, 4, 7]):
        assert_same_params(back.models[level].check(), result.lineage.models[level])
        assert back.models[level].n_memories == width
        assert torch.equal(back.members[level], result.lineage.members[level])
    split_nodes = torch.tensor([bool((back.parent == i).any()) for i in range(back.n_nodes)])
    assert torch.equal(split_nodes, ~back.lambda_min.isnan())
    assert bool((back.lambda_min[split_nodes] < 0).all())
