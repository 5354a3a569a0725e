"""What is meant when nothing is said. Imports nothing, so that help texts can be printed at once."""

DEFAULT_DATASET = "HuggingFaceFW/fineweb"
DEFAULT_MODEL = "HuggingFaceFW/fineweb-edu-classifier"
