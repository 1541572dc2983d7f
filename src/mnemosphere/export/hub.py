"""A fitted model and its card on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Protocol

from mnemosphere.export.card import model_card
from mnemosphere.fitted import FittedModel

FILE = "model.safetensors"


class Saved(Protocol):
    """A fitted classifier or clusterer."""

    model_: FittedModel

    def save(self, path: str) -> None:
        """Write a model file."""


def push_to_hub(
    estimator: Saved,
    repo_id: str,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    license: str | None = None,
    private: bool | None = None,
    api: Any = None,
) -> str:
    """Upload the model file and its card to the Hugging Face Hub.

    The repository is made if there is none. To read the model back:
    ``mn.load(huggingface_hub.hf_hub_download(repo_id, "model.safetensors"))``.

    Parameters
    ----------
    estimator : DAMClassifier or DAMClusterer
        Fitted.
    repo_id : str
        Name of the repository, such as "me/wines".
    X : array-like of shape (n, N), default None
        Rows that the figures of the card are measured on.
    y : array-like of shape (n,), default None
        Their labels.
    title : str, default None
        Heading of the card.
    license : str, default None
        An identifier that model hubs know, such as "mit".
    private : bool, default None
        Whether a new repository is private; None: as the account has it.
    api : huggingface_hub.HfApi, default None
        None: one with the token of this machine.

    Returns
    -------
    str
        The address of the commit.

    Examples
    --------
    >>> mn.export.push_to_hub(clf, "me/wines", X_test, y_test, license="mit")  # doctest: +SKIP
    """
    if api is None:
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise ImportError(
                "push_to_hub needs huggingface_hub: pip install 'mnemosphere[hub]'"
            ) from error
        api = HfApi()
    card = model_card(estimator.model_, X, y, title=title, license=license)
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(str(Path(folder, FILE)))
        Path(folder, "README.md").write_text(card, encoding="utf-8")
        api.create_repo(repo_id, private=private, exist_ok=True)
        return str(
            api.upload_folder(
                repo_id=repo_id, folder_path=folder, commit_message="Add a model of mnemosphere"
            )
        )
