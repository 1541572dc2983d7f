"""`mnemosphere theory`: solve the saddle-point equations and draw what they say."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import Debug, Json, Quiet, Terminal

if TYPE_CHECKING:
    from rich.table import Table

    from mnemosphere.experiments.theory import Setting
    from mnemosphere.theory import DistinctSolution

theory_app = typer.Typer(
    help="""The statistical mechanics of the model: phases, overlaps, bifurcations, stability.

A teacher with P* memories draws M = ϱ P* N examples of concentration υN; a student with P memories
samples its posterior at inverse temperature β. Pictures come with their numbers as JSON.""",
    no_args_is_help=True,
)


class Along(StrEnum):
    """The axis of a phase diagram beside β."""

    upsilon = "upsilon"
    rho = "rho"


class Parameter(StrEnum):
    """What an overlap is drawn against."""

    beta = "beta"
    upsilon = "upsilon"
    rho = "rho"


class Kind(StrEnum):
    """Whose patterns the student learns."""

    uniform = "uniform"
    tree = "tree"


Teachers = Annotated[int, typer.Option("--teacher", help="P*, memories of the teacher.", min=1)]
Memories = Annotated[int, typer.Option("--memories", help="P, memories of the student.", min=1)]
Beta = Annotated[float, typer.Option(help="β, inverse temperature of the student.")]
Rho = Annotated[float, typer.Option(help="ϱ = M/(P* N), examples per parameter of the teacher.")]
Upsilon = Annotated[float, typer.Option(help="υ = β*/N, signal to noise of the examples.")]
Features = Annotated[int, typer.Option("--features", help="N, dimension of the data.", min=2)]
Uniform = Annotated[
    float, typer.Option("--uniform-share", help="p_0, share of the student's uniform component.")
]
SoftLabels = Annotated[
    str | None,
    typer.Option(
        help="Labels of the teacher's memories, C+1 numbers each: '0.9,0.1;0.1,0.9'.",
        show_default="no labels",
        metavar="ROWS",
    ),
]
Starts = Annotated[int, typer.Option(help="Random starts of the solver.", min=2)]
Seed = Annotated[int, typer.Option(help="Same seed, same bits.")]
BETA_RANGE = "Smallest and largest β."


def _picture(name: str) -> Any:
    return typer.Option(
        "--out",
        "-o",
        help="Picture, .png, .svg or .pdf; its numbers go beside it as .json.",
        show_default=name,
        metavar="FILE",
    )


def _labels(text: str | None) -> tuple[tuple[float, ...], ...] | None:
    if text is None:
        return None
    try:
        return tuple(tuple(float(v) for v in row.split(",")) for row in text.split(";"))
    except ValueError:
        raise ValueError(
            f"--soft-labels must be numbers such as '0.9,0.1;0.1,0.9', got {text!r}"
        ) from None


def _check_range(limits: tuple[float, float], flag: str) -> tuple[float, float]:
    low, high = limits
    if not 0.0 < low < high < math.inf:
        raise ValueError(f"{flag} must be two numbers 0 < LOW < HIGH, got {low:g} {high:g}")
    return limits


def _transition(setting: Setting) -> float:
    """β at which the symmetric solution turns unstable."""
    from mnemosphere.theory import symmetric_transition

    return symmetric_transition(setting.problem(), "beta")


@theory_app.command()
def solve(
    ctx: typer.Context,
    teacher: Teachers = 3,
    memories: Memories = 3,
    beta: Beta = 4.0,
    rho: Rho = 2.0,
    upsilon: Upsilon = 1.0,
    features: Features = 1000,
    uniform_share: Uniform = 0.0,
    soft_labels: SoftLabels = None,
    starts: Starts = 100,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the numbers as .json.", metavar="FILE")
    ] = None,
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find the solutions of the saddle-point equations: overlaps, symmetry, free entropy.

    The equations are the limit of many features. Where β is not small against N, or υN not large,
    a note says so.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import Setting
    from mnemosphere.theory import find_solutions

    setting = Setting(
        teacher, memories, beta, rho, upsilon, uniform_share, features, _labels(soft_labels)
    )
    settings = asdict(setting) | {"starts": starts}
    job = Job(ctx, terminal, settings, seed, picture=None, record=out)
    with job.work("solving"):
        problem = setting.problem()
        found = find_solutions(problem, starts, generator=job.generator)
        symmetric = setting.soft_labels is None and min(teacher, memories) > 1
        transition = _transition(setting) if symmetric else None
    missed = starts - sum(solution.count for solution in found)
    if missed:
        job.remark(f"{missed} of {starts} starts did not converge and are left out")
    rows = [
        {
            "free_entropy": solution.free_entropy,
            "kind": solution.symmetry.kind,
            "groups": solution.symmetry.groups,
            "stable": solution.stable,
            "leading_eigenvalue": solution.leading_eigenvalue,
            "starts": solution.count,
            "m": solution.m,
            "p": solution.p,
        }
        for solution in found
    ]
    data = {"beta_eff": problem.beta_eff, "transition": transition, "solutions": rows}
    shown: list[Any] = [_solution_table(found)]
    if transition is not None:
        shown.append(f"the symmetric solution is unstable above β = {transition:.6f}")
    job.finish(data, None, *shown)


def _solution_table(found: list[DistinctSolution]) -> Table:
    from rich.table import Table

    table = Table(title="solutions, largest free entropy first", title_justify="left")
    for name in ("free entropy", "kind", "λ_max", "starts", "overlaps m"):
        table.add_column(name)
    for solution in found:
        table.add_row(
            f"{solution.free_entropy:.6f}",
            f"{solution.symmetry.kind}, {'stable' if solution.stable else 'a saddle'}",
            f"{solution.leading_eigenvalue:.3f}",
            str(solution.count),
            "\n".join(" ".join(f"{v:6.3f}" for v in row) for row in solution.m.tolist()),
            end_section=True,
        )
    table.caption = (
        "free entropy: per example; m: a row a teacher memory, a column a student memory"
    )
    return table


@theory_app.command("phase-diagram")
def phase_diagram(
    ctx: typer.Context,
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
    grid: Annotated[int, typer.Option(help="Cells a side.", min=2)] = 18,
    out: Annotated[Path, _picture("phase-diagram.png")] = Path("phase-diagram.png"),
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Map the phases over (υ, β) or (ϱ, β): symmetric, broken, or both stable.

    Each cell is solved from an informed and an uninformed start. The line is analytic: above it the
    symmetric solution is unstable.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    import numpy as np

    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import Setting, map_phases

    x = np.linspace(*_check_range(x_range, "--x-range"), grid).tolist()
    if beta_range is not None:
        _check_range(beta_range, "--beta-range")
    setting = Setting(teacher, memories, 1.0, rho, upsilon, uniform_share, features)
    settings = asdict(setting) | {"along": along.value}
    job = Job(ctx, terminal, settings, seed, picture=out)
    with job.work("mapping phases") as step:
        if beta_range is None:
            right = _transition(replace(setting, **{along.value: x[-1]}))
            left = _transition(replace(setting, **{along.value: x[0]}))
            beta_range = 0.6 * right, min(1.2 * left, 3.0 * right)
        beta = np.linspace(*beta_range, grid).tolist()
        found = map_phases(setting, along.value, x, beta, generator=job.generator, progress=step)
    if found.unconverged:
        job.remark(
            f"{found.unconverged} cells next to the transition converged to 1e-8 only partly"
        )
    job.finish(asdict(found), found.draw())


@theory_app.command()
def overlaps(
    ctx: typer.Context,
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
    out: Annotated[Path, _picture("overlaps.png")] = Path("overlaps.png"),
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw overlaps along β, ϱ or υ, with points from Gibbs sampling at N features on top.

    Error bars are one standard error over teachers. Theory is the limit of many features; next to
    the transition a finite N rounds it off.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    import numpy as np

    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import Sampling, Setting, compare_overlaps

    name = along.value
    default = (0.5, 8.0) if along is Parameter.beta else (0.1, 2.0)
    low, high = _check_range(default if x_range is None else x_range, "--x-range")
    setting = Setting(
        teacher, memories, beta, rho, upsilon, uniform_share, features, _labels(soft_labels)
    )
    sampling = Sampling(teachers, n_burn_in=sweeps // 2, n_sweeps=sweeps)
    settings = asdict(setting) | {"along": name, "points": points} | asdict(sampling)
    job = Job(ctx, terminal, settings, seed, picture=out)
    with job.work("solving and sampling") as step:
        found = compare_overlaps(
            setting,
            name,
            sorted(
                {
                    *np.linspace(low, high, steps).tolist(),
                    *_near_transition(setting, name, low, high),
                }
            ),
            np.linspace(low, high, points + 1)[1:].tolist(),
            sampling=sampling,
            generator=job.generator,
            progress=step,
        )
    if found.r_hat is not None and found.r_hat > 1.1:
        job.remark(
            f"chains of one teacher disagree at some point (R-hat {found.r_hat:.2f}): next to the "
            "transition they mix slowly; raise --sweeps"
        )
    job.finish(asdict(found), found.draw())


def _near_transition(setting: Setting, name: str, low: float, high: float) -> list[float]:
    """A few values next to the transition, where overlaps leave each other like a square root."""
    from mnemosphere.theory import symmetric_transition

    if setting.soft_labels is not None or min(setting.n_teacher, setting.n_student) < 2:
        return []
    try:
        place = symmetric_transition(setting.problem(), name, upper=high)
    except ValueError:
        return []  # beyond the range
    near = [place * (1.0 + step) for step in (-1e-3, 1e-3, 4e-3, 0.01, 0.02)]
    return [value for value in near if low < value < high]


@theory_app.command()
def bifurcation(
    ctx: typer.Context,
    patterns: Annotated[
        Kind, typer.Option(help="uniform: a teacher's memories; tree: patterns in clusters.")
    ] = Kind.uniform,
    teacher: Teachers = 3,
    memories: Annotated[
        int | None,
        typer.Option(help="P, memories of the student.", min=1, show_default="3, or one a pattern"),
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
    out: Annotated[Path, _picture("bifurcation.png")] = Path("bifurcation.png"),
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Follow all solutions as β grows: where they are born, part, and lose stability.

    With --patterns tree, ϱ and υ are infinite and memories part one by one, each at its β_split.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    import numpy as np

    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import Setting, follow_branches, follow_hierarchy

    if beta_range is not None:
        _check_range(beta_range, "--beta-range")
    if patterns is Kind.tree:
        n_memories = 2**depth if memories is None else memories
        settings: dict[str, Any] = {"patterns": "tree", "depth": depth, "memories": n_memories}
        job = Job(ctx, terminal, settings, seed, picture=out)
        beta = np.geomspace(*((1.5, 60.0) if beta_range is None else beta_range), steps).tolist()
        with job.work("raising β") as step:
            tree = follow_hierarchy(depth, n_memories, beta, generator=job.generator, progress=step)
        places = ", ".join(f"{split:.4f}" for split in tree.splits)
        job.finish(asdict(tree), tree.draw(), f"memories part at β_split = {places or 'none'}")
        return
    setting = Setting(
        teacher, 3 if memories is None else memories, 1.0, rho, upsilon, uniform_share, features
    )
    job = Job(ctx, terminal, asdict(setting) | {"patterns": "uniform"}, seed, picture=out)
    with job.work("following solutions") as step:
        limits = beta_range
        if limits is None:
            critical = _transition(setting)
            limits = (0.75 * critical, 1.35 * critical)
        found = follow_branches(
            setting, np.linspace(*limits, steps).tolist(), generator=job.generator, progress=step
        )
    job.finish(asdict(found), found.draw_tree(), *_events(found.bifurcations))


def _events(bifurcations: list[tuple[str, str, float]]) -> list[str]:
    words = {"crossing": "changes stability", "end": "folds back", "symmetry": "merges"}
    return [f"β = {place:.6f}: {name} {words[kind]}" for name, kind, place in bifurcations]


@theory_app.command("free-entropy")
def free_entropy(
    ctx: typer.Context,
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
    out: Annotated[Path, _picture("free-entropy.png")] = Path("free-entropy.png"),
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare the free entropies of the solutions around the transition: the largest wins."""
    terminal = Terminal(json_only=json_, quiet=quiet)
    import numpy as np

    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import Setting, coexistence_window, follow_branches

    if beta_range is not None:
        _check_range(beta_range, "--beta-range")
    setting = Setting(teacher, memories, 1.0, rho, upsilon, uniform_share, features)
    job = Job(ctx, terminal, asdict(setting), seed, picture=out)
    with job.work("following solutions") as step:
        limits = beta_range or coexistence_window(setting, generator=job.generator)
        found = follow_branches(
            setting,
            np.linspace(*limits, steps).tolist(),
            saddles=False,
            generator=job.generator,
            progress=step,
        )
    job.finish(asdict(found), found.draw_free_entropy(), *_events(found.bifurcations))


