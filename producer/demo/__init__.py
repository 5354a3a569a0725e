"""The demo, with data generated from English text that comes with Python."""
