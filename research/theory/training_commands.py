"""Studies of the theory beside training, as commands."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from research.pages.stored import read
from research.theory import trained
from research.theory.complexity import complexity_curve, sets_of
from research.theory.draws import compare_draws
from research.theory.examples import examples
from research.theory.levels import integrate_levels
from research.theory.line import visit_on_line
from research.theory.occupation import visit_branches
from research.theory.options import Features, Rho, Teachers, Upsilon
from research.theory.setting import Setting
from research.theory.study import Begin, study_command
from research.theory.validity import check_validity
from research.theory.varsigma import scan_varsigma
from research.theory.weak import study_weak_teachers


@study_command("corrections")
def corrections(
    begin: Begin,
) -> None:
    """Draw N·Δm of the stored comparisons with Gibbs sampling: the corrections are of order 1/N."""
    study = begin({})
    found = trained.corrections(read("theory_vs_gibbs"))
    spread = found.spread()
    slope, correlation = found.slope()
    told = (
        f"N·Δ the same at every N: χ² per degree of freedom {spread:.2f}; "
        f"measured over computed {slope:.3f}, correlation {correlation:.4f}"
    )
    data = asdict(found) | {"spread": spread, "slope": slope, "correlation": correlation}
    study.finish(data, found.draw(), told)


@study_command("complexity")
def complexity(
    begin: Begin,
    data: Annotated[str, typer.Option(help="A data set by name.")] = "digits",
    rows: Annotated[int, typer.Option(help="Rows used.", min=2)] = 300,
    beta_range: Annotated[tuple[float, float], typer.Option(help="Of β_eff.")] = (3.0, 20.0),
    steps: Annotated[int, typer.Option(help="Values of β_eff.", min=2)] = 14,
    limit: Annotated[int, typer.Option(help="Most memories.", min=2)] = 64,
) -> None:
    """Count the memories a data set needs until none is a saddle, at every temperature.

    Beside it rows of the same mean and covariance, and rows around eight planted vectors.
    """
    settings = {"data": data, "rows": rows, "limit": limit}
    study = begin(settings)
    with study.work("growing") as step:
        found = complexity_curve(
            sets_of(data, rows, seed=study.seed),
            np.geomspace(*beta_range, steps).tolist(),
            max_memories=limit,
            progress=step,
        )
    study.finish(asdict(found), found.draw())


@study_command("regularizer")
def regularizer(
    begin: Begin,
    teacher: Teachers = 4,
    features: Features = 60,
    rho: Rho = 1.0,
    steps: Annotated[int, typer.Option(help="Values of ς.", min=2)] = 9,
    seeds: Annotated[int, typer.Option(help="Planted data sets for each υ.", min=2)] = 4,
) -> None:
    """Train on planted data at every ς: is ς(2υ) the one that finds the planted memories best?"""
    settings = {"teacher": teacher, "features": features, "rho": rho}
    study = begin(settings)
    with study.work("training") as step:
        found = trained.scan_regularizer(
            [0.3, 1.0, 3.0],
            np.linspace(0.2, 1.0, steps).tolist(),
            n_teacher=teacher,
            n_features=features,
            rho=rho,
            seeds=seeds,
            progress=step,
            generator=study.generator,
        )
    study.finish(asdict(found) | {"best": found.best()}, found.draw())


@study_command("splits")
def splits(
    begin: Begin,
    teacher: Teachers = 6,
    features: Features = 120,
    rho: Rho = 3.0,
    upsilon: Upsilon = 1.0,
    beta: Annotated[list[float] | None, typer.Option(help="Values of β, repeated.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Values of P, repeated.")] = None,
    sets: Annotated[int, typer.Option(help="Planted data sets.", min=1)] = 2,
) -> None:
    """Map how many distinct memories training ends with over P/P* and β, with the theory's line."""
    settings = {"teacher": teacher, "features": features, "rho": rho, "upsilon": upsilon}
    study = begin(settings)
    with study.work("training") as step:
        found = trained.map_splits(
            size or [2, 4, 6, 12],
            beta or [3.0, 3.25, 3.5, 3.75, 4.25, 5.5],
            n_teacher=teacher,
            n_features=features,
            rho=rho,
            upsilon=upsilon,
            n_sets=sets,
            progress=step,
            generator=study.generator,
        )
    gap = np.abs(found.measured / found.predicted - 1)
    told = f"memories part within {np.nanmax(gap):.1%} of β_split, {np.nanmean(gap):.1%} on average"
    study.finish(asdict(found), found.draw(), told)


