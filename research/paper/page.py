"""The page "The paper, reproduced": tables and pictures of the latest full runs.

A mark NAME stands for the latest full run of that experiment, NAME-cpu for the latest one on a
processor where that of NAME is on a GPU, and `summary` for one line per mark. Pictures are copied
to docs/images/paper. Numbers inside sentences are those of research.paper.facts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from research.pages import marks
from research.pages.marks import markdown
from research.pages.stored import device
from research.paper.experiment import finished_folders, read_result
from research.paper.facts import Facts, facts
from research.report import Json, measured_text

IMAGES = Path("../images/paper")
SUMMARY = "summary"
_ON_CPU = "-cpu"
_CAPTIONS = {
    "fig1.png": "All memories: SGD on the left, the fixed point on the right.",
    "fig2.png": "Memories at four values of β: SGD above, the fixed point below.",
    "capacity.png": "Left: patterns found, by load. Right: the largest number of patterns found, by features.",
    "fig3.png": "SGD: some of the memories, and the soft labels of all that are shown.",
    "fig3-fixed-point.png": "The fixed point: some of the memories, and their soft labels.",
    "fig4.png": "Some memories of patches, and their soft labels over latent classes.",
    **{
        f"fig{k}.png": f"Figure {k} of the appendix: more memories of patches, and their soft labels."
        for k in (7, 8, 9, 10)
    },
    "fig5.png": "Above: paths of memories by UMAP. Below: how they leave the trunk, by passes.",
    "fig6.png": "Accuracy and training time by number of memories.",
    "hierarchy.png": "Left: each memory above the two that it split into. Right: the loss on the way.",
}
_WORDS = {None: "", True: "yes", False: "**no**"}


def latest(results: Path, name: str) -> Path | None:
    """The folder of the last finished full run; of NAME, one on a GPU if there is one."""
    full = {
        path: result
        for path in finished_folders(results, name.removesuffix(_ON_CPU))
        if not (result := read_result(path))["quick"]
    }
    on_cpu = [path for path, result in full.items() if "--device cpu" in result["command"]]
    on_gpu = [path for path in full if path not in on_cpu]
    chosen = on_cpu if name.endswith(_ON_CPU) or not on_gpu else on_gpu
    return chosen[-1] if chosen else None


def _copy_name(name: str, picture: str) -> str:
    """What the picture of a section is called beside the page."""
    return f"cpu-{picture}" if name.endswith(_ON_CPU) else picture


def filled(text: str, results: Path) -> str:
    """The page with everything between its marks made anew."""
    names = [name for name in marks.names(text) if name != SUMMARY]

    def body(name: str) -> str:
        return summary(names, results) if name == SUMMARY else section(name, results)

    known: dict[str, Facts] = {}

    def fact(name: str, what: str) -> str:
        if name not in known:
            folder = latest(results, name)
            known[name] = {} if folder is None else facts(name, read_result(folder), folder)
        if what not in known[name]:
            raise ValueError(f"the page wants {what!r} of {name}, there are {sorted(known[name])}")
        return known[name][what]

    return marks.told(marks.filled(text, body), fact)


def pictures(text: str, results: Path) -> dict[str, Path]:
    """File name in images/paper: the picture it is a copy of."""
    found: dict[str, Path] = {}
    for name in marks.names(text):
        folder = None if name == SUMMARY else latest(results, name)
        if folder is not None:
            found |= {
                _copy_name(name, picture): folder / picture
                for picture in read_result(folder)["pictures"]
            }
    return found


def section(name: str, results: Path) -> str:
    """Table, source, remarks and pictures of one experiment."""
    folder = latest(results, name)
    if folder is None:
        return f"*No full run is stored yet: `python -m research reproduce {name} --data DIR`.*"
    result = read_result(folder)
    parts = []
    if result["paper"]:
        n = len(result["seeds"])
        rows = [
            [c["what"], c["paper"], measured_text(c, n_seeds=n), _WORDS[c["within"]], c["note"]]
            for c in result["paper"]
        ]
        head = ["", "paper", "measured", "agrees", ""]
        if not any(row[-1] for row in rows):
            head, rows = head[:-1], [row[:-1] for row in rows]
        parts.append(markdown(head, rows))
    parts.append(_source(result))
    parts += [f"*{remark}*" for remark in result["remarks"]]
    parts += [
        f"![{result['title']}]({(IMAGES / _copy_name(name, picture)).as_posix()})"
        f"\n\n*{_CAPTIONS[picture]}*"
        for picture in result["pictures"]
    ]
    return "\n\n".join(parts)


def summary(names: Iterable[str], results: Path) -> str:
    """One line per experiment: how many numbers agree, what it cost."""
    rows = []
    for name in names:
        folder = latest(results, name)
        if folder is None:
            rows.append([f"[{name}](#{name})", "", "not run", "", ""])
            continue
        result = read_result(folder)
        compared = [c["within"] for c in result["paper"] if c["within"] is not None]
        agree = f"{sum(compared)} of {len(compared)}" if compared else "no published number"
        label = result["title"].partition(":")[0]
        anchor = name.removesuffix(_ON_CPU)
        rows.append(
            [f"[{anchor}](#{anchor})", label, agree, f"{result['seconds']:,.0f}", device(result)]
        )
    head = ["name", "in the paper", "numbers that agree", "seconds", "device"]
    return markdown(head, rows)


def _source(result: Json) -> str:
    n = len(result["seeds"])
    data = "; ".join(result["data"].values())
    facts = [
        f"`{result['command']}`",
        f"{n} seed{'s' if n > 1 else ''}",
        *([data] if data else []),
        device(result),
        f"{result['seconds']:,.0f} s",
        f"version {result['versions']['mnemosphere']}",
    ]
    return f"Source: {', '.join(facts)}."


def stale(page: Path, results: Path) -> list[Path]:
    """What of a page is out of date."""
    text = page.read_text(encoding="utf-8")
    found = [] if filled(text, results) == text else [page]
    for name, source in pictures(text, results).items():
        copy = page.parent / IMAGES / name
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            found.append(copy)
    return found


def write(page: Path, results: Path) -> None:
    """Bring a page up to date."""
    text = page.read_text(encoding="utf-8")
    page.write_text(filled(text, results), encoding="utf-8")
    folder = page.parent / IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in pictures(text, results).items():
        shutil.copyfile(source, folder / name)
