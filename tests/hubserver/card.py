"""Some of the Hub's checks of the YAML block in a dataset or model card."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml


@dataclass(frozen=True, kw_only=True)
class CardFindings:
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_card(content: str) -> CardFindings:
    try:
        metadata = card_metadata(content)
    except yaml.YAMLError as error:
        return CardFindings(errors=[f"bad YAML: {error}"])
    if metadata is None:
        return CardFindings(warnings=["empty or missing yaml metadata in repo card"])
    if not isinstance(metadata, dict):
        return CardFindings(errors=["YAML metadata must be a mapping"])
    return CardFindings(errors=list(config_errors(metadata.get("configs", []))))


def card_metadata(content: str) -> Any:
    """The parsed YAML between the `---` lines at the top, or None if there is no such block."""
    match = re.match(r"---\s*\n(.*?)^---\s*$", content.replace("\r\n", "\n"), re.DOTALL | re.MULTILINE)
    return yaml.safe_load(match[1]) if match else None


def config_errors(configs: Any) -> Iterator[str]:
    if not isinstance(configs, list):
        yield '"configs" must be an array'
        return
    for position, config in enumerate(configs):
        where = f"configs[{position}]"
        if not isinstance(config, dict):
            yield f'"{where}" must be of type object'
        elif not isinstance(config.get("config_name"), str):
            yield f'"{where}.config_name" is required'
        else:
            yield from data_files_errors(f"{where}.data_files", config.get("data_files", []))


def data_files_errors(where: str, data_files: Any) -> Iterator[str]:
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        if not isinstance(entry, str) and not is_split(entry):
            yield f'"{where}" must be a string, or entries with "split" and "path"'


def is_split(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("split"), str)
        and (isinstance(path := entry.get("path"), str) or isinstance(path, list))
    )
