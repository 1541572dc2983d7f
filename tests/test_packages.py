"""What is published: all of the package, and nothing else that lies about."""

import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]
LITTER = ("__pycache__", ".git/", ".venv", ".pyc", "/runs/", ".pytest_cache", "/site/", ".partial")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def below(folder: str) -> set[str]:
    """Names of the files in a folder of the checkout, relative to the one above."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    names = {path.relative_to((ROOT / folder).parent).as_posix() for path in found}
    return {name for name in names if not any(part in f"/{name}" for part in LITTER)}


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path, project):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (info,) = (name for name in names if name.endswith("METADATA"))
        metadata = Parser().parsestr(packed.read(info).decode())
        assert packed.testzip() is None
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - about == below("src/mnemosphere")
    assert {"mnemosphere/py.typed", "mnemosphere/rows/embedded/mnist-small.npz"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in about)
    assert metadata["Requires-Python"] == project["requires-python"]
    needed = {line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line}
    assert {n.replace(" ", "") for n in needed} == set(project["dependencies"])


def test_the_sources_can_be_built_and_tested_again(tmp_path):
    (archive,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"} <= names
    for folder in ("src/mnemosphere", "tests"):
        above = folder.rpartition("/")[0]
        assert {f"{above}/{n}" if above else n for n in below(folder)} <= names
    assert not [name for name in names if any(part in f"/{name}" for part in LITTER)]
