"""The kinds of scorers, and the light half of the built-in ones: find a model, without loading it."""
