"""The kinds of scorers, and the light half of those that shardsift brings: find a model, without loading it."""
