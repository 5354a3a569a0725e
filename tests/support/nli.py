"""Tiny random models of natural language inference, of every family."""

import json
from collections.abc import Sequence
from pathlib import Path

from support.families import family_classifier

_LABELS = ("contradiction", "neutral", "entailment")


def nli_classifier(folder: Path, family: str, labels: Sequence[str] = _LABELS) -> Path:
    model = family_classifier(family, folder, labels=len(labels))
    config = json.loads((model / "config.json").read_text())
    named = {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}
    (model / "config.json").write_text(json.dumps(config | named))
    return model
