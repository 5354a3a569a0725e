"""`producer train`: a training as a task of the fleet, from the options to its end. Knows no torch."""
