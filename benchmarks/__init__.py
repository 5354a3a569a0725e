"""What ours is measured against, and how. No service imports it."""
