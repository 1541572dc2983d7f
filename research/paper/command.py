"""`python -m research reproduce`: the paper's tables and figures, measured again."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mnemosphere.base.machine import pick_device
from mnemosphere.cli.shell import BAD_INPUT, UNEXPECTED, Interrupted, describe
from research import paper
from research.paper import experiment as experiments
from research.paper.experiment import Experiment, MissingPackageError, Reporter
from research.report import Json as Row
from research.report import measured_text
from research.shell import Debug, Json, Quiet, Terminal

ALL = "all"
_WITHIN = {None: "", True: ", agrees", False: ", DIFFERS"}
_NAMES = typer.Argument(
    help="Tables and figures, such as fig1 table1, or all.", metavar="NAME…|all"
)
_QUICK = typer.Option("--quick", help="Small, on data inside the package, seconds each.")
_DEVICE = typer.Option(help="auto (a GPU if there is one), cpu or cuda.")
_SEEDS = typer.Option(help="Seeds 0 to N−1; by default its own for each.", min=1, metavar="N")
_OUT = typer.Option("--out", "-o", help="Folder for the results.", metavar="DIR")
_DATA = typer.Option(help="Folder with the IDX files of mnist and fashion-mnist.", metavar="DIR")
_WORKERS = typer.Option(help="Processes, if an experiment has parts for them.", min=1)


def reproduce(
    names: Annotated[list[str] | None, _NAMES] = None,
    quick: Annotated[bool, _QUICK] = False,
    device: Annotated[str, _DEVICE] = "auto",
    seeds: Annotated[int | None, _SEEDS] = None,
    out: Annotated[Path, _OUT] = Path("runs/paper"),
    data: Annotated[Path | None, _DATA] = None,
    workers: Annotated[int, _WORKERS] = 1,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure the paper's tables and figures again and compare the numbers with the published ones.

    Finished runs are not done again and interrupted ones go on: give the same command. Other
    settings, seeds, data or kind of device get a folder of their own.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    chosen = _choose(names or [], paper.REGISTRY)
    pick_device(device)
    if data is not None and not data.is_dir():
        raise ValueError(f"--data {data} is not a folder: check the path")
    options = {"out": out, "quick": quick, "device": device, "seeds": seeds, "directory": data,
               "workers": workers}  # fmt: skip
    # What is asked for by name must be there; of everything, what can be done is done.
    lenient = ALL in (names or [])
    rows = [_run(terminal, e, lenient, debug, options) for e in chosen]
    terminal.result({"out": out, "quick": quick, "runs": rows})
    for row in rows:
        terminal.show(f"{row['name']}: {row['status']}, {row.get('folder') or row['reason']}")
        for c in row.get("paper", ()):
            published = f" (paper {c['paper']}{_WITHIN[c['within']]})" if c["paper"] else ""
            terminal.show(f"    {c['what']}: {measured_text(c)}{published}")
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
    terminal: Terminal, experiment: Experiment, lenient: bool, debug: bool, options: dict[str, Any]
) -> Row:
    """What there is to say of one experiment."""
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
    for remark in done.result["remarks"]:
        terminal.note(f"{name}: {remark}")
    status = "finished before" if done.reused else "done"
    kept = {
        key: done.result[key] for key in ("seconds", "paper", "measured", "remarks", "pictures")
    }
    return {"name": name, "status": status, "code": 0, "folder": str(done.folder), **kept}


@contextmanager
def _bar(terminal: Terminal, name: str) -> Iterator[Reporter]:
    columns = (
        TextColumn(name),
        BarColumn(16),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=terminal.err, transient=True, disable=terminal.quiet) as bar:
        task = bar.add_task("starting", total=None)

        def report(text: str, done: float | None = None, total: float | None = None) -> None:
            bar.update(task, description=text, completed=done or 0.0, total=total)

        yield report
