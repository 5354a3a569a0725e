"""The processes of a worker: a parent that talks to the fleet, and a child that owns the device and scores shards."""
