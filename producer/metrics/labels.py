"""Values of labels that several metrics share."""

from producer.cost import UNKNOWN


def device_label(device: str) -> str:
    return "unknown" if device == UNKNOWN else device
