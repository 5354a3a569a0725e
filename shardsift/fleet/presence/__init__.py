"""Supply and demand: announcements of workers, machines and finalizers, and the models that open runs need."""
