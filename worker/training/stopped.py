"""How a training ends before its last step. Imports no torch, so that commands can catch it before anything is loaded."""


class TrainingStopped(Exception):
    """Training ended before its last step, with a checkpoint if it has any. The message says where."""
