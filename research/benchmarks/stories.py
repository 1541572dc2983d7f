"""Stories: ten files as users have them, each from file to decision, and the pictures of the docs.

    python -m research stories --out docs/images

Data are drawn with a seed, or come with scikit-learn. `STORIES` is what docs/stories.md tells and
what the tests run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from typer.testing import CliRunner

from mnemosphere import load_data
from mnemosphere.cli import app


@dataclass(frozen=True)
class Story:
    """A file, at most five commands, and words that these must print."""

    make: Callable[[Path], None]
    commands: tuple[str, ...]
    says: tuple[str, ...]
    picture: str | None = None  # of the docs
    fails: bool = False  # the last command is refused, and that is the point


def messy(folder: Path) -> None:
    """Customers: an id, categories, dates, truth values, missing values."""
    rng, n = np.random.default_rng(0), 400
    gone = rng.random(n) < 0.4
    plan = np.where(rng.random(n) < 0.2 + 0.5 * gone, "basic", rng.choice(["plus", "pro"], n))
    table = pd.DataFrame(
        {
            "age": rng.normal(45 - 8 * gone, 9).round(),
            "plan": plan,
            "newsletter": rng.random(n) < 0.7 - 0.4 * gone,
            "since": np.datetime64("2019-01-01") + rng.integers(0, 1500, n) + 300 * gone,
            "spend": rng.lognormal(3 - 0.7 * gone, 0.5).round(2),
        }
    )
    table = table.mask(rng.random(table.shape) < 0.12)
    table.insert(0, "customer_id", rng.permutation(n) + 10_000)
    table.assign(churn=np.where(gone, "left", "stayed")).to_csv(
        folder / "customers.csv", index=False
    )
    table.head(40).to_csv(folder / "new.csv", index=False)


def embeddings(folder: Path) -> None:
    """Questions to a bank with a vector each (latent semantics): a list column of Parquet."""
    bank = load_data("banking-small")
    counts = TfidfVectorizer(sublinear_tf=True).fit_transform(bank.x_train)
    vectors = TruncatedSVD(48, random_state=0).fit_transform(counts)
    table = {"text": list(bank.x_train), "vector": vectors.tolist(), "topic": list(bank.y_train)}
    pd.DataFrame(table).to_parquet(folder / "tickets.parquet", index=False)


def fraud(folder: Path) -> None:
    """Payments, 0.9% of them fraudulent."""
    rng, n = np.random.default_rng(0), 6000
    bad = np.arange(n) % 111 == 5
    table = pd.DataFrame(
        {
            "amount": rng.lognormal(3 + 1.5 * bad, 0.8).round(2),
            "hour": np.where(bad, rng.normal(3, 2, n), rng.normal(14, 4, n)).round() % 24,
            "country": np.where(rng.random(n) < 0.1 + 0.5 * bad, "other", "home"),
            "tries": 1 + rng.poisson(0.1 + 1.5 * bad),
        }
    )
    table.assign(fraud=np.where(bad, "yes", "no")).to_csv(folder / "payments.csv", index=False)


def spectra(folder: Path) -> None:
    """Absorption of three minerals at 90 wavelengths, each sample of another brightness."""
    rng = np.random.default_rng(0)
    at = np.linspace(400, 850, 90)
    lines = {"calcite": [(480, 30), (700, 25)], "gypsum": [(520, 30), (640, 20)],
             "quartz": [(600, 60)]}  # fmt: skip
    rows = []
    for mineral, peaks in lines.items():
        for _ in range(50):
            curve = sum(np.exp(-((at - c - rng.normal(0, 4)) ** 2) / (2 * w * w)) for c, w in peaks)
            noisy = rng.lognormal(0, 0.5) * (0.3 + curve + 0.08 * rng.normal(size=90))
            rows.append([*noisy.round(4), mineral])
    columns = [*(f"{wave:.0f} nm" for wave in at), "mineral"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "spectra.tsv", sep="\t", index=False)


def images(folder: Path) -> None:
    """A folder of pictures for each class."""
    from PIL import Image

    digits = load_digits()
    for digit in (0, 1, 7):
        here = folder / "scans" / f"digit-{digit}"
        here.mkdir(parents=True)
        for k, picture in enumerate(digits.images[digits.target == digit][:50]):
            gray = np.clip(picture * 16, 0, 255).astype(np.uint8)
            Image.fromarray(gray).save(here / f"{k:03}.png")


def typos(folder: Path) -> None:
    """Iris with three slips of the pen among the labels."""
    iris = load_iris(as_frame=True)
    names = iris.target_names[iris.target].astype(object)
    names[[7, 88, 120]] = ["setoza", "versicolour", "verginica"]
    iris.data.assign(species=names).to_csv(folder / "flowers.csv", index=False)


def regression(folder: Path) -> None:
    """Houses and their prices."""
    rng, n = np.random.default_rng(0), 300
    area, rooms = rng.normal(110, 30, n).round(), rng.integers(1, 7, n)
    price = (2000 * area + 9000 * rooms + rng.normal(0, 9000, n)).round().astype(int)
    table = pd.DataFrame({"area": area, "rooms": rooms, "price": price})
    table["range"] = pd.qcut(table["price"], 3, labels=["low", "middle", "high"])
    table.to_csv(folder / "houses.csv", index=False)


def many(folder: Path) -> None:
    """Five hundred plants, four leaves measured of each."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(500, 12)), 4, axis=0) + 0.2 * rng.normal(size=(2000, 12))
    table = pd.DataFrame(x.round(3), columns=[f"m{k}" for k in range(12)])
    table["plant"] = [f"plant-{k // 4:03}" for k in range(2000)]
    table.to_csv(folder / "leaves.csv.gz", index=False)


