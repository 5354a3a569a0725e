"""Default dataset, model and column. Imports nothing, so that help appears at once."""

DEFAULT_DATASET = "HuggingFaceFW/fineweb"
DEFAULT_TEXT_COLUMN = "text"
DEFAULT_MODEL = "HuggingFaceFW/fineweb-edu-classifier"
