"""`python -m research theory`: solve the saddle-point equations and draw what they say."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
import typer

from research.theory.branches import coexistence_window, ladder, trace_branches
from research.theory.finite_size import study_finite_size
from research.theory.hierarchy import duplicated_spectrum, trace_hierarchy
from research.theory.joint_splits import study_joint_splits
from research.theory.merging import study_merging
from research.theory.options import (
    BETA_RANGE,
    Along,
    Beta,
    Features,
    Kind,
    Memories,
    Parameter,
    Rho,
    SoftLabels,
    Teachers,
    Uniform,
    Upsilon,
    check_range,
    read_labels,
)
from research.theory.overlaps import Sampling, compare_overlaps, near_transition
from research.theory.phases import map_phases
from research.theory.setting import Setting
from research.theory.study import Begin, study_command
from research.theory.transition_order import study_transition_order
from research.theory.weak import study_weak_teachers


@study_command("phase-diagram")
def phase_diagram(
    begin: Begin,
    along: Annotated[Along, typer.Option(help="The horizontal axis.")] = Along.upsilon,
    teacher: Teachers = 5,
    memories: Memories = 5,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 1000,
    uniform_share: Uniform = 0.0,
    x_range: Annotated[tuple[float, float], typer.Option(help="Smallest and largest υ or ϱ.")] = (
        0.25,
        1.5,
    ),
    beta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help=BETA_RANGE, show_default="around the transition"),
    ] = None,
    grid: Annotated[int, typer.Option(help="Cells per side.", min=2)] = 18,
) -> None:
    """Map the phases over (υ, β) or (ϱ, β): symmetric, broken, or both stable.

    Each cell is solved from an informed and an uninformed start. The line is analytic: above it the
    symmetric solution is unstable.
    """
    x = np.linspace(*check_range(x_range, "--x-range"), grid).tolist()
    if beta_range is not None:
        check_range(beta_range, "--beta-range")
    setting = Setting(teacher, memories, 1.0, rho, upsilon, uniform_share, features)
    settings = asdict(setting) | {"along": along.value}
    study = begin(settings)
    with study.work("mapping phases") as step:
        if beta_range is None:
            right = replace(setting, **{along.value: x[-1]}).transition()
            left = replace(setting, **{along.value: x[0]}).transition()
            beta_range = 0.6 * right, min(1.2 * left, 3.0 * right)
        beta = np.linspace(*beta_range, grid).tolist()
        found = map_phases(setting, along.value, x, beta, generator=study.generator, progress=step)
    if found.unconverged:
        study.remark(
            f"{found.unconverged} cells next to the transition converged to 1e-8 only partly"
        )
    study.finish(asdict(found), found.draw())


@study_command("overlaps")
def overlaps(
    begin: Begin,
    along: Annotated[Parameter, typer.Option(help="The horizontal axis.")] = Parameter.beta,
    teacher: Teachers = 2,
    memories: Memories = 2,
    beta: Beta = 10.0,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 200,
    uniform_share: Uniform = 0.0,
    soft_labels: SoftLabels = None,
    x_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="Smallest and largest value on the axis.", show_default="0.5 8, or 0.1 2 for υ, ϱ"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Solved values on the axis.", min=2)] = 46,
    points: Annotated[int, typer.Option(help="Sampled points; 0 for theory alone.", min=0)] = 8,
    teachers: Annotated[int, typer.Option(help="Teachers drawn for a point.", min=2)] = 4,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps after a burn-in of half.", min=4)] = 100,
) -> None:
    """Draw overlaps along β, ϱ or υ, with points from Gibbs sampling at N features on top.

    Error bars are one standard error over teachers. Theory is the limit of many features; next to
    the transition a finite N rounds it off.
    """
    name = along.value
    default = (0.5, 8.0) if along is Parameter.beta else (0.1, 2.0)
    low, high = check_range(default if x_range is None else x_range, "--x-range")
    setting = Setting(
        teacher, memories, beta, rho, upsilon, uniform_share, features, read_labels(soft_labels)
    )
    sampling = Sampling(teachers, n_burn_in=sweeps // 2, n_sweeps=sweeps)
    settings = asdict(setting) | {"along": name, "points": points} | asdict(sampling)
    study = begin(settings)
    with study.work("solving and sampling") as step:
        found = compare_overlaps(
            setting,
            name,
            sorted(
                {
                    *np.linspace(low, high, steps).tolist(),
                    *near_transition(setting, name, low, high),
                }
            ),
            np.linspace(low, high, points + 1)[1:].tolist(),
            sampling=sampling,
            generator=study.generator,
            progress=step,
        )
    if found.r_hat is not None and found.r_hat > 1.1:
        study.remark(
            f"chains of one teacher disagree at some point (R-hat {found.r_hat:.2f}): next to the "
            "transition they mix slowly; raise --sweeps"
        )
    study.finish(asdict(found), found.draw())


@study_command("bifurcation")
def bifurcation(
    begin: Begin,
    patterns: Annotated[
        Kind, typer.Option(help="uniform: a teacher's memories; tree: patterns in clusters.")
    ] = Kind.uniform,
    teacher: Teachers = 3,
    memories: Annotated[
        int | None,
        typer.Option(
            help="P, memories of the student.", min=1, show_default="3, or one per pattern"
        ),
    ] = None,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 1000,
    uniform_share: Uniform = 0.0,
    depth: Annotated[int, typer.Option(help="Levels of the tree, 2^depth patterns.")] = 3,
    beta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help=BETA_RANGE, show_default="around the transition; 1.5 60 for the tree"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Values of β.", min=4)] = 41,
) -> None:
    """Trace all solutions as β grows: where they are born, part, and lose stability.

    With --patterns tree, ϱ and υ are infinite and memories part one by one, each at its β_split.
    """
    if beta_range is not None:
        check_range(beta_range, "--beta-range")
    if patterns is Kind.tree:
        n_memories = 2**depth if memories is None else memories
        settings: dict[str, Any] = {"patterns": "tree", "depth": depth, "memories": n_memories}
        study = begin(settings)
        beta = np.geomspace(*((1.5, 60.0) if beta_range is None else beta_range), steps).tolist()
        with study.work("raising β") as step:
            tree = trace_hierarchy(
                depth, n_memories, beta, generator=study.generator, progress=step
            )
        places = ", ".join(f"{split:.4f}" for split in tree.splits)
        study.finish(asdict(tree), tree.draw(), f"memories part at β_split = {places or 'none'}")
        return
    setting = Setting(
        teacher, 3 if memories is None else memories, 1.0, rho, upsilon, uniform_share, features
    )
    study = begin(asdict(setting) | {"patterns": "uniform"})
    with study.work("tracing solutions") as step:
        limits = beta_range
        if limits is None:
            critical = setting.transition()
            limits = (0.75 * critical, 1.35 * critical)
        found = trace_branches(
            setting, np.linspace(*limits, steps).tolist(), generator=study.generator, progress=step
        )
    study.finish(asdict(found), found.draw_tree(), *_events(found.bifurcations))


def _events(bifurcations: list[tuple[str, str, float]]) -> list[str]:
    words = {"crossing": "changes stability", "end": "folds back", "symmetry": "merges"}
    return [f"β = {place:.6f}: {name} {words[kind]}" for name, kind, place in bifurcations]


@study_command("free-entropy")
def free_entropy(
    begin: Begin,
    teacher: Teachers = 3,
    memories: Memories = 3,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 1000,
    uniform_share: Uniform = 0.0,
    beta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help=BETA_RANGE, show_default="around the transition"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Values of β.", min=4)] = 41,
) -> None:
    """Compare the free entropies of the solutions around the transition: the largest wins."""
    if beta_range is not None:
        check_range(beta_range, "--beta-range")
    setting = Setting(teacher, memories, 1.0, rho, upsilon, uniform_share, features)
    study = begin(asdict(setting))
    with study.work("tracing solutions") as step:
        limits = beta_range or coexistence_window(setting, generator=study.generator)
        found = trace_branches(
            setting,
            np.linspace(*limits, steps).tolist(),
            saddles=False,
            generator=study.generator,
            progress=step,
        )
    study.finish(asdict(found), found.draw_free_entropy(), *_events(found.bifurcations))


@study_command("solutions", picture=False)
def solutions(
    begin: Begin,
    teacher: Teachers = 3,
    memories: Memories = 3,
    beta: Beta = 4.0,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 1000,
    starts: Annotated[int, typer.Option(help="Starts of the solver.", min=2)] = 600,
) -> None:
    """List all solutions with their indices, and check by their sum that none is missing."""
    setting = Setting(teacher, memories, beta, rho, upsilon, n_features=features)
    study = begin(asdict(setting) | {"starts": starts})
    with study.work("solving"):
        found = ladder(setting.problem(), starts, generator=study.generator)
    total = sum((-1) ** row["index"] * row["copies"] for row in found)
    told = (
        f"{len(found)} solutions; copies counted by (−1)^index add up to {total}, all of them to 1"
    )
    study.finish({"solutions": found, "sum": total}, None, told)


@study_command("spectrum")
def spectrum(
    begin: Begin,
    depth: Annotated[int, typer.Option(help="Levels of the tree, 2^depth patterns.")] = 3,
    memories: Memories = 2,
    beta: Beta = 12.0,
    rho: Rho = math.inf,
) -> None:
    """Draw the spectrum of the Jacobian where every memory is doubled: above 1, copies part.

    Patterns are the leaves of a tree. Rings are the closed form, β_eff/β_split the largest of them.
    """
    settings = {"depth": depth, "memories": memories, "beta": beta, "rho": rho}
    study = begin(settings)
    with study.work("solving"):
        found = duplicated_spectrum(depth, memories, beta, rho, generator=study.generator)
    if not math.isinf(rho):
        study.remark(
            f"at finite rho the copy misses the equations by {found.residual:.1e}: solved again"
        )
    lines = [
        f"memory {k}: β_split = {value:.4f}, {'a saddle' if beta > value else 'a minimum'} of the "
        f"doubled network at β = {beta:g}"
        for k, value in enumerate(found.beta_split)
    ]
    data = asdict(found) | {"rho": "inf" if math.isinf(rho) else rho}
    study.finish(data, found.draw(), *lines)


@study_command("weak-teachers")
def weak_teachers(
    begin: Begin,
    rho: Rho = 2.0,
    beta_eff: Annotated[float, typer.Option(help="β_eff of the student.")] = 3.0,
    memories: Annotated[list[int] | None, typer.Option(help="P = P*, repeated.")] = None,
    features: Features = 1000,
    teachers: Annotated[int, typer.Option(help="For each point.", min=2)] = 6,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps after a burn-in of half.", min=4)] = 200,
    grid: Annotated[int, typer.Option(help="Points along each axis of the map.", min=2)] = 60,
) -> None:
    """Compare teachers of β* = b√N with theory; map where noise parts memories before the signal."""
    study = begin({"rho": rho, "beta_eff": beta_eff, "teachers": teachers, "sweeps": sweeps})
    with study.work("sampling") as step:
        found = study_weak_teachers(
            rho=rho, beta_eff=beta_eff, memories=memories or [1, 2, 3], n_features=features,
            teachers=teachers, sweeps=sweeps, grid=grid, generator=study.generator, progress=step,
        )  # fmt: skip
    study.finish(asdict(found), found.draw())


@study_command("joint-splits", picture=False)
def joint_splits(
    begin: Begin,
    memories: Memories = 10,
    beta: Annotated[list[float] | None, typer.Option(help="β of a model, repeated.")] = None,
) -> None:
    """Find memories that are minima until their copies divide the classes: models of digits, by β."""
    betas = beta or [3.0, 5.0, 7.0, 9.0, 11.0, 14.0, 20.0]
    study = begin({"memories": memories, "beta": betas})
    with study.work("training"):
        found = study_joint_splits(memories, betas)
    study.finish({"models": found})


@study_command("transition-order", picture=False)
def transition_orders(
    begin: Begin, rho: Rho = 2.0, upsilon: Upsilon = 1.0, features: Features = 1000
) -> None:
    """Tell where the symmetric state breaks continuously and where by a jump, and the ϱ between."""
    study = begin({"rho": rho, "upsilon": upsilon, "features": features})
    with study.work("expanding"):
        found = study_transition_order((2, 3, 5), (3, 4, 5, 7, 10), rho, upsilon, features)
    study.finish(found)


@study_command("finite-size", picture=False)
def finite_size(
    begin: Begin,
    features: Annotated[list[int] | None, typer.Option(help="N of the samples, repeated.")] = None,
    teachers: Annotated[int, typer.Option(help="Teachers for each N.", min=2)] = 8,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps after a burn-in of half.", min=4)] = 120,
) -> None:
    """Compare overlaps with Gibbs sampling at finite N, and their difference with the corrections of order 1/N."""
    sizes = features or [100, 300]
    study = begin({"features": sizes, "teachers": teachers, "sweeps": sweeps})
    sampling = Sampling(teachers, n_burn_in=sweeps // 2, n_sweeps=sweeps)
    with study.work("sampling") as step:
        found = study_finite_size(sizes, sampling, generator=study.generator, progress=step)
    study.finish(found)


@study_command("merging", picture=False)
def merging(
    begin: Begin,
    memories: Memories = 20,
    splits: Annotated[int, typer.Option(help="Random splits of each set.", min=2)] = 5,
) -> None:
    """Compare the ς at which memories merge with the one that fits fresh rows best."""
    study = begin({"memories": memories, "splits": splits})
    with study.work("training") as step:
        found = study_merging(memories, splits, progress=step)
    study.finish({"sets": found})
