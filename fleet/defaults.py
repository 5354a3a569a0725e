"""Default dataset, model and column. Imports nothing, so that help appears at once."""

DEFAULT_DATASET = "HuggingFaceFW/fineweb"
DEFAULT_TEXT_COLUMN = "text"
DEFAULT_LABEL_COLUMN = "label"  # of what a classifier is trained on
DEFAULT_MODEL = "HuggingFaceFW/fineweb-edu-classifier"
