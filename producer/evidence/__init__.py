"""Evidence for a threshold: draw rows to label, and measure precision and recall by their labels."""