def clusters(folder: Path) -> None:
    """Four groups of shoppers, and nobody has told how many."""
    rng = np.random.default_rng(0)
    centers = 4 * rng.normal(size=(4, 10))
    x = np.concatenate([c + rng.normal(size=(90, 10)) for c in centers])
    table = pd.DataFrame(x.round(3), columns=[f"spent on {k}" for k in "abcdefghij"])
    table.sample(frac=1, random_state=0).to_csv(folder / "shoppers.csv", index=False)


def other_world(folder: Path) -> None:
    """Wines, and liquids that are none."""
    wine = load_wine(as_frame=True)
    grape = np.array(["barolo", "grignolino", "barbera"])[wine.target]
    wine.data.assign(grape=grape).to_csv(folder / "wines.csv", index=False)
    rng = np.random.default_rng(0)
    strange = wine.data.sample(30, random_state=1) * rng.lognormal(0, 1.2, (30, 13))
    strange.round(3).to_csv(folder / "liquids.csv", index=False)


STORIES = {
    "messy": Story(
        messy,
        (
            "mnemosphere train customers.csv --label churn --id customer_id --out run",
            "mnemosphere evaluate run customers.csv --id customer_id",
            "mnemosphere explain run new.csv --id customer_id --out why.png",
            "mnemosphere predict run new.csv --id customer_id --out answers.csv",
        ),
        ("2 classes in 'churn'", "plan", "wrote answers.csv: 40 rows"),
        "why.png",
    ),
    "embeddings": Story(
        embeddings,
        (
            "mnemosphere train tickets.parquet --label topic --id text --out run",
            "mnemosphere explain run tickets.parquet --id text --out why.png",
        ),
        ("10 classes in 'topic'", "card"),
        "why.png",
    ),
    "fraud": Story(
        fraud,
        (
            "mnemosphere train payments.csv --label fraud --out plain",
            "mnemosphere train payments.csv --label fraud --class-weight balanced --out run",
            "mnemosphere evaluate run payments.csv --out confusion.png",
        ),
        ("class 'yes' has 1% of the rows or less", "recall"),
        "confusion.png",
    ),
    "spectra": Story(
        spectra,
        (
            "mnemosphere train spectra.tsv --label mineral --out run",
            "mnemosphere plot memories run --out memories.png",
        ),
        ("90 features", "calcite"),
        "memories.png",
    ),
    "images": Story(
        images,
        (
            "mnemosphere train scans --out run",
            "mnemosphere explain run scans --row digit-7/003.png --out why.png",
        ),
        ("3 classes: ", "file digit-7/003.png: digit-7"),
        "why.png",
    ),
    "typos": Story(
        typos,
        ("mnemosphere train flowers.csv --label species --out run",),
        ("3 of 6 classes have one row only", "'versicolour' (near 'versicolor')"),
    ),
    "regression": Story(
        regression,
        (
            "mnemosphere train houses.csv --label range --drop price --out run",
            "mnemosphere train houses.csv --label price --drop range --out prices",
        ),
        ("3 classes in 'range'", "300 classes of 1.0 rows each", "check --label, or pass --yes"),
        fails=True,
    ),
    "many": Story(
        many,
        (
            "mnemosphere train leaves.csv.gz --label plant --memories 500 --geometry unit "
            "--varsigma 0.9 --max-iter 3 --test-fraction 0.25 --out run",
        ),
        ("500 classes in 'plant'",),
    ),
    "clusters": Story(
        clusters,
        ("mnemosphere cluster shoppers.csv --out run",),
        ("clusters", "wrote run"),
        "run/clusters.png",
    ),
    "other-world": Story(
        other_world,
        (
            "mnemosphere train wines.csv --label grape --out run",
            "mnemosphere predict run liquids.csv --reject 0.05 --out answers.csv",
            "mnemosphere evaluate run wines.csv --novel liquids.csv",
        ),
        ("wrote answers.csv: 30 rows", "AUROC of novelty"),
    ),
}


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def tell(story: Story, folder: Path, settings: Mapping[str, Sequence[str]] | None = None) -> str:
    """Make the file, run the commands; all that they print. settings: more words for commands."""
    story.make(folder)
    told = ""
    with inside(folder):
        for k, command in enumerate(story.commands):
            words = shlex.split(command)[1:]
            refused = story.fails and k == len(story.commands) - 1
            own = "--memories" in words or refused
            more = () if own else (settings or {}).get(words[0], ())
            result = CliRunner().invoke(app, [*words, *more])
            told += result.stdout + result.stderr
            if result.exit_code != (2 if refused else 0):
                raise RuntimeError(f"{command}\n{told}")
    return told


def main(argv: list[str]) -> None:
    options = argparse.ArgumentParser(prog="python -m research stories")
    options.add_argument("names", nargs="*", default=list(STORIES))
    options.add_argument("--out", type=Path, default=Path("docs/images"), help="folder of pictures")
    args = options.parse_args(argv)
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        with tempfile.TemporaryDirectory() as folder:
            told = tell(STORIES[name], Path(folder))
            picture = STORIES[name].picture
            if picture is not None:
                shutil.copy(Path(folder) / picture, out / f"story-{name}.png")
        print(f"# {name}\n{told}", flush=True)
