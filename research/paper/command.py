"""`python -m research reproduce`: the paper's tables and figures, measured again."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mnemosphere.cli.shell import BAD_INPUT, UNEXPECTED, Interrupted, describe
from mnemosphere.machine import pick_device
from research import paper
from research.paper import experiment as experiments
from research.paper.experiment import Experiment, FinishedRun, MissingPackageError, Reporter
from research.report import measured_text
from research.shell import Debug, Json, Quiet, Terminal

ALL = "all"


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables and figures, such as fig1 table1, or all.",
            metavar="NAME…|all",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Small, on data inside the package, seconds each."),
    ] = False,
    device: Annotated[
        str, typer.Option(help="auto (a GPU where there is one), cpu or cuda.")
    ] = "auto",
    seeds: Annotated[
        int | None,
        typer.Option(help="Seeds 0 to N−1.", min=1, show_default="its own for each", metavar="N"),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the results.", metavar="DIR")
    ] = Path("runs/paper"),
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the IDX files of mnist and fashion-mnist.",
            show_default="$MNEMOSPHERE_DATA, or a download",
            metavar="DIR",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes, where an experiment has parts for them.", min=1)
    ] = 1,
    redraw: Annotated[
        bool,
        typer.Option("--redraw", help="Draw finished runs anew from their files; run nothing."),
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the paper's tables and figures again and put the numbers beside the published ones.

    Finished runs are not done again and interrupted ones go on: give the same command. Other
    settings, seeds, data or kind of device get a folder of their own.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    chosen = _choose(names or ([ALL] if redraw else []), paper.REGISTRY)
    if redraw:
        _redraw(terminal, chosen, out)
        return
    pick_device(device)
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data} is not a folder: check the path")
    # What is asked for by name must be there; of everything, what can be done is done.
    lenient = ALL in (names or [])
    rows = []
    for experiment in chosen:
        row = _run(
            terminal,
            experiment,
            lenient=lenient,
            debug=debug,
            options={
                "out": out,
                "quick": quick,
                "device": device,
                "seeds": seeds,
                "directory": data,
                "workers": workers,
            },
        )
        rows.append(row)
    terminal.result({"out": out, "quick": quick, "runs": rows})
    terminal.show(_table(rows, out, quick))
    for row in rows:
        if row["status"] in ("skipped", "failed"):
            terminal.note(f"{row['name']} {row['status']}: {row['reason']}")
    codes = {row["code"] for row in rows}
    if UNEXPECTED in codes:
        raise typer.Exit(UNEXPECTED)
    if BAD_INPUT in codes or all(row["status"] == "skipped" for row in rows):
        raise typer.Exit(BAD_INPUT)


def _choose(names: list[str], registry: dict[str, Experiment]) -> list[Experiment]:
    """Experiments in the order of the paper."""
    if not names:
        raise ValueError(f"say what to reproduce: {', '.join(registry)} or {ALL}")
    owner = {name: e for e in registry.values() for name in (e.name, *e.also)}
    for name in names:
        if name != ALL and name not in owner:
            near = difflib.get_close_matches(name, owner, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ValueError(
                f"unknown experiment {name!r}: {hint}there are {', '.join(registry)} and {ALL}"
            )
    wanted = {owner[name].name for name in names if name != ALL}
    return [e for e in registry.values() if ALL in names or e.name in wanted]


def _run(
    terminal: Terminal,
    experiment: Experiment,
    *,
    lenient: bool,
    debug: bool,
    options: dict[str, Any],
) -> dict[str, Any]:
    """One line of the report."""
    name = experiment.name
    try:
        with _bar(terminal, name) as report:
            done = experiments.reproduce(experiment, report=report, **options)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted in {name}: what is finished is kept in {options['out'] / name}, "
            "give the same command to go on"
        ) from None
    except (FileNotFoundError, MissingPackageError) as error:
        text = str(error).replace("pass directory=DIR", "pass --data DIR")
        if not lenient:
            raise ValueError(text) from error
        return {"name": name, "status": "skipped", "code": 0, "reason": text}
    except Exception as error:
        if not lenient or debug:
            raise
        reason, code = describe(error)
        return {"name": name, "status": "failed", "code": code, "reason": reason}
    if done.reused:
        terminal.note(f"{name}: finished before, in {done.folder}")
    else:
        for remark in done.result["remarks"]:
            terminal.note(f"{name}: {remark}")
    return _line(done)


def _line(done: FinishedRun) -> dict[str, Any]:
    result = done.result
    return {
        "name": result["name"],
        "status": "finished before" if done.reused else "done",
        "code": 0,
        "folder": str(done.folder),
        "seconds": result["seconds"],
        "paper": result["paper"],
        "measured": result["measured"],
        "remarks": result["remarks"],
        "pictures": result["pictures"],
    }


@contextmanager
def _bar(terminal: Terminal, name: str) -> Iterator[Reporter]:
    bar = Progress(
        TextColumn(name),
        BarColumn(bar_width=16),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=terminal.err,
        transient=True,
        disable=terminal.quiet,
    )

    with bar:
        task = bar.add_task("starting", total=None)

        def report(text: str, done: float | None = None, total: float | None = None) -> None:
            bar.update(task, description=text, completed=done or 0.0, total=total)

        yield report


def _redraw(terminal: Terminal, chosen: list[Experiment], out: Path) -> None:
    pictures = [path for experiment in chosen for path in experiments.redraw(experiment, out)]
    if not pictures:
        raise ValueError(f"no finished run in {out}: run it first, or pass --out")
    terminal.result({"pictures": pictures})
    terminal.show(*(f"drew {path}" for path in pictures))


def _table(rows: list[dict[str, Any]], out: Path, quick: bool) -> Table:
    """A head for each experiment, then a line for each number."""
    title = f"results in {out}"
    if quick:
        title += "; quick runs: the paper's values are for its own sizes"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for head in ("measured", "paper", "within", "seconds"):
        table.add_column(head, justify="right")
    for row in rows:
        if row["status"] in ("skipped", "failed"):
            head = f"[bold]{row['name']}[/bold]  [yellow]{row['status']}[/yellow]"
            table.add_row(head, end_section=True)
            continue
        table.add_row(
            f"[bold]{row['name']}[/bold]  {row['name']}/{Path(row['folder']).name}",
            "",
            "",
            "",
            f"{row['seconds']:.1f}",
            end_section=not row["paper"],
        )
        for k, compared in enumerate(row["paper"], start=1):
            table.add_row(*_compared(compared), end_section=k == len(row["paper"]))
    return table


def _compared(c: dict[str, Any]) -> tuple[str, str, str, str]:
    """(what, measured, paper, within) for people."""
    within = {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[c["within"]]
    return f"  {c['what']}", measured_text(c), c["paper"], within
