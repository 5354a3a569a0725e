"""What is there and what is needed: announcements of workers, machines and finalizers, and the demand of open runs."""