@theory_app.command()
def spectrum(
    ctx: typer.Context,
    depth: Annotated[int, typer.Option(help="Levels of the tree, 2^depth patterns.")] = 3,
    memories: Memories = 2,
    beta: Beta = 12.0,
    rho: Rho = math.inf,
    out: Annotated[Path, _picture("spectrum.png")] = Path("spectrum.png"),
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw the spectrum of the Jacobian where every memory is doubled: above 1, copies part.

    Patterns are the leaves of a tree. Rings are the closed form, β_eff/β_split the largest of them.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    from mnemosphere.cli.figure import Job
    from mnemosphere.experiments.theory import duplicated_spectrum

    settings = {"depth": depth, "memories": memories, "beta": beta, "rho": rho}
    job = Job(ctx, terminal, settings, seed, picture=out)
    with job.work("solving"):
        found = duplicated_spectrum(depth, memories, beta, rho, generator=job.generator)
    if not math.isinf(rho):
        job.remark(
            f"at finite rho the copy misses the equations by {found.residual:.1e}: solved again"
        )
    verdicts = [
        f"memory {k}: β_split = {value:.4f}, {'a saddle' if beta > value else 'a minimum'} of the "
        f"doubled network at β = {beta:g}"
        for k, value in enumerate(found.beta_split)
    ]
    data = asdict(found) | {"rho": "inf" if math.isinf(rho) else rho}
    job.finish(data, found.draw(), *verdicts)
