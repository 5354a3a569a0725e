"""Evidence for a threshold: draw rows to label, and measure precision and recall with the labels."""
