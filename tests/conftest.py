"""How the tests are run; what many of them share is in `problems`."""

import gc

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A process that only hands out tests to others need not wait for what they import."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("problems")


# Files that take long go first, so that no process waits for another at the end.
_LONG = {
    "test_docs.py", "test_gate.py", "test_matrix.py", "test_classifier.py", "test_laws.py", "test_examples.py",
    "test_every_class.py", "test_files.py", "test_clusterer.py", "test_runs.py", "test_rejection.py", "test_train.py",
    "test_api.py", "test_example_noise.py", "test_extras.py", "test_large_files.py", "test_edits.py",
}  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _LONG)


def pytest_collection_finish() -> None:
    """What has been imported stays: to look for garbage in it takes a tenth of the time of all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
