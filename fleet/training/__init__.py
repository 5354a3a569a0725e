"""A training, as `worker train` and a task of the fleet have it in common. Knows no torch.

`spec` is what decides the weights, `options` how a user says it, `labels` where the labelled texts are, `data` what identifies
them, and `checkpoints` where checkpoints go. `task` is what a fleet is sent, `progress` and `receipt` what it reports, `model`
what a finished model says of itself, and `trained` looks for one.
"""