@study_command("log-z")
def log_z(
    begin: Begin,
    size: Annotated[list[int] | None, typer.Option(help="Values of N, repeated.")] = None,
    sets: Annotated[int, typer.Option(help="Data sets for each.", min=2)] = 5,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps at every node.", min=30)] = 200,
) -> None:
    """Integrate log Z of planted data: what finite N adds to N f, beside the computed term."""
    settings = [
        Setting(2, 1, 5.0, 1.0, 0.5), Setting(2, 2, 6.0, 1.0, 0.3), Setting(2, 2, 8.0, 1.0, 1.0)
    ]  # fmt: skip
    chosen = {"settings": [asdict(s) for s in settings], "sets": sets, "sweeps": sweeps}
    study = begin(chosen)
    with study.work("integrating") as step:
        found = integrate_levels(
            settings, size or [100, 150, 200], n_sets=sets, n_sweeps=sweeps, progress=step,
            generator=study.generator,
        )  # fmt: skip
    study.finish(asdict(found), found.draw())


@study_command("occupation")
def occupation(
    begin: Begin,
    size: Annotated[list[int] | None, typer.Option(help="Values of N, repeated.")] = None,
    beta_range: Annotated[tuple[float, float], typer.Option(help="Of the ladder.")] = (7.0, 9.5),
    steps: Annotated[int, typer.Option(help="Values of β.", min=2)] = 11,
    sets: Annotated[int, typer.Option(help="Data sets for each N.", min=2)] = 2,
    chains: Annotated[int, typer.Option(help="Ladders side by side.", min=2)] = 6,
    sweeps: Annotated[int, typer.Option(help="Of all chains.", min=10)] = 1000,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Visit two branches by replica exchange: are they occupied as their free entropies say?

    Three memories on two teacher vectors at ϱ = υ = 1, one of them idle or two on one vector.
    """
    settings = {"sets": sets, "chains": chains, "sweeps": sweeps, "device": device}
    study = begin(settings)
    with study.work("sampling") as step:
        found = visit_branches(
            size or [100, 150, 200],
            np.linspace(*beta_range, steps).tolist(),
            n_sets=sets,
            n_chains=chains,
            n_sweeps=sweeps,
            progress=step,
            generator=torch.Generator(device).manual_seed(study.seed),
        )
    study.finish(asdict(found), found.draw())


@study_command("line")
def line(
    begin: Begin,
    size: Annotated[list[int] | None, typer.Option(help="Values of N, repeated.")] = None,
    sets: Annotated[int, typer.Option(help="Data sets for each N.", min=1)] = 2,
    chains: Annotated[int, typer.Option(help="Ladders side by side.", min=2)] = 8,
    sweeps: Annotated[int, typer.Option(help="Of all chains.", min=10)] = 1200,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    workers: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
) -> None:
    """Visit two branches at β = 8 along the line on which they have equal weight.

    Three memories on two teacher vectors at ϱ = υ = 1, one of them idle or two on one vector.
    """
    settings = {"sets": sets, "chains": chains, "sweeps": sweeps, "device": device}
    study = begin(settings)
    with study.work("sampling") as step:
        found = visit_on_line(
            size or [150, 300, 600], n_sets=sets, n_chains=chains, n_sweeps=sweeps,
            device=device, workers=workers, seed=study.seed, progress=step,
        )  # fmt: skip
    study.finish(asdict(found), found.draw())


@study_command("random-labels")
def random_labels(
    begin: Begin,
    draws: Annotated[int, typer.Option(help="Of the teacher's class weights.", min=1)] = 8,
    size: Annotated[list[int] | None, typer.Option(help="Values of N, repeated.")] = None,
    teachers: Annotated[int, typer.Option(help="For each draw and N.", min=1)] = 2,
    chains: Annotated[int, typer.Option(help="For each teacher.", min=2)] = 4,
    sweeps: Annotated[int, typer.Option(help="Of all chains.", min=12)] = 600,
) -> None:
    """Compare Gibbs chains with three equations for random class weights of the teacher.

    Two teacher vectors, two memories and two labels at υ = 0.3, ϱ = 1, β = 5.
    """
    setting = Setting(2, 2, beta=5.0, rho=1.0, upsilon=0.3)
    settings = {"draws": draws, "teachers": teachers, "chains": chains, "sweeps": sweeps}
    study = begin(asdict(setting) | settings)
    with study.work("sampling") as step:
        found = compare_draws(
            setting, size or [250, 1000], n_draws=draws, n_teachers=teachers, n_chains=chains,
            n_sweeps=sweeps, generator=study.generator, progress=step,
        )  # fmt: skip
    study.finish(asdict(found), found.draw())


@study_command("weak-teachers")
def weak_teachers(
    begin: Begin,
    rho: Rho = 2.0,
    beta_eff: Annotated[float, typer.Option(help="β_eff of the student.")] = 3.0,
    memories: Annotated[list[int] | None, typer.Option(help="P = P*, repeated.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Values of N, repeated.")] = None,
    many: Annotated[int, typer.Option(help="P = P* of the last map.", min=2)] = 10,
    teachers: Annotated[int, typer.Option(help="For each point.", min=2)] = 4,
    sweeps: Annotated[int, typer.Option(help="Of all chains.", min=12)] = 400,
    grid: Annotated[int, typer.Option(help="Points along each axis of the maps.", min=2)] = 25,
) -> None:
    """Compare teachers of β* = b√N with theory, and map phases in the plane of b and ϱ."""
    study = begin({"rho": rho, "beta_eff": beta_eff, "teachers": teachers, "sweeps": sweeps})
    with study.work("sampling") as step:
        found = study_weak_teachers(
            rho=rho, beta_eff=beta_eff, memories=memories or [1, 2, 3], sizes=size or [250, 1000],
            many=many, teachers=teachers, sweeps=sweeps, grid=grid, generator=study.generator,
            progress=step,
        )  # fmt: skip
    study.finish(asdict(found), found.draw())


@study_command("validity")
def validity(
    begin: Begin,
    sets: Annotated[int, typer.Option(help="Data sets for each posterior.", min=2)] = 12,
) -> None:
    """Compare the terms that the equations drop with their error, and with noise kept."""
    study = begin({"sets": sets})
    with study.work("solving") as step:
        found = check_validity(
            read("theory_vs_gibbs"), sets=sets, generator=study.generator, progress=step
        )
    study.finish(asdict(found), found.draw())


@study_command("varsigma")
def varsigma(
    begin: Begin,
    seeds: Annotated[int, typer.Option(help="Splits of every set.", min=1)] = 3,
    data: Annotated[Path | None, typer.Option(help="Folder with tables.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Sets, repeated; default: all.")] = None,
) -> None:
    """Compare the ς at which memories merge, the analytic one and the best on fresh rows."""
    study = begin({"seeds": seeds})
    with study.work("training") as step:
        found = scan_varsigma(seeds=seeds, folder=data, only=only or [], progress=step)
    study.finish(asdict(found), found.draw())


@study_command("examples", picture=False)
def worked_examples(
    begin: Begin,
) -> None:
    """Compute the worked examples of the pages on the theory: thresholds, windows, eigenvalues."""
    study = begin({})
    with study.work("solving"):
        found = examples()
    study.finish(found)
