"""Default dataset and model. Imports nothing, so that help appears at once."""

DEFAULT_DATASET = "HuggingFaceFW/fineweb"
DEFAULT_MODEL = "HuggingFaceFW/fineweb-edu-classifier"
