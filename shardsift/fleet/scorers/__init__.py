"""The kinds of scorers, and the light half of the built-in ones, which finds a model without loading it."""
